#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run promises, checked on fetched values: skips, windows, resume, determinism, dropout, numbers, memory, export.

usage: semantics.py BIN [CHECK...]      BIN: folder of ampc and amprun
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from harness import NAMES, Failed, Model, Tools

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def expect(condition, what):
    if not condition:
        raise Failed(what)


def overflow_feeds(tools, model, step, factor=2.0**16):
    feeds = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in np.load(model.folder / "feeds.npz").items()}
    feeds["image"][step] *= np.float32(factor)
    np.savez(tools.folder / "bad.npz", **feeds)
    return tools.folder / "bad.npz"


@check
def skipped_step_changes_nothing(tools):
    """A forced overflow leaves weights, moments, applied steps and schedule bit-equal, and halves the scale."""
    model = Model("mlp_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "adamw", "--lr-schedule", "linear:total=60,warmup=3")
    values = tools.fetch(plan, overflow_feeds(tools, model, 5), 10, "fc*", "applied_steps", "lr", "loss_scale")
    states = [name for name in values if name.startswith("fc") and ".fp16" not in name and values[name].dtype == np.float32 and
              (name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias") or ".exp_avg" in name) and not name.endswith(".next")]
    expect(len(states) == 12, f"4 weights and 8 moments expected, fetched {sorted(states)}")
    for name in states + ["applied_steps"]:
        expect((values[name][5] == values[name][4]).all(), f"{name} changed in the skipped step")
        expect((values[name][6] != values[name][5]).any(), f"{name} did not change in the step after")
    expect(values["loss_scale"][5] == values["loss_scale"][4] / 2, f"scale {values['loss_scale'][4:6]}")
    lines = tools.train(plan, tools.folder / "bad.npz", 10)
    expect([l["skipped"] for l in lines] == [i == 5 for i in range(10)], "only step 5 is skipped")
    expect(lines[6]["lr"] == lines[5]["lr"], "the schedule moved in the skipped step")
    return f"{len(states)} states bit-equal"


@check
def bad_micro_batch_drops_its_window(tools):
    """With --accumulate 4 one bad micro-batch drops its window and nothing else."""
    model = Model("mlp_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "sgd", "--accumulate", "4")
    bad = tools.fetch(plan, overflow_feeds(tools, model, 9), 6, "fc1.weight", "fc1.weight.momentum_buffer")
    lines = tools.train(plan, tools.folder / "bad.npz", 6)
    expect([l["skipped"] for l in lines] == [False, False, True, False, False, False], f"skips {[l['skipped'] for l in lines]}")
    for name, v in bad.items():
        expect((v[2] == v[1]).all(), f"{name} changed in the dropped window")
    good = tools.fetch(plan, model.folder / "feeds.npz", 2, "fc1.weight")
    expect((good["fc1.weight"][1] == bad["fc1.weight"][1]).all(), "windows before the bad one differ from a clean run")
    # The window after starts from cleared sums: it equals the same micro-batches run from the same weights.
    clean = dict(np.load(model.folder / "feeds.npz"))
    np.savez(tools.folder / "cut.npz", **{k: np.delete(v, slice(8, 12), axis=0) for k, v in clean.items()})
    cut_lines = tools.train(plan, tools.folder / "cut.npz", 5)
    expect(abs(cut_lines[2]["loss"] - lines[3]["loss"]) == 0, "the window after the dropped one differs from a run without it")
    return "window 3 of 6 dropped"


@check
def resume_after_kill_repeats_bits(tools):
    """60 steps == 30 steps, kill -9, resume: weights and losses bit for bit, in every precision."""
    for precision in ("fp32", "bf16", "fp16"):
        model = Model("lenet_mnist")
        plan = tools.compile(model, "ts_train", precision, "adamw")
        data = ["--data", f"{model.folder / 'feeds.npz'}:layout=steps", "-q"]
        whole, folder = tools.folder / "whole.safetensors", tools.folder / f"checkpoints-{precision}"
        full = tools.train(plan, model.folder / "feeds.npz", 60, "--save-weights", whole)
        command = [tools.binaries / "amprun", plan, *data, "--steps", "100000", "--checkpoint-dir", folder, "--checkpoint-every", "30",
                   "--keep", "1000000"]
        run = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 60
        first = folder / "step-000000000030.ckpt"
        while time.time() < deadline and not first.exists():
            time.sleep(0.001)
        run.send_signal(signal.SIGKILL)
        run.wait()
        # Keep only the first checkpoint, as if the kill had come right behind it.
        for name in sorted(os.listdir(folder)):
            if name != first.name:
                os.remove(folder / name)
        resumed, log = tools.folder / "resumed.safetensors", tools.folder / "resumed.jsonl"
        tools.run("amprun", plan, *data, "--steps", "60", "--checkpoint-dir", folder, "--resume", "--save-weights", resumed, "--log", log)
        expect(whole.read_bytes() == resumed.read_bytes(), f"{precision}: weights differ")
        lines = [json.loads(t) for t in log.read_text().splitlines()]
        losses = [l["loss"] for l in lines if "step" in l and "loss" in l]
        expect(0 < len(losses) <= 30 and losses == [l["loss"] for l in full][-len(losses):], f"{precision}: {len(losses)} losses after resuming differ")
    return "fp32, bf16, fp16"


@check
def same_seed_same_bits(tools):
    """Two runs of one plan write the same weights; dropout repeats with the seed and differs without."""
    for name in NAMES + ["dropout_mlp"]:
        model = Model(name) if name != "dropout_mlp" else None
        saved = []
        for seed in (7, 7, 8):
            plan = tools.compile(model, "ts_train", "fp16", "adamw") if model else compile_dropout(tools)
            feeds = (model.folder if model else Model("mlp_mnist").folder) / "feeds.npz"
            out = tools.folder / "seed.safetensors"
            tools.train(plan, feeds, 20, "--seed", seed, "--save-weights", out)
            saved.append(out.read_bytes())
        expect(saved[0] == saved[1], f"{name}: the same seed gives other bits")
        if not model:
            expect(saved[0] != saved[2], "another seed gives the same masks")
    return "6 models"


def dump(tools, plan):
    """{kind: [row as a dict]} of amprun --dump, which names its columns in comments."""
    columns, rows = {}, {}
    for line in tools.run("amprun", plan, "--dump").stdout.splitlines():
        cells = line.split("\t")
        if line.startswith("# "):
            columns[cells[0][2:]] = [c.split(" ")[0] for c in cells[1:]]
        elif cells[0] in columns:
            rows.setdefault(cells[0], []).append(dict(zip(columns[cells[0]], cells[1:])))
    return rows


def compile_dropout(tools):
    plan = tools.folder / "dropout.plan"
    path = Model("mlp_mnist").folder.parent / "dropout_mlp" / "ts_train.onnx"
    tools.run("ampc", path, "--loss", "cross-entropy:target=label", "--precision", "fp32", "--optimizer", "adamw", "--lr", "1e-3", "-q", "-o", plan)
    return plan


@check
def dropout_masks(tools):
    """30 % are dropped, within four standard deviations; each step has another mask."""
    plan = compile_dropout(tools)
    masks = [t["name"] for t in dump(tools, plan)["tensor"] if t["dtype"] == "bool" and t["dims"] != "[]"]
    expect(masks, "no bool tensor in --dump")
    mask_name = masks[0]
    values = tools.fetch(plan, Model("mlp_mnist").folder / "feeds.npz", 60, mask_name)
    mask = values[mask_name]
    n, kept = mask.size, mask.mean()
    sigma = np.sqrt(0.3 * 0.7 / n)
    expect(abs(kept - 0.7) < 4 * sigma, f"kept {kept:.4f} of {n}, expected 0.7 within {4 * sigma:.4f}")
    expect(all((mask[i] != mask[i + 1]).any() for i in range(59)), "two steps share a mask")
    return f"kept {kept:.4f} of {n} (4 sigma = {4 * sigma:.4f})"


def run_forward(tools, path, feeds, outputs, *flags):
    plan, data, out = tools.folder / "f.plan", tools.folder / "f.npz", tools.folder / "f-out.npz"
    tools.run("ampc", path, "--forward-only", *flags, "-q", "-o", plan)
    np.savez(data, **feeds)
    fetches = [x for name in outputs for x in ("--fetch", f"eval:{name}")]
    tools.run("amprun", plan, "--steps", "0", "--data", f"{data}:layout=steps", "--eval-data", f"{data}:layout=steps", *fetches, "--fetch-out", out, "-q")
    return dict(np.load(out)), plan


@check
def numerics_contract(tools):
    """float16 overflows to infinity between ops; sums of 4,096 ones are exact; intermediate tensors have two bytes."""
    path = tools.folder / "m.onnx"
    f16 = TensorProto.FLOAT16
    nodes = [helper.make_node("Mul", ["a", "b"], ["p"]), helper.make_node("Mul", ["p", "c"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, f16, [4]) for n in "abc"],
                              [helper.make_tensor_value_info("y", f16, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    ones = np.ones((1, 4), np.float16)
    values, plan = run_forward(tools, path, {"a": 1000 * ones, "b": 1000 * ones, "c": np.float16(0.001) * ones}, ["y"])
    expect(np.isinf(values["y"].astype(np.float32)).all(), f"1000 * 1000 * 0.001 = {values['y']}")
    for dtype, name in ((f16, "fp16"), (TensorProto.BFLOAT16, "bf16")):
        graph = helper.make_graph(
            [helper.make_node("Cast", ["a"], ["la"], to=dtype), helper.make_node("Cast", ["b"], ["lb"], to=dtype),
             helper.make_node("MatMul", ["la", "lb"], ["m"]), helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT)],
            "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4096]), helper.make_tensor_value_info("b", TensorProto.FLOAT, [4096, 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
        values, plan = run_forward(tools, path, {"a": np.ones((1, 1, 4096), np.float32), "b": np.ones((1, 4096, 1), np.float32)}, ["y"])
        expect(values["y"].ravel()[0] == 4096, f"{name}: a product of 4,096 ones is {values['y']}")
    model = Model("lenet_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "sgd", policy="torch-cuda")
    low = [t for t in dump(tools, plan)["tensor"] if t["dtype"] == "float16"]
    expect(any(t["dims"] == "[16,6,28,28]" for t in low), "no float16 activation in --dump")
    for t in low:
        expect(int(t["bytes"]) == 2 * np.prod(json.loads(t["dims"]), dtype=int), f"{t['name']} has {t['bytes']} bytes")
    return "inf, 4096, 4096"


@check
def exported_models_answer_alike(tools):
    """The exported model in onnxruntime gives amprun's evaluation outputs, for every model."""
    worst = 0.0
    for name in NAMES:
        model = Model(name)
        plan = tools.compile(model, "ts_train", "bf16", "sgd")
        weights, exported = tools.folder / "w.safetensors", tools.folder / "trained.onnx"
        feeds = model.folder / "feeds.npz"
        tools.train(plan, feeds, 20, "--save-weights", weights, "--export-model", exported)
        session = onnxruntime.InferenceSession(str(exported))
        output = session.get_outputs()[0].name
        out = tools.folder / "eval.npz"
        tools.run("amprun", plan, "--steps", "0", "--init-from", weights, "--data", f"{feeds}:layout=steps", "--eval-data",
                  f"{feeds}:layout=steps", "--fetch", f"eval:{output}", "--fetch-out", out, "-q")
        ours = np.load(out)[output]
        images = np.load(feeds)["image"].astype(np.float32)
        theirs = np.concatenate([session.run([output], {session.get_inputs()[0].name: x})[0] for x in images])
        difference = np.abs(ours.reshape(theirs.shape) - theirs).max() / np.abs(theirs).max()
        expect(difference < 1e-5, f"{name}: outputs differ by {difference:.1e} of the largest")
        worst = max(worst, difference)
    return f"largest difference {worst:.1e} of the largest output"


@check
def planned_memory(tools):
    """The block is within 5 % of the largest live bytes, recomputed here from calls and tensors; what is printed is obtained."""
    worst = 0.0
    for name in NAMES:
        for precision in ("fp32", "fp16"):
            model = Model(name)
            plan = tools.compile(model, "ts_train", precision, "adamw")
            rows = dump(tools, plan)
            for program in rows["program"]:
                own = [{k: r[k] for k in r} for kind in ("buffer",) for r in rows[kind] if r["program"] == program["name"]]
                size = {int(b["index"]): int(b["bytes"]) for b in own if b["space"] == "block"}
                buffer = {int(t["index"]): int(t["buffer"]) for t in rows["tensor"] if t["program"] == program["name"]}
                calls = [c for c in rows["call"] if c["program"] == program["name"]]
                first, last = {}, {}
                for i, call in enumerate(calls):
                    for tensor in json.loads(f"[{call['inputs'].strip('[]')}]") + json.loads(f"[{call['outputs'].strip('[]')}]"):
                        if tensor >= 0 and buffer[tensor] in size:
                            first.setdefault(buffer[tensor], i)
                            last[buffer[tensor]] = i
                for output in rows["output"]:
                    if output["program"] == program["name"] and buffer[int(output["tensor"])] in size:
                        last[buffer[int(output["tensor"])]] = len(calls)
                bound = max(sum(size[b] for b in first if first[b] <= i <= last[b]) for i in range(len(calls) + 1))
                block = int(program["block_bytes"])
                expect(bound == int(program["bound_bytes"]), f"{name} {program['name']}: bound {program['bound_bytes']}, recomputed {bound}")
                expect(block <= 1.05 * bound, f"{name} {program['name']}: block {block}, bound {bound}")
                worst = max(worst, block / bound - 1)
    return f"block at most {100 * worst:.2f} % over the bound"


def main():
    tools, wanted, failures = Tools(sys.argv[1]), sys.argv[2:], 0
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            print(f"{function.__name__}: {function(tools)}", flush=True)
        except Failed as failed:
            failures += 1
            print(f"{function.__name__}: FAIL {failed}", flush=True)
    sys.exit(failures != 0)


main()
