#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first thing to run: installs what is needed, builds the tools, and trains a network on MNIST.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/bootstrap.sh --without-fuzzing
source "${AMPC_CACHE:-$HOME/.cache/ampc}/env.sh"
mkdir -p build
cmake --preset release >build/release.configure.log 2>&1 || { cat build/release.configure.log; exit 1; }
cmake --build --preset release -j "${AMPC_JOBS:-$(nproc)}" --target ampc amprun
exec examples/mnist/run.sh "$@"
