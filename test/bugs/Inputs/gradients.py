# SPDX-License-Identifier: Apache-2.0
"""gradients.py NAME OUT.onnx: models on which automatic differentiation went wrong elsewhere. Where there is a y of rank 0, it is the loss."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from make import BOOL, F, I64, floats, ints, model, node, value, write

F16 = TensorProto.FLOAT16
scalar = [value("y", [])]


def total(nodes, last, inputs, initializers, **kw):
    """The sum of `last` is the loss."""
    return model(nodes + [node("ReduceSum", [last], ["y"], keepdims=0, name="/total")], inputs, scalar, initializers, **kw)


def bools(name, array):
    return numpy_helper.from_array(np.array(array), name)


def repeated_rows(_):
    """4096 times one row, half of them counted from the end."""
    return total([node("Gather", ["e", "i"], ["h"], name="/rows"), node("MatMul", ["h", "v"], ["p"], name="/out")], "p", [value("i", (4096,), I64)],
                 [floats("e", np.ones((8, 2))), floats("v", np.ones((2, 1)))])


def scattered(_):
    """One row added twice by ScatterND, and one column picked three times by GatherElements."""
    nodes = [node("ScatterND", ["e", "at", "u"], ["s"], reduction="add"), node("GatherElements", ["s", "i"], ["g"], axis=1), node("Mul", ["g", "x"], ["p"])]
    return total(nodes, "p", [value("x", (1, 2))], [floats("e", np.zeros((2, 2))), ints("at", [[1], [1], [-1]]), floats("u", np.ones((3, 2))),
                                                  ints("i", [[0, 0], [-1, -1]])])


def safe_where(_):
    """Where(n == 0, 0, w / Where(n == 0, 1, n))"""
    nodes = [node("Equal", ["n", "zero"], ["c"]), node("Where", ["c", "one", "n"], ["d"]), node("Div", ["w", "d"], ["q"], name="/div"),
             node("Where", ["c", "zero", "q"], ["z"], name="/where")]
    return total(nodes, "z", [value("n", (1, 2))], [floats("w", [[0, 1]]), floats("zero", 0.0), floats("one", 1.0)])


def unsafe_where(_):
    """Where(n == 0, 0, w / n)"""
    nodes = [node("Equal", ["n", "zero"], ["c"]), node("Div", ["w", "n"], ["q"], name="/div"), node("Where", ["c", "zero", "q"], ["z"], name="/where")]
    return total(nodes, "z", [value("n", (1, 2))], [floats("w", [[0, 1]]), floats("zero", 0.0)])


def hidden_log(_):
    """Where(w > 0, log w, w) at 0: the rule of Log gives 0 / 0 there."""
    nodes = [node("Greater", ["w", "zero"], ["c"]), node("Log", ["w"], ["l"], name="/log"), node("Where", ["c", "l", "w"], ["z"], name="/where"), node("Mul", ["z", "x"], ["p"])]
    return total(nodes, "p", [value("x", (1, 2))], [floats("w", [[0, 1]]), floats("zero", 0.0)])


def norms(_):
    """Norms of a row of zeros and of one of 3 and 4, a root of 0 behind a Where, and 0 to a constant power."""
    nodes = [node("Mul", ["x", "w"], ["h"]), node("ReduceL2", ["h"], ["n"], axes=[1], keepdims=0), node("LpNormalization", ["h"], ["u"], axis=1),
             node("Mul", ["u", "e"], ["v"]), node("Pow", ["h", "two"], ["q"], name="/pow"), node("ReduceSum", ["q", "axis"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"]),
             node("Sqrt", ["s"], ["r"], name="/sqrt"), node("Where", ["c", "r", "s"], ["t"]), node("ReduceSum", ["v"], ["a"], keepdims=0), node("ReduceSum", ["t"], ["b"], keepdims=0),
             node("Add", ["n", "a"], ["d"]), node("Add", ["d", "b"], ["f"])]
    return model(nodes + [node("ReduceMean", ["f"], ["y"], keepdims=0)], [value("x", (2, 2))], scalar,
                 [floats("w", [[0, 0], [3, 4]]), floats("e", [[1.0, 0.0], [0.0, 0.0]]), ints("axis", [1]), floats("zero", 0.0), floats("two", 2.0)])


def powers(_):
    """w^2 and w^1 and w^0 at 0, with constant exponents: no logarithm of 0 is wanted."""
    nodes = [node("Pow", ["w", "two"], ["a"], name="/two"), node("Pow", ["w", "one"], ["b"], name="/one"), node("Pow", ["w", "none"], ["c"], name="/none"),
             node("Sum", ["a", "b", "c"], ["s"]), node("Mul", ["s", "x"], ["p"])]
    return total(nodes, "p", [value("x", (1, 2))], [floats("w", [[0, 3]]), floats("two", 2.0), floats("one", 1.0), floats("none", 0.0)])


def ties(_):
    """Four equal values in a window."""
    return total([node("Mul", ["w", "x"], ["h"]), node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2])], "p", [value("x", (1, 1, 2, 2))],
                 [floats("w", np.ones((1, 1, 2, 2)))])


def broadcast(_):
    """[2,1,4,3] * [2,1,4,1], a square of one value, a sum of one value with itself, a product with a batch of one."""
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Mul", ["a", "s"], ["b"], name="/scaled"), node("Mul", ["b", "b"], ["c"], name="/square"), node("Add", ["c", "c"], ["d"]),
             node("MatMul", ["d", "m"], ["e"], name="/batched")]
    return total(nodes, "e", [value("x", ("n", 1, 4, 3))], [floats("w", np.full((2, 1, 4, 3), 2)), floats("s", np.ones((2, 1, 4, 1))), floats("m", np.ones((1, 3, 1)))])


def norm_without_statistics(_):
    """LayerNormalization with Y alone."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("LayerNormalization", ["h", "g", "b"], ["n"], name="/ln"), node("Mul", ["n", "x"], ["p"])]
    return total(nodes, "p", [value("x", (2, 3))], [floats("w", np.eye(3)), floats("g", np.ones(3)), floats("b", np.zeros(3))])


def batch_norm(momentum):
    nodes = [node("Mul", ["x", "w"], ["h"]), node("BatchNormalization", ["h", "g", "b", "m", "v"], ["n"], momentum=momentum, epsilon=1e-5, name="/bn"), node("Mul", ["n", "x"], ["p"])]
    return total(nodes, "p", [value("x", (2, 1, 2))], [floats("w", [1.0, 1.0]), floats("g", [1]), floats("b", [0]), floats("m", [10]), floats("v", [20])])


def momentum_0(_):
    return batch_norm(0.0)


def momentum_75(_):
    return batch_norm(0.75)


def momentum_1(_):
    return batch_norm(1.0)


def old_batch_norm(_):
    """BatchNormalization of opset 9 behind a convolution of the input as it is."""
    nodes = [node("Conv", ["x", "w"], ["h"], name="/conv"), node("BatchNormalization", ["h", "g", "b", "m", "v"], ["n"], momentum=0.0, name="/bn")]
    return model(nodes + [node("ReduceMean", ["n"], ["y"], keepdims=0)], [value("x", (2, 1, 2))], scalar,
                 [floats("w", [[[1]]]), floats("g", [1]), floats("b", [0]), floats("m", [0]), floats("v", [1])], opset=9)


def classes(_):
    """Scores of three samples; those of the second are -inf throughout."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("Add", ["h", "m"], ["y"], name="/mask")]
    return model(nodes, [value("x", (3, 2))], [value("y", (3, 3))], [floats("w", [[0, 1, 2], [1, 0, -1]]), floats("m", [[0, 0, 0], [-np.inf] * 3, [0, 0, 0]])])


def tied(_):
    """One table as embedding and, transposed, as output layer; a second table of the same bytes is another parameter."""
    nodes = [node("Gather", ["e", "i"], ["h"], name="/embed"), node("Transpose", ["e"], ["t"], perm=[1, 0]), node("MatMul", ["h", "t"], ["a"], name="/head"),
             node("Gather", ["f", "i"], ["k"]), node("ReduceSum", ["k", "axis"], ["s"], keepdims=1), node("Add", ["a", "s"], ["p"])]
    table = [[1, 2], [3, 4], [5, 6]]
    return total(nodes, "p", [value("i", (1,), I64)], [floats("e", table), floats("f", table), ints("axis", [1])])


def through_integers(_):
    """ArgMax, Shape, comparisons and NonZero's kin stand beside the way from the weights to the loss."""
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/fc"), node("ArgMax", ["h"], ["i"], axis=1, keepdims=0, name="/argmax"), node("Gather", ["e", "i"], ["k"], name="/rows"),
             node("Greater", ["h", "zero"], ["c"]), node("Cast", ["c"], ["d"], to=F, name="/indicator"), node("Mul", ["h", "d"], ["g"]), node("ReduceSum", ["g", "axis"], ["s"], keepdims=1),
             node("Add", ["s", "k"], ["p"])]
    return total(nodes, "p", [value("x", (2, 2))], [floats("w", [[1, 2], [1, 2]]), floats("e", [[5], [7]]), floats("zero", 0.0), ints("axis", [1]), ints("unused", [4])])


def transposed_weight(_):
    """What an optimizer would fold: a transposed weight, two biases that are added, a weight times a constant."""
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("Constant", [], ["k"], value=floats("", [[2.0], [2.0]])), node("Mul", ["t", "k"], ["u"]),
             node("MatMul", ["x", "u"], ["h"]), node("Add", ["b", "c"], ["d"]), node("Add", ["h", "d"], ["p"])]
    return total(nodes, "p", [value("x", (1, 2))], [floats("w", [[1, 2], [3, 4], [5, 6]]), floats("b", [1, 2, 3]), floats("c", [4, 5, 6])])


def two_layers_and_dropout(_):
    nodes = [node("MatMul", ["x", "w"], ["h"], name="/first"), node("Dropout", ["h", "ratio"], ["d"], name="/dropout"), node("MatMul", ["d", "v"], ["p"], name="/second")]
    return total(nodes, "p", [value("x", (1, 3))], [floats("w", np.ones((3, 64))), floats("v", np.ones((64, 1))), floats("ratio", 0.5)])


if __name__ == "__main__":
    write(globals())
