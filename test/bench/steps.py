#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time of the models in fp32, bf16 and fp16, the FLOP rate, and the share of the mixed-precision machinery in a step.

usage: steps.py BIN [MODEL...]      BIN: folder of ampc and amprun; not a test: timings depend on the machine

The models are those of test/golden with batch 64, and the large ones of large_models.py. Times are the median over the
steps after the first. FLOP are the products that --profile counts, also within recurrent layers and attention; their rate
stands beside the one that oneDNN's matmul reaches for 1024^3 in the same run. The machinery is what a plain fp32 step does not have: casts, the loss
scale, unscale and check, the refresh of low copies, the scaler update.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import large_models

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from harness import NAMES, Model, widened  # noqa: E402

MACHINERY = ("cast for", "grad of cast for", "loss scale", "unscale and check", "scaler update")
PRECISIONS = ("fp32", "bf16", "fp16")
SMALL_STEPS, LARGE_STEPS = 60, 8


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")


def small(name, folder):
    """Model file, flags of ampc, feeds file, steps."""
    model, feeds = Model(name), folder / "feeds.npz"
    np.savez(feeds, **{key: np.repeat(array, 4, axis=1) for key, array in widened(model.folder / "feeds.npz").items()})
    return model.path("ts_train_dynamic"), ["--dim", "batch=64", "--loss", model.loss()], feeds, SMALL_STEPS


def large(name, folder):
    model, path, random = large_models.MODELS[name](), folder / f"{name}.onnx", np.random.default_rng(1)
    onnx.save(model, path)
    [dims] = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    [logits] = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in model.graph.output]
    image = len(dims) == 4
    x = random.normal(size=[2, *dims]).astype(np.float32) if image else random.integers(0, logits[-1], [2, *dims])
    np.savez(folder / "feeds.npz", x=x, target=random.integers(0, logits[-1], [2, *logits[:-1]]))
    loss = "cross-entropy" if image else "cross-entropy:axis=2"
    return path, ["--loss", loss], folder / "feeds.npz", LARGE_STEPS


def profiled(binaries, plan, data, steps, folder, program):
    profile = folder / "profile.json"
    run(binaries / "amprun", plan, *data, *steps, f"--profile={profile}", "-q")
    return [c for c in json.loads(profile.read_text())["calls"] if c["program"] == program]


def measure(binaries, model, flags, feeds, steps, precision, folder):
    """Median ms of a step, its products in GFLOP, and the machinery's share of the profiled time."""
    plan, log = folder / "p.plan", folder / "log.jsonl"
    run(binaries / "ampc", model, *flags, "--optimizer", "adamw", "--precision", precision, "-o", plan, "-q")
    data = ["--data", f"{feeds}:layout=steps"]
    run(binaries / "amprun", plan, *data, "--steps", steps, "--log", log, "-q")
    times = sorted(line["ms"] for line in map(json.loads, log.read_text().splitlines()) if line.get("step", 0) > max(1, steps // 6))
    calls = profiled(binaries, plan, data, ["--steps", steps], folder, "step")
    total = sum(c["median_us"] for c in calls)
    share = sum(c["median_us"] for c in calls if c["node"].startswith(MACHINERY))
    gflop = sum(c.get("gflops", 0) * c["median_us"] / 1e6 for c in calls)
    return times[len(times) // 2], gflop, share / total


def matmul_rate(binaries, precision, folder):
    """GFLOP/s of one 1024^3 product by the library that the CPU device uses."""
    model, plan = folder / "matmul.onnx", folder / "matmul.plan"
    onnx.save(large_models.matmul(), model)
    run(binaries / "ampc", model, "--forward-only", "--precision", precision, "--eval-precision", "same", "-o", plan, "-q")
    calls = profiled(binaries, plan, ["--eval-data", "random"], ["--eval-steps", "60"], folder, "eval")
    return max(c["gflops"] for c in calls if c["kernel"].startswith("matmul"))


def main():
    binaries = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        rates = {p: matmul_rate(binaries, p, folder) for p in ("fp32", "bf16")}
        print(f"oneDNN matmul 1024^3: fp32 {rates['fp32']:.0f}, bf16 {rates['bf16']:.0f} GFLOP/s")
        print(f"{'model':18}{'fp32 ms':>9}{'bf16 ms':>9}{'fp16 ms':>9}{'fp32/bf16':>10}{'GFLOP':>8}{'fp32 GF/s':>10}{'of matmul':>10}"
              f"{'bf16 GF/s':>10}{'of matmul':>10}{'machinery':>10}")
        for name in sys.argv[2:] or [*NAMES, *large_models.MODELS]:
            model, flags, feeds, steps = large(name, folder) if name in large_models.MODELS else small(name, folder)
            rows = {p: measure(binaries, model, flags, feeds, steps, p, folder) for p in PRECISIONS}
            (fp32, gflop, _), (bf16, _, share), (fp16, _, _) = (rows[p] for p in PRECISIONS)
            f, b = gflop / fp32 * 1e3, gflop / bf16 * 1e3
            print(f"{name:18}{fp32:9.2f}{bf16:9.2f}{fp16:9.2f}{fp32 / bf16:9.2f}x{gflop:8.2f}{f:10.1f}{100 * f / rates['fp32']:8.0f} %"
                  f"{b:10.1f}{100 * b / rates['bf16']:8.0f} %{100 * share:8.1f} %", flush=True)


main()
