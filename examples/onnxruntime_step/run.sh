#!/usr/bin/env bash
# Exports LeNet's training step in fp16 and trains it in onnxruntime: no ampc at run time.
#
#   examples/onnxruntime_step/run.sh [BIN [OUT]]     BIN: folder of ampc (default build/release/bin); OUT: where results go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${1:-$here/../../build/release/bin}
out=${2:-$here/out}
python=${AMPC_CACHE:-$HOME/.cache/ampc}/venv/bin/python
mkdir -p "$out"
"$bin/ampc" "$here/../mnist/lenet.onnx" --emit step -o "$out/step.onnx" --loss cross-entropy:target=label --dim batch=64 \
  --optimizer adamw:weight_decay=0.01 --lr 4e-3 --lr-schedule cosine:warmup=10,total=100 --precision fp16
"$python" - "$here/../mnist/data" "$out/feeds.npz" <<'PYTHON'
import gzip, sys
import numpy as np
read = lambda name, head: np.frombuffer(gzip.open(f"{sys.argv[1]}/{name}-ubyte.gz").read(), np.uint8, offset=head)
images, labels = read("t10k-images-idx3", 16), read("t10k-labels-idx1", 8)
np.savez(sys.argv[2], image=(images[: 6400 * 784].reshape(100, 64, 1, 28, 28) / 256).astype(np.float32),
         label=labels[:6400].reshape(100, 64).astype(np.int64))
PYTHON
"$python" "$here/run.py" "$out/feeds.npz" 100 "$out/step.onnx"
