# SPDX-License-Identifier: Apache-2.0
"""computed_statistics.py KIND FILE        writes a BatchNormalization whose mean comes from an op of that kind
computed_statistics.py compare FILE FILE   says of m0, s and v whether both models have the same"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = TensorProto.FLOAT


def make(kind):
    statistics = ["m0", "v"] if kind in ("body", "plain") else ["m", "v"]
    norm = helper.make_node("BatchNormalization", ["x", "s", "b", *statistics], ["y"], name="norm")
    values = {"s": [1, 2, 3], "b": [0.1, 0.2, 0.3], "m0": [0.5, 0.2, 0.3], "v": [1, 2, 3]}
    inputs = [helper.make_tensor_value_info("x", F, [4, 3])]
    tensors = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in values.items()]
    nodes = [norm]
    if kind == "reshape":
        tensors.append(numpy_helper.from_array(np.array([3]), "shape"))
        nodes.insert(0, helper.make_node("Reshape", ["m0", "shape"], ["m"]))
    elif kind == "add":
        tensors.append(numpy_helper.from_array(np.ones(3, np.float32), "e"))
        nodes.insert(0, helper.make_node("Add", ["m0", "e"], ["m"]))
    elif kind == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["m"], value=numpy_helper.from_array(np.array([1, 2, 3], np.float32))))
    elif kind == "feed":
        inputs.append(helper.make_tensor_value_info("m", F, [3]))
    elif kind == "identity":
        nodes.insert(0, helper.make_node("Identity", ["m0"], ["m"]))
    elif kind == "body":
        tensors.append(numpy_helper.from_array(np.array(True), "c"))
        norm.output[0] = "t"
        other = helper.make_node("Identity", ["x"], ["t"])
        branch = [helper.make_graph([n], "branch", [], [helper.make_tensor_value_info("t", F, [4, 3])]) for n in (norm, other)]
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", F, [4, 3])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def values_of(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


if sys.argv[1] == "compare":
    before, after = values_of(sys.argv[2]), values_of(sys.argv[3])
    for name in ("m0", "s", "v"):
        print(name, "kept" if np.array_equal(before[name], after[name]) else "changed")
else:
    onnx.save(make(sys.argv[1]), sys.argv[2])
