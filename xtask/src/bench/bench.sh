#!/bin/sh
# Measures this crate beside the C calls and its peers on the GPU of this machine, in about four minutes at most, and
# writes JSON files to the folder named, for `cargo xtask bench --from`.
mkdir -p "${1:-.}" && out=$(realpath "${1:-.}") && cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}"
failed=0
# Without a device this is to fail, not to be skipped.
export CUDA_MEMPOOL_REQUIRE_DEVICE=1

# Ends by itself, with what it has; timeout is for what even that does not end.
timeout --kill-after=5 170 ./compare-dylib --bench --peers peers --limit 150 --out "$out/dylib.json" || failed=1
for kind in dlopen static; do
    timeout --kill-after=5 20 "./compare-$kind" --bench --calls --limit 15 --out "$out/$kind.json" || failed=1
done
timeout --kill-after=5 30 ./ipc "$out/ipc.json" || failed=1

if command -v python3 >/dev/null && [ -e peers/libraw_c.so ]; then
    timeout --kill-after=5 90 python3 peers/peers.py peers/libraw_c.so "$out/python.json" || failed=1
else
    echo "skipped: the peers in Python, for want of python3 or of a C compiler where this was built"
fi
exit $failed
