#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GRU whose sequence lengths are an initializer.   usage: gru_lengths.py OUT.onnx LENGTH LENGTH"""
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

random = np.random.default_rng(1)
weights = [numpy_helper.from_array(random.standard_normal(dims).astype(np.float32), name)
           for name, dims in (("w", (1, 9, 2)), ("r", (1, 9, 3)))]
lengths = numpy_helper.from_array(np.array(sys.argv[2:], np.int32), "lengths")
node = helper.make_node("GRU", ["x", "w", "r", "", "lengths"], ["y"], name="layer", hidden_size=3)
graph = helper.make_graph([node], "gru", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 2])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1, 2, 3])], [*weights, lengths])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), sys.argv[1])
