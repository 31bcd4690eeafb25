# SPDX-License-Identifier: Apache-2.0
"""casts.py NAME OUT.onnx: models on which tools that insert casts went wrong."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from make import BF16, BOOL, F, I64, floats, ints, model, node, value, write

F16, DOUBLE = TensorProto.FLOAT16, TensorProto.DOUBLE


def halves(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float16), name)


def resized(_):
    """One constant is the scales of a Resize, which stay fp32, and an operand of a sum."""
    nodes = [node("Constant", [], ["s"], value_floats=[1.0, 1.0, 1.6, 1.0]), node("Conv", ["x", "w"], ["c"], name="/conv"),
             node("Add", ["c", "s"], ["a"], name="/add"), node("Resize", ["a", "", "s"], ["y"], mode="linear", name="/resize")]
    return model(nodes, [value("x", (1, 1, 10, 4))], initializers=[floats("w", np.ones((1, 1, 1, 1)))])


def sized(_):
    """Sizes that are computed as floats: float16 and bf16 know no 3001."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Shape", ["h"], ["shape"]), node("Cast", ["shape"], ["f"], to=F),
             node("Constant", [], ["one"], value_floats=[1.0, 1.0]), node("Mul", ["f", "one"], ["g"], name="/sizes"), node("Floor", ["g"], ["k"]), node("Cast", ["k"], ["i"], to=I64),
             node("ReduceProd", ["i"], ["n"], keepdims=1), node("Reshape", ["h", "n"], ["y"], name="/view")]
    return model(nodes, [value("x", (1, 4))], initializers=[floats("w", np.ones((4, 3001)))])


def counted(_):
    """Inputs that are counts, axes, indices or thresholds, beside one that is low: all of them."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Pad", ["h", "pads", "low"], ["p"], name="/pad"),
             node("Clip", ["p", "low", "high"], ["c"], name="/clip"), node("Tile", ["c", "repeats"], ["t"], name="/tile"),
             node("Slice", ["t", "begin", "end"], ["s"], name="/slice"), node("CumSum", ["s", "axis"], ["u"], name="/cumsum"),
             node("TopK", ["u", "k"], ["v", "at"], name="/topk"), node("Cast", ["at"], ["f"], to=F), node("Dropout", ["v", "ratio", "on"], ["d"], name="/dropout"),
             node("OneHot", ["at", "depth", "both"], ["o"], name="/onehot"), node("ReduceSum", ["o", "last"], ["q"], keepdims=0), node("Add", ["d", "q"], ["y"])]
    return model(nodes, [value("x", (2, 4))],
                 initializers=[floats("w", np.ones((4, 3))), ints("pads", [0, 1, 0, 1]), floats("low", -9), floats("high", 9), ints("repeats", [1, 2]),
                               ints("begin", [0, 0]), ints("end", [2, 6]), ints("axis", 1), ints("k", [2]), floats("ratio", 1e-8),
                               numpy_helper.from_array(np.array(True), "on"), ints("depth", 3), floats("both", [0, 1]), ints("last", [-1])])


def quantized(_):
    """A scale and a zero point that float16 does not have."""
    nodes = [node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="/q"), node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="/dq"),
             node("MatMul", ["d", "w"], ["y"])]
    return model(nodes, initializers=[floats("scale", 1e-8), numpy_helper.from_array(np.array(3, np.uint8), "zero"), floats("w", np.ones((3, 2)))])


def shared_table(_):
    """One initializer read by a product, which runs low, and by a Softmax, which does not."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Softmax", ["w"], ["p"], name="/softmax"), node("MatMul", ["h", "p"], ["y"], name="/out")]
    return model(nodes, [value("x", (2, 3))], initializers=[floats("w", np.eye(3) / 7)])


def source_casts(_):
    """int -> Cast(float), read by a node that runs low and by one that does not."""
    nodes = [node("Cast", ["i"], ["f"], to=F, name="/user"), node("MatMul", ["f", "w"], ["h"], name="/fc"), node("Softmax", ["f"], ["p"], name="/softmax"),
             node("Add", ["h", "p"], ["y"], name="/add")]
    return model(nodes, [value("i", (2, 3), I64)], [value("y", None), value("f", None)], [floats("w", np.eye(3))])


def narrowed(_):
    """Narrowed and widened again by the source: what float16 does not have becomes 0 or infinity. Widened and narrowed again: itself."""
    nodes = [node("Cast", ["x"], ["h"], to=F16, name="/narrow"), node("Cast", ["h"], ["y"], to=F, name="/widen"),
             node("Cast", ["x"], ["d"], to=DOUBLE, name="/up"), node("Cast", ["d"], ["z"], to=F, name="/down")]
    return model(nodes, [value("x", (2,))], [value("y", None), value("z", None)])


def several_uses(_):
    """A weight in three products, once transposed."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["a", "t"], ["b"]), node("MatMul", ["b", "w"], ["y"])]
    return model(nodes, [value("x", (2, 3))], initializers=[floats("w", np.eye(3) / 8)])


def half_weight(_):
    """A weight of float16 in a model of float32, and one of float32."""
    nodes = [node("Cast", ["h"], ["c"], to=F, name="/up"), node("MatMul", ["x", "c"], ["a"], name="/fc"), node("MatMul", ["a", "w"], ["y"], name="/out")]
    return model(nodes, [value("x", (2, 3))], initializers=[halves("h", np.eye(3) / 7), floats("w", np.eye(3))])


def filled(_):
    """What an attribute gives a type to: a tensor that is filled, one that is drawn, and one of another's type."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("ConstantOfShape", ["n"], ["c"], value=floats("", [2])), node("MatMul", ["h", "c"], ["a"], name="/out"),
             node("RandomNormalLike", ["a"], ["r"], name="/like"), node("RandomNormalLike", ["a"], ["s"], dtype=F, name="/float"),
             node("CastLike", ["k", "a"], ["l"], name="/castlike"), node("Sum", ["a", "r", "l"], ["t"], name="/low"), node("Add", ["t", "s"], ["y"], name="/wide")]
    return model(nodes, [value("x", (2, 3)), value("k", (2, 3), I64)], initializers=[floats("w", np.eye(3)), ints("n", [3, 3])])


def bodies(_):
    """An If and a Loop whose bodies read an outer weight; the Loop carries a value."""
    branch = helper.make_graph([node("MatMul", ["x", "w"], ["r"], name="/fc")], "branch", [], [value("r", None)])
    body = helper.make_graph([node("MatMul", ["acc", "w"], ["low"], name="/step"), node("Softmax", ["low"], ["acc2"], name="/softmax"), node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], I64), value("k", [], BOOL), value("acc", (2, 3))], [value("k2", [], BOOL), value("acc2", (2, 3))])
    nodes = [node("If", ["c"], ["h"], then_branch=branch, else_branch=branch, name="/if"), node("Loop", ["n", "", "h"], ["y"], body=body, name="/loop")]
    return model(nodes, [value("x", (2, 3))], initializers=[floats("w", np.eye(3) / 8), ints("n", 2), numpy_helper.from_array(np.array(True), "c")])


def outputs_inside(_):
    """Outputs that are read inside, an initializer that is one, a feed that is one."""
    nodes = [node("MatMul", ["x", "w"], ["H"], name="/fc"), node("Relu", ["H"], ["r"]), node("MatMul", ["r", "v"], ["y"], name="/out")]
    return model(nodes, [value("x", (2, 3)), value("i", (2,), I64)], [value("H", (2, 3)), value("y", (2, 2)), value("w", (3, 3)), value("i", (2,), I64)],
                 [floats("w", np.full((3, 3), 1.001)), floats("v", np.ones((3, 2)))])


LOWEST = float(np.finfo(np.float32).min)


def masked(mask, w=((1, 1, 1), (1, 1, 1))):
    """Products on both sides of Softmax(scores + constant)."""
    nodes = [node("MatMul", ["x", "w"], ["s"], name="/scores"), node("Add", ["s", "m"], ["a"], name="/mask"), node("Softmax", ["a"], ["p"], name="/softmax"),
             node("MatMul", ["p", "v"], ["y"], name="/out")]
    return model(nodes, [value("x", (3, 2))], initializers=[floats("w", w), floats("m", mask), floats("v", np.arange(6).reshape(3, 2))])


def lowest_mask(_):
    """The last row is masked as a whole."""
    return masked([[0, LOWEST, LOWEST], [0, 0, LOWEST], [LOWEST, LOWEST, LOWEST]])


def infinite_mask(_):
    """What is masked has the higher scores: a mask of -10000 would not hide it."""
    return masked([[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]], [[-1, 1, 1], [-1, 1, 1]])


def infinite_row(_):
    return masked([[0, -np.inf, -np.inf], [0, 0, -np.inf], [-np.inf, -np.inf, -np.inf]])


def attention(last):
    """An Attention node whose last row is masked as a whole."""
    mask = [[0, -np.inf, -np.inf], [-np.inf, 0, -np.inf], [last] * 3]
    nodes = [node("MatMul", ["x", "w"], ["q"], name="/q"), node("Attention", ["q", "x", "x", "m"], ["y"], name="/attention")]
    return model(nodes, [value("x", (1, 1, 3, 2))], initializers=[floats("w", np.eye(2)), floats("m", mask)], opset=23, ir_version=11)


def attention_infinite(_):
    return attention(-np.inf)


def attention_lowest(_):
    return attention(LOWEST)


def two_masks(_):
    """A causal and a padding mask, each at float16's minimum, added to each other and to the scores; the last row is masked by both."""
    nodes = [node("MatMul", ["x", "w"], ["s"], name="/scores"), node("Where", ["k", "zero", "lowest"], ["pad"], name="/pad"),
             node("Add", ["m", "pad"], ["both"], name="/both"), node("Add", ["s", "both"], ["a"], name="/mask"), node("Softmax", ["a"], ["p"], name="/softmax"),
             node("MatMul", ["p", "v"], ["y"], name="/out")]
    return model(nodes, [value("x", (2, 2)), value("k", (2, 2), BOOL)],
                 initializers=[floats("w", np.ones((2, 2))), floats("m", [[0, -65504], [-65504, -65504]]), floats("zero", 0.0), floats("lowest", -65504.0),
                               floats("v", [[1, 2], [3, 4]])])


def constant_operands(_):
    """Products with constants, and sums: out of float16's range at either end; infinite, NaN and minus zero, which it has."""
    nodes = [node("Constant", [], [name], value=floats("", array)) for name, array in
             {"large": [[-1e8, 0], [1, 1]], "small": [[1e-12, 0], [1, 1]], "special": [[np.inf, -np.inf], [np.nan, -0.0]], "edge": [[65504, -65504], [2.0**-24, 0]]}.items()]
    nodes += [node("MatMul", ["x", name], [f"y_{name}"], name=f"/{name}") for name in ("large", "small", "special", "edge")]
    return model(nodes, [value("x", (1, 2))], [value(f"y_{name}", None) for name in ("large", "small", "special", "edge")])


def large_parameters(_):
    """Parameters with 1e5 or, in a large table of constants, with fp32's minimum: read as they are and transposed, by products and as bias."""
    weights = [[1e5, 1], [1e-12, 1]]
    table = np.zeros((2, 40000))
    table[1, 7] = LOWEST
    nodes = [node("MatMul", ["x", "a"], ["ya"], name="/a"), node("Transpose", ["b"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["yb"], name="/b"),
             node("MatMul", ["x", "c"], ["h"], name="/c"), node("Add", ["h", "d"], ["yc"], name="/bias"), node("MatMul", ["x", "e"], ["ye"], name="/e"),
             node("MatMul", ["x", "table"], ["z"], name="/table")]
    return model(nodes, [value("x", (1, 2))], [value(n, None) for n in ("ya", "yb", "yc", "ye", "z")],
                 [floats("a", weights), floats("b", weights), floats("c", np.eye(2)), floats("d", [1e5, 0]), floats("e", [[1e-12, 1], [0, 1]]), floats("table", table)])


def statistics(_):
    """Norms in single nodes, of values of some thousands: two that are put together again, one over two axes that is not."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"),
             node("ReduceMean", ["h"], ["m"], axes=[-1]), node("Sub", ["h", "m"], ["d"]), node("Pow", ["d", "two"], ["p"]), node("ReduceMean", ["p"], ["v"], axes=[-1]),
             node("Add", ["v", "eps"], ["e"]), node("Sqrt", ["e"], ["s"]), node("Div", ["d", "s"], ["layer"], name="/layer"),
             node("Mul", ["h", "h"], ["p2"]), node("ReduceMean", ["p2"], ["v2"], axes=[-1]), node("Add", ["v2", "eps"], ["e2"]), node("Sqrt", ["e2"], ["s2"]),
             node("Div", ["h", "s2"], ["rms"], name="/rms"),
             node("Pow", ["h", "two"], ["p3"]), node("ReduceMean", ["p3"], ["v3"], axes=[0, 1]), node("Sqrt", ["v3"], ["s3"]), node("Div", ["h", "s3"], ["whole"], name="/whole")]
    return model(nodes, [value("x", (2, 4))], [value(n, None) for n in ("layer", "rms", "whole")],
                 [floats("w", np.diag([-3000, 3000, -3000, 3000])), floats("two", 2.0), floats("eps", 1e-5)])


def fp16_sums(_):
    """A model of float16: means of large values and sums of ones, whose 16-bit sums would be infinite or stop at 2048."""
    large, ones = (halves(name, np.full(dims, v)) for name, dims, v in (("large", (1, 1, 300, 300), 1000), ("ones", (1, 4096), 1)))
    nodes = [node("Mul", ["large", "x"], ["l"]), node("Mul", ["ones", "x"], ["o"]), node("ReduceMean", ["l"], ["mean"], keepdims=0),
             node("GlobalAveragePool", ["l"], ["pool"]), node("ReduceSum", ["o"], ["sum"], keepdims=0), node("ReduceL1", ["o"], ["l1"], keepdims=0),
             node("Softmax", ["o"], ["p"]), node("ReduceMax", ["p"], ["softmax"], keepdims=0), node("LpNormalization", ["o"], ["n"], axis=1),
             node("ReduceMax", ["n"], ["norm"], keepdims=0)]
    outputs = ("mean", "pool", "sum", "l1", "softmax", "norm")
    return model(nodes, [value("x", (1, 1), F16)], [value(n, None, F16) for n in outputs], [large, ones])


def large_mean(_):
    """The mean of 70000 products is the loss: float16 has no 70000."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("ReduceMean", ["h"], ["y"], keepdims=0, name="/mean")]
    return model(nodes, [value("x", (1, 1))], [value("y", [])], [floats("w", np.ones((1, 70000)))])


def just_over(_):
    """66240, where float16 ends at 65504."""
    return model([node("MatMul", ["x", "v"], ["h"], name="/in"), node("MatMul", ["h", "w"], ["y"], name="/wo")], [value("x", (1, 4))],
                 initializers=[floats("v", np.eye(4)), floats("w", np.ones((4, 1)))])


def probabilities(_):
    """Binary cross-entropy where the target is 0: -mean(log(1 - p)), p = sigmoid(9) = 0.99988; and a sigmoid that is a gate."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Sigmoid", ["h"], ["p"], name="/sigmoid"), node("Sub", ["one", "p"], ["q"], name="/rest"),
             node("Reshape", ["q", "flat"], ["r"], name="/flat"), node("Log", ["r"], ["l"], name="/log"), node("ReduceMean", ["l"], ["m"], keepdims=0), node("Neg", ["m"], ["y"]),
             node("Neg", ["h"], ["k"]), node("Sigmoid", ["k"], ["s"], name="/gate"), node("Mul", ["h", "s"], ["z"])]
    return model(nodes, [value("x", (1, 3))], [value("y", []), value("z", None)], [floats("w", np.full((3, 2), 3)), floats("one", 1.0), ints("flat", [-1])])


def other_types(_):
    """A product of doubles and one of floats, a sum of integers and one of floats."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Cast", ["h"], ["d"], to=DOUBLE), node("Mul", ["d", "d"], ["e"], name="/doubles"),
             node("Cast", ["e"], ["f"], to=F), node("Mul", ["h", "h"], ["g"], name="/floats"), node("Add", ["i", "i"], ["j"], name="/integers"),
             node("Cast", ["j"], ["k"], to=F), node("Add", ["f", "g"], ["s"], name="/sum"), node("Add", ["s", "k"], ["y"])]
    return model(nodes, [value("x", (2, 3)), value("i", (2, 3), I64)], initializers=[floats("w", np.eye(3))])


def old_opset(_):
    """CumSum and TopK of opset 11, whose schemas do not know every 16-bit type."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("CumSum", ["h", "axis"], ["c"], name="/cumsum"), node("TopK", ["c", "k"], ["y", "at"], name="/topk")]
    return model(nodes, [value("x", (1, 2))], initializers=[floats("w", [[1, 2, 3], [0, 0, 0]]), ints("axis", 1), ints("k", [2])], opset=11, ir_version=6)


def conv_and_norm(_):
    """Convolution, bias, LayerNormalization."""
    nodes = [node("Conv", ["x", "w"], ["c"], name="/conv"), node("Add", ["c", "a"], ["h"], name="/bias"), node("LayerNormalization", ["h", "g", "b"], ["y"], name="/ln")]
    return model(nodes, [value("x", (1, 2, 5))], initializers=[floats("w", np.ones((3, 2, 2))), floats("a", np.ones((3, 1))), floats("g", np.ones(4)), floats("b", np.zeros(4))])


if __name__ == "__main__":
    write(globals())
