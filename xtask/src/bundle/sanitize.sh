#!/bin/sh
# Runs the tour and the safe layer's tests under compute-sanitizer: memory errors, and races between allocation and use
# in the order of streams. A race planted on purpose must be found.
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}"
export CUDA_MEMPOOL_REQUIRE_DEVICE=1 RUST_TEST_THREADS=1

# Refused calls are what many tests are about, so API errors are not reported.
sanitized() {
    timeout 300 compute-sanitizer --tool memcheck --track-stream-ordered-races all --report-api-errors no \
        --target-processes all --error-exitcode 99 "$@"
}

failed=0
for program in dlopen/example/tour dlopen/test/safe_*; do
    echo "== $program"
    sanitized "$program" >sanitized.log 2>&1
    status=$?
    grep -E '^test result|ERROR SUMMARY|^=========.*([Rr]ace|Invalid)' sanitized.log
    [ $status = 0 ] || { echo "FAILED ($status)"; tail -n 40 sanitized.log; failed=1; }
done
echo "== dlopen/example/planted_race"
sanitized dlopen/example/planted_race >sanitized.log 2>&1
status=$?
grep -E 'ERROR SUMMARY|^=========.*[Rr]ace' sanitized.log
[ $status = 99 ] || { echo "FAILED: the planted race was not found"; cat sanitized.log; failed=1; }
rm -f sanitized.log
exit $failed
