# SPDX-License-Identifier: Apache-2.0
"""Models of a size that people train, with seeded random weights, for the benchmarks: ResNet-18, a GPT and an LSTM.

usage: large_models.py FOLDER      writes resnet18.onnx, gpt.onnx and lstm.onnx
"""
import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A graph under construction; every method adds a node and returns the name of its first output."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def tensor(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name, *dims, scale=None):
        deviation = scale if scale is not None else 1 / math.sqrt(math.prod(dims[1:]) or 1)
        return self.tensor(name, self.random.normal(0, deviation, dims).astype(np.float32))

    def constant(self, name, value, *dims):
        return self.tensor(name, np.full(dims, value, np.float32))

    def ints(self, name, *values):
        return self.tensor(name, np.array(values, np.int64))

    def linear(self, name, x, fan_in, fan_out):
        product = self.op("MatMul", x, self.weight(f"{name}.weight", fan_in, fan_out, scale=1 / math.sqrt(fan_in)))
        return self.op("Add", product, self.constant(f"{name}.bias", 0.01, fan_out))

    def model(self, inputs, output, dims):
        graph = helper.make_graph(self.nodes, "net", [helper.make_tensor_value_info(*i) for i in inputs],
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, dims)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
        onnx.checker.check_model(model, full_check=True)
        return model


def resnet18(batch=16, size=64, classes=1000):
    """He et al., 2015; images of 3 x 64 x 64."""
    net = Net()

    def conv(name, x, channels, filters, kernel, stride):
        pad = kernel // 2
        y = net.op("Conv", x, net.weight(f"{name}.weight", filters, channels, kernel, kernel), strides=[stride] * 2,
                   pads=[pad] * 4, kernel_shape=[kernel] * 2)
        statistics = [net.constant(f"{name}.bn.{part}", value, filters) for part, value in
                      (("weight", 1), ("bias", 0), ("mean", 0), ("var", 1))]
        return net.op("BatchNormalization", y, *statistics, outputs=3, training_mode=1, epsilon=1e-5, momentum=0.9)

    def block(name, x, channels, filters, stride):
        y = net.op("Relu", conv(f"{name}.conv1", x, channels, filters, 3, stride))
        y = conv(f"{name}.conv2", y, filters, filters, 3, 1)
        if stride != 1 or channels != filters:
            x = conv(f"{name}.down", x, channels, filters, 1, stride)
        return net.op("Relu", net.op("Add", x, y))

    x = net.op("Relu", conv("stem", "x", 3, 64, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, filters in enumerate((64, 128, 256, 512)):
        for i in range(2):
            x = block(f"layer{stage}.{i}", x, channels, filters, 2 if stage > 0 and i == 0 else 1)
            channels = filters
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model([("x", TensorProto.FLOAT, [batch, 3, size, size])], net.linear("fc", x, 512, classes), [batch, classes])


def gpt(batch=8, tokens=256, width=384, layers=6, heads=6, vocabulary=65):
    """The shape of nanoGPT's character model; pre-norm blocks, tanh GELU, causal attention."""
    net = Net()

    def norm(name, x):
        return net.op("LayerNormalization", x, net.constant(f"{name}.weight", 1, width), net.constant(f"{name}.bias", 0, width), axis=-1)

    x = net.op("Add", net.op("Gather", net.weight("wte", vocabulary, width, scale=0.02), "x"), net.weight("wpe", tokens, width, scale=0.02))
    thirds = net.ints("thirds", width, width, width)
    for i in range(layers):
        qkv = net.linear(f"h{i}.attn.qkv", norm(f"h{i}.ln1", x), width, 3 * width)
        net.op("Split", qkv, thirds, outputs=3, axis=2)
        q, k, v = net.nodes[-1].output
        y = net.op("Attention", q, k, v, is_causal=1, q_num_heads=heads, kv_num_heads=heads)
        x = net.op("Add", x, net.linear(f"h{i}.attn.out", y, width, width))
        y = net.op("Gelu", net.linear(f"h{i}.mlp.up", norm(f"h{i}.ln2", x), width, 4 * width), approximate="tanh")
        x = net.op("Add", x, net.linear(f"h{i}.mlp.down", y, 4 * width, width))
    logits = net.op("MatMul", norm("ln_f", x), net.weight("head", width, vocabulary, scale=0.02))
    return net.model([("x", TensorProto.INT64, [batch, tokens])], logits, [batch, tokens, vocabulary])


def lstm(batch=32, steps=64, width=512, layers=2, vocabulary=65):
    net = Net()
    x = net.op("Transpose", net.op("Gather", net.weight("embedding", vocabulary, width, scale=0.1), "x"), perm=[1, 0, 2])
    for i in range(layers):
        w, r = (net.weight(f"lstm{i}.{part}", 1, 4 * width, width, scale=1 / math.sqrt(width)) for part in ("w", "r"))
        y = net.op("LSTM", x, w, r, net.constant(f"lstm{i}.b", 0.01, 1, 8 * width), hidden_size=width)
        x = net.op("Squeeze", y, net.ints(f"axis{i}", 1))
    logits = net.linear("head", net.op("Transpose", x, perm=[1, 0, 2]), width, vocabulary)
    return net.model([("x", TensorProto.INT64, [batch, steps])], logits, [batch, steps, vocabulary])


def matmul(n=1024):
    """One product, to see the rate that the library reaches."""
    net = Net()
    return net.model([("x", TensorProto.FLOAT, [n, n])], net.op("MatMul", "x", net.weight("w", n, n)), [n, n])


MODELS = {"resnet18": resnet18, "gpt": gpt, "lstm": lstm}

if __name__ == "__main__":
    for model_name, make in MODELS.items():
        onnx.save(make(), pathlib.Path(sys.argv[1]) / f"{model_name}.onnx")
