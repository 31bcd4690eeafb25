#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The exported training step in onnxruntime against amprun: the same numbers?

usage: step_export.py BIN [CHECK...]      BIN: folder of ampc and amprun
       step_export.py BIN measure [MODEL...]   writes step_spread.json, of all models or of some anew

Every model x precision x optimizer trains 20 steps on both sides; fp16 starts at a scale of 2^30 and skips. Skipped steps,
scales, counters and the scaler's states are bit-equal; masters agree within 1e-6 under SGD in fp32, otherwise each within twice
its spread in onnxruntime's own runs, whose steps start from weights changed by one ulp (README.md, "The exported step").
"""
import itertools
import json
import pathlib
import re
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from harness import NAMES, OPTIMIZERS, Failed, Model, Tools, dump, expect, run_checks, widened

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "onnxruntime_step"))
from run import Step, train  # noqa: E402 (the example's driver is what is tested)

STEPS = 20
MODELS = NAMES + ["dropout_mlp"]
SPREAD = pathlib.Path(__file__).with_name("step_spread.json")
VARIANTS = {"nanogpt_char": "opset23_dynamo_train"}  # has the op; ts_train and the other models come to it by the pass recover
RUNS = 64  # of which the largest distance is the spread
LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
SGD_FP32 = 1e-6


def variant_of(model):
    return VARIANTS.get(model.name, "ts_train")


def exported(tools, model, precision, optimizer, *flags):
    """The step's file, valid with its types and shapes, and the plan of the same settings."""
    scaler = f"init_scale={2**30}" if precision == "fp16" else ""
    path = tools.compile(model, variant_of(model), precision, optimizer, *flags, "--emit", "step", scaler=scaler, output="step.onnx")
    plan = tools.compile(model, variant_of(model), precision, optimizer, *flags, scaler=scaler)
    files = [path] if "--accumulate" not in flags else [path.with_suffix(".train.onnx"), path.with_suffix(".apply.onnx")]
    for file in files:
        onnx.checker.check_model(onnx.load(file), full_check=True)
    return files, plan


def in_onnxruntime(files, feeds, before_step=lambda states: None):
    """Outputs and states of each step. `before_step` may change the states that it starts from."""
    steps, states, outputs, history = [Step(str(file)) for file in files], {}, [], []
    batches = ({name: array[i] for name, array in feeds.items()} for i in range(2**31))
    for _ in range(STEPS):
        before_step(states)
        outputs.append(train(steps, batches, states))
        history.append(dict(states))
    return outputs, {name: np.array([moment[name] for moment in history]) for name in history[0]}


def in_amprun(tools, plan, feeds, names, *flags):
    data, out = tools.folder / "feeds.npz", tools.folder / "fetch.npz"
    np.savez(data, **feeds)
    wanted = [flag for name in names for flag in ("--fetch", name)]
    lines = tools.train(plan, data, STEPS, *wanted, "--fetch-out", out, *flags)
    return lines, dict(np.load(out))


def with_role(files, *roles):
    """States that the step changes."""
    states = {}
    for file in files:
        states |= {name: state for name, state in Step(str(file)).about["states"].items() if state["output"]}
    return [name for name, state in states.items() if state["role"] in roles]


def distances(a, b, names):
    """By name: the largest difference after the last step."""
    return {name: np.abs(a[name][-1].astype(np.float64) - b[name][-1]).max() for name in names}


def compare(tools, model, precision, optimizer):
    files, plan = exported(tools, model, precision, optimizer)
    feeds = widened(model.folder / "feeds.npz")
    masters, exact = with_role(files, "weight"), with_role(files, "counter", "scaler", "rng")
    outputs, theirs = in_onnxruntime(files, feeds)
    lines, ours = in_amprun(tools, plan, feeds, masters + exact + with_role(files, "statistic"))
    where = f"{model.name} {precision} {optimizer}"
    skipped = [line["skipped"] for line in lines]
    expect([bool(o["found_inf"]) for o in outputs] == skipped, f"{where}: other steps are skipped; amprun: {skipped}")
    expect(precision != "fp16" or any(skipped), f"{where}: no step is skipped")
    for name in ("scale", "lr"):
        expect([float(o[name]) for o in outputs if name in o] == [line[name] for line in lines if name in outputs[0]], f"{where}: {name} differs")
    for name in exact:
        expect(theirs[name].tobytes() == ours[name].tobytes(), f"{where}: {name} is {theirs[name]}, in amprun {ours[name]}")
    for name in with_role(files, "statistic"):
        if precision == "fp32" and optimizer == "sgd":
            error = np.abs(theirs[name] - ours[name]).max() / np.abs(ours[name]).max()
            expect(error < 1e-5, f"{where}: {name} differs by {error:.1e} of its largest value")
    if (precision, optimizer) == ("fp32", "sgd"):
        bounds = dict.fromkeys(masters, SGD_FP32)
    else:
        bounds = {name: 2 * spread for name, spread in json.loads(SPREAD.read_text())[model.name][precision][optimizer].items()}
    found = distances(theirs, ours, masters)
    for name in masters:
        expect(found[name] <= bounds[name], f"{where}: '{name}' differs by {found[name]:.1e}, the bound is {bounds[name]:.1e}")
    nearest = max(masters, key=lambda name: found[name] / bounds[name])
    print(f"  {where:32} skipped {sum(skipped):2}  {len(masters):2} masters, nearest to its bound {nearest}: {found[nearest]:.1e} of {bounds[nearest]:.1e}", flush=True)


def all_models(tools, precision):
    failures = []
    for name in MODELS:
        for optimizer in OPTIMIZERS:
            try:
                compare(tools, Model(name), precision, optimizer)
            except Failed as failed:
                failures.append(str(failed))
    expect(not failures, "; ".join(failures))
    return f"{len(MODELS)} models, {', '.join(OPTIMIZERS)}, {STEPS} steps"


def fp32(tools):
    return all_models(tools, "fp32")


def bf16(tools):
    return all_models(tools, "bf16")


def fp16(tools):
    return all_models(tools, "fp16")


def windows(tools):
    """Three micro-batches an update, clipping and a schedule, in two files: the same."""
    model = Model("lenet_mnist")
    flags = ("--accumulate", "3", "--clip-norm", "0.5", "--lr-schedule", f"cosine:warmup=4,total={STEPS}")
    files, plan = exported(tools, model, "fp32", "sgd", *flags)
    feeds, masters = widened(model.folder / "feeds.npz"), with_role(files, "weight")
    outputs, theirs = in_onnxruntime(files, feeds)
    lines, ours = in_amprun(tools, plan, feeds, masters)
    expect([float(o["lr"]) for o in outputs] == [line["lr"] for line in lines], "another learning rate")
    worst = max(distances(theirs, ours, masters).values())
    expect(worst <= SGD_FP32, f"masters differ by {worst:.1e}")
    return f"masters {worst:.1e} of {SGD_FP32}"


def dropout_masks(tools):
    """The same seed gives the same bits on both sides."""
    model = Model("dropout_mlp")
    files, plan = exported(tools, model, "bf16", "sgd")
    [name] = [t["name"] for t in dump(tools, plan)["tensor"] if t["dtype"] == "bool" and t["dims"] != "[]"]
    file = onnx.load(files[0])
    file.graph.output.extend(v for v in file.graph.value_info if v.name == name)
    onnx.save(file, files[0])
    step, states, feeds = Step(str(files[0])), {"rng": np.array([7, 0])}, widened(model.folder / "feeds.npz")
    step.about["outputs"][name] = name
    theirs = [step.run({k: v[i] for k, v in feeds.items()}, states)[name] for i in range(STEPS)]
    _, ours = in_amprun(tools, plan, feeds, [name], "--seed", "7")
    expect((np.array(theirs) == ours[name]).all(), "other masks")
    return f"{STEPS} masks of {theirs[0].size}"


def runtime_keeps_casts(tools):
    """What makes the comparison sound: onnxruntime, set as the example sets it, rounds in a cast to a low type and back."""
    value = np.array(1 + 2.0**-12, np.float32)
    for low in LOW:
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=low), helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)]
        forms = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "xz"]
        model = helper.make_model(helper.make_graph(nodes, "g", forms[:1], forms[1:]), opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        [found] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": value})
        expect(found == 1, f"{found} instead of 1")
    return "float16, bfloat16"


def native_types(tools):
    """step:native=1 gives low operands to standard ops; without it none has one but casts."""
    counts = []
    for flags in ((), ("native",)):
        emit = "step:native=1" if flags else "step"
        path = tools.compile(Model("resnet_mnist"), "ts_train", "bf16", "sgd", "--emit", emit, output="native.onnx")
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        low = {v.name for v in model.graph.value_info if v.type.tensor_type.elem_type in LOW}
        counts.append(sum(n.domain == "" and n.op_type not in ("Cast", "Constant") and not low.isdisjoint(n.input) for n in model.graph.node))
    expect(counts[0] == 0 and counts[1] > 0, f"standard ops with low operands: {counts}")
    return f"standard ops with low operands: {counts[0]}, native {counts[1]}"


# ---- forms that the golden models do not have

POOLED = "h = Mul (x, w) s = Constant <value_ints = [1, 2, 4]> () p = Reshape (h, s) y = {} (p)"
# name -> (body over x [2, 4] and the weight w, dims of w, dims of the target)
FORMS = {
    "split, one output read": ("h = Mul (x, w) a, b, c = Split <axis = 1, num_outputs = 3> (h) y = Tanh (b)", [4], [2, 2]),
    "split of a weight": ("n = Constant <value_ints = [1, 4, 2]> () a, b, c = Split <axis = 0> (w, n) y = MatMul (x, b)", [7, 3], [2, 3]),
    "split, a frozen one": ("a, b = Split <axis = 1, num_outputs = 2> (x) y = MatMul (b, w)", [2, 3], [2, 3]),
    "topk, values read": ("h = Mul (x, w) k = Constant <value_ints = [2]> () v, i = TopK <axis = 1> (h, k) y = Tanh (v)", [4], [2, 2]),
    "topk of the data": ("k = Constant <value_ints = [2]> () v, i = TopK <axis = 1> (x, k) y = MatMul (v, w)", [2, 3], [2, 3]),
    "cumprod of rank 1": ("z = Constant <value_int = 0> () y = CumProd <exclusive = 1> (w, z)", [4], [4]),
    "cumprod of rank 2": ("h = Mul (x, w) z = Constant <value_int = 1> () y = CumProd <reverse = 1> (h, z)", [4], [2, 4]),
    "norm of rank 1": ("y = LpNormalization <axis = 0> (w)", [4], [4]),
    "softmax of rank 1": ("y = LogSoftmax <axis = 0> (w)", [4], [4]),
    "sum to rank 0": ("h = Mul (x, w) y = ReduceSum <keepdims = 0> (h)", [4], []),
    "weight of rank 0": ("y = Mul (x, w)", [], [2, 4]),
    "max pool over the end": (POOLED.format("MaxPool <kernel_shape = [2], strides = [3], dilations = [2], ceil_mode = 1>"), [4], [1, 2, 2]),
    "max pool to the same": (POOLED.format('MaxPool <kernel_shape = [2], dilations = [3], auto_pad = "SAME_LOWER">'), [4], [1, 2, 4]),
    "lp pool over the end": (POOLED.format("LpPool <kernel_shape = [2], strides = [3], dilations = [2], ceil_mode = 1>"), [4], [1, 2, 2]),
    "average pool over the end": (POOLED.format("AveragePool <kernel_shape = [2], strides = [3], ceil_mode = 1>"), [4], [1, 2, 2]),
}


def small_model(tools, body, dims, target):
    text = f"""<ir_version: 11, opset_import: ["" : 26]>
g (float[2, 4] x) => (float{target or ""} y) {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    values = np.random.default_rng(1).uniform(0.3, 1.5, dims).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    path = tools.folder / "small.onnx"
    onnx.save(model, path)
    return path


def small_forms(tools):
    """Nodes with unread outputs, of rank 0 and 1, windows that reach over the end: valid, and the same numbers."""
    random, count = np.random.default_rng(2), 0
    for name, (body, dims, target) in FORMS.items():
        path = small_model(tools, body, dims, target)
        feeds = {"x": random.uniform(0.5, 1.5, (STEPS, 2, 4)).astype(np.float32), "target": random.normal(size=[STEPS, *target]).astype(np.float32)}
        for precision in ("fp32", "bf16"):
            step, plan = tools.folder / "small.step.onnx", tools.folder / "small.plan"
            settings = ["--loss", "mse", "--precision", precision, "--trainable", "w", "--lr", "0.05", "-q"]
            tools.run("ampc", path, *settings, "--emit", "step", "-o", step)
            tools.run("ampc", path, *settings, "-o", plan)
            onnx.checker.check_model(onnx.load(step), full_check=True)
            outputs, theirs = in_onnxruntime([step], feeds)
            lines, ours = in_amprun(tools, plan, feeds, ["w"])
            moved = np.abs(ours["w"][-1] - ours["w"][0]).max()
            bound = SGD_FP32 if precision == "fp32" else 2.0**-8 * moved
            worst = np.abs(theirs["w"] - ours["w"]).max()
            expect(moved > 0, f"{name} {precision}: nothing trains")
            expect(worst <= bound, f"{name} {precision}: the weight differs by {worst:.1e}, the bound is {bound:.1e}")
            count += 1
    return f"{count} steps"


def outputs_are_wide(tools):
    """What a driver reads is no 16-bit number, whatever the loss was computed in: onnxruntime's Python has no bf16."""
    path = small_model(tools, "s = Constant <value_ints = [-1]> () f = Reshape (x, s) v = MatMul (f, f) y = PRelu (v, w)", [], [])
    for emit in ("step:native=1", "step"):
        step = tools.folder / "low.step.onnx"
        tools.run("ampc", path, "--loss", "output", "--precision", "bf16", "--trainable", "w", "-q", "--emit", emit, "-o", step)
        types = {o.name: o.type.tensor_type.elem_type for o in onnx.load(step).graph.output}
        expect(types["loss"] == TensorProto.FLOAT, f"{emit}: the loss has type {types['loss']}")
        expect(not set(types.values()) & set(LOW), f"{emit}: outputs of 16 bits: {types}")
    outputs, _ = in_onnxruntime([tools.folder / "low.step.onnx"], {"x": np.ones((STEPS, 2, 4), np.float32)})
    return f"loss {float(outputs[0]['loss']):g}"


# ---- how far onnxruntime's own runs lie apart


def change_weights(files, masters, seed):
    """Moves every master, before each step, to the next number up or down, as rounding an update the other way would."""
    random, initial = np.random.default_rng(seed), {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(files[0]).graph.initializer}

    def change(states):
        for name in masters:
            master = states.get(name, initial[name])
            states[name] = np.nextafter(master, np.where(random.random(master.shape) < 0.5, -np.inf, np.inf).astype(np.float32))

    return change


def write_spread(spread):
    """A line per optimizer."""
    lines = re.sub(r"\n {4,}", " ", json.dumps(spread, indent=1)).replace("{ ", "{").replace("\n   }", "}")
    SPREAD.write_text(lines + "\n")


def measure(tools, names):
    spread = json.loads(SPREAD.read_text()) if names else {}
    for name in names or MODELS:
        for precision, optimizer in itertools.product(("fp32", "bf16", "fp16"), OPTIMIZERS):
            files, _ = exported(tools, Model(name), precision, optimizer)
            feeds, masters = widened(Model(name).folder / "feeds.npz"), with_role(files, "weight")
            _, base = in_onnxruntime(files, feeds)
            runs = (in_onnxruntime(files, feeds, change_weights(files, masters, seed)) for seed in range(RUNS))
            of_runs = [distances(base, states, masters) for _, states in runs]
            figures = {master: float(f"{max(run[master] for run in of_runs):.2g}") for master in masters}
            spread.setdefault(name, {}).setdefault(precision, {})[optimizer] = figures
            print(name, precision, optimizer, figures, flush=True)
    write_spread(spread)


if __name__ == "__main__":
    if sys.argv[2:3] == ["measure"]:
        measure(Tools(sys.argv[1]), sys.argv[3:])
    else:
        run_checks([runtime_keeps_casts, fp32, bf16, fp16, windows, dropout_masks, native_types, small_forms, outputs_are_wide])
