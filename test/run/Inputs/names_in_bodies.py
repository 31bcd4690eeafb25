# SPDX-License-Identifier: Apache-2.0
"""names_in_bodies.py AMPC AMPRUN SCRATCH   runs models with bodies through both tools and onnxruntime"""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name, dims=(2, 3), dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def body(nodes, inputs, outputs, initializers=()):
    return helper.make_graph(nodes, "body", inputs, outputs, list(initializers))


def branch(op, out, a="x"):
    return body([node(op, [a, "w"], [out])], [], [value(out)])


def if_node(out, inner, a="x"):
    return node("If", ["c"], [out], then_branch=branch("Add", inner, a), else_branch=branch("Sub", inner, a))


def loop(state, initializers=()):
    inside = body([node("Add", [state, "w"], ["s2"]), node("Identity", ["go"], ["go2"])], [value("i", (), I64), value("go", (), BOOL), value(state)],
                  [value("go2", (), BOOL), value("s2")], initializers)
    return node("Loop", ["k", "", "x"], ["y"], body=inside)


def models():
    yield "siblings", [if_node("a", "q"), if_node("y", "q", "a")]
    yield "own output", [if_node("y", "y")]
    yield "later node", [if_node("a", "q"), node("Neg", ["x"], ["q"]), node("Sub", ["q", "a"], ["y"])]
    yield "loop input", [loop("x")]
    yield "loop initializer", [loop("s", [numpy_helper.from_array(np.full(3, 10, np.float32), "w")])]
    scan = body([node("Add", ["w", "e"], ["s2"]), node("Identity", ["s2"], ["o"])], [value("w", (3,)), value("e", (3,))], [value("s2", (3,)), value("o", (3,))])
    yield "scan input", [node("Scan", ["w", "x"], ["last", "y"], body=scan, num_scan_inputs=1)]


ampc, amprun, scratch = sys.argv[1:]
x = np.arange(6, dtype=np.float32).reshape(2, 3)
np.savez(scratch + ".npz", x=x[None])
constants = {"c": np.array(True), "k": np.array(3), "w": np.array([1, 2, 3], np.float32)}
for name, nodes in models():
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, scratch + ".onnx")
    expected = onnxruntime.InferenceSession(scratch + ".onnx").run(["y"], {"x": x})[0]
    subprocess.run([ampc, scratch + ".onnx", "-o", scratch + ".plan", "--forward-only", "-q"], check=True)
    subprocess.run([amprun, scratch + ".plan", "--eval-data", scratch + ".npz:layout=steps", "--fetch", "eval:y", "--fetch-out",
                    scratch + ".out.npz:layout=steps", "-q"], check=True)
    found = np.load(scratch + ".out.npz")["y"][0]
    print(name, "agree" if np.array_equal(found, expected) else f"differ: {found}, onnxruntime has {expected}", flush=True)
