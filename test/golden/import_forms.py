#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The forms one model may be written in: each trains with the same losses, bit for bit, and none makes ampc open what it must not.

usage: import_forms.py BIN [CHECK...]      BIN: folder of ampc and amprun

Shuffled, unnamed and equally named nodes, IR version 3, weights in Constant nodes and in nested functions, every opset,
external data; source parameters of 16 and 64 bits; external files that must stay closed (under strace); 3 GiB of weights.
"""
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter

from harness import Failed, Model, expect, run_checks

CHECKS = []
MODELS = ["mlp_mnist", "lenet_mnist"]
STEPS = 20
OLDEST, NEWEST = 13, onnx.defs.onnx_opset_version()
MAX_RSS = 300 << 20
GIB = 1 << 30


def check(function):
    CHECKS.append(function)
    return function


# ---- the forms --------------------------------------------------------------------------------------------


def shuffled(model):
    nodes = list(model.graph.node)
    random.Random(7).shuffle(nodes)
    set_nodes(model, nodes)


def reversed_nodes(model):
    set_nodes(model, list(model.graph.node)[::-1])


def set_nodes(model, nodes):
    nodes = [copy_of(node) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def copy_of(message):
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def unnamed(model):
    for node in model.graph.node:
        node.name = ""


def equally_named(model):
    for node in model.graph.node:
        node.name = "node"


def ir3(model):
    model.ir_version = 3
    weights_as_inputs(model)


def weights_as_inputs(model):
    for t in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))


def as_constants(model):
    constants = []
    for t in model.graph.initializer:
        value = copy_of(t)
        value.name = ""
        constants.append(helper.make_node("Constant", [], [t.name], value=value))
    del model.graph.initializer[:]
    set_nodes(model, list(model.graph.node) + constants)
    return [flag for node in constants for flag in ("--trainable", node.output[0])]


def as_lists(model):
    """Biases as Constant nodes of a list of floats."""
    biases = [t for t in model.graph.initializer if len(t.dims) == 1]
    constants = [helper.make_node("Constant", [], [t.name], value_floats=numpy_helper.to_array(t).tolist()) for t in biases]
    kept = [copy_of(t) for t in model.graph.initializer if len(t.dims) != 1]
    names = [t.name for t in model.graph.initializer]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    set_nodes(model, constants + list(model.graph.node))
    return [flag for name in names for flag in ("--trainable", name)]


def in_functions(model):
    """Every node becomes a function of its own, the second half of them a function that calls those; attributes are handed down."""
    domain, opset = "forms", list(model.opset_import)
    opsets = opset + [helper.make_opsetid(domain, 1)]
    calls, functions, outer = [], [], {}
    for i, node in enumerate(model.graph.node):
        inner = copy_of(node)
        del inner.attribute[:]
        for a in node.attribute:
            inner.attribute.add(name=a.name, type=a.type, ref_attr_name=a.name)
        functions.append(helper.make_function(domain, f"Node{i}", [x for x in node.input if x], list(node.output), [inner], opset,
                                              [a.name for a in node.attribute]))
        call = helper.make_node(f"Node{i}", [x for x in node.input if x], list(node.output), domain=domain)
        call.attribute.extend(node.attribute)
        calls.append(call)
    half = len(calls) // 2
    body = []
    for i, call in enumerate(calls[half:]):
        inner = copy_of(call)
        del inner.attribute[:]
        for a in call.attribute:
            inner.attribute.add(name=a.name, type=a.type, ref_attr_name=f"{a.name}_{i}")
            outer[f"{a.name}_{i}"] = a
        body.append(inner)
    made = {name for call in body for name in call.output}
    needed = list(dict.fromkeys(name for call in body for name in call.input if name not in made))
    results = [o.name for o in model.graph.output]
    functions.append(helper.make_function(domain, "Tail", needed + ["not_given"], results, body, opsets, list(outer)))
    tail = helper.make_node("Tail", needed, results, domain=domain)
    for name, a in outer.items():
        given = copy_of(a)
        given.name = name
        tail.attribute.append(given)
    set_nodes(model, calls[:half] + [tail])
    model.functions.extend(functions)
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    model.ir_version = max(model.ir_version, 8)
    del model.graph.value_info[:]


def everything(model):
    in_functions(model)
    shuffled(model)
    equally_named(model)
    return as_constants(model)


FORMS = [shuffled, reversed_nodes, unnamed, equally_named, ir3, weights_as_inputs, as_constants, as_lists, in_functions, everything]
SORTED = [unnamed, equally_named, ir3, weights_as_inputs, as_lists, in_functions]  # the others are for readers that sort


# ---- bit-equal trajectories -------------------------------------------------------------------------------


def compile_to(tools, path, plan, loss, *flags):
    tools.run("ampc", path, "--loss", loss, "--policy", "torch-cpu", "--optimizer", "adamw:weight_decay=0.01", "--lr", "0.002",
              "-q", "-o", plan, *flags)
    return plan


def trajectory(tools, model, path, *flags):
    """Losses as the log has them, for each precision."""
    loss = "cross-entropy:target=label" if model.curves["loss"] == "ce" else "mse:target=target"
    out = []
    for precision in ("fp32", "bf16"):
        plan = compile_to(tools, path, tools.folder / "form.plan", loss, "--precision", precision, *flags)
        out += [line["loss"] for line in tools.train(plan, model.folder / "feeds.npz", STEPS)]
    expect(len(out) == 2 * STEPS and len(set(out)) > STEPS, f"{path.name}: no trajectory: {out}")
    return out


def expect_same(name, form, got, want):
    first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), None)
    expect(first is None, f"{name} {form}: loss {first} is {got[first] if first is not None else ''}, "
           f"not {want[first] if first is not None else ''}")


@check
def forms_train_alike(tools):
    """What decides nothing about a model decides nothing about its losses."""
    count = 0
    for name in MODELS:
        model = Model(name)
        for variant in ("ts_train", "dynamo_train"):
            source = onnx.load(model.path(variant))
            want = trajectory(tools, model, model.path(variant))
            for form in FORMS:
                changed = copy_of(source)
                flags = form(changed) or []
                if form in SORTED:
                    onnx.checker.check_model(changed)
                path = tools.folder / "form.onnx"
                onnx.save(changed, path)
                expect_same(name, f"{variant} {form.__name__}", trajectory(tools, model, path, *flags), want)
                count += 1
    return f"{count} forms, {STEPS} steps in fp32 and bf16 each: losses bit-equal"


@check
def exports_and_opsets_train_alike(tools):
    """Both exporters, static and dynamic batch, every opset that was exported or that onnx's converter makes."""
    count, opsets = 0, set()
    for name in MODELS:
        model = Model(name)
        want = trajectory(tools, model, model.path("ts_train"))
        paths = [model.path(v) for v in model.variants()]
        for path in paths:
            flags = ["--dim", "batch=16"] if "dynamic" in path.name else []
            expect_same(name, path.name, trajectory(tools, model, path, *flags), want)
            opsets.add(onnx.load(path, load_external_data=False).opset_import[0].version)
            count += 1
        source = onnx.load(model.path("ts_train"))
        for opset in range(OLDEST, NEWEST + 1):
            try:
                converted = version_converter.convert_version(source, opset)
                onnx.checker.check_model(converted)
            except Exception as error:  # a converter that lacks a step between two versions
                print(f"  {name} opset {opset}: not converted by onnx: {str(error).splitlines()[0][:100]}")
                continue
            path = tools.folder / "form.onnx"
            onnx.save(converted, path)
            expect_same(name, f"converted to opset {opset}", trajectory(tools, model, path), want)
            opsets.add(opset)
            count += 1
    expect({OLDEST, NEWEST} <= opsets, f"opsets {sorted(opsets)}")
    return f"{count} files of opset {', '.join(map(str, sorted(opsets)))}: losses bit-equal"


# ---- what exporters do to weights -------------------------------------------------------------------------


def quiet():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def exported_weights(tools, plan, model):
    """Initializers of the trained model; onnxruntime loads it."""
    out = tools.folder / "trained.onnx"
    tools.train(plan, model.folder / "feeds.npz", STEPS, "--export-model", out)
    onnx.checker.check_model(str(out))
    onnxruntime.InferenceSession(str(out), quiet(), providers=["CPUExecutionProvider"])
    exported = onnx.load(out)
    return {t.name: t for t in exported.graph.initializer}


@check
def default_exports_give_weights_back_under_their_names(tools):
    """Every float parameter that PyTorch trains is an initializer of the trained model: same name and type, other values."""
    count = 0
    for name in MODELS + ["conv1d_tcn", "autoencoder_mnist", "resnet_mnist"]:
        model = Model(name)
        loss = "cross-entropy:target=label" if model.curves["loss"] == "ce" else "mse:target=target"
        for variant in ("ts_eval", "dynamo_eval", "dynamo_train_optimized"):
            if variant not in model.exports:
                continue
            before = {t.name: t for t in onnx.load(model.path(variant)).graph.initializer}
            plan = compile_to(tools, model.path(variant), tools.folder / "default.plan", loss, "--precision", "fp32")
            after = exported_weights(tools, plan, model)
            mapping = model.exports[variant]["mapping"]["initializers"]
            for weight, origin in mapping.items():
                if "running_" in str(origin) or weight not in before or not np.issubdtype(numpy_helper.to_array(before[weight]).dtype, np.floating):
                    continue
                expect(weight in after, f"{name} {variant}: '{weight}' is not in the trained model")
                a, b = before[weight], after[weight]
                expect(a.data_type == b.data_type and a.dims == b.dims, f"{name} {variant}: '{weight}' changed its type")
                expect((numpy_helper.to_array(a) != numpy_helper.to_array(b)).any(), f"{name} {variant}: '{weight}' did not train")
                count += 1
    return f"{count} weights"


@check
def weights_stored_transposed(tools):
    """Gemm's matrices stored the other way round behind a Transpose node: the same losses, and they come back as they were stored."""
    model = Model("mlp_mnist")
    want = trajectory(tools, model, model.path("ts_train"))
    changed = onnx.load(model.path("ts_train"))
    turned = {}
    for t in changed.graph.initializer:
        if len(t.dims) == 2:
            turned[t.name] = numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(t).T), t.name)
            t.CopyFrom(turned[t.name])
    for node in changed.graph.node:
        for i, x in enumerate(node.input):
            if x in turned:
                node.input[i] = x + "_turned"
    transposes = [helper.make_node("Transpose", [name], [name + "_turned"], perm=[1, 0]) for name in turned]
    set_nodes(changed, transposes + list(changed.graph.node))
    path = tools.folder / "turned.onnx"
    onnx.save(changed, path)
    got = trajectory(tools, model, path)
    distance = max(abs(float(a) / float(b) - 1) for a, b in zip(got[:STEPS], want[:STEPS]))
    expect(distance <= 1e-5, f"fp32 losses differ by {distance}")
    plan = compile_to(tools, path, tools.folder / "turned.plan", "cross-entropy:target=label", "--precision", "fp32")
    after = exported_weights(tools, plan, model)
    for name, t in turned.items():
        expect(after[name].dims == t.dims and after[name].raw_data != t.raw_data, f"'{name}' did not train as it was stored")
    return f"{len(turned)} matrices; fp32 losses within {distance:.1e}"


def with_weights_of(model, dtype):
    """The model with its weights stored in `dtype` and cast to float where they are read."""
    casts = []
    for t in model.graph.initializer:
        wide = numpy_helper.to_array(t)
        raw = {TensorProto.FLOAT16: lambda: wide.astype(np.float16), TensorProto.DOUBLE: lambda: wide.astype(np.float64),
               TensorProto.BFLOAT16: lambda: (wide.view(np.uint32) >> 16).astype(np.uint16)}[dtype]()
        for node in model.graph.node:
            for i, x in enumerate(node.input):
                if x == t.name:
                    node.input[i] = t.name + "_float"
        casts.append(helper.make_node("Cast", [t.name], [t.name + "_float"], to=TensorProto.FLOAT))
        t.ClearField("float_data")
        t.data_type = dtype
        t.raw_data = raw.tobytes()
    set_nodes(model, casts + list(model.graph.node))


@check
def source_parameters_of_other_widths(tools):
    """fp16, bf16 and fp64 parameters train and come back in their own type; --info says what they are."""
    told = []
    for dtype, word in ((TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16"), (TensorProto.DOUBLE, "double")):
        for name in MODELS:
            model = Model(name)
            changed = onnx.load(model.path("ts_train"))
            with_weights_of(changed, dtype)
            path = tools.folder / "width.onnx"
            onnx.save(changed, path)
            names = [t.name for t in changed.graph.initializer]
            info = tools.run("ampc", path, "--info").stdout
            for weight in names:
                expect(re.search(rf"^{re.escape(weight)} +{word}\[[\d,]+\] +weight +trains$", info, re.M), f"--info of {weight}: {info}")
            for precision in ("fp32", "bf16"):
                plan = compile_to(tools, path, tools.folder / "width.plan", "cross-entropy:target=label", "--precision", precision)
                after = exported_weights(tools, plan, model)
                for t in changed.graph.initializer:
                    expect(after[t.name].data_type == dtype, f"{name}: '{t.name}' came back as type {after[t.name].data_type}")
                    expect(after[t.name].raw_data != t.raw_data, f"{name}: '{t.name}' of {word} did not train")
        told.append(word)
    return ", ".join(told)


# ---- external data ----------------------------------------------------------------------------------------


def external_model(location, dims=(4, 3), **keys):
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in dict(location=location, **keys).items():
        t.external_data.add(key=key, value=str(text))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, dims[0]))],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, dims[1]))], [t])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_constant(model):
    value = copy_of(model.graph.initializer[0])
    del model.graph.initializer[:]
    set_nodes(model, [helper.make_node("Constant", [], ["w"], value=value)] + list(model.graph.node))
    return model


OPENED = re.compile(r"^\d* *(?:open|openat|openat2)\(.* = \d+<(.*?)>(?:\(deleted\))?$")


def opened_files(trace):
    """Real paths of the files that a traced process opened for reading or writing (O_PATH opens no bytes)."""
    found = set()
    for line in trace.read_text(errors="replace").splitlines():
        match = OPENED.match(line.strip())
        if match and "O_PATH" not in line:
            found.add(match[1])
    return found


@check
def forbidden_external_files_stay_closed(tools):
    """Every location that is refused, under strace: the error names tensor and path, and the target was never opened."""
    strace = shutil.which("strace")
    probe = strace and subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, text=True)
    if not probe or probe.returncode != 0:
        return f"SKIPPED: {'no strace on PATH' if not probe else 'strace cannot trace here: ' + probe.stderr.strip()[:200]}"
    base = tools.folder / "external"
    folder = base / "models"
    (folder / "a").mkdir(parents=True)
    (base / "x").write_bytes(bytes(48))
    (base / "private").mkdir()
    (base / "private" / "w.bin").write_bytes(bytes(48))
    (folder / "good.bin").write_bytes(bytes(48))
    (folder / "short.bin").write_bytes(bytes(47))
    os.symlink(base / "x", folder / "link.bin")
    os.symlink("good.bin", folder / "near.bin")
    os.symlink(base / "private", folder / "linked")
    os.link(base / "x", folder / "hard.bin")
    os.mkfifo(folder / "pipe.bin")
    os.symlink("/dev/zero", folder / "device.bin")
    forbidden = {str(p) for p in (base / "x", base / "private" / "w.bin", folder / "link.bin", folder / "hard.bin", folder / "near.bin",
                                  folder / "pipe.bin", folder / "device.bin", folder / "a")} | {"/etc/passwd", "/dev/zero", "/dev/null"}
    refused = ["/etc/passwd", str(base / "x"), str(folder / "good.bin"), "../x", "a/../../x", "./a/.././../x", "a/../good.bin", "link.bin",
               "near.bin", "linked/w.bin", "hard.bin", "pipe.bin", "device.bin", "/dev/zero", "a", "a/", "missing.bin", "none/w.bin", ""]
    model, trace = folder / "m.onnx", base / "trace"
    command = [strace, "-f", "-y", "-s", "4096", "-e", "trace=open,openat,openat2", "-o", trace, tools.binaries / "ampc", model, "--loss", "mse", "-q",
               "-o", base / "out.plan"]

    def outcome(m, cwd=base):
        onnx.save(m, model)
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, cwd=cwd)

    seen = outcome(external_model("good.bin"))
    expect(seen.returncode == 0 and str(folder / "good.bin") in opened_files(trace), f"the trace misses a file that is read: {seen.stderr}")
    (base / "out.plan").unlink()
    for where in (lambda m: m, in_constant):
        for location in refused:
            done = outcome(where(external_model(location)), folder if "good" in location else base)
            what = f"location '{location}'"
            expect(done.returncode == 1, f"{what}: exit {done.returncode}: {done.stderr}")
            expect("error[E0105]" in done.stderr and "'w'" in done.stderr and location in done.stderr, f"{what}: {done.stderr}")
            opened = {path for path in opened_files(trace) if path in forbidden or (path.startswith(str(base)) and path != str(model))}
            expect(not opened, f"{what}: {opened} was opened")
            expect(not (base / "out.plan").exists(), f"{what}: a plan was left behind")
    ranges = [dict(offset=-1), dict(offset=8), dict(offset=2**63 - 1), dict(offset=2**63), dict(length=-1), dict(length=47), dict(length=2**62),
              dict(length=0), dict(colour=1)]
    for keys in ranges:
        done = outcome(external_model("good.bin", **keys))
        expect(done.returncode == 1 and "error[E0105]" in done.stderr and "'w'" in done.stderr, f"{keys}: exit {done.returncode}: {done.stderr}")
    done = outcome(external_model("short.bin"))
    expect(done.returncode == 1 and "short.bin" in done.stderr, f"short file: {done.stderr}")
    sparse = external_model("good.bin")
    s = sparse.graph.sparse_initializer.add(dims=[4, 3])
    s.values.CopyFrom(TensorProto(name="thin", data_type=TensorProto.FLOAT, dims=[1], float_data=[1.0]))
    s.indices.CopyFrom(TensorProto(data_type=TensorProto.INT64, dims=[1], int64_data=[1]))
    done = outcome(sparse)
    expect(done.returncode == 3 and "'thin'" in done.stderr and "sparse" in done.stderr, f"sparse: exit {done.returncode}: {done.stderr}")
    return f"{2 * len(refused)} locations never opened, {len(ranges) + 2} ranges and forms refused"


# ---- models over 2 GiB --------------------------------------------------------------------------------------


# A child's peak starts at that of the process that forks it: a small one does.
MEASURE = """import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)"""


def peak_of(command):
    """Peak resident bytes of one process, and what it printed."""
    done = subprocess.run([sys.executable, "-S", "-c", MEASURE, *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return int(done.stdout.splitlines()[-1]) * 1024, done.stdout


def many_layers(layers, rows, data):
    """A chain of `layers` square weights in one file."""
    model = external_model(data, (rows, rows))
    first = model.graph.initializer[0]
    del model.graph.initializer[:], model.graph.node[:]
    length = 4 * rows * rows
    for i in range(layers):
        t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=first.dims, data_location=TensorProto.EXTERNAL)
        for key, text in (("location", data), ("offset", i * length), ("length", length)):
            t.external_data.add(key=key, value=str(text))
        model.graph.initializer.append(t)
        model.graph.node.append(helper.make_node("MatMul", ["x" if i == 0 else f"h{i}", f"w{i}"], ["y" if i == layers - 1 else f"h{i + 1}"]))
    return model


@check
def three_gib_of_weights_need_little_memory(tools):
    """One tensor of 3 GiB and 192 of 16 MiB, holes on the disk: --info, --emit text and the plan itself stay under 300 MiB."""
    folder = tools.folder / "large"
    folder.mkdir()
    with open(folder / "w.bin", "wb") as file:
        file.truncate(3 * GIB)
    models = {"one tensor": external_model("w.bin", (1024, 786432), length=3 * GIB), "192 tensors": many_layers(192, 2048, "w.bin")}
    told = []
    for name, model in models.items():
        path, plan = folder / "m.onnx", folder / "m.plan"
        onnx.save(model, path)
        ampc, settings = tools.binaries / "ampc", ["--loss", "mse", "--optimizer", "adamw"]
        runs = {"info": [ampc, path, "--info"], "text": [ampc, path, *settings, "--emit", "text", "-o", folder / "m.onnxtext"]}
        free = shutil.disk_usage(folder).free
        if free >= 6 * GIB:
            runs["plan"] = [ampc, path, *settings, "-o", plan]
        else:
            told.append(f"plan of {name} SKIPPED: {free >> 30} GiB free, 6 needed")
        for what, command in runs.items():
            peak, text = peak_of(command)
            expect(peak < MAX_RSS, f"{name}, {what}: {peak >> 20} MiB resident")
            if what == "info":
                expect(f"train with {3 * GIB // 4} elements" in text, text)
            if what == "plan":
                expect(plan.stat().st_size >= 3 * GIB, f"the plan has {plan.stat().st_size} bytes, without the weights")
                plan.unlink()
            told.append(f"{name} {what} {peak >> 20} MiB")
    shutil.rmtree(folder)
    return ", ".join(told)


if __name__ == "__main__":
    run_checks(CHECKS)
