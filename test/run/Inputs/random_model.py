# SPDX-License-Identifier: Apache-2.0
"""A model with every op that draws, opset 15: usage: random_model.py OUT.onnx"""
import sys

import onnx
from onnx import TensorProto, helper

DIMS = [64, 500]
nodes = [
    helper.make_node("RandomUniform", [], ["uniform"], shape=DIMS, low=-2.0, high=3.0),
    helper.make_node("RandomNormal", [], ["normal"], shape=DIMS, mean=1.0, scale=2.0),
    helper.make_node("RandomUniformLike", ["x"], ["like"], dtype=TensorProto.FLOAT16),
    helper.make_node("RandomNormalLike", ["x"], ["noise"], seed=3.0),
    helper.make_node("Bernoulli", ["x"], ["coin"], dtype=TensorProto.INT32),
    helper.make_node("Mul", ["noise", "w"], ["noisy"]),
]
types = {"uniform": TensorProto.FLOAT, "normal": TensorProto.FLOAT, "like": TensorProto.FLOAT16, "noisy": TensorProto.FLOAT, "coin": TensorProto.INT32}
outputs = [helper.make_tensor_value_info(name, kind, DIMS) for name, kind in types.items()]
weight = helper.make_tensor("w", TensorProto.FLOAT, [DIMS[1]], [1.0] * DIMS[1])
graph = helper.make_graph(nodes, "draws", [helper.make_tensor_value_info("x", TensorProto.FLOAT, DIMS)], outputs, [weight])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), sys.argv[1])
