#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose outputs need no kernel of their own.   usage: views.py OUT.onnx

x [4,3] -> y = x·w + Expand of b to its own shape; v = x·k (k of rank 1, so v is a view); c = 2 · 3, a constant;
t = tanh(r), r a view of x·w whose memory t takes.
"""
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def value(name, array, dtype=np.float32):
    return numpy_helper.from_array(np.array(array, dtype), name)


nodes = [
    helper.make_node("MatMul", ["x", "w"], ["xw"]),
    helper.make_node("Expand", ["b", "shape"], ["b2"]),
    helper.make_node("Add", ["xw", "b2"], ["y"]),
    helper.make_node("MatMul", ["x", "k"], ["v"]),
    helper.make_node("Mul", ["two", "three"], ["c"]),
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Reshape", ["h", "flat"], ["r"]),
    helper.make_node("Tanh", ["r"], ["t"]),
]
weights = [value("w", np.full((3, 2), 0.5)), value("b", np.full((1, 2), 0.25)), value("k", [1, 2, 3]),
           value("shape", [1, 2], np.int64), value("flat", [8], np.int64), value("two", [2.0]), value("three", [3.0])]
graph = helper.make_graph(nodes, "views", [info("x", [4, 3])], [info("y", [4, 2]), info("v", [4]), info("c", [1]), info("t", [8])], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), sys.argv[1])
