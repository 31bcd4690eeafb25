#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds ampc and runs every test:   scripts/test.sh [--quick] [ctest arguments for the Release run ...]
#
#   1. scripts/bootstrap.sh
#   2. Release: everything (unit, pass, conformance, golden, end to end, lint)
#   3. AddressSanitizer + UndefinedBehaviorSanitizer: unit, conformance, hostile-input and lit tests; not with --quick
#   4. libFuzzer targets (clang): about a minute each; AMPC_FUZZ_SECONDS=N searches on for N seconds each; not with --quick
#   5. one summary: counts, skipped tests with their reasons, times
#
# Exits with 0 only if everything was built and every test passed. AMPC_JOBS=N limits parallelism.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=0
if [[ ${1:-} == --quick ]]; then quick=1; shift; fi
if [[ ${1:-} == -h || ${1:-} == --help ]]; then sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 0; fi

scripts/bootstrap.sh
source "${AMPC_CACHE:-$HOME/.cache/ampc}/env.sh"
export OMP_WAIT_POLICY=passive # spinning threads make small kernels slow when tests run side by side
JOBS=${AMPC_JOBS:-$(nproc)}

# Tests of the sanitizer build. Golden trajectories and timing are for optimised code.
SANITIZED='^(unit|conformance|hostile|lit)$'

failed=0
run_preset() { # run_preset PRESET ctest-arguments ...
  local preset=$1 started=$SECONDS
  shift
  echo "== $preset: configure and build"
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log"; exit 1; }
  grep -E 'device backends|Warning' "build/$preset.configure.log" || true
  cmake --build --preset "$preset" -j "$JOBS"
  echo "== $preset: tests (built in $((SECONDS - started)) s)"
  rm -rf "build/$preset/test-results"
  mkdir -p "build/$preset/test-results"
  ctest --test-dir "build/$preset" -j "$JOBS" --output-on-failure --no-tests=error \
    --output-junit "$PWD/build/$preset/test-results/ctest-entries.xml" "$@" || failed=1
}

mkdir -p build
run_preset release "$@"
presets=(release)
if ((quick == 0)); then
  run_preset asan -L "$SANITIZED"
  presets+=(asan)
  if [[ -n $AMPC_FUZZ_CXX ]]; then
    CXX=$AMPC_FUZZ_CXX run_preset fuzz
    presets+=(fuzz)
  else
    echo "== fuzz: NOT RUN: no clang++ with libFuzzer, version 16 or newer, that scripts/bootstrap.sh could find or install"
  fi
fi

echo
python3 scripts/summarize_tests.py "${presets[@]/#/build/}" || failed=1
echo "total time: $((SECONDS / 60)) min $((SECONDS % 60)) s"
if ((failed)); then echo "FAILED"; exit 1; fi
if ((quick)); then echo "PASSED (Release only; without --quick the sanitizer build runs too)"; else echo "PASSED"; fi
