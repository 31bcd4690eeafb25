# SPDX-License-Identifier: Apache-2.0
"""Models: the protobuf, its graph, the tensors in it and beside it."""

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from case import Case, directory, fifo, link_to

F, I64, STR = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
AMPC = ["ampc", "m.onnx", "-o", "out.plan", "--loss", "mse", "--precision", "fp32", "-q"]
FORWARD = ["ampc", "m.onnx", "-o", "out.plan", "--forward-only", "-q"]
WEIGHT = numpy_helper.from_array(np.full((3, 2), 0.5, np.float32), "w")
HUGE = 1 << 62


def value(name, dims=(4, 3), dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name="/" + outputs[0] if outputs else "/none", **attributes)


def model(nodes, inputs=None, outputs=None, initializers=None, opset=17, functions=(), domains=()):
    graph = helper.make_graph(nodes, "g", [value("x")] if inputs is None else inputs,
                              [value("y", None)] if outputs is None else outputs,
                              [WEIGHT] if initializers is None else initializers)
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def mlp():
    return model([node("MatMul", ["x", "w"], ["y"])])


def embedding():
    """Integers below 4 in x [2,3] to their rows of w [4,1]."""
    return model([node("Gather", ["w", "x"], ["y"])], [value("x", (2, 3), I64)], initializers=[tensor((4, 1), float_data=(1, 2, 3, 4))])


def tensor(dims, dtype=F, name="w", **fields):
    t = TensorProto(name=name, data_type=dtype, dims=dims)
    for field, content in fields.items():
        if field == "raw":
            t.raw_data = content
        else:
            getattr(t, field).extend(content)
    return t


def case(name, m, exit, pattern, argv=None, files=None):
    data = m if isinstance(m, bytes) else m.SerializeToString()
    return Case("model: " + name, argv or AMPC, exit, pattern, {"m.onnx": data, **(files or {})})


def varint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def wire_cases():
    good = mlp().SerializeToString()
    for i in range(20):
        yield case(f"cut at {i}/20", good[:len(good) * i // 20], 1, r"m\.onnx: error\[E01\d\d\]: ")
    zeros = bytes(100)
    for name, data in (
        ("zeros", zeros), ("text", b"this is no model\n" * 20), ("gzip", b"\x1f\x8b\x08" + zeros),
        ("graph as a number", varint(7 << 3) + b"\x05"), ("group", varint(7 << 3 | 3) + zeros),
        ("field 0", b"\x02\x00"), ("wire type 7", varint(7 << 3 | 7) + zeros),
        ("varint of 11 bytes", varint(1 << 3) + b"\xff" * 11), ("length beyond the end", b"\x3a\xff\xff\xff\x7f" + zeros),
        ("length of 2^63", b"\x3a" + b"\xff" * 9 + b"\x01" + zeros), ("initializer cut", good[:-8] + b"\xff" * 8),
        ("nested 5000 deep", nested(5000)), ("nested 60 deep in subgraphs", nested(60))):
        yield case("protobuf: " + name, data, 1, r"m\.onnx: error\[E01\d\d\]: ")
    for name, place, exit, pattern in (
        ("is a folder", directory, 6, "m.onnx.*[Ii]s a directory"), ("is a pipe", fifo, 6, "m.onnx.*not a regular file"),
        ("is a device", link_to("/dev/zero"), 6, "m.onnx.*not a regular file"),
        ("is a link to itself", link_to("m.onnx"), 6, "m.onnx.*symbolic links")):
        yield Case("model: " + name, AMPC, exit, pattern, {"m.onnx": place})
    yield Case("model: missing", AMPC, 6, "m.onnx.*No such file")


def nested(depth):
    """A graph attribute in a node in a graph attribute …"""
    graph = b""
    for _ in range(depth):
        attribute = field(1, b"body") + varint(20 << 3) + b"\x05" + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute))
    return varint(1 << 3) + b"\x08" + field(7, graph) + field(8, varint(2 << 3) + b"\x11")


def tensor_cases():
    def with_w(t):
        return model([node("MatMul", ["x", "w"], ["y"])], initializers=[t])

    floats = np.ones(6, np.float32).tobytes()
    for name, t, pattern in (
        ("dim -1", tensor([-1, 2], raw=floats), r"'w'.*-1"),
        ("dim -2^63", tensor([-(1 << 63), 2], raw=floats), r"'w'.*-9223372036854775808"),
        ("product overflows", tensor([1 << 31, 1 << 31, 1 << 31], raw=floats), r"'w'"),
        ("bytes overflow", tensor([HUGE, 2], raw=floats), r"'w'"),
        ("product wraps to 6", tensor([1 << 63 - 1, 4, 6], raw=floats), r"'w'"),
        ("raw data too short", tensor([3, 2], raw=floats[:20]), r"'w'.*24.*20"),
        ("raw data too long", tensor([3, 2], raw=floats * 40), r"'w'.*24.*960"),
        ("no data", tensor([3, 2]), r"'w'.*(24|6)"),
        ("too few floats", tensor([3, 2], float_data=[1.0] * 5), r"'w'.*6.*5"),
        ("too many floats", tensor([3, 2], float_data=[1.0] * 7), r"'w'.*6.*7"),
        ("data of another type", tensor([3, 2], int64_data=[1] * 6), r"'w'"),
        ("raw and typed data", tensor([3, 2], raw=floats, float_data=[1.0] * 6), r"'w'"),
        ("256 MiB by dims alone", tensor([1 << 26], raw=b""), r"'w'.*268435456"),
        ("10,000 axes", tensor([1] * 10000, raw=floats[:4]), r"'w'|MatMul")):
        yield case("tensor: " + name, with_w(t), 1, r"m\.onnx: error\[E\d+\].*" + pattern)
    for name, t in (("type 0", tensor([3, 2], 0, raw=floats)), ("type 99", tensor([3, 2], 99, raw=floats)),
                    ("type -1", tensor([3, 2], -1, raw=floats)), ("strings", tensor([1], STR, string_data=[b"a"])), ("float8", tensor([6], 17, raw=bytes(6))),
                    ("int4", tensor([6], 22, raw=bytes(3))), ("complex", tensor([1], 14, raw=bytes(8)))):
        yield case("tensor: " + name, with_w(t), 3, r"m\.onnx: error\[E\d+\].*'w'")
    segment = tensor([3, 2], raw=floats)
    segment.segment.begin, segment.segment.end = 0, 1 << 60
    yield case("tensor: segment", with_w(segment), 3, r"'w'.*segment")
    yield case("tensor: zero elements", with_w(tensor([0, 2], raw=b"")), 1, r"inner|dim|differ|MatMul")
    sparse = mlp()
    s = sparse.graph.sparse_initializer.add()
    s.values.CopyFrom(tensor([1], raw=floats[:4], name="w2"))
    s.dims.extend([HUGE, HUGE])
    yield case("tensor: sparse", sparse, 3, "sparse")
    for name, dims, exit, pattern in (
        ("-5", [-5, 3], 2, r"of 'x'"), ("2^62", [HUGE, 3], 1, r"'x'|'/y'"), ("overflow", [1 << 40, 1 << 40], 1, r"'x'"),
        ("unbound name", ["batch", 3], 2, r"'batch'.*'x'|'x'.*batch"),
        ("name with escape codes", ["\x1b[2J", 3], 2, r"'x'"), ("empty", [0, 3], 1, "nothing to average"),
        ("300 axes", [1] * 300, 1, r"'x'|MatMul")):
        yield case("input: " + name, model([node("MatMul", ["x", "w"], ["y"])], [value("x", dims)]), exit,
                   r"m\.onnx: error.*(" + pattern + ")")
    for name, v, exit in (("without a type", onnx.ValueInfoProto(name="x"), 3), ("without a shape", value("x", None), 3),
                          ("of strings", value("x", (4, 3), STR), 3), ("of type 77", value("x", (4, 3), 77), 3),
                          ("a sequence", helper.make_tensor_sequence_value_info("x", F, [4, 3]), 3)):
        yield case("input: " + name, model([node("MatMul", ["x", "w"], ["y"])], [v]), exit, r"m\.onnx: error.*'x'")


def graph_cases():
    mm = node("MatMul", ["x", "w"], ["y"])

    def g(name, nodes, pattern, exit=1, argv=None, **kw):
        return case("graph: " + name, model(nodes, **kw), exit, r"(?s)m\.onnx: error\[E\d+\].*" + pattern, argv)

    yield g("cycle", [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["a"], ["y"])], "cycle|'/[ab]'")
    yield g("node that reads itself", [node("Add", ["x", "y"], ["y"])], "cycle|'/y'")
    yield g("value made twice", [mm, node("Relu", ["x"], ["y"])], "'y'")
    yield g("value made twice by one node", [node("Split", ["x"], ["y", "y"])], "'y'")
    yield g("node makes an input", [node("Relu", ["w"], ["x"]), mm], "'x'")
    yield g("node makes an initializer", [node("Relu", ["x"], ["w"]), mm], "'w'")
    yield g("two inputs of one name", [mm], "'x'", inputs=[value("x"), value("x")])
    yield g("two initializers of one name", [mm], "'w'", initializers=[WEIGHT, WEIGHT])
    yield g("two outputs of one name", [mm], "'y'", outputs=[value("y", None), value("y", None)])
    yield g("input that is missing", [node("MatMul", ["x", "nowhere"], ["y"])], "'nowhere'")
    yield g("output that is missing", [mm], "'z'", outputs=[value("z", None)])
    yield g("no outputs", [mm], "output", outputs=[])
    yield g("an input without a name", [mm], "input 1 of the graph has no name", inputs=[value("x"), value("")])
    yield g("an output without a name", [mm], "output 0 of the graph has no name", outputs=[value("")])
    yield g("no nodes", [], "", outputs=[value("y", None)])
    yield g("output is the input", [], "train|parameter|gradient", outputs=[value("x")])
    yield g("empty op", [helper.make_node("", ["x"], ["y"])], "op", exit=3)
    yield g("unknown op", [node("Frobnicate", ["x"], ["y"])], "'/y'.*Frobnicate|Frobnicate.*'/y'", exit=3)
    yield g("unknown domain", [helper.make_node("Relu", ["x"], ["y"], name="/y", domain="evil.example")], "evil.example", exit=3)
    yield g("unknown imported domain", [helper.make_node("Relu", ["x"], ["y"], name="/y", domain="evil.example")],
            "evil.example", exit=3, domains=["evil.example"])
    yield g("empty output name", [helper.make_node("MatMul", ["x", "w"], [""]), mm], "", exit=1, outputs=[value("", None)])
    yield g("too many inputs", [node("Relu", ["x", "w"], ["y"])], "'/y'")
    yield g("too few inputs", [node("MatMul", ["x"], ["y"])], "'/y'")
    yield g("too many outputs", [node("Relu", ["x"], ["y", "z"])], "'/y'")
    yield g("required input left out", [node("MatMul", ["", "w"], ["y"])], "'/y'")
    yield g("10,000 inputs", [node("Relu", ["x"] * 10000, ["y"])], "'/y'")
    for opset in (0, -1, 9999, 1 << 40, 5):
        m = mlp()
        m.opset_import[0].version = opset
        yield case(f"graph: opset {opset}", m, 3, r"m\.onnx: error.*opset")
    none = mlp()
    del none.opset_import[:]
    yield case("graph: no opset", none, 1, "opset")
    twice = mlp()
    twice.opset_import.add(domain="", version=11)
    yield case("graph: opset twice", twice, 1, "opset")
    bare = mlp()
    bare.ClearField("graph")
    yield case("graph: none", bare, 1, "graph|output")
    for ir in (0, -1, 1 << 40):
        m = mlp()
        m.ir_version = ir
        yield case(f"graph: IR version {ir}", m, 1, "IR version|ir_version")
    for name in ("\x1b[2J\x1b]0;owned\x07", "a\nerror[E0000]: forged", "n\0ul", "x" * 100000):
        m = model([helper.make_node("Relu", ["x", "w"], ["y"], name=name)])
        yield case(f"graph: node named {name[:12]!r}", m, 1, r"m\.onnx: error\[E\d+\]: node")
    many = model([node("Relu", ["x"], ["y"])] + [node("MatMul", ["x", "w"], [f"v{i}"]) for i in range(20000)],
                 outputs=[value("v19999", None)] + [value("y", None)])
    yield case("graph: 20,000 unused nodes", many, 2, "output|loss")


def op_cases():
    def op(name, nodes, pattern="'/y'", exit=1, initializers=(), opset=17, **kw):
        return case("op: " + name, model(nodes, initializers=list(initializers), opset=opset, **kw), exit,
                    r"(?s)m\.onnx: error\[E\d+\].*(" + pattern + ")", FORWARD)

    def ints(name, values):
        return numpy_helper.from_array(np.array(values, np.int64), name)

    image = [value("x", (1, 2, 6, 6))]
    kernel = numpy_helper.from_array(np.zeros((3, 2, 3, 3), np.float32), "w")
    yield op("types differ", [node("MatMul", ["x", "i"], ["y"])], initializers=[ints("i", [[1], [2], [3]])])
    yield op("inner dims differ", [node("MatMul", ["x", "x"], ["y"])])
    yield op("no broadcast", [node("Add", ["x", "w"], ["y"])], initializers=[WEIGHT])
    yield op("axis 9", [node("Softmax", ["x"], ["y"], axis=9)])
    yield op("axis -2^63", [node("Concat", ["x", "x"], ["y"], axis=-(1 << 63))])
    yield op("axis of the wrong type", [node("Concat", ["x", "x"], ["y"], axis="left")])
    yield op("attribute twice", [twice_attribute()])
    yield op("unknown attribute", [node("Relu", ["x"], ["y"], slope=1.0)])
    yield op("required attribute missing", [node("Concat", ["x", "x"], ["y"])])
    for name, perm in (("repeats", [0, 0]), ("too long", [0, 1, 2]), ("negative", [-1, 0]), ("huge", [HUGE, 0])):
        yield op("Transpose perm " + name, [node("Transpose", ["x"], ["y"], perm=perm)])
    for name, shape in (("impossible", [5, 5]), ("negative", [-7, 3]), ("two unknowns", [-1, -1]), ("huge", [HUGE, HUGE])):
        yield op("Reshape " + name, [node("Reshape", ["x", "s"], ["y"])], initializers=[ints("s", shape)])
    for name, attributes in (
        ("kernel of 0", {"kernel_shape": [0, 0]}), ("kernel beyond the weight", {"kernel_shape": [5, 5]}),
        ("strides 0", {"strides": [0, 0]}), ("strides negative", {"strides": [-1, -1]}), ("dilations 0", {"dilations": [0, 0]}),
        ("dilations huge", {"dilations": [HUGE, HUGE]}), ("pads huge", {"pads": [HUGE, HUGE, HUGE, HUGE]}),
        ("pads negative", {"pads": [-9, -9, -9, -9]}), ("pads too few", {"pads": [1]}), ("group 0", {"group": 0}),
        ("group negative", {"group": -2}), ("group huge", {"group": HUGE}), ("auto_pad unknown", {"auto_pad": "LEFT"})):
        yield op("Conv " + name, [node("Conv", ["x", "w"], ["y"], **attributes)], inputs=image, initializers=[kernel])
    for name, weight in (("channels", (3, 5, 3, 3)), ("rank", (3, 2, 3))):
        yield op("Conv weight of other " + name, [node("Conv", ["x", "w"], ["y"])], inputs=image,
                 initializers=[numpy_helper.from_array(np.zeros(weight, np.float32), "w")])
        yield op("ConvTranspose weight of other " + name, [node("ConvTranspose", ["x", "w"], ["y"])], inputs=image,
                 initializers=[numpy_helper.from_array(np.zeros(weight, np.float32), "w")])
    yield op("Conv bias too long", [node("Conv", ["x", "w", "b"], ["y"])], inputs=image,
             initializers=[kernel, numpy_helper.from_array(np.zeros(9, np.float32), "b")])
    yield op("Gemm inner dims differ", [node("Gemm", ["x", "x"], ["y"])])
    yield op("Gemm bias of another shape", [node("Gemm", ["x", "w", "b"], ["y"])],
             initializers=[WEIGHT, numpy_helper.from_array(np.zeros(7, np.float32), "b")])
    five = numpy_helper.from_array(np.zeros(5, np.float32), "s")
    yield op("LayerNormalization scale of another shape", [node("LayerNormalization", ["x", "s"], ["y"])], initializers=[five])
    yield op("BatchNormalization scale of another shape", [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"])], initializers=[five])
    yield op("InstanceNormalization scale of another shape", [node("InstanceNormalization", ["x", "s", "s"], ["y"])], inputs=image, initializers=[five])
    yield op("Conv weight of more axes", [node("Conv", ["x", "w"], ["y"])], inputs=[value("x", (1, 2, 6))], initializers=[kernel])
    yield op("Conv weight is a scalar", [node("Conv", ["x", "w"], ["y"])], inputs=image,
             initializers=[numpy_helper.from_array(np.float32(1), "w")])
    yield op("loss of an unknown reduction", [node("SoftmaxCrossEntropyLoss", ["x", "l"], ["y"], reduction="most")],
             inputs=[value("x", (2, 3))], initializers=[numpy_helper.from_array(np.array([0, 1]), "l")])
    for name, attributes in (("window beyond", {"kernel_shape": [9, 9]}), ("kernel huge", {"kernel_shape": [HUGE, 1]}),
                             ("kernel negative", {"kernel_shape": [-3, -3]}), ("no kernel", {}),
                             ("strides huge", {"kernel_shape": [2, 2], "strides": [0, 1]})):
        yield op("MaxPool " + name, [node("MaxPool", ["x"], ["y"], **attributes)], inputs=image)
    yield from window_cases(op)
    yield op("Slice step 0", [node("Slice", ["x", "b", "e", "a", "s"], ["y"])], initializers=[
        ints("b", [0]), ints("e", [4]), ints("a", [0]), ints("s", [0])])
    yield op("Slice axis huge", [node("Slice", ["x", "b", "e", "a"], ["y"])], initializers=[
        ints("b", [0]), ints("e", [4]), ints("a", [HUGE])])
    yield op("Split sizes wrong", [node("Split", ["x", "s"], ["y", "z"])], initializers=[ints("s", [1, 9])])
    yield op("Split sizes wrap", [node("Split", ["x", "s"], ["y", "z"])], initializers=[ints("s", [HUGE * 2 - 1, 5 - HUGE * 2])])
    yield op("Expand huge", [node("Expand", ["x", "s"], ["y"])], initializers=[ints("s", [HUGE, 4, 3])])
    for size in (0, 1 << 31, 1 << 32, 1 << 62):
        for name in ("DepthToSpace", "SpaceToDepth"):
            yield op(f"{name} blocksize {size}", [node(name, ["x"], ["y"], blocksize=size)], "'/y'.*blocksize", inputs=[value("x", (1, 4, 2, 2))])
    yield op("DepthToSpace mode", [node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="RCD")], "'/y'.*RCD", inputs=[value("x", (1, 4, 2, 2))])
    yield op("Resize scale 0", [node("Resize", ["x", "", "s"], ["y"])], "'/y'.*scale 0", inputs=[value("x", (1, 1, 2, 2))],
             initializers=[numpy_helper.from_array(np.array([1, 1, 0, 2], np.float32), "s")])
    yield op("Tile huge", [node("Tile", ["x", "s"], ["y"])], initializers=[ints("s", [1 << 40, 1 << 40])])
    yield op("Tile negative", [node("Tile", ["x", "s"], ["y"])], initializers=[ints("s", [-1, 1])])
    yield op("Pad huge", [node("Pad", ["x", "p"], ["y"])], initializers=[ints("p", [HUGE, HUGE, HUGE, HUGE])])
    yield op("Pad cuts all", [node("Pad", ["x", "p"], ["y"])], initializers=[ints("p", [-9, 0, -9, 0])])
    yield op("Unsqueeze axis twice", [node("Unsqueeze", ["x", "a"], ["y"])], initializers=[ints("a", [0, 0])])
    yield op("Squeeze of 4", [node("Squeeze", ["x", "a"], ["y"])], initializers=[ints("a", [0])])
    yield op("ConstantOfShape huge", [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])], "'/[cy]'",
             initializers=[ints("s", [1 << 40, 1 << 10])])
    yield op("Range endless", [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["f"], to=F),
                               node("Mul", ["f", "x"], ["y"])], "'/[ry]'|Range", initializers=[
        ints("a", 0), ints("b", 1 << 50), ints("c", 1)], exit=1)
    yield op("Range step 0", [node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["f"], to=F),
                              node("Mul", ["f", "x"], ["y"])], "'/[ry]'|Range", initializers=[
        ints("a", 0), ints("b", 5), ints("c", 0)], exit=1)
    yield op("Cast to strings", [node("Cast", ["x"], ["y"], to=STR)], exit=3)
    yield op("Cast to type 99", [node("Cast", ["x"], ["y"], to=99)], exit=3)
    yield op("shape that depends on data", [node("NonZero", ["x"], ["y"])])
    yield op("BatchNormalization of a matrix of stats", [node("BatchNormalization", ["x", "w", "w", "w", "w"], ["y"])], initializers=[WEIGHT])
    yield from control_cases(op)


def window_cases(op):
    line = [value("x", (1, 2, 6))]
    three = [numpy_helper.from_array(np.zeros((2, 1, 3), np.float32), "w")]
    seven = [numpy_helper.from_array(np.zeros((1, 2, 7), np.float32), "w")]
    yield op("Conv window beyond", [node("Conv", ["x", "w"], ["y"])], "axis 2: a window of 7 does not fit 6 elements with padding 0 and 0",
             inputs=line, initializers=seven)
    yield op("Conv window beyond by less than a stride", [node("Conv", ["x", "w"], ["y"], strides=[4])], "axis 2: a window of 7 does not fit",
             inputs=line, initializers=seven)
    yield op("Conv dilated beyond", [node("Conv", ["x", "w"], ["y"], dilations=[2], pads=[3, 3])],
             r"axis 2: a window of 13 \(kernel 7, dilation 2\) does not fit 6 elements with padding 3 and 3", inputs=line, initializers=seven)
    yield op("Conv pads and auto_pad", [node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", pads=[3, 3])], "both pads .3,3. and auto_pad SAME_UPPER",
             inputs=line, initializers=seven)
    for name in ("MaxPool", "AveragePool", "LpPool"):
        yield op(name + " window beyond an axis", [node(name, ["x"], ["y"], kernel_shape=[9])],
                 "axis 2: a window of 9 does not fit 6 elements with padding 0 and 0", inputs=line)
        yield op(name + " window of other axes", [node(name, ["x"], ["y"], kernel_shape=[2, 2])], "'/y'", inputs=line)
    for name, pattern, exit, attributes in (
        ("output_shape too long", "output_shape is 500 on axis 2: a window of 3 over 6 elements with stride 1 makes 1 to 8", 1, {"output_shape": [500]}),
        ("output_shape a stride too long", "makes 1 to 14", 1, {"output_shape": [15], "strides": [2]}),
        ("output_shape 0", "output_shape is .0., expected 1 number from 1", 1, {"output_shape": [0]}),
        ("output_shape of batch and channels", "output_shape is .1,1,8., expected 1 number", 1, {"output_shape": [1, 1, 8]}),
        ("output_shape 2^62", "output_shape", 1, {"output_shape": [HUGE]}),
        ("pads beyond", "axis 2 of the output would be -2 long: a window of 3 over 6 elements with stride 1, output_padding 0, padding 5 and 5", 1, {"pads": [5, 5]}),
        ("pads that leave nothing", "axis 2 of the output would be 0 long", 1, {"pads": [4, 4]}),
        ("pads negative", "pads is .-1,0., expected 2 numbers from 0", 1, {"pads": [-1, 0]}),
        ("output_padding of strides", "output_padding 5 with stride 2 is more than", 3, {"output_padding": [5], "strides": [2]}),
        ("stride 2^31 - 1", "'/y'.*padding of", 3, {"strides": [(1 << 31) - 1], "dilations": [(1 << 31) - 1], "output_shape": [9]})):
        yield op("ConvTranspose " + name, [node("ConvTranspose", ["x", "w"], ["y"], **attributes)], pattern, exit=exit, inputs=line, initializers=three)


def twice_attribute():
    n = node("Softmax", ["x"], ["y"], axis=0)
    n.attribute.append(helper.make_attribute("axis", 1))
    return n


def shadow_cases(op, loop_case, same):
    """Names in a body that hide one that it can see."""
    true, w = numpy_helper.from_array(np.array(True), "c"), numpy_helper.from_array(np.ones(3, np.float32), "w")
    ten = {"value": numpy_helper.from_array(np.full(3, 10, np.float32))}
    plain = helper.make_graph([node("Sub", ["x", "w"], ["b"])], "body", [], [value("b", None)])

    def if_case(name, nodes, pattern, before=(), initializers=()):
        graph = helper.make_graph(nodes, "body", [], [value("b", None)], list(initializers))
        return op("If " + name, [*before, node("If", ["c"], ["y"], then_branch=graph, else_branch=plain)], pattern, initializers=[true, w])
    again = node("Constant", [], ["w"], **ten)
    yield if_case("that makes an initializer anew", [again, node("Add", ["x", "w"], ["b"])],
                  r"node '/w' \(Constant-13\) makes 'w' in the then_branch of node '/y' \(If-16\), which is the name of an initializer of the graph")
    yield if_case("that makes it anew after its use", [node("Add", ["x", "w"], ["t"]), again, node("Add", ["t", "w"], ["b"])], "'/w' .* makes 'w' in")
    yield if_case("that makes an input anew", [node("Constant", [], ["x"], **ten), node("Add", ["x", "w"], ["b"])], "which is the name of an input of the graph")
    yield if_case("that makes a node's output anew", [node("Constant", [], ["q"], **ten), node("Add", ["q", "w"], ["b"])],
                  r"which is the name of an output of node '/q' \(Neg-13\) in the graph", before=[node("Neg", ["x"], ["q"])])
    yield if_case("with an initializer of an outer name", [node("Add", ["x", "w"], ["b"])], "initializer 'w' of the then_branch .* implementations differ",
                  initializers=[numpy_helper.from_array(np.full(3, 10, np.float32), "w")])
    inner = helper.make_graph([node("Constant", [], ["t"], **ten), node("Add", ["x", "t"], ["b2"])], "inner", [], [value("b2", None)])
    yield if_case("within If that makes the name of the first", [node("Neg", ["x"], ["t"]), node("If", ["c"], ["b"], then_branch=inner, else_branch=inner)],
                  "an output of node '/t' .Neg-13. in the then_branch of node '/y'")
    yield loop_case("Loop that makes its initial value anew", [same[0], node("Constant", [], ["x"], **ten), node("Add", ["v", "x"], ["v2"])],
                    "makes 'x' in the body of node '/y' .Loop-16., which is the name of an input of the graph")
    yield loop_case("Loop that makes its own input", [same[0], node("Relu", ["v"], ["v"]), node("Relu", ["v"], ["v2"])],
                    "which is the name of an input of the body of node '/y'")
    yield op("Scan that makes its initial value anew", [node("Scan", ["w", "x"], ["q", "y"], num_scan_inputs=1, body=helper.make_graph(
        [node("Neg", ["e"], ["x"]), node("Add", ["s", "x"], ["so"]), node("Identity", ["so"], ["b"])], "body",
        [value("s", (3,)), value("e", (3,))], [value("so", (3,)), value("b", (3,))]))], "makes 'x' in the body of node", initializers=[w])


def control_cases(op):
    inner = helper.make_graph([node("Relu", ["x"], ["b"])], "body", [], [value("b", None)])
    yield op("If on data", [node("Cast", ["x"], ["c"], to=TensorProto.BOOL), node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
             "'/y' .If-16.: the condition 'c' is not known when the model is compiled")
    yield op("If without branches", [node("If", ["c"], ["y"])], "then_branch and else_branch are expected", exit=1, initializers=[numpy_helper.from_array(np.array(True), "c")])
    body = helper.make_graph([node("Identity", ["k"], ["c2"]), node("Add", ["v", "v"], ["v2"])], "body",
                             [value("i", [], I64), value("k", [], TensorProto.BOOL), value("v", None)],
                             [value("c2", [], TensorProto.BOOL), value("v2", None)])
    yield op("Loop of 2^60 rounds", [node("Loop", ["n", "", "x"], ["y"], body=body)], "'/y'|Loop", exit=3,
             initializers=[numpy_helper.from_array(np.array(1 << 60), "n")])

    def loop_case(name, nodes, pattern, exit=1, n=3, **kw):
        graph = helper.make_graph(nodes, "body", [value("i", [], I64), value("k", [], TensorProto.BOOL), value("v", None)],
                                  [value("k2", [], TensorProto.BOOL), value("v2", None), *kw.pop("more", [])])
        outputs = kw.pop("outputs", ["y"])
        return op(name, [node("Loop", ["n", "", "x"], outputs, body=graph)], pattern, exit=exit,
                  initializers=[numpy_helper.from_array(np.array(n), "n")], **kw)
    same = [node("Identity", ["k"], ["k2"]), node("Relu", ["v"], ["v2"])]
    yield loop_case("Loop on data", [node("ReduceSum", ["v"], ["s"], keepdims=0), node("Cast", ["s"], ["k2"], to=TensorProto.BOOL), same[1]],
                    "the condition 'k2' is not known when the model is compiled")
    yield loop_case("Loop that reads what nothing makes", [same[0], node("Add", ["v", "nothing"], ["v2"])], "'/y/0//v2'.*reads 'nothing'")
    yield loop_case("Loop whose shapes do not fit", [same[0], node("MatMul", ["v", "v"], ["v2"])], "'/y/0//v2' .MatMul")
    yield loop_case("Loop of an unsupported op", [same[0], node("Det", ["v"], ["v2"])], "'/y//v2'", exit=3)
    yield loop_case("Loop with a result that is left over", [*same, node("Identity", ["v2"], ["r"])], "the body does not fit", outputs=["y", "z", "q"])
    yield loop_case("Loop that never runs, stacked", [*same, node("Identity", ["v2"], ["r"])], "never runs, so the dims of output 'y'", exit=3, n=0,
                    outputs=["z", "y"], more=[value("r", None)])
    yield op("Loop without a body", [node("Loop", ["n", "", "x"], ["y"])], "the body does not fit", initializers=[numpy_helper.from_array(np.array(3), "n")])
    yield from shadow_cases(op, loop_case, same)
    lone = helper.make_graph([node("Add", ["h", "e"], ["h2"])], "body", [value("h", None), value("e", None)], [value("h2", None)])
    yield op("Scan of no inputs", [node("Scan", ["x", "x"], ["y"], body=lone, num_scan_inputs=0)], "the body does not fit")
    yield op("Scan along a missing axis", [node("Scan", ["x", "x"], ["y"], body=lone, num_scan_inputs=1, scan_input_axes=[7])], "axis 7 of input 1")
    pair = helper.make_graph([node("Add", ["h", "e"], ["h2"])], "body", [value("h", None), value("e", None)], [value("h2", None)])
    yield op("Scan of two lengths", [node("Scan", ["x", "b"], ["y"], body=pair, num_scan_inputs=2)], "scanned inputs of 4 and 2 elements",
             initializers=[numpy_helper.from_array(np.ones((2, 3), np.float32), "b")])
    deep = [node("Relu", ["v"], ["v2"])]
    for level in range(12):
        graph = helper.make_graph(deep, "body", [], [value("v2", None)])
        deep = [helper.make_node("If", ["c"], ["v2"], then_branch=graph, else_branch=graph, name=f"/if{level}")]
    yield op("If within If", [node("Relu", ["x"], ["v"]), *deep, node("ReduceSum", ["v2", "v2"], ["y"])], "'/y'", initializers=[numpy_helper.from_array(np.array(True), "c")])

    def function(name, nodes, inputs=("a",), outputs=("r",)):
        return helper.make_function("f", name, list(inputs), list(outputs), nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])

    def call(name, a, r):
        return helper.make_node(name, [a], [r], domain="f", name="/" + r)

    kw = {"domains": ["f"]}
    yield op("function calls itself", [call("f0", "x", "y")], "f0", functions=[function("f0", [call("f0", "a", "r")])], **kw)
    yield op("functions call each other", [call("f0", "x", "y")], "f[01]", functions=[
        function("f0", [call("f1", "a", "r")]), function("f1", [call("f0", "a", "r")])], **kw)
    doubling = [function(f"f{i}", [call(f"f{i + 1}", "a", "t"), call(f"f{i + 1}", "t", "r")]) for i in range(40)]
    yield op("functions that double 40 times", [call("f0", "x", "y")], "nodes|f\\d", exit=3,
             functions=doubling + [function("f40", [helper.make_node("Relu", ["a"], ["r"])])], **kw)
    chain = [function(f"f{i}", [call(f"f{i + 1}", "a", "r")]) for i in range(50000)]
    yield op("functions 50,000 deep", [call("f0", "x", "y")], "deep|nest|f\\d", exit=3,
             functions=chain + [function("f50000", [helper.make_node("Relu", ["a"], ["r"])])], **kw)
    yield op("function without its output", [call("f0", "x", "y")], "'r'|f0", functions=[function("f0", [])], **kw)
    yield op("function twice", [call("f0", "x", "y")], "f0", functions=[
        function("f0", [helper.make_node("Relu", ["a"], ["r"])])] * 2, **kw)


def external_cases():
    def external(name, keys, pattern, files=None, dims=(3, 2), exit=1):
        t = TensorProto(name="w", data_type=F, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, text in keys:
            t.external_data.add(key=key, value=text)
        m = model([node("MatMul", ["x", "w"], ["y"])], initializers=[t])
        return case("external: " + name, m, exit, r"m\.onnx: error\[E\d+\].*'w'.*(" + pattern + ")",
                    files={"w.bin": bytes(24), **(files or {})})

    for name, location in (("absolute", "/etc/passwd"), ("parent", "../w.bin"), ("parent inside", "a/../../x"),
                           ("parent hidden", "./a/.././../x"), ("empty", ""), ("NUL", "w.bin\0.txt"), ("folder slash", "a/"),
                           ("dot", "."), ("url", "https://example.com/w.bin"), ("windows", "..\\w.bin"), ("missing", "none.bin")):
        yield external(name, [("location", location)], "location|allowed|names no file|No such file|NUL")
    yield external("no location", [], "location")
    def place(kind):
        return {"a/w": kind}
    yield external("symbolic link", [("location", "a/w")], "symbolic link", place(link_to("/etc/passwd")))
    yield external("symbolic link beside it", [("location", "l")], "symbolic link", {"l": link_to("w.bin")})
    yield external("folder that is a link", [("location", "l/passwd")], "'.*l/passwd'", {"l": link_to("/etc")})
    yield external("hard link", [("location", "h")], "hard link", {"h": lambda p, _: os.link(os.path.join(os.path.dirname(p), "w.bin"), p)})
    yield external("pipe", [("location", "a/w")], "regular file", place(fifo))
    yield external("folder", [("location", "a/w")], "folder", place(directory))
    yield external("device", [("location", "a/w")], "regular file|symbolic", place(link_to("/dev/zero")))
    w = ("location", "w.bin")
    for name, keys in (
        ("offset negative", [("offset", "-8")]), ("offset huge", [("offset", str((1 << 63) - 1))]), ("offset beyond int64", [("offset", "9" * 30)]),
        ("offset past the end", [("offset", "8")]), ("offset hexadecimal", [("offset", "0x10")]), ("offset a fraction", [("offset", "1.5")]),
        ("offset with a space", [("offset", " 8")]), ("length negative", [("length", "-1")]), ("length huge", [("length", str(1 << 62))]),
        ("length differs from dims", [("length", "20")]), ("length 0", [("length", "0")]), ("unknown key", [("__class__", "x")]),
        ("key twice", [("offset", "0"), ("offset", "0")]), ("own bookkeeping key", [("region", "0")])):
        yield external(name, [w, *keys], "offset|length|key|bytes")
    yield external("dims need more", [w], "bytes 0 to", dims=(1 << 30, 2))
    yield external("dims overflow", [w], "", dims=(1 << 62, 1 << 62))


def cases():
    yield from wire_cases()
    yield from tensor_cases()
    yield from graph_cases()
    yield from op_cases()
    yield from external_cases()
