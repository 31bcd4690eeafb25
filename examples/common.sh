# SPDX-License-Identifier: Apache-2.0
# What the examples' run.sh share; sourced, not run.
#
#   examples/NAME/run.sh [BIN [OUT]]     BIN: folder of ampc and amprun (default build/release/bin); OUT: where results go
#
# AMPC_EXAMPLE_STEPS=N stops each training after N updates: that everything still works, not what it reaches.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
bin=${1:-$here/../../build/release/bin}
out=${2:-$here/out}
mkdir -p "$out"

# Compiles the recipe beside run.sh and trains the plan; the rest of the arguments goes to amprun.
train() {
  "$bin/ampc" --recipe "$here/recipe.yaml" -o "$out/train.plan"
  "$bin/amprun" "$out/train.plan" --log "$out/log.jsonl" --export-model "$out/trained.onnx" \
    ${AMPC_EXAMPLE_STEPS:+--steps "$AMPC_EXAMPLE_STEPS" --eval-steps 2} "$@"
}

# Draws the log into the terminal and into OUT/curves.html.
plot() {
  python3 "$here/../plot.py" "$out/log.jsonl" -o "$out/curves.html"
}
