#!/bin/sh
# Measures this crate beside the C calls and its peers on the GPU of this machine, in less than six minutes:
#
#     bench.sh FOLDER [STEP]…
#
# The results go to FOLDER/results.json, for `cargo xtask bench --from`. The steps, all unless some are named, and how many
# seconds each takes at most:
#
#     dylib   230  everything, where the runtime is linked
#     dlopen   15  the smaller calls, where it is loaded
#     static   15  the same, where it is part of the program
#     ipc      30  what two processes do
#     python   60  the peers in Python
#
# A step that is named adds its results to what earlier ones left.
if [ $# = 0 ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
fi
mkdir -p "$1" && results=$(realpath "$1")/results.json && cd "$(dirname "$0")" || exit 1
shift
if [ $# = 0 ]; then
    set -- dylib dlopen static ipc python
    rm -f "$results"
fi
part=$(mktemp) || exit 1
trap 'rm -f "$part"' EXIT
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}"
# Without a device this is to fail, not to be skipped.
export CUDA_MEMPOOL_REQUIRE_DEVICE=1

# Our programs end by themselves, with what they have; timeout is for what even that does not end.
step() {
    case $1 in
    dylib) timeout --kill-after=5 225 ./compare-dylib --bench --peers peers --limit 220 --out "$part" ;;
    dlopen | static) timeout --kill-after=2 13 "./compare-$1" --bench --calls --limit 10 --out "$part" ;;
    ipc) timeout --kill-after=5 25 ./ipc "$part" ;;
    python)
        if command -v python3 >/dev/null && [ -e peers/libraw_c.so ]; then
            timeout --kill-after=5 55 python3 peers/peers.py peers/libraw_c.so "$part"
        else
            echo "skipped: the peers in Python, for want of python3 or of a C compiler where this was built"
        fi
        ;;
    *)
        echo "there is no step $1"
        false
        ;;
    esac
}

failed=0
for name in "$@"; do
    echo "== $name"
    : >"$part"
    begun=$(date +%s)
    step "$name" || failed=1
    cat "$part" >>"$results"
    echo "== $name: $(($(date +%s) - begun)) s"
done
exit $failed
