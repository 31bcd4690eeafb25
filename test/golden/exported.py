#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trained model: it is the source with other weights, answers in onnxruntime as in amprun, and training goes on from it.

usage: exported.py BIN [CHECK...]      BIN: folder of ampc and amprun

Every .onnx file of models/ is trained and exported. Source and trained model are compared field by field; a line for each
difference that is allowed, and how often it occurs, is printed, any other fails. Those that are allowed:

  inference form   BatchNormalization without training_mode and its further outputs (nor their value_info), Dropout without
                   its input training_mode; what fed that input stays
  untied           an initializer whose elements are all equal, shared by n uses, is NAME.1 to NAME.n (--untie); the Identity
                   nodes between are gone
  values           of initializers: each that trains and each batch statistic differs, any other is bit-equal

Then: evaluation outputs against onnxruntime's; a run that starts from the export, compiled again or by --init-from, against
the run that went on, bit for bit; models over 2 GiB.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from harness import MODELS, Failed, Model, expect, losses, run_checks, widened

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "onnxruntime_step"))
from run import Step  # noqa: E402

CHECKS = []
STEPS = 4  # before the export, and after it
GIB = 1 << 30
# Of the largest output. Both sides sum up to 784 products in fp32, in another order; golden.py's bound of fp32 gradients.
TOLERANCE = 1e-5
# Unrolled, with a copy of the weights for each of 28 steps: what the first one adds to is 27 steps away (gradients of 2e-9 do
# not move it), or its factor is the initial state, which is zero.
UNMOVED = {("rnn_mnist", "dynamo_eval"): {"linear_1"}, ("rnn_mnist", "dynamo_eval_dynamic"): {"val_128"}}
onnxruntime.set_default_logger_severity(3)  # it warns of initializers that nothing reads


def check(function):
    CHECKS.append(function)
    return function


# ---- what differs -----------------------------------------------------------------------------------------


def named(message):
    """How a line tells a message: its name, or its key, or else its text."""
    for field in ("name", "key", "op_type", "domain"):
        if getattr(message, field, ""):
            return f"'{getattr(message, field)}'"
    return "'" + " ".join(str(message).split())[:80] + "'"


def differences(a, b, path=""):
    """Every field in which two messages of one type differ, as (path, what). Tensors of graph.initializer: all but their data."""
    skipped = set()
    if isinstance(a, TensorProto) and path.startswith("graph.initializer"):
        skipped = {"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data", "data_location"}
    for field in a.DESCRIPTOR.fields:
        if field.name in skipped:
            continue
        x, y, here = getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}".lstrip(".")
        if field.is_repeated:
            yield from of_lists(list(x), list(y), here, field.type == field.TYPE_MESSAGE)
        elif field.has_presence and a.HasField(field.name) != b.HasField(field.name):
            yield here, f"is {'set' if b.HasField(field.name) else 'not set'} in the trained model alone"
        elif field.type == field.TYPE_MESSAGE:
            if a.HasField(field.name):
                yield from differences(x, y, here)
        elif x != y:
            yield here, f"{x!r} -> {y!r}"


def of_lists(x, y, path, messages):
    """Lists in order. Where their lengths differ: what is missing or new, then the others in order."""
    tell = named if messages else repr
    if len(x) != len(y):
        told_x, told_y = [tell(m) for m in x], [tell(m) for m in y]
        gone, new = (list((collections.Counter(p) - collections.Counter(q)).elements()) for p, q in ((told_x, told_y), (told_y, told_x)))
        for name in gone:
            yield path, f"lost {name}"
        for name in new:
            yield path, f"gained {name}"
        x, y = [(i, m) for i, m in enumerate(x) if told_x[i] not in gone], [m for m, name in zip(y, told_y) if name not in new]
    else:
        x = list(enumerate(x))
    for (i, p), q in zip(x, y):
        if messages:
            yield from differences(p, q, f"{path}[{i}]")
        elif p != q:
            yield f"{path}[{i}]", f"{p!r} -> {q!r}"


def nodes_of(model):
    """{path: node}, of the graph and of functions."""
    found = {f"graph.node[{i}]": node for i, node in enumerate(model.graph.node)}
    for f, function in enumerate(model.functions):
        found |= {f"functions[{f}].node[{i}]": node for i, node in enumerate(function.node)}
    return found


def aliases(source, name):
    """The value and what Identity nodes make of it."""
    known = [name]
    for value in known:
        known += [node.output[0] for node in source.graph.node if node.op_type == "Identity" and node.input[0] == value]
    return known


def untied_names(source, trained):
    """{NAME: [NAME.1, ...]} of initializers that became one per use: as many as there are uses, each of them used once."""
    uses = collections.Counter(name for node in trained.graph.node for name in node.input)
    was = {t.name for t in source.graph.initializer}
    split = {}
    for name in was - {t.name for t in trained.graph.initializer}:
        parts = [t.name for t in trained.graph.initializer if re.fullmatch(re.escape(name) + r"\.\d+", t.name) and t.name not in was]
        same = aliases(source, name)
        before = sum(value in same for node in source.graph.node if node.op_type != "Identity" for value in node.input)
        if parts == [f"{name}.{i + 1}" for i in range(before)] and all(uses[part] == 1 for part in parts):
            split[name] = parts
    return split


def judged(source, trained, where):
    """What kinds of differences there are; Failed with all of those that are not allowed."""
    kinds, wrong, gone = collections.Counter(), [], set()
    split, nodes = untied_names(source, trained), nodes_of(source)
    behind = {alias: name for name in split for alias in aliases(source, name)}
    identities = [named(node) for node in source.graph.node if node.op_type == "Identity" and node.input[0] in behind]
    for path, what in differences(source, trained):
        node_path = re.match(r"(?:functions\[\d+\]|graph)\.node\[\d+\]", path)
        node = nodes.get(node_path[0]) if node_path else None
        field = path[node_path.end():].lstrip(".") if node_path else path
        op = node.op_type if node is not None and node.domain in ("", "ai.onnx") else None
        if op == "BatchNormalization" and (field, what) == ("attribute", "lost 'training_mode'"):
            kinds["BatchNormalization without training_mode"] += 1
        elif op == "BatchNormalization" and field == "output" and what in [f"lost {name!r}" for name in list(node.output)[1:]]:
            gone.add(what)
            kinds["BatchNormalization without statistics' outputs"] += 1
        elif path == "graph.value_info" and what in gone:
            kinds["value_info of such an output"] += 1
        elif op == "Dropout" and field == "input" and what == f"lost {node.input[2:3][0] if node.input[2:3] else ''!r}":
            kinds["Dropout without training_mode"] += 1
        elif path == "graph.initializer" and what in [f"lost '{name}'" for name in split]:
            kinds["untied initializer"] += 1
        elif path == "graph.initializer" and what in [f"gained '{name}'" for names in split.values() for name in names]:
            kinds["parameter of one use"] += 1
        elif path == "graph.node" and what in [f"lost {name}" for name in identities]:
            kinds["Identity before such a use"] += 1
        elif re.fullmatch(r"graph\.node\[\d+\]\.input\[\d+\]", path) and what in [f"{alias!r} -> {part!r}" for alias, name in behind.items()
                                                                                for part in split[name]]:
            kinds["input that names one"] += 1
        else:
            wrong.append(f"{path}: {what}" + (f" ({node.op_type} {node.name})" if node is not None else ""))
    expect(not wrong, f"{where}: {len(wrong)} differences that are not allowed:" + "".join(f"\n    {line}" for line in wrong))
    return kinds


def values(model):
    return {t.name: t for t in model.graph.initializer}


def load(path):
    return onnx.load(path)  # external data too


def same_bits(a, b):
    return numpy_helper.to_array(a).tobytes() == numpy_helper.to_array(b).tobytes()


def judge_values(source, trained, changing, where):
    """Initializers in `changing` differ, the others are bit-equal. How many did."""
    before, split = values(source), {part: name for name, parts in untied_names(source, trained).items() for part in parts}
    wrong = []
    for name, t in values(trained).items():
        origin = split.get(name, name)
        changed = not same_bits(t, before[origin])
        if changed != (origin in changing):
            wrong.append(f"'{name}' {'changed' if changed else 'did not change'}")
        if changed and not np.isfinite(numpy_helper.to_array(t)).all():
            wrong.append(f"'{name}' is not finite")
    expect(not wrong, f"{where}: {', '.join(wrong)}")
    return len(set(changing) & set(before))


# ---- the files --------------------------------------------------------------------------------------------


def every_export(model):
    """Names of all .onnx files of the model's folder."""
    files = {str(file.relative_to(model.folder))[:-len(".onnx")].removeprefix("opsets/") for file in model.folder.rglob("*.onnx")}
    expect(files >= set(model.exports), f"{model.name}: files of {sorted(set(model.exports) - files)} are missing")
    return sorted(files)


def statistics_of(source):
    """Inputs 3 and 4 of BatchNormalization."""
    return {name for node in source.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}


def roles(model, variant, source):
    """(initializers that train, batch statistics), by PyTorch's names of their origins."""
    statistics = statistics_of(source) & set(values(source))
    origins = model.mapping(variant)
    constants = {name for name in values(source) if origins[name].get("constant")}
    constants |= {name for node in source.graph.node if node.op_type in ("RNN", "GRU", "LSTM") for name in node.input[5:7]}  # initial states
    # A causal mask that an exporter folded: the least float where it masks.
    constants |= {name for name, value in values(source).items()
                  if origins[name].get("derived") and np.abs(onnx.numpy_helper.to_array(value)).max() > 1e30}
    return set(values(source)) - statistics - constants, statistics


class Export:
    """One file and the paths of a run of it."""

    def __init__(self, tools, model, variant, feeds):
        self.tools, self.model, self.variant, self.feeds = tools, model, variant, feeds
        self.where = f"{model.name} {variant}"
        self.source = load(model.path(variant))
        self.trained, self.again = tools.folder / "trained.onnx", tools.folder / "again.onnx"

    def compile(self, precision, update, *flags, of=None, output="golden.plan"):
        loss = self.model.loss()
        dims = ("--dim", "batch=16") if self.model.is_dynamic(self.variant) else ()
        plan = self.tools.folder / output
        self.tools.run("ampc", of or self.model.path(self.variant), "--loss", loss, "--precision", precision, *update, *dims, *flags, "-q", "-o", plan)
        return plan

    def train(self, plan, part, *flags):
        """Losses of STEPS steps on a part of the data: "whole" is two of them."""
        return losses(self.tools.train(plan, self.feeds[part], 2 * STEPS if part == "whole" else STEPS, *flags))

    def train_and_export(self, plan):
        """STEPS steps: their losses, the saved weights, the trained model, and its outputs on the second part of the data."""
        weights, out = self.tools.folder / "w.safetensors", self.tools.folder / "eval.npz"
        output = self.source.graph.output[0].name
        told = self.train(plan, "first", "--export-model", self.trained, "--save-weights", weights, "--eval-data",
                          f"{self.feeds['second']}:layout=steps", "--fetch", f"eval:{output}", "--fetch-out", out)
        return told, weights, np.load(out)[output]

    def distance_to_onnxruntime(self, ours):
        """Of the trained model's outputs, absolute; a dynamic one also answers another batch."""
        onnx.checker.check_model(str(self.trained), full_check=True)
        session = onnxruntime.InferenceSession(str(self.trained), providers=["CPUExecutionProvider"])
        output, data = session.get_outputs()[0].name, np.load(self.feeds["second"])
        data = {i.name: data[i.name] for i in session.get_inputs()}
        theirs = np.concatenate([session.run([output], {name: x[i] for name, x in data.items()})[0] for i in range(STEPS)])
        ours = ours.reshape(theirs.shape)
        found = np.abs(ours - theirs).max()
        if self.model.is_dynamic(self.variant):
            found = max(found, np.abs(ours[:5] - session.run([output], {name: x[0][:5] for name, x in data.items()})[0]).max())
        bound = TOLERANCE * np.abs(theirs).max()
        expect(found <= bound, f"{self.where}: outputs differ by {found:.1e}, the bound is {bound:.1e}")
        return found


def sliced_feeds(tools, model):
    arrays, paths = widened(model.folder / "feeds.npz"), {}
    for part, steps in (("first", slice(0, STEPS)), ("second", slice(STEPS, 2 * STEPS)), ("whole", slice(0, 2 * STEPS))):
        paths[part] = tools.folder / f"{part}.npz"
        np.savez(paths[part], **{name: array[steps] for name, array in arrays.items()})
    return paths


def all_exports(tools, compare):
    """Every file through `compare`, which returns kinds of differences and a distance to onnxruntime; all failures are listed."""
    failures, kinds, worst, count = [], collections.Counter(), 0.0, 0
    for name in sorted(file.parent.name for file in MODELS.glob("*/exports.json")):
        model, largest = Model(name), 0.0
        feeds = sliced_feeds(tools, model)
        for i, variant in enumerate(every_export(model)):
            count += 1
            try:
                found, distance = compare(Export(tools, model, variant, feeds), i)
                kinds += found
                largest = max(largest, distance)
            except Failed as failed:
                failures.append(str(failed))
        print(f"  {name:18} {i + 1:2} files, onnxruntime {largest:.1e} away", flush=True)
        worst = max(worst, largest)
    for kind, times in sorted(kinds.items()):
        print(f"  {times:4} x {kind}")
    expect(not failures, "".join(f"\n  {failure}" for failure in failures))
    return f"{count} files, outputs at most {worst:.1e} away"


# ---- the checks -------------------------------------------------------------------------------------------


def settings_of(model, optimizer):
    """SGD without momentum: all its state is in the export."""
    settings = model.curves["optimizers"][optimizer]
    update = ["--optimizer", "sgd" if optimizer == "sgd" else f"adamw:weight_decay={settings['weight_decay']}", "--lr", settings["lr"]]
    return [*update, "--bn-var", "unbiased"]


def is_random(source):
    """Masks are drawn by the number of the step, which a second run counts from its own start."""
    ratios = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    ratios |= {n.output[0]: helper.get_attribute_value(n.attribute[0]) for n in source.graph.node if n.op_type == "Constant"}
    ratios = {name: numpy_helper.to_array(r) if isinstance(r, TensorProto) else np.array(r) for name, r in ratios.items()}
    return any(node.op_type == "Dropout" and ratios[node.input[1]] > 0 for node in source.graph.node)


@check
def no_difference_is_overlooked(tools):
    """Each field of a model, changed by hand, is found."""
    model = Model("lenet_mnist")
    source = load(model.path("ts_train"))

    def swap(items):
        first = type(items[0])()
        first.CopyFrom(items[0])
        items[0].CopyFrom(items[1])
        items[1].CopyFrom(first)

    changes = {
        "node's name": lambda m: setattr(m.graph.node[0], "name", "other"),
        "node's input": lambda m: m.graph.node[0].input.__setitem__(1, "fc1.weight"),
        "attribute": lambda m: setattr(m.graph.node[0].attribute[0], "i", 7),
        "attribute gone": lambda m: m.graph.node[0].attribute.pop(),
        "order of nodes": lambda m: swap(m.graph.node),
        "node more": lambda m: m.graph.node.add(op_type="Identity", input=["image"], output=["more"]),
        "symbolic dim": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "n"),
        "output's name": lambda m: setattr(m.graph.output[0], "name", "other"),
        "value_info more": lambda m: m.graph.value_info.add(name="more"),
        "opset": lambda m: setattr(m.opset_import[0], "version", 16),
        "metadata": lambda m: m.metadata_props.add(key="a", value="b"),
        "producer": lambda m: setattr(m, "producer_name", "ampc"),
        "function": lambda m: m.functions.add(name="f"),
        "initializer's dims": lambda m: m.graph.initializer[0].dims.append(1),
        "initializer's type": lambda m: setattr(m.graph.initializer[0], "data_type", TensorProto.FLOAT16),
        "initializer's documentation": lambda m: setattr(m.graph.initializer[0], "doc_string", "a"),
        "order of initializers": lambda m: swap(m.graph.initializer),
        "initializer gone": lambda m: m.graph.initializer.pop(),
    }
    for what, change in changes.items():
        other = onnx.ModelProto()
        other.CopyFrom(source)
        expect(not judged(source, other, what), f"{what}: a copy differs")
        change(other)
        try:
            judged(source, other, what)
        except Failed:
            continue
        raise Failed(f"{what} is overlooked")
    names = set(values(source))
    for changing in (names, set()):
        try:
            judge_values(source, source if changing else scaled(source), changing, "values")
        except Failed:
            continue
        raise Failed("values are overlooked")
    return f"{len(changes)} fields"


def scaled(model):
    """Other weights."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for t in other.graph.initializer:
        t.raw_data = (numpy_helper.to_array(t) * np.float32(1.5)).tobytes()
    return other


@check
def sgd_in_fp32(tools):
    """N steps, the export, N steps more, in three ways: the losses and weights of 2 N steps, bit for bit."""
    def compare(e, _):
        settings = settings_of(e.model, "sgd")
        plan = e.compile("fp32", settings)
        first, weights, outputs = e.train_and_export(plan)
        trained = load(e.trained)
        kinds = judged(e.source, trained, e.where)
        trainable, statistics = roles(e.model, e.variant, e.source)
        trainable -= UNMOVED.get((e.model.name, e.variant), set())
        kinds["values that changed"] += judge_values(e.source, trained, trainable | statistics, e.where)
        distance = e.distance_to_onnxruntime(outputs)
        whole = e.train(plan, "whole", "--export-model", e.again)
        want, last = {name: numpy_helper.to_array(t) for name, t in values(load(e.again)).items()}, len(first)
        expect((first == whole[:last]).all(), f"{e.where}: losses of two runs differ")
        from_export = e.compile("fp32", settings, of=e.trained, output="from_export.plan")
        rest = whole[last:]
        for how, on, flags in (("compiled again", from_export, ()), ("--init-from weights", plan, ("--init-from", weights)),
                               ("--init-from model", plan, ("--init-from", e.trained))):
            second = e.train(on, "second", "--export-model", e.again, *flags)
            found = load(e.again)
            if on is from_export:  # there is nothing left to take away
                expect(not judged(trained, found, e.where), f"{e.where}: the export of an export differs")
            if on is from_export and is_random(e.source):  # the three ways agree
                rest, want = second, {name: numpy_helper.to_array(t) for name, t in values(found).items()}
                kinds["file with masks of its own in a second run"] += 1
            expect((second == rest).all(), f"{e.where}, {how}: losses {second} instead of {rest}")
            for name, t in values(found).items():
                expect(numpy_helper.to_array(t).tobytes() == want[name].tobytes(), f"{e.where}, {how}: '{name}' differs at the end")
        return kinds, distance

    return all_exports(tools, compare) + f"; {STEPS} + {STEPS} steps bit-equal to {2 * STEPS} in three ways"


@check
def adamw_in_low_precision(tools):
    """bf16 and fp16 in turn: the first loss of a run from the export is that of step N + 1; the moments start anew."""
    def compare(e, i):
        precision, settings = ("bf16", "fp16")[i % 2], settings_of(e.model, "adamw")
        plan = e.compile(precision, settings)
        _, weights, outputs = e.train_and_export(plan)
        trained = load(e.trained)
        kinds = judged(e.source, trained, e.where)
        trainable, statistics = roles(e.model, e.variant, e.source)
        kinds["values that changed"] += judge_values(e.source, trained, trainable | statistics, e.where)
        distance = e.distance_to_onnxruntime(outputs)
        want = None if is_random(e.source) else e.train(plan, "whole")[STEPS]
        from_export = e.compile(precision, settings, of=e.trained, output="from_export.plan")
        for how, on, flags in (("compiled again", from_export, ()), ("--init-from", plan, ("--init-from", weights))):
            found = e.train(on, "second", *flags)[0]
            want = found if want is None else want
            expect(found == want, f"{e.where} {precision}, {how}: loss {found} instead of {want}")
        return kinds, distance

    return all_exports(tools, compare) + "; losses go on bit-equal"


@check
def frozen_stay(tools):
    """What is frozen comes back bit-equal, and with --train-mode frozen-eval the statistics of frozen layers; the others train."""
    def compare(e, _):
        layers = {name for node in e.source.graph.node if node.op_type == "BatchNormalization" for name in node.input[1:3]}
        trainable, statistics = roles(e.model, e.variant, e.source)
        trainable -= UNMOVED.get((e.model.name, e.variant), set())
        layers = layers or {min(trainable)}
        freeze = [flag for name in sorted(layers) for flag in ("--freeze", name)]
        plan = e.compile("fp32", [*settings_of(e.model, "sgd"), "--train-mode", "frozen-eval", *freeze])
        _, _, outputs = e.train_and_export(plan)
        trained = load(e.trained)
        kinds = judged(e.source, trained, e.where)
        kinds["values that stayed"] += len(layers | statistics)
        kinds["values that changed"] += judge_values(e.source, trained, trainable - layers, e.where)
        return kinds, e.distance_to_onnxruntime(outputs)

    return all_exports(tools, compare)


# ---- models over 2 GiB --------------------------------------------------------------------------------------

ROWS, WIDTH = (2 * GIB >> 10) + 8, 256


def large_model(folder):
    """A frozen table of 2 GiB and some, holes on the disk but for its first and last rows, before a small weight that trains."""
    rng = np.random.default_rng(3)
    with open(folder / "table.bin", "wb") as file:
        file.truncate(4 * ROWS * WIDTH)
        for row in (0, ROWS - 8):
            file.seek(4 * row * WIDTH)
            file.write(rng.standard_normal((8, WIDTH), np.float32).tobytes())
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=(ROWS, WIDTH), data_location=TensorProto.EXTERNAL)
    table.external_data.add(key="location", value="table.bin")
    weight = numpy_helper.from_array(rng.standard_normal((WIDTH, 4), np.float32), "weight")
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]), helper.make_node("MatMul", ["x", "weight"], ["y"])]
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("ids", TensorProto.INT64, (16,))],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 4))], [table, weight])
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@check
def over_two_gib(tools):
    """Weights in a file of ours beside the model and the step; onnx and onnxruntime read them by path, and --init-from too."""
    folder = tools.folder / "large"
    folder.mkdir()
    free, memory = shutil.disk_usage(folder).free, int(re.search(r"MemAvailable: *(\d+)", open("/proc/meminfo").read())[1]) << 10
    if min(free, memory) < 8 * GIB:
        return f"SKIPPED: {free >> 30} GiB of disk and {memory >> 30} GiB of memory free, 8 needed"
    source, plan, out, feeds = large_model(folder), folder / "large.plan", folder / "out", folder / "feeds.npz"
    trained, step, outputs = out / "trained.onnx", out / "step.onnx", folder / "eval.npz"
    out.mkdir()
    rng, ids = np.random.default_rng(4), np.concatenate([np.arange(8), np.arange(ROWS - 8, ROWS)])
    data = {"ids": np.stack([rng.permutation(ids) for _ in range(2)]), "target": rng.standard_normal((2, 16, 4), np.float32)}
    np.savez(feeds, **data)
    settings = ["--loss", "mse:target=target", "--freeze", "table", "--precision", "fp32", "--lr", "0.01", "-q", "-o"]
    evaluation = ("--eval-data", f"{feeds}:layout=steps", "--eval-steps", 1)
    tools.run("ampc", source, *settings, plan)
    first = losses(tools.train(plan, feeds, 2, "--export-model", trained, *evaluation, "--fetch", "eval:y", "--fetch-out", outputs))
    log = [json.loads(line) for line in (tools.folder / "log.jsonl").read_text().splitlines()]
    [evaluated] = [line["eval_loss"] for line in log if "eval_loss" in line]
    expect(sorted(f.name for f in out.iterdir()) == ["trained.onnx", "trained.onnx.data"], f"files {sorted(out.iterdir())}")
    onnx.checker.check_model(str(trained))
    before, after = (onnx.load(path, load_external_data=False) for path in (source, trained))
    expect(not judged(before, after, "large"), "the trained model differs")
    table, weight = after.graph.initializer
    place = {entry.key: entry.value for entry in table.external_data}
    expect(place == {"location": "trained.onnx.data", "offset": "0", "length": str(4 * ROWS * WIDTH)}, f"the table lies at {place}")
    expect((numpy_helper.to_array(weight, str(out)) != numpy_helper.to_array(before.graph.initializer[1])).any(), "the weight did not train")
    tables = [np.memmap(file, np.uint8, "r", shape=(4 * ROWS * WIDTH,)) for file in (folder / "table.bin", out / "trained.onnx.data")]
    for at in range(0, len(tables[0]), 1 << 26):
        expect((tables[0][at:at + (1 << 26)] == tables[1][at:at + (1 << 26)]).all(), f"the table differs at byte {at} or after")
    session = onnxruntime.InferenceSession(str(trained), providers=["CPUExecutionProvider"])
    theirs, ours = session.run(["y"], {"ids": data["ids"][0]})[0], np.load(outputs)["y"]
    distance = np.abs(ours.reshape(theirs.shape) - theirs).max()
    expect(distance <= TOLERANCE * np.abs(theirs).max(), f"outputs differ by {distance:.1e}")
    second = losses(tools.train(plan, feeds, 2, "--init-from", trained))
    expect(second[0] == evaluated, f"the loss after --init-from is {second[0]}, evaluation gave {evaluated}")
    os.remove(plan)
    tools.run("ampc", source, *settings, step, "--emit", "step")
    expect({"step.onnx", "step.onnx.data"} <= {f.name for f in out.iterdir()}, f"files {sorted(out.iterdir())}")
    states, runner = {}, Step(str(step))
    theirs = np.array([runner.run({name: array[i] for name, array in data.items()}, states)["loss"] for i in range(2)])
    expect(np.abs(theirs / first - 1).max() <= TOLERANCE, f"losses of the step {theirs}, of amprun {first}")
    shutil.rmtree(folder)
    return f"{4 * ROWS * WIDTH} bytes beside the model, outputs {distance:.1e} away"


if __name__ == "__main__":
    run_checks(CHECKS)
