# SPDX-License-Identifier: Apache-2.0
"""Models whose parameters reach the loss by unusual ways.

    trainable_set.py FOLDER
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER, RANDOM, H = pathlib.Path(sys.argv[1]), np.random.default_rng(1), 3
node = helper.make_node


def value(name, dims, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def weight(*dims):
    return RANDOM.uniform(0.5, 1, dims).astype(np.float32)


def save(name, nodes, weights, inputs, outputs):
    graph = helper.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs],
                              [numpy_helper.from_array(array, key) for key, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, FOLDER / f"{name}.onnx")


def gru(part):
    return {f"W{part}": weight(1, 3 * H, 2), f"R{part}": weight(1, 3 * H, H)}


# An encoder that the decoder starts from; a state that is itself an initializer.
save("seq2seq", [node("GRU", ["source", "We", "Re", "", "", "start"], ["", "h"], hidden_size=H),
                 node("GRU", ["x", "Wd", "Rd", "", "", "h"], ["y"], hidden_size=H)],
     gru("e") | gru("d") | {"start": weight(1, 2, H)}, [("source", [5, 2, 2]), ("x", [4, 2, 2])], [("y", [4, 1, 2, H])])
# A network that says where another one looks, and one that says how far values may go.
save("transformer", [node("Gemm", ["p", "Wl"], ["t"]), node("Reshape", ["t", "dims"], ["theta"]),
                     node("AffineGrid", ["theta", "size"], ["grid"], align_corners=0), node("GridSample", ["x", "grid"], ["y"])],
     {"Wl": weight(4, 6), "dims": np.array([2, 2, 3]), "size": np.array([2, 1, 5, 5])}, [("p", [2, 4]), ("x", [2, 1, 5, 5])], [("y", [2, 1, 5, 5])])
save("bound", [node("MatMul", ["x", "W"], ["a"]), node("ReduceMean", ["a"], ["most"], keepdims=0),
               node("MatMul", ["x", "V"], ["b"]), node("Clip", ["b", "", "most"], ["y"])],
     {"W": weight(3, 3), "V": weight(3, 3) + 1}, [("x", [2, 3])], [("y", [2, 3])])
# A moved parameter that is an output itself, and one that a dead node reads besides.
save("moved", [node("MatMul", ["x", "W"], ["y"]), node("Transpose", ["P"], ["z"], perm=[1, 0]), node("MatMul", ["x", "P"], ["dead"])],
     {"W": weight(3, 3), "P": weight(3, 3)}, [("x", [2, 3])], [("y", [2, 3]), ("z", [3, 3])])
# One bias of equal elements, in both branches only, and in a body and outside.
branches = {f"{name}_branch": helper.make_graph([node(op, ["a", "b"], [f"{name}_y"])], name, [], [value(f"{name}_y", [2, 3])])
            for name, op in (("then", "Add"), ("else", "Sub"))}
equal = {"W": weight(3, 3), "b": np.zeros(3, np.float32), "c": np.array(True)}
save("bodies", [node("MatMul", ["x", "W"], ["a"]), node("If", ["c"], ["y"], **branches)], equal, [("x", [2, 3])], [("y", [2, 3])])
save("beside", [node("MatMul", ["x", "W"], ["m"]), node("Add", ["m", "b"], ["a"]), node("If", ["c"], ["y"], **branches)],
     equal, [("x", [2, 3])], [("y", [2, 3])])
# Through a sequence.
save("sequence", [node("MatMul", ["x", "W"], ["a"]), node("SplitToSequence", ["a", "size"], ["s"], axis=1), node("SequenceAt", ["s", "first"], ["y"])],
     {"W": weight(3, 4), "size": np.array(2), "first": np.array(0)}, [("x", [2, 3])], [("y", [2, 2])])
# Parameters of one element: the bias of a layer with one output, the slope of a PRelu; no scale that is multiplied with.
save("single", [node("MatMul", ["x", "W"], ["m"]), node("Add", ["m", "bias"], ["a"]), node("PRelu", ["a", "slope"], ["p"]), node("Mul", ["p", "scale"], ["y"])],
     {"W": weight(3, 1), "bias": weight(1), "slope": weight(1), "scale": weight(1)}, [("x", [2, 5, 3])], [("y", [2, 5, 1])])
# What a loop gathers in a sequence.
body = helper.make_graph([node("Gather", ["W", "i"], ["row"]), node("SequenceInsert", ["s", "row"], ["s_out"]), node("Identity", ["c"], ["c_out"])], "body",
                         [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
                         [value("c_out", [], TensorProto.BOOL), helper.make_tensor_sequence_value_info("s_out", TensorProto.FLOAT, None)])
graph = helper.make_graph(
    [node("SequenceEmpty", [], ["none"]), node("Loop", ["count", "", "none"], ["rows"], body=body),
     node("SequenceInsert", ["rows", "x", "first"], ["more"]), node("SequenceErase", ["more", "last"], ["kept"]),
     node("ConcatFromSequence", ["kept"], ["y"], axis=0, new_axis=1)],
    "g", [value("x", [3])], [value("y", [4, 3])],
    [numpy_helper.from_array(weight(4, 3), "W"), numpy_helper.from_array(np.array(4), "count"), numpy_helper.from_array(np.array(0), "first"),
     numpy_helper.from_array(np.array(-1), "last")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), FOLDER / "gathered.onnx")
