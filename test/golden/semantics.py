#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run promises, checked on fetched values: skips, windows, resume, determinism, numbers, memory.

usage: semantics.py BIN [CHECK...]      BIN: folder of ampc and amprun
"""
import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import NAMES, Failed, Model, Tools, dump, expect, log_lines, run_checks, widened

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def spoiled_feeds(tools, model, step, factor=2.0**16):
    feeds = widened(model.folder / "feeds.npz")
    with np.errstate(invalid="ignore"):  # 0 * inf
        feeds["image"][step] *= np.float32(factor)
    np.savez(tools.folder / "bad.npz", **feeds)
    return tools.folder / "bad.npz"


@check
def skipped_step_changes_nothing(tools):
    """A forced overflow leaves weights, moments, applied steps and schedule bit-equal, and halves the scale."""
    model = Model("mlp_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "adamw", "--lr-schedule", "linear:total=60,warmup=3")
    values = tools.fetch(plan, spoiled_feeds(tools, model, 5), 10, "fc*", "applied_steps", "lr", "loss_scale")
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
def non_finite_step_is_skipped_without_scaling_too(tools):
    """fp32 and bf16 have no loss scale; an infinite input still changes no weight, and no channel's statistics for the worse."""
    model = Model("conv1d_tcn")
    for precision in ("fp32", "bf16", "fp16"):
        plan = tools.compile(model, "ts_train", precision, "sgd")
        values = tools.fetch(plan, spoiled_feeds(tools, model, 5, np.inf), 8, *model.mapping("ts_train"))
        trained = [name for name in values if f"{name}.running" not in name and "running_" not in name]
        statistics = [name for name in values if "running_" in name]
        expect(trained and statistics, f"fetched {sorted(values)}")
        for name in trained:
            expect((values[name][5] == values[name][4]).all(), f"{precision}: {name} changed in the skipped step")
            expect((values[name][6] != values[name][5]).any(), f"{precision}: {name} did not change in the step after")
        for name in statistics:
            expect(np.isfinite(values[name]).all(), f"{precision}: {name} is not finite any more")
            expect((values[name][6] != values[name][5]).any(), f"{precision}: {name} did not change in the step after")
    return f"{len(trained)} weights and {len(statistics)} statistics, 3 precisions"


@check
def bad_micro_batch_drops_its_window(tools):
    """With --accumulate 4 one bad micro-batch drops its window and nothing else."""
    model = Model("mlp_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "sgd", "--accumulate", "4")
    bad = tools.fetch(plan, spoiled_feeds(tools, model, 9), 6, "fc1.weight", "fc1.weight.momentum_buffer")
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


def killed_after(tools, plan, feeds, step, folder, *flags):
    """A folder with the checkpoint of `step`, from a run that was killed at or after it."""
    command = [tools.binaries / "amprun", plan, "--data", f"{feeds}:layout=steps", "-q", "--threads", 2, "--steps", 100000,
               "--checkpoint-dir", folder, "--checkpoint-every", step, "--keep", 1000000, *flags]
    run = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    first, deadline = folder / f"step-{step:012}.ckpt", time.time() + 120
    while time.time() < deadline and run.poll() is None and not first.exists():
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    errors = run.communicate()[1].decode()
    expect(first.exists(), f"no checkpoint of step {step} was written: {errors[-400:]}")
    for name in os.listdir(folder):  # as if the kill had come right behind it
        if name != first.name:
            os.remove(folder / name)


def compare_resumed(tools, label, plan, feeds, steps, *flags):
    """`steps` steps == half of them, kill -9, resume: weights and losses bit for bit."""
    whole, resumed = tools.folder / "whole.safetensors", tools.folder / "resumed.safetensors"
    full = tools.train(plan, feeds, steps, "--save-weights", whole, *flags)
    folder = tools.folder / f"checkpoints-{label}"
    killed_after(tools, plan, feeds, steps // 2, folder, *flags)
    rest = tools.train(plan, feeds, steps, "--checkpoint-dir", folder, "--resume", "--save-weights", resumed, *flags)
    expect(whole.read_bytes() == resumed.read_bytes(), f"{label}: weights differ")
    expect([l["step"] for l in rest] == list(range(steps // 2 + 1, steps + 1)), f"{label}: resumed at {rest[0]['step']}")
    for key in ("loss", "scale", "skipped", "applied", "lr"):
        expect([l.get(key) for l in rest] == [l.get(key) for l in full[steps // 2:]], f"{label}: {key} differs after resuming")


@check
def resume_after_kill_repeats_bits(tools):
    """In every precision; with BatchNormalization; with a schedule, windows and a skip before and after the kill."""
    for precision in ("fp32", "bf16", "fp16"):
        for name in ("lenet_mnist", "resnet_mnist"):
            model = Model(name)
            plan = tools.compile(model, "ts_train", precision, "adamw")
            compare_resumed(tools, f"{name}-{precision}", plan, model.folder / "feeds.npz", 60)
    model = Model("mlp_mnist")
    plan = tools.compile(model, "ts_train", "fp16", "sgd", "--accumulate", "3", "--lr-schedule", "cosine:total=20,warmup=3")
    compare_resumed(tools, "windows", plan, spoiled_feeds(tools, model, [7, 40]), 20)
    return "7 runs"


@check
def same_settings_same_bits(tools):
    """Two runs of one plan with one seed write the same weights, with one thread and with two."""
    for name in NAMES:
        model = Model(name)
        plan = tools.compile(model, "ts_train", "fp16", "adamw")
        for threads in (1, 2):
            saved = []
            for repetition in range(2):
                out = tools.folder / f"{repetition}.safetensors"
                tools.train(plan, model.folder / "feeds.npz", 20, "--seed", 7, "--threads", threads, "--save-weights", out)
                saved.append(out.read_bytes())
            expect(saved[0] == saved[1], f"{name}: --threads {threads} twice gives other bits")
    return f"{len(NAMES)} models"


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


def live_bytes(rows, program, grain=1):
    """Largest number of bytes of the block that are live during one call, buffers as alias sets, in multiples of `grain`."""
    mine = [r for kind in ("buffer", "tensor", "call", "output") for r in rows.get(kind, []) if r["program"] == program]
    size = {int(r["index"]): -(-int(r["bytes"]) // grain) * grain for r in mine if r.get("space") == "block"}
    buffer = {int(r["index"]): int(r["buffer"]) for r in mine if "byte_offset" in r}
    calls = [json.loads(f'[{r["inputs"]}]') + json.loads(f'[{r["outputs"]}]') for r in mine if "kernel" in r]
    first, last = {}, {}
    for i, operands in enumerate(calls):
        for b in {buffer[tensor] for tensor in operands if tensor >= 0} & set(size):
            first.setdefault(b, i)
            last[b] = i
    for r in mine:
        if "tensor" in r and buffer[int(r["tensor"])] in size:
            last[buffer[int(r["tensor"])]] = len(calls)  # an output lives to the end
    return max(sum(size[b] for b in first if first[b] <= i <= last[b]) for i in range(len(calls) + 1))


@check
def planned_memory(tools):
    """The block is within 5 % of the largest live bytes, recomputed here from calls and tensors.

    Windows split off an `apply` of many small tensors, up to 9 % of which are gaps up to the next multiple of 64 bytes: its block
    is held to live bytes counted in such grains.
    """
    worst, programs = 0.0, 0
    for name in NAMES:
        for precision in ("fp32", "bf16", "fp16"):
            for flags in ((), ("--accumulate", "2")):
                rows = dump(tools, tools.compile(Model(name), "ts_train", precision, "adamw", *flags))
                for program in rows["program"]:
                    where = f"{name} {precision} {program['name']}"
                    bound, block = live_bytes(rows, program["name"]), int(program["block_bytes"])
                    expect(bound == int(program["bound_bytes"]), f"{where}: bound {program['bound_bytes']}, recomputed {bound}")
                    held_to = live_bytes(rows, program["name"], 64) if program["name"] == "apply" else bound
                    expect(bound <= block <= 1.05 * held_to, f"{where}: block {block}, bound {held_to}")
                    worst, programs = max(worst, block / held_to - 1), programs + 1
    return f"{programs} programs, block at most {100 * worst:.2f} % over the bound"


@check
def printed_memory_is_obtained(tools):
    """A batch 256 times as large makes the process grow by what amprun prints before step 1, within 2 %."""
    model, printed, peak = Model("lenet_mnist"), [], []
    for batch in (16, 4096):
        plan, log = tools.folder / "batch.plan", tools.folder / "batch.jsonl"
        tools.run("ampc", model.path("ts_train_dynamic"), "--loss", "cross-entropy:target=label", "--precision", "fp16", "--dim",
                  f"batch={batch}", "-q", "-o", plan)
        run = tools.run("amprun", plan, "--data", "image=random", "--data", "label=const:value=3", "--steps", 2, "--threads", 2, "--log", log)
        done = json.loads(log.read_text().splitlines()[-1])["done"]
        total, unit = re.search(r"; ([\d.]+) (\w+) in all", run.stderr).groups()
        expect(abs(float(total) * {"KiB": 2**10, "MiB": 2**20}[unit] / done["planned_bytes"] - 1) < 0.01, f"printed {total} {unit}, logged {done}")
        printed.append(done["planned_bytes"])
        peak.append(done["peak_bytes"])
    growth, promised = peak[1] - peak[0], printed[1] - printed[0]
    expect(abs(growth / promised - 1) < 0.02, f"the process grew by {growth} bytes, printed were {promised}")
    return f"{growth / promised:.4f} of the printed {promised / 2**20:.1f} MiB"


run_checks(CHECKS)
