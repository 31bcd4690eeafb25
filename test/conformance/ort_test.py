#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the samples table in onnxruntime and compares shapes, element types and values with our reference kernels.

    ort_test.py SAMPLES_DUMP [--verbose]

SAMPLES_DUMP is the binary that writes the table (samples_dump.cc). Standard ops run as they are, own ops as the functions
that define them. onnxruntime's CPU has no kernel for some ops in float16, bfloat16 or float64: those are counted, not
compared; in float32 nothing may be missing. Tolerances: one rounding of the element type on either side, plus what `terms`
sums in float32 (float64) may lose, seen against the root mean square of the result, or 1, the size of the operands.
"""

import collections
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

# Relative spacing of numbers, and the smallest number that is still told apart.
EPSILON = {"double": 2.0**-52, "float": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Samples that onnxruntime cannot run in any type, and why; an entry that it runs after all is a failure. Recurrent layers with
# layout = 1, which it does not have, count among them (refused()).
REFUSED = {
    "ConvTranspose T[1,2,4] T[2,1,3] dilations=[3] group=1 output_padding=[2] pads=[1,2] strides=[2]":
        "it wants output_padding below the stride; PyTorch, below the stride or the dilation",
    "LRN T[2,4,3] alpha=0.3 beta=0.5 bias=1.5 size=4": "it wants an odd size and four axes",
    "LRN T[3,2] alpha=0.2 size=5": "it wants four axes",
}
# Ops of the newer opset without a kernel; their types are held to ONNX's inference (types_test).
MISSING = ("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Bernoulli")
# Recurrent layers round the hidden state to a low type between steps. onnxruntime's own keep fp32 within the node; the own ops
# as functions round as we do, but a tie that falls to the other side changes all that follows, and large samples have some.
RECURRENT, LARGE = ("RNN", "GRU", "LSTM"), 4096
# Values that are less exact on the other side: (op, type) -> relative error and the reason.
ROUGH = {("Gelu", "double"): (1e-6, "ONNX's definition has its constants in float32")}
TYPES = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}
SMALLEST = {"double": 1e-300, "float": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}


def records(path):
    with open(path, "rb") as file:
        while head := file.read(8):
            model = onnx.ModelProto.FromString(file.read(struct.unpack("<Q", head)[0]))
            data = onnx.GraphProto.FromString(file.read(struct.unpack("<Q", file.read(8))[0]))
            yield model, data


def type_name(tensor_type):
    name = onnx.TensorProto.DataType.Name(tensor_type.elem_type).lower()
    return name, [d.dim_value for d in tensor_type.shape.dim]


def is_float(name):
    return name in EPSILON


def wrap_bfloat16(model):
    """numpy has no bfloat16, so graph inputs and outputs of that type become float32 with an exact Cast behind or before.

    The inner values keep their declared types, which onnxruntime checks against what it infers.
    """
    graph, bf16, f32 = model.graph, onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    before, after = [], []
    for infos, casts in ((graph.input, before), (graph.output, after)):
        for info in infos:
            if info.type.tensor_type.elem_type != bf16:
                continue
            inner, outer = info.name, info.name + "_f32"
            graph.value_info.add().CopyFrom(info)
            info.name = outer
            info.type.tensor_type.elem_type = f32
            if casts is before:
                before.append(onnx.helper.make_node("Cast", [outer], [inner], to=bf16))
            else:
                after.append(onnx.helper.make_node("Cast", [inner], [outer], to=f32))
    nodes = before + list(graph.node) + after
    del graph.node[:]
    graph.node.extend(nodes)


def run(model, tensors):
    """(values by output name, ""), or (None, why) when onnxruntime has no kernel."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 (the classes of onnxruntime's errors are not public)
        # ONNX gave Celu the other types in opset 28, behind the opset of the model.
        # A type that the op takes only since a later opset is no type error of ours: onnx itself has checked the node.
        newer = "of input parameter" in str(error) and "is invalid" in str(error)
        if "NOT_IMPLEMENTED" in str(error) or newer or any(n.op_type == "Celu" for n in model.graph.node):
            return None, str(error)
        raise
    feeds = {}
    for info in model.graph.input:
        array = numpy_helper.to_array(tensors[info.name.removesuffix("_f32")])
        feeds[info.name] = array.astype(np.float32) if info.name.endswith("_f32") else array
    names = [o.name for o in model.graph.output]
    try:
        return dict(zip(names, session.run(names, feeds))), ""
    except Exception as error:  # noqa: BLE001
        # A kernel that is registered, but empty, or that takes a type for some of its attributes only.
        if "does not support double yet" in str(error) or "data type is not supported with" in str(error):
            return None, str(error)
        raise


def refused(label):
    return label in REFUSED or (label.split()[0] in RECURRENT and "layout=1" in label)


def rounds_between_steps(label, dtype, tensors):
    op = label.split()[0]
    if dtype not in ("float16", "bfloat16") or op.removesuffix("Train").removesuffix("Grad").upper() not in RECURRENT:
        return False
    return op in RECURRENT or any(np.prod(t.dims) > LARGE for t in tensors.values())


def compare(found, expected, name, terms, rough):
    """Index and values of the worst element outside its tolerance, or None."""
    if not is_float(name):
        bad = np.flatnonzero(found.ravel() != expected.ravel())
        return None if bad.size == 0 else (int(bad[0]), found.ravel()[bad[0]], expected.ravel()[bad[0]])
    f, e = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    finite = np.isfinite(e)
    rms = float(np.sqrt(np.mean(e[finite] ** 2))) if finite.any() else 0.0
    accumulation = EPSILON["double" if name == "double" else "float"]
    bound = (1.02 * EPSILON[name] + rough) * np.abs(e) + 16 * accumulation * np.sqrt(terms) * max(rms, 1.0) + SMALLEST[name]
    with np.errstate(invalid="ignore"):
        good = np.where(finite, np.abs(f - e) <= bound, (f == e) | (np.isnan(f) & np.isnan(e)))
    if good.all():
        return None
    with np.errstate(invalid="ignore"):
        worst = int(np.argmax(np.where(good, -1, np.nan_to_num(np.abs(f - e) / bound, nan=np.inf))))
    return worst, f[worst], e[worst]


def main():
    dump, verbose = sys.argv[1], "--verbose" in sys.argv[2:]
    count = collections.Counter()
    failures = []
    missing = collections.defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples.bin")
        subprocess.run([dump, path], check=True)
        for model, data in records(path):
            meta = {p.key: p.value for p in model.metadata_props}
            label = f"{model.doc_string} in {meta['type']}"
            tensors = {t.name: t for t in data.initializer}
            declared = {o.name: type_name(o.type.tensor_type) for o in model.graph.output}
            wrap_bfloat16(model)
            kind = ("own " if meta["own"] == "1" else "standard ") + meta["type"]
            if rounds_between_steps(model.doc_string, meta["type"], tensors):
                count[kind + " rounds between steps"] += 1
                continue
            try:
                outputs, reason = run(model, tensors)
            except Exception as error:  # noqa: BLE001 (any failure of the other side is a finding)
                if refused(model.doc_string):
                    count[kind + " refused"] += 1
                    continue
                failures.append(f"{label}: {str(error).strip().splitlines()[0][:400]}")
                continue
            if outputs is None:
                count[kind + " missing"] += 1
                missing[meta["type"]].add(model.doc_string.split()[0])
                if meta["type"] == "float" and model.doc_string.split()[0] not in MISSING:
                    failures.append(f"{label}: {reason.splitlines()[0][:400]}")
                continue
            if refused(model.doc_string):
                failures.append(f"{label}: onnxruntime runs it: strike it from REFUSED")
            count[kind + " compared"] += 1
            for name, (dtype, dims) in declared.items():
                value = outputs[name + "_f32" if dtype == "bfloat16" else name]
                expected_type = "float32" if dtype == "bfloat16" else onnx.helper.tensor_dtype_to_np_dtype(TYPES[dtype]).name
                if value.dtype.name != expected_type or list(value.shape) != dims:
                    failures.append(f"{label}: {name} is {value.dtype.name}{list(value.shape)}, inferred {dtype}{dims}")
                    continue
                if name not in tensors:
                    continue  # only types
                expected = numpy_helper.to_array(tensors[name])
                rough, _ = ROUGH.get((model.doc_string.split()[0], meta["type"]), (0.0, ""))
                bad = compare(value, expected, dtype, float(meta["terms"]), rough)
                if bad:
                    failures.append(f"{label}: {name}[{bad[0]}]: onnxruntime {bad[1]!r}, ours {bad[2]!r}")
    for failure in failures:
        print("FAILED", failure)
    for kind in sorted(count):
        print(f"{kind:36} {count[kind]:6}")
    if verbose:
        for kind, ops in sorted(missing.items()):
            print(f"no kernel in {kind}: {', '.join(sorted(ops))}")
    print(f"{len(failures)} failures")
    return 1 if failures or count["standard float compared"] == 0 or count["own float compared"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
