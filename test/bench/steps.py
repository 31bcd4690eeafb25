#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time of the models in fp32, bf16 and fp16, and the share of the mixed-precision machinery in a step.

usage: steps.py BIN [MODEL...]      BIN: folder of ampc and amprun; not a test: timings depend on the machine

Times are the median over the steps after the first ten, with made-up data and batch 64. The machinery is what a plain fp32
step does not have: casts, the loss scale, unscale and check, the refresh of low copies, the scaler update.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MODELS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models"
NAMES = ["mlp_mnist", "lenet_mnist", "resnet_mnist", "conv1d_tcn", "autoencoder_mnist", "dropout_mlp"]
MACHINERY = ("cast for", "grad of cast for", "loss scale", "unscale and check", "scaler update")
STEPS = 60


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")


def measure(binaries, model, precision, folder):
    """Median ms of a step, and the machinery's share of the profiled time."""
    loss = "mse" if model.startswith("autoencoder") else "cross-entropy"
    plan, log, profile = folder / "p.plan", folder / "log.jsonl", folder / "profile.json"
    run([binaries / "ampc", MODELS / model / "ts_train_dynamic.onnx", "--dim", "batch=64", "--loss", loss,
         "--optimizer", "adamw", "--precision", precision, "-o", plan, "-q"])
    run([binaries / "amprun", plan, "--data", "random", "--steps", str(STEPS), "--log", log, "-q"])
    times = sorted(line["ms"] for line in map(json.loads, log.read_text().splitlines()) if line.get("step", 0) > 10)
    run([binaries / "amprun", plan, "--data", "random", "--steps", str(STEPS), f"--profile={profile}", "-q"])
    calls = [c for c in json.loads(profile.read_text())["calls"] if c["program"] == "step"]
    total = sum(c["median_us"] for c in calls)
    share = sum(c["median_us"] for c in calls if c["node"].startswith(MACHINERY))
    return times[len(times) // 2], share / total


def main():
    binaries = pathlib.Path(sys.argv[1])
    print(f"{'model':20}{'fp32 ms':>9}{'bf16 ms':>9}{'fp16 ms':>9}{'fp32/bf16':>11}{'machinery bf16':>16}{'fp16':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for model in sys.argv[2:] or NAMES:
            (fp32, _), (bf16, b), (fp16, h) = (measure(binaries, model, p, pathlib.Path(folder)) for p in ("fp32", "bf16", "fp16"))
            print(f"{model:20}{fp32:9.2f}{bf16:9.2f}{fp16:9.2f}{fp32 / bf16:10.2f}x{100 * b:14.1f} %{100 * h:5.1f} %", flush=True)


main()
