#!/bin/sh
# Runs every example and test of this bundle on the GPU of this machine, and ends with a table: `run.sh [KIND]…`, for the
# link kinds named, else for all.
# The shared kinds find libcudart through LD_LIBRARY_PATH.
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}"
# Without a device the tests are to fail, not to be skipped.
export CUDA_MEMPOOL_REQUIRE_DEVICE=1
# Some tests ask for more memory than there is, which for a moment leaves none for others.
export RUST_TEST_THREADS=1

table=$(mktemp)
failed=0
[ $# = 0 ] && set -- dlopen dylib static
for kind in "$@"; do
    for program in "$kind"/example/* "$kind"/bin/* "$kind"/c/* "$kind"/test/*; do
        # Another program starts this one.
        case "$program" in */ipc_importer) continue ;; esac
        echo "== $program"
        start=$(date +%s)
        output=$(timeout 300 "$program" 2>&1)
        status=$?
        echo "$output"
        seen=$(echo "$output" | grep '^test result' | tail -n 1)
        [ $status = 0 ] && word=ok || { word="FAILED ($status)"; failed=1; }
        echo "| \`$program\` | $word | ${seen:--} | $(($(date +%s) - start)) s |" >>"$table"
    done
done

echo
date -u +'%Y-%m-%d'
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo
echo '| program | result | tests | time |'
echo '|---|---|---|---|'
cat "$table"
rm -f "$table"
exit $failed
