# SPDX-License-Identifier: Apache-2.0
"""lstm_blanks.py AMPC AMPRUN MODEL: onnxruntime's values, or a refusal that names the node; nothing between."""
import subprocess
import sys

import numpy as np
import onnxruntime

ampc, amprun, model = sys.argv[1:]
compiled = subprocess.run([ampc, model, "--forward-only", "--precision", "fp32", "-q", "-o", model + ".plan"], capture_output=True, text=True)
if compiled.returncode != 0:
    print("exit", compiled.returncode, compiled.stderr)
    sys.exit(0 if compiled.returncode == 3 else 1)
x = np.random.default_rng(1).normal(size=(3, 1, 2)).astype(np.float32)
np.savez(model + ".npz", x=x[None])
subprocess.run([amprun, model + ".plan", "--eval-data", model + ".npz:layout=steps", "--fetch", "eval:y:layout=steps", "--fetch-out",
                model + ".out.npz", "-q"], check=True, stdout=subprocess.DEVNULL)
ours = np.load(model + ".out.npz")["y"].ravel()
theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})[0].ravel()
print("largest difference below 1e-5:", bool(np.abs(ours - theirs).max() < 1e-5))
