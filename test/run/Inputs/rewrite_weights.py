# SPDX-License-Identifier: Apache-2.0
"""rewrite_weights.py IN.onnx OUT.onnx [NAME]: the same initializers in other forms: float_data, external data beside
the file. NAME is called 'renamed' in OUT."""
import sys

import onnx
from onnx import numpy_helper

model = onnx.load(sys.argv[1])
for i, tensor in enumerate(model.graph.initializer):
    if tensor.name in sys.argv[3:]:
        tensor.name = "renamed"
    values = numpy_helper.to_array(tensor)
    if tensor.data_type != onnx.TensorProto.FLOAT:
        continue
    if i % 2 == 0:
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values.flatten().tolist())
onnx.save_model(model, sys.argv[2], save_as_external_data=True, size_threshold=64,
                location=sys.argv[2].rsplit("/", 1)[1] + ".weights")
