#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of 20,000 nodes in a row.   usage: deep.py OP OUT.onnx

Tanh: between the input and the output. Identity, Transpose: between a weight and the MatMul that reads it.
"""
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

op, out = sys.argv[1:]
nodes, depth = [], 20000
start = "h" if op == "Tanh" else "w"
for i in range(depth):
    nodes.append(helper.make_node(op, [start if i == 0 else f"v{i - 1}"], [f"v{i}"]))
if op == "Tanh":
    nodes.insert(0, helper.make_node("MatMul", ["x", "w"], ["h"]))
    result = f"v{depth - 1}"
else:
    nodes.append(helper.make_node("MatMul", ["x", f"v{depth - 1}"], ["y"]))
    result = "y"
weight = numpy_helper.from_array(np.full((4, 4), 0.1, np.float32), "w")
graph = helper.make_graph(nodes, "deep", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
                          [helper.make_tensor_value_info(result, TensorProto.FLOAT, [2, 4])], [weight])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), out)
