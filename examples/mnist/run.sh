#!/usr/bin/env bash
# Trains LeNet on MNIST in fp32, bf16 and fp16 from one exported ONNX file, and prints what each precision reached.
#
#   examples/mnist/run.sh [BIN [OUT]]     BIN: folder of ampc and amprun (default build/release/bin); OUT: where results go
#
# Each exported model is then run in onnxruntime, when the environment of scripts/bootstrap.sh is there.
# AMPC_EXAMPLE_STEPS=N stops each training after N updates: that everything still works, not what it reaches.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${1:-$here/../../build/release/bin}
out=${2:-$here/out}
python=${AMPC_CACHE:-$HOME/.cache/ampc}/venv/bin/python
mkdir -p "$out"
for p in fp32 bf16 fp16; do
  echo "== $p"
  "$bin/ampc" --recipe "$here/recipe.yaml" --precision "$p" -o "$out/$p.plan" | tee "$out/$p.summary"
  "$bin/amprun" "$out/$p.plan" --log "$out/$p.jsonl" --export-model "$out/$p.onnx" --save-weights "$out/$p.safetensors" \
    ${AMPC_EXAMPLE_STEPS:+--steps "$AMPC_EXAMPLE_STEPS"}
  if [[ -x $python ]]; then
    "$bin/amprun" "$out/$p.plan" -q --steps 0 --init-from "$out/$p.safetensors" --fetch eval:logits --fetch-out "$out/$p.npz" >/dev/null
    "$python" "$here/check_export.py" "$out/$p.onnx" "$out/$p.npz" "$here/data/t10k-images-idx3-ubyte.gz"
  else
    echo "onnxruntime: not compared, $python does not exist (scripts/bootstrap.sh makes it)"
  fi
done
echo
python3 "$here/table.py" "$out" fp32 bf16 fp16
