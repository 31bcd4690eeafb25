# SPDX-License-Identifier: Apache-2.0
"""One head of attention as single nodes, with a mask that leaves some queries no key: usage: masked_rows.py OUT.onnx"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(1)
mask = np.zeros((150, 150), np.float32)
mask[::3] = -1e9
mask[1, 5:] = -1e9
tensors = {name: random.normal(0, 0.3, (8, 8)).astype(np.float32) for name in ("wq", "wk", "wv")}
tensors |= {"mask": mask, "scale": np.array(0.35, np.float32)}
nodes = [
    helper.make_node("MatMul", ["x", "wq"], ["q"]),
    helper.make_node("MatMul", ["x", "wk"], ["k"]),
    helper.make_node("MatMul", ["x", "wv"], ["v"]),
    helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
    helper.make_node("MatMul", ["q", "kt"], ["raw"]),
    helper.make_node("Mul", ["raw", "scale"], ["scaled"]),
    helper.make_node("Add", ["scaled", "mask"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
    helper.make_node("MatMul", ["weights", "v"], ["y"]),
]
info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2, 150, 8]) for name in ("x", "y")]
graph = helper.make_graph(nodes, "attention", info[:1], info[1:], [numpy_helper.from_array(a, name) for name, a in tensors.items()])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), sys.argv[1])
