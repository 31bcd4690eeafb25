# SPDX-License-Identifier: Apache-2.0
"""make.py NAME OUT.onnx: one of the small models below, each the reported input of a fault that other tools had."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, BF16, I64, BOOL = TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name, dims=(4, 3), dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def floats(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def ints(name, numbers):
    return numpy_helper.from_array(np.asarray(numbers, np.int64), name)


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, ir_version=8, **kw):
    graph = helper.make_graph(nodes, "g", inputs or [value("x")], outputs or [value("y", None)], list(initializers), **kw)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def matmul(**kw):
    return model([node("MatMul", ["x", "w"], ["y"], name="/fc")], initializers=[floats("w", np.ones((3, 2)))], **kw)


def constant_outside(folder):
    """A weight in a Constant node whose bytes lie in the file w.bin beside the model."""
    np.ones((3, 2), np.float32).tofile(os.path.join(folder, "w.bin"))
    tensor = TensorProto(data_type=F, dims=[3, 2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    return model([node("Constant", [], ["w"], value=tensor), node("MatMul", ["x", "w"], ["y"])])


def weight_outside(folder):
    """An initializer in w.bin."""
    np.ones((3, 2), np.float32).tofile(os.path.join(folder, "w.bin"))
    tensor = TensorProto(name="w", data_type=F, dims=[3, 2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    return model([node("MatMul", ["x", "w"], ["y"])], initializers=[tensor])


def bf16_constants(_):
    """Constants in bf16 from a list, from raw bytes and by a cast, all folded into one; 1.00390625 lies between two bf16 numbers."""
    numbers = [0.1, 1.00390625, 1.01171875]
    raw = TensorProto(data_type=BF16, dims=[2], raw_data=np.array([0x3E80, 0xC000], np.uint16).tobytes())
    nodes = [node("Constant", [], ["list"], value=helper.make_tensor("", BF16, [3], numbers)), node("Constant", [], ["raw"], value=raw),
             node("Constant", [], ["wide"], value_floats=numbers), node("Cast", ["wide"], ["low"], to=BF16),
             node("Identity", ["list"], ["same"]), node("Concat", ["same", "raw", "low"], ["c"], axis=0),
             node("Add", ["x", "c"], ["y"])]
    return model(nodes, [value("x", (8,), BF16)])


def float8(_):
    return model([node("Cast", ["x"], ["q"], to=TensorProto.FLOAT8E4M3FN, name="/quant"), node("Cast", ["q"], ["y"], to=F)], opset=19,
                 ir_version=9)


def split_blank(_):
    """Split(x, "") and Clip(x, "", max)."""
    return model([node("Split", ["x", ""], ["a", "b"], axis=0), node("Clip", ["a", "", "high"], ["c"]), node("Sub", ["c", "b"], ["y"])],
                 initializers=[floats("high", 2)])


def lstm(_):
    """No bias, no lengths: two blanks before the initial values."""
    rng = np.random.default_rng(0)
    dims = {"w": (1, 8, 2), "r": (1, 8, 2), "h0": (1, 1, 2), "c0": (1, 1, 2)}
    return model([node("LSTM", ["x", "w", "r", "", "", "h0", "c0"], ["y"], hidden_size=2, name="/lstm")], [value("x", (3, 1, 2))],
                 initializers=[floats(name, rng.normal(size=d)) for name, d in dims.items()])


def default_inputs(_):
    """Forty weights that the graph lists among its inputs too."""
    names = [f"w{i}" for i in range(40)]
    nodes = [node("Mul", ["x" if i == 0 else f"h{i}", n], [f"h{i + 1}" if i < 39 else "y"]) for i, n in enumerate(names)]
    return model(nodes, [value("x")] + [value(n, (3,)) for n in names], initializers=[floats(n, [1, 2, i]) for i, n in enumerate(names)])


def ir3(folder):
    m = default_inputs(folder)
    m.ir_version = 3
    m.opset_import[0].version = 8
    return m


def idle(_):
    """A weight that no node reads."""
    return model([node("MatMul", ["x", "w"], ["y"])], initializers=[floats("w", np.ones((3, 2))), floats("idle", np.ones((300, 200)))])


def control(_):
    """Unsorted; a Loop whose body reads an outer value; an If whose branches differ in shape and hide an outer name. All is known beforehand."""
    body = helper.make_graph([node("Gather", ["outer", "i"], ["row"]), node("Add", ["acc", "row"], ["acc2"]), node("Identity", ["k"], ["k2"])],
                             "body", [value("i", [], I64), value("k", [], BOOL), value("acc", [3])], [value("k2", [], BOOL), value("acc2", [3])])
    then = helper.make_graph([node("Relu", ["x"], ["outer"]), node("Exp", ["outer"], ["r"])], "then", [], [value("r", None)])
    other = helper.make_graph([node("Concat", ["outer", "outer"], ["r"], axis=0)], "else", [], [value("r", None)])
    call = node("F", ["z2"], ["z"], domain="local", name="/call")
    negative = helper.make_graph([node("Neg", ["a"], ["q"])], "negative", [], [value("q", None)])
    inner = [node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))), node("If", ["c"], ["r"], then_branch=negative, else_branch=negative)]
    m = model([node("Add", ["s", "z"], ["y"]), call, node("If", ["c"], ["z2"], then_branch=then, else_branch=other, name="/if"),
               node("Loop", ["n", "", "zero"], ["s"], body=body, name="/loop"), node("Relu", ["x"], ["outer"])],
              initializers=[ints("n", 4), floats("zero", np.zeros(3)), numpy_helper.from_array(np.array(True), "c")])
    m.opset_import.append(helper.make_opsetid("local", 1))
    m.functions.append(helper.make_function("local", "F", ["a"], ["r"], inner, [helper.make_opsetid("", 17)]))
    return m


def control_on_data(_):
    """An If on a feed, and a Loop whose number of turns is one, in a function."""
    branch = helper.make_graph([node("Neg", ["x"], ["r"])], "branch", [], [value("r", None)])
    body = helper.make_graph([node("Add", ["acc", "acc"], ["acc2"]), node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], I64), value("k", [], BOOL), value("acc", [3])], [value("k2", [], BOOL), value("acc2", [3])])
    m = model([node("If", ["c"], ["z"], then_branch=branch, else_branch=branch, name="/if"), node("F", ["n", "zero"], ["s"], domain="local", name="/call"), node("Add", ["s", "z"], ["y"])],
              [value("x"), value("c", [], BOOL), value("n", [], I64)], initializers=[floats("zero", np.zeros(3))])
    m.opset_import.append(helper.make_opsetid("local", 1))
    m.functions.append(helper.make_function("local", "F", ["n", "a"], ["r"], [node("Loop", ["n", "", "a"], ["r"], body=body)], [helper.make_opsetid("", 17)]))
    return m


def unsorted(_):
    return model([node("Neg", ["b"], ["y"]), node("Exp", ["a"], ["b"]), node("Relu", ["x"], ["a"])])


def baked(shape, declared):
    nodes = [node("Reshape", ["x", "shape"], ["r"], name="/view"), node("ReduceMean", ["r"], ["y"], axes=[-1], name="/mean")]
    return model(nodes, [value("x", ["batch", 4])], [value("y", declared)], [ints("shape", shape)])


def baked_view(_):
    return baked([1, 2, 2], None)


def baked_rest(_):
    """The size of the batch ends up in the other axis: no op complains."""
    return baked([1, -1], ["batch", 1])


def baked_table(_):
    """A table expanded to the batch of the export."""
    nodes = [node("Expand", ["p", "shape"], ["r"], name="/expand"), node("Concat", ["x", "r"], ["y"], axis=1, name="/cat")]
    return model(nodes, [value("x", ["batch", 4])], initializers=[ints("shape", [1, 4]), floats("p", np.ones((1, 4)))])


def stale(_):
    """Twice as large, by an op; the model declares the old shape and another type."""
    return model([node("ConvTranspose", ["x", "w"], ["u"], strides=[2, 2], name="/up"), node("Relu", ["u"], ["y"])], [value("x", (1, 2, 4, 4))],
                 [value("y", (1, 2, 4, 4))], [floats("w", np.ones((2, 2, 2, 2)))], value_info=[value("u", (1, 2, 4, 4), TensorProto.FLOAT16)])


def unranked(_):
    return model([node("Relu", ["x"], ["y"])], [value("x", None)])


def summed(dims, dtype=F, start=0.0):
    """loss = sum(x * w)"""
    initial = helper.make_tensor("w", dtype, dims, np.full(int(np.prod(dims)), start).tolist())
    return model([node("Mul", ["x", "w"], ["p"], name="/mul"), node("ReduceSum", ["p"], ["y"], keepdims=0)], [value("x", dims, dtype)],
                 [value("y", [], dtype)], [initial])


def pair(_):
    return summed([1, 2])


def wide(_):
    return summed([1, 4096])


def bf16_ones(_):
    return summed([1, 768], BF16, 1.0)


def plain(_):
    return matmul()


def embedding(_):
    return model([node("Gather", ["e", "i"], ["h"]), node("MatMul", ["h", "w"], ["y"])], [value("i", (4,), I64)],
                 initializers=[floats("e", np.ones((8, 3))), floats("w", np.ones((3, 2)))])


def biased(_):
    return model([node("Gemm", ["x", "w", "b"], ["y"])], initializers=[floats("w", np.ones((3, 2))), floats("b", [1, 2])])


def cut_off(_):
    """The weights reach the loss through an ArgMax alone."""
    return model([node("MatMul", ["x", "w"], ["h"]), node("ArgMax", ["h"], ["a"]), node("Cast", ["a"], ["y"], to=F)],
                 initializers=[floats("w", np.ones((3, 2)))])


def beside_the_loss(_):
    """The only weights make another output than the one that the loss reads."""
    return model([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["x"], ["y"])], outputs=[value("y", None), value("h", None)],
                 initializers=[floats("w", np.ones((3, 2)))])


def forty_idle_parameters(_):
    """Forty parameters of a branch that the loss does not read, and one that it does."""
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    nodes += [node("Mul", ["x" if i == 0 else f"h{i}", f"p{i}"], [f"h{i + 1}"]) for i in range(40)]
    return model(nodes, outputs=[value("y", None), value("h40", None)],
                 initializers=[floats("w", np.ones((3, 2)))] + [floats(f"p{i}", [1, 2, i]) for i in range(40)])


def shapes_differ(_):
    return model([node("Flatten", ["x"], ["f"], name="/flatten"), node("MatMul", ["f", "w"], ["y"], name="/fc")], [value("x", (2, 3, 4))],
                 initializers=[floats("w", np.ones((5, 2)))])


def types_differ(_):
    return model([node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), node("Add", ["x", "d"], ["y"], name="/add")])


def no_such_output(_):
    m = matmul()
    m.graph.output[0].name = "z"
    return m


def fifty_thousand(_):
    nodes, last = [], "x"
    for i in range(25000):
        nodes += [node("Mul", [last, "s"], [f"a{i}"]), node("Tanh", [f"a{i}"], [f"b{i}"])]
        last = f"b{i}"
    return model(nodes + [node("MatMul", [last, "w"], ["y"])], initializers=[floats("w", np.ones((3, 2))), floats("s", [1, 0.5, 2])])


def out_of_range(_):
    """Three hundred nodes with a constant that float16 cannot hold, three hundred nodes that nothing needs."""
    nodes, last = [], "x"
    for i in range(300):
        nodes += [node("Add", [last, f"c{i}"], [f"a{i}"], name=f"/add{i}"), node("Neg", [last], [f"n{i}"])]
        last = f"a{i}"
    constants = [floats(f"c{i}", [1e9, 1, i]) for i in range(300)]
    return model(nodes + [node("MatMul", [last, "w"], ["y"])], initializers=[floats("w", np.ones((3, 2)))] + constants)


def two_layers(_):
    return model([node("MatMul", ["x", "w"], ["h"], name="/first"), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"], name="/second")],
                 initializers=[floats("w", np.ones((3, 5)) / 7), floats("v", np.ones((5, 2)) / 7)])


def write(models):
    name, out = sys.argv[1:]
    with open(out, "wb") as file:
        file.write(models[name](os.path.dirname(out)).SerializeToString())


if __name__ == "__main__":
    write(globals())
