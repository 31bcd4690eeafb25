#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dropout in training: how many elements are kept, which ones, and that backward uses forward's mask.

usage: dropout.py BIN [CHECK...]      BIN: folder of ampc and amprun
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import Model, dump, expect, losses, run_checks

FEEDS = Model("dropout_mlp").folder / "feeds.npz"
# The export's file, whether its Dropout is in training mode or not there at all.
WITH_DROPOUT = ["ts_train", "ts_train_dynamic", "dynamo_train", "dynamo_train_dynamic", "dynamo_train_optimized"]
PRECISIONS = ["fp32", "bf16", "fp16", "fp64"]


def compiled(tools, precision="fp32", variant="ts_train"):
    return tools.compile(Model("dropout_mlp"), variant, precision, "sgd")


def mask_of(tools, plan):
    """Name of the mask: the only bool tensor with elements."""
    names = [t["name"] for t in dump(tools, plan)["tensor"] if t["dtype"] == "bool" and t["dims"] != "[]"]
    expect(len(names) == 1, f"one mask expected in --dump, found {names}")
    return names[0]


def masks(tools, plan, steps, *flags):
    name = mask_of(tools, plan)
    return tools.fetch(plan, FEEDS, steps, name, extra=flags)[name]


def keeps_seventy_percent(tools):
    """Within four standard deviations over all steps, of each element and each row too; each step has another mask."""
    mask = masks(tools, compiled(tools), 240)
    expect(mask.shape == (240, 16, 32), f"shape {mask.shape}")
    for axis, what in ((None, "all"), ((0, 1), "a column"), ((0, 2), "a row"), ((1, 2), "a step")):
        kept = np.atleast_1d(mask.mean(axis=axis))
        sigma = np.sqrt(0.3 * 0.7 * kept.size / mask.size)
        # 4 sigma for one figure; for the largest of n the same probability, 6e-5, is that of about 4 + ln(n) / 4 sigma.
        bound = (4 + np.log(kept.size) / 4) * sigma
        expect(np.abs(kept - 0.7).max() < bound, f"{what}: kept {kept}, expected 0.7 within {bound:.4f}")
    steps = {m.tobytes() for m in mask}
    expect(len(steps) == len(mask), "two steps share a mask")
    return f"kept {mask.mean():.4f} of {mask.size}"


def seed_decides(tools):
    """One seed twice: the same masks, whatever the precision, the export and the number of threads; another seed: others."""
    golden = masks(tools, compiled(tools), 20, "--seed", "7")
    for precision in PRECISIONS:
        for threads in ("1", "2"):
            again = masks(tools, compiled(tools, precision), 20, "--seed", "7", "--threads", threads)
            expect((golden == again).all(), f"{precision}, {threads} threads: other masks with the same seed")
    other = masks(tools, compiled(tools), 20, "--seed", "8")
    agree = (golden == other).mean()  # 0.7 * 0.7 + 0.3 * 0.3 where they are independent
    sigma = np.sqrt(0.58 * 0.42 / golden.size)
    expect(abs(agree - 0.58) < 4 * sigma, f"two seeds agree on {agree:.4f} of the elements, expected 0.58 within {4 * sigma:.4f}")
    return f"{len(PRECISIONS)} precisions, 2 thread counts; two seeds agree on {agree:.4f}, expected 0.58"


def weights_repeat(tools):
    """The same seed twice ends in the same bits, another seed in others."""
    plan, saved = compiled(tools, "fp16"), []
    for seed in (7, 7, 8):
        out = tools.folder / "w.safetensors"
        tools.train(plan, FEEDS, 20, "--seed", seed, "--save-weights", out)
        saved.append(out.read_bytes())
    expect(saved[0] == saved[1], "the same seed gives other bits")
    expect(saved[0] != saved[2], "another seed gives the same weights")
    return "3 runs"


def every_export_trains(tools):
    """60 steps in every precision: losses are finite and fall."""
    for variant in WITH_DROPOUT:
        for precision in PRECISIONS[:3]:
            curve = losses(tools.train(compiled(tools, precision, variant), FEEDS, 60))
            expect(np.isfinite(curve).all() and curve[-10:].mean() < curve[:10].mean(), f"{variant} {precision}: {curve}")
    return f"{len(WITH_DROPOUT)} exports, 3 precisions"


def backward_uses_forwards_mask(tools):
    """The gradient of Dropout's input is zero where the mask is, and the output's gradient / 0.7 elsewhere."""
    n = 4096
    weights = np.random.default_rng(1).uniform(0.5, 1.5, (1, n)).astype(np.float32)
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Dropout", ["p", "ratio", "training"], ["y"])]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.float32(0.3), "ratio"),
                 numpy_helper.from_array(np.bool_(True), "training")]
    forms = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name in "xy"]
    path, plan, feeds = tools.folder / "m.onnx", tools.folder / "m.plan", tools.folder / "x.npz"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", forms[:1], forms[1:], constants),
                                opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    np.savez(feeds, x=np.ones((3, 1, n), np.float32), target=np.full((3, 1, n), -1, np.float32))
    for precision in PRECISIONS:
        tools.run("ampc", path, "--loss", "mse", "--optimizer", "sgd", "--lr", 0, "--precision", precision, "-q", "-o", plan)
        name = mask_of(tools, plan)
        values = tools.fetch(plan, feeds, 3, name, "grad:w")
        mask, grad = values[name], values["grad:w"].astype(np.float64)
        expect((grad[~mask] == 0).all(), f"{precision}: a gradient where the mask is zero")
        expect((grad[mask] != 0).all(), f"{precision}: no gradient where the mask is one")
        kept = weights.astype(np.float64) / 0.7
        expected = np.where(mask, 2 * (kept + 1) / n / 0.7, 0)
        # Operations between weight and gradient, each rounded once: p, y, the output's gradient, its quotient.
        epsilon = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11, "fp64": 2.0**-24}[precision]
        worst = np.abs(grad / np.where(mask, expected, 1) - mask).max()
        expect(worst <= 6 * epsilon, f"{precision}: a gradient is off by {worst:.1e}, expected at most {6 * epsilon:.1e}")
    return "4 precisions"


run_checks([keeps_seventy_percent, seed_decides, weights_repeat, every_export_trains, backward_uses_forwards_mask])
