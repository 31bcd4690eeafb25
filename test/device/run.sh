#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA tests on a real GPU:   test/device/run.sh [build folder, default build/release]
#
#   1. the conformance test of the CUDA kernels, the same file that CI runs under emulation
#   2. the device under an executor: graph capture, replay, feeds
#   3. both again under compute-sanitizer, where it is installed
#
# Builds what it runs. Exits with 77 and the reason where there is no CUDA or no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0; fi

build=${1:-build/release}
skip() { echo "skipped: $1"; exit 77; }

if [[ ! -f $build/build.ninja ]]; then
  [[ $build == build/release ]] || { echo "no build in '$build'; configure it first" >&2; exit 2; }
  cmake --preset release
fi
ninja -C "$build" -t targets all | grep -q '^cuda_conformance_test:' ||
  skip "'$build' is configured without CUDA; the line 'device backends' of cmake says why"
cmake --build "$build" --target cuda_conformance_test device_cuda_test

# The device's own words: what OpenDevice("cuda") says.
reason=$("$build/bin/device_cuda_test" --gtest_filter='CudaRuns.First*' | sed -n 's/.*\(no CUDA device: .*\)/\1/p' | head -1)
[[ -z $reason ]] || skip "$reason"

for test in cuda_conformance_test device_cuda_test; do
  "$build/bin/$test"
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [[ -n $sanitizer ]]; then
  for test in cuda_conformance_test device_cuda_test; do
    # The test of a failing allocation makes an API error on purpose.
    "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 1 "$build/bin/$test"
  done
else
  echo "memory check skipped: compute-sanitizer is not installed"
fi
echo PASSED
