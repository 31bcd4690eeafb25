#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora of the fuzz targets: seeds.py CORPUS_FOLDER FUZZ_SEEDS_BINARY TOOLS_FOLDER

Everything comes from this script, from files of the repository, and from our own writers. Plans of real models
need a built ampc in TOOLS_FOLDER; without it this is said, and the plan corpus holds the hand-made plan alone.
"""

import glob
import gzip
import io
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MAX_MODEL = 16384


class Corpus:
    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.makedirs(self.folder, exist_ok=True)

    def put(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


# ---- ONNX ----------------------------------------------------------------------------------------------------

# One graph per family of ops, in ONNX text: the fuzzer's mutations keep more of a text than of a protobuf.
HEAD = '<ir_version: 8, opset_import: ["" : %d]>\n'
TEXTS = {
    "mlp": (13, """g (float[2,3] x) => (float[2,2] y)
<float[3,4] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2}, float[4] b = {1,2,3,4}, float[4,2] w2 = {1,2,3,4,5,6,7,8}>
{ h = Gemm <alpha = 1.0, transB = 0> (x, w, b)  r = Relu (h)  y = MatMul (r, w2) }"""),
    "conv": (13, """g (float[1,2,6,6] x) => (float[1,3,2,2] y)
<float[3,2,3,3] w = {%s}>
{ c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)  r = Relu (c)  y = MaxPool <kernel_shape = [2,2], strides = [3,3]> (r) }"""
             % ",".join(["0.5"] * 54)),
    "shape": (13, """g (float[N,3,4] x) => (float[A,B] y)
<int64[2] s = {0,-1}, int64[1] ax = {0}, int64 one = {1}>
{ sh = Shape (x)  d = Gather <axis = 0> (sh, one)  u = Unsqueeze (d, ax)  y = Reshape (x, s)  z = Concat <axis = 0> (u, u) }"""),
    "norm": (17, """g (float[2,4] x) => (float[2,4] y)
<float[4] s = {1,1,1,1}, float[4] b = {0,0,0,0}>
{ y = LayerNormalization <axis = -1, epsilon = 0.00001> (x, s, b) }"""),
    "bn": (15, """g (float[2,3,2,2] x) => (float[2,3,2,2] y)
<float[3] s = {1,1,1}, float[3] b = {0,0,0}, float[3] m = {0,0,0}, float[3] v = {1,1,1}>
{ y = BatchNormalization <epsilon = 0.00001, momentum = 0.9> (x, s, b, m, v) }"""),
    "reduce": (18, """g (float[2,3,4] x) => (float[2,4] y)
<int64[1] a = {1}>
{ m = ReduceMean <keepdims = 0> (x, a)  e = Exp (m)  y = Softmax <axis = -1> (e) }"""),
    "embed": (13, """g (int64[2,3] x) => (float[2,3,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{ y = Gather (w, x) }"""),
    "slice": (13, """g (float[2,6] x) => (float[2,2] y)
<int64[1] b = {1}, int64[1] e = {5}, int64[1] a = {1}, int64[1] st = {2}>
{ s = Slice (x, b, e, a, st)  t = Transpose <perm = [1,0]> (s)  y = Transpose <perm = [1,0]> (t) }"""),
    "constant": (13, """g (float[2] x) => (float[2] y)
{ c = Constant <value = float[2] {1, 2}> ()  d = Cast <to = 1> (c)  y = Where (k, x, d)  k = Constant <value = bool[2] {1, 0}> () }"""),
    "split": (13, """g (float[4,2] x) => (float[2,2] a, float[2,2] b)
<int64[2] s = {2,2}>
{ a, b = Split <axis = 0> (x, s) }"""),
    "pad": (13, """g (float[2,2] x) => (float[4,3] y)
<int64[4] p = {1,0,1,1}, float v = {0}>
{ y = Pad <mode = "constant"> (x, p, v) }"""),
    "dropout": (13, """g (float[2,2] x) => (float[2,2] y)
<float r = {0.5}, bool t = {1}>
{ y = Dropout (x, r, t) }"""),
}
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2,3] x) => (float[2,3] y) { h = local.twice <k = 2> (x)  y = Identity (h) }
<domain: "local", opset_import: ["" : 17]>
twice <k> (a) => (b) { c = Constant <value_int: int = @k> ()  d = CastLike (c, a)  b = Mul (a, d) }
"""


def binary_models():
    """Forms that the text syntax has no words for."""
    weights = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc")], "g", [x], [y], [weights])
    yield "matmul", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    external = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "24")):
        external.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [external])
    yield "external", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    half = helper.make_tensor("h", TensorProto.FLOAT16, [2], [1.0, 2.0])
    branch = [helper.make_graph([helper.make_node("Constant", [], [n], value=half)], n, [],
                                [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2])]) for n in ("a", "b")]
    condition = numpy_helper.from_array(np.array(True), "c")
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
                              "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2])], [condition])
    yield "if", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_onnx(corpus):
    for name, (opset, text) in TEXTS.items():
        model = HEAD % opset + text
        onnx.parser.parse_model(model)  # a seed with a slip of the pen would teach nothing
        corpus.put(name + ".onnxtext", model)
        corpus.put(name + ".onnx", onnx.parser.parse_model(model).SerializeToString())
    corpus.put("function.onnxtext", FUNCTION)
    corpus.put("function.onnx", onnx.parser.parse_model(FUNCTION).SerializeToString())
    for name, model in binary_models():
        corpus.put(name + ".onnx", model.SerializeToString())
    for path in sorted(glob.glob(os.path.join(ROOT, "test/golden/models/*/*.onnx"))):
        if os.path.getsize(path) <= MAX_MODEL:
            corpus.put("-".join(path.split(os.sep)[-2:]), read(path))


def write_text(corpus):
    """The inputs of the pass tests, without the comments that drive them."""
    for path in sorted(glob.glob(os.path.join(ROOT, "test/passes/*.onnxtext"))):
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if not line.lstrip().startswith("#")]
        corpus.put(os.path.basename(path), "".join(lines)[:8192])


# ---- data files ----------------------------------------------------------------------------------------------


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def idx(array, code):
    return struct.pack(">HBB", 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_npz(corpus):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    corpus.put("f4.npy", npy(rows))
    corpus.put("fortran.npy", npy(np.asfortranarray(rows)))
    corpus.put("big_endian.npy", npy(rows.astype(">f8")))
    corpus.put("version3.npy", npy(rows.astype(np.float16), (3, 0)))
    corpus.put("i8.npy", npy(np.arange(5)))
    corpus.put("bool.npy", npy(np.array([True, False])))
    corpus.put("scalar.npy", npy(np.float64(3)))
    corpus.put("empty.npy", npy(np.zeros((0, 4), np.uint8)))
    for name, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
        out = io.BytesIO()
        save(out, x=rows, label=np.arange(4, dtype=np.int32))
        corpus.put(name, out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(npy(rows))
    corpus.put("zip64.npz", out.getvalue())
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    corpus.put("u1.idx", idx(images, 0x08))
    corpus.put("f4.idx", idx(rows.astype(">f4"), 0x0D))
    corpus.put("u1.idx.gz", gzip.compress(idx(images, 0x08), mtime=0))
    corpus.put("members.idx.gz", gzip.compress(idx(images, 0x08)[:10], mtime=0) +
               gzip.compress(idx(images, 0x08)[10:], mtime=0))


def write_tokens(corpus):
    text = "to be, or not to be\n\u00e9\u20ac\U0001f600\n".encode()
    for choice in (0, 1, 38, 64 + 16, 128 + 5, 255):
        corpus.put(f"text{choice}", bytes([choice, 0]) + text)
    corpus.put("vocabulary", bytes([6, len(text)]) + text + b"not to be")
    corpus.put("numbers", bytes([48, 0]) + np.arange(9, dtype="<i8").tobytes())


def safetensors(header, data=b"", pad=True):
    text = header.encode()
    text += b" " * (-len(text) % 8 if pad else 0)
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(corpus):
    corpus.put("empty", safetensors("{}"))
    corpus.put("one", safetensors('{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}', bytes(24)))
    corpus.put("two", safetensors('{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2],"data_offsets":'
                                  '[8,12]},"b":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}', bytes(12)))
    corpus.put("zero", safetensors('{"e":{"dtype":"U8","shape":[0,5],"data_offsets":[0,0]},"\\u00e9":{"dtype":"BOOL",'
                                   '"shape":[1],"data_offsets":[0,1]}}', bytes(1), pad=False))


# ---- settings ------------------------------------------------------------------------------------------------


def write_recipe(corpus):
    for path in sorted(glob.glob(os.path.join(ROOT, "examples/*/*.yaml"))):
        corpus.put(os.path.basename(os.path.dirname(path)) + ".yaml", read(path))
    corpus.put("maps.yaml", """model: a.onnx
dim: {batch: 64, "eval:batch": 250}
loss: [{kind: cross-entropy, target: label, axis: 1, label_smoothing: 0.1}, {kind: mse, input: y, factor: 0.5}]
metric: [accuracy, {kind: accuracy, k: 5}]
optimizer: {kind: adamw, betas: [0.9, 0.999], weight_decay: 0.01}
lr: 4.0e-3
lr_schedule: {kind: cosine, warmup: 50}
precision: fp16
loss_scale: {kind: dynamic, init_scale: 1024}
param_group: {"*.bias": {lr: 0.1, weight_decay: 0}}
no_decay: 1d
data: {image: {file: x.idx.gz, scale: 1/256, mean: [0.1, 0.2], permute: [0, 3, 1, 2]}, label: {file: y.npz, member: y}}
range: "0:90%"
epochs: 5
checkpoint_every: 200
""")
    corpus.put("styles.yaml", "lr: '0.1'\n\"precision\":\n  bf16\nmetric:\n- accuracy\n- mae # comment\nclip_norm: |-\n  1\n")
    corpus.put("policy", "p" + """base: torch-cuda
rules:
  - {node: "/encoder/*/attn/*", class: fp32}
  - {op: Softmax, class: low}
  - {between: [x1, y7], class: fp32}
limits: {init_abs_max: 65504, value_abs_max: 0, reduction_depth: 0}
""")
    corpus.put("ampc", "a" + "\n".join(
        ["m.onnx", "-o", "t.plan", "--loss", "cross-entropy:target=label,weight=[1,2,3]", "--metric", "accuracy:k=5",
         "--optimizer", "sgd:momentum=0.9,nesterov=true", "--lr", "1/10", "--lr-schedule", "step:step_size=10,gamma=0.5",
         "--dim", "N=4", "--dim", "eval:N=8", "--trainable", "*", "--freeze", "'a:b=c'", "--loss-scale",
         "dynamic:growth_interval=10,max_scale=inf", "--param-group", "*.bias:lr=0.1,weight_decay=0"]))
    corpus.put("amprun", "u" + "\n".join(
        ["t.plan", "--data", "image=x.npy:scale=1/255,mean=[0.1,0.2,0.3],permute=[0,3,1,2]", "--data", "y=random",
         "--range", "0:90%", "--epochs", "3", "--lr", "0.5", "--checkpoint-dir", "ck", "--keep", "3", "--fetch",
         "train:*", "--fetch-out", "f.npz", "--threads=2", "--seed", "7", "--no-shuffle"]))


def write_plans(corpus, tools):
    ampc = os.path.join(tools, "ampc")
    if not os.access(ampc, os.X_OK):
        print(f"seeds.py: no {ampc}, so the plan corpus holds no compiled models (build the release preset first)")
        return
    made = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (opset, text) in TEXTS.items():
            source = os.path.join(folder, name + ".onnxtext")
            with open(source, "w", encoding="utf-8") as file:
                file.write((HEAD % opset + text).replace("float[N,", "float[2,"))
            for kind, flags in (("train", ["--loss", "mse", "--optimizer", "adamw", "--precision", "fp16"]),
                                ("bf16", ["--loss", "mse", "--optimizer", "sgd:momentum=0.9", "--accumulate", "2"]),
                                ("forward", ["--forward-only", "--precision", "fp32"])):
                target = os.path.join(folder, f"{name}-{kind}.plan")
                run = subprocess.run([ampc, source, "-o", target, *flags], capture_output=True)
                if run.returncode == 0 and os.path.getsize(target) <= 65536:
                    corpus.put(os.path.basename(target), read(target))
                    made += 1
    if made == 0:
        sys.exit(f"seeds.py: {ampc} compiles none of the seeds")


def main():
    folder, fuzz_seeds, tools = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    write_onnx(Corpus(folder, "onnx"))
    write_text(Corpus(folder, "text"))
    write_npz(Corpus(folder, "npz"))
    write_tokens(Corpus(folder, "tokens"))
    write_safetensors(Corpus(folder, "safetensors"))
    write_recipe(Corpus(folder, "recipe"))
    environment = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1")
    subprocess.run([fuzz_seeds, folder], check=True, env=environment)
    write_plans(Corpus(folder, "plan"), tools)
    print("seeds:", ", ".join(f"{name} {len(os.listdir(os.path.join(folder, name)))}" for name in sorted(os.listdir(folder))))


if __name__ == "__main__":
    main()
