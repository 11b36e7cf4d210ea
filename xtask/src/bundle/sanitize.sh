#!/bin/sh
# Runs the tour and the safe layer's tests under compute-sanitizer: memory errors, and races between allocation and use
# in the order of streams. A race planted on purpose must be found.
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}"
export CUDA_MEMPOOL_REQUIRE_DEVICE=1 RUST_TEST_THREADS=1
# The tool takes no notice of cudaDeviceSynchronize: tests leave out what is ordered by it. And it makes calls slow.
export CUDA_MEMPOOL_SANITIZED=1 PROPTEST_CASES=40

# Refused calls are what many tests are about, so API errors are not reported.
sanitized() {
    timeout 300 compute-sanitizer --tool memcheck --track-stream-ordered-races all --report-api-errors no \
        --target-processes all --error-exitcode 99 "$@"
}

failed=0
for program in dlopen/example/tour dlopen/test/safe_* dlopen/test/cache dlopen/test/resource dlopen/test/rmm dlopen/test/host
do
    echo "== $program"
    sanitized "$program" >sanitized.log 2>&1
    status=$?
    grep -E '^test result|ERROR SUMMARY|^========= (Use|Free|Invalid|Race)' sanitized.log
    if grep -q 'terminated before first instrumented API call' sanitized.log; then
        echo "asks nothing of a GPU"
    elif [ $status != 0 ]; then
        echo "FAILED ($status)"
        tail -n 40 sanitized.log
        failed=1
    fi
done
echo "== dlopen/example/planted_race"
sanitized dlopen/example/planted_race >sanitized.log 2>&1
status=$?
grep -E 'ERROR SUMMARY|^========= (Use|Free|Race)' sanitized.log
[ $status = 99 ] || { echo "FAILED: the planted race was not found"; cat sanitized.log; failed=1; }
rm -f sanitized.log
exit $failed
