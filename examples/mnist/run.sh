#!/usr/bin/env bash
# Trains LeNet on MNIST in fp32, bf16 and fp16 from one exported ONNX file, and prints what each precision reached.
#
#   examples/mnist/run.sh [BIN [OUT]]     BIN: folder of ampc and amprun (default build/release/bin); OUT: where results go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${1:-$here/../../build/release/bin}
out=${2:-$here/out}
mkdir -p "$out"
for precision in fp32 bf16 fp16; do
  echo "== $precision"
  "$bin/ampc" --recipe "$here/recipe.yaml" --precision "$precision" -o "$out/$precision.plan" | tee "$out/$precision.summary"
  "$bin/amprun" "$out/$precision.plan" --log "$out/$precision.jsonl" --export-model "$out/$precision.onnx"
done
python3 "$here/table.py" "$out" fp32 bf16 fp16
