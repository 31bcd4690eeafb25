# SPDX-License-Identifier: Apache-2.0
"""Models with If, Loop and Scan, and the same written out by hand; what both tools make of them, against onnxruntime.

    control_flow.py AMPC AMPRUN FOLDER
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
AMPC, AMPRUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
RANDOM = np.random.default_rng(1)
WEIGHTS = {"w": RANDOM.uniform(0.5, 1, 3), "v": RANDOM.uniform(0.5, 1, (2, 3)), "h0": RANDOM.uniform(-1, 1, (2, 3))}


def value(name, dims, dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def constant(name, array):
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(array)))


def model(nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHTS[n].astype(np.float32), n) for n in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loss(y):
    return [node("ReduceSum", [y], ["loss"], keepdims=0)]


def branches():
    """The branch depends on a dim; an If inside the other one is never looked at."""
    inner = helper.make_graph([node("NoSuchOp", ["x"], ["b"])], "no", [], [value("b", [2, 3])])
    then = helper.make_graph([node("Mul", ["x", "w"], ["a0"]), node("Add", ["a0", "v"], ["a"])], "yes", [], [value("a", [2, 3])])
    nodes = [node("Shape", ["x"], ["s"]), constant("at", 1), node("Gather", ["s", "at"], ["d"]), constant("three", 3), node("Equal", ["d", "three"], ["c"])]
    written = [node("Mul", ["x", "w"], ["a0"]), node("Add", ["a0", "v"], ["y"])]
    took = node("If", ["c"], ["y"], then_branch=then, else_branch=inner)
    return [value("x", [2, 3])], [value("y", [2, 3])], ["w", "v"], [*nodes, took], written, False


def loop():
    """A loop that ends by its condition, before its trip count; one state, one output per iteration."""
    body = helper.make_graph(
        [constant("last", 3), node("Less", ["i", "last"], ["c_out"]), node("Mul", ["h", "w"], ["m"]), node("Cast", ["i"], ["f"], to=F),
         node("Add", ["m", "f"], ["h_out"]), node("Identity", ["h_out"], ["r"])],
        "body", [value("i", [], I64), value("c_in", [], B), value("h", [2, 3])], [value("c_out", [], B), value("h_out", [2, 3]), value("r", [2, 3])])
    nodes = [constant("n", 10), constant("t", True), node("Loop", ["n", "t", "x"], ["y", "z"], body=body)]
    written, h, parts = [], "x", []
    for k in range(4):
        out = "y" if k == 3 else f"h{k}"
        written += [constant(f"f{k}", np.float32(k)), node("Mul", [h, "w"], [f"m{k}"]), node("Add", [f"m{k}", f"f{k}"], [out]),
                    constant(f"dims{k}", [1, 2, 3]), node("Reshape", [out, f"dims{k}"], [f"p{k}"])]
        h, parts = out, [*parts, f"p{k}"]
    written.append(node("Concat", parts, ["z"], axis=0))
    return [value("x", [2, 3])], [value("y", [2, 3]), value("z", [4, 2, 3])], ["w"], nodes, written, True


def scan():
    """Backwards over axis 1; the state starts as a parameter."""
    body = helper.make_graph(
        [node("Mul", ["h", "w"], ["m"]), node("Add", ["m", "e"], ["h_out"]), node("Mul", ["h_out", "v"], ["o"])],
        "body", [value("h", [2, 3]), value("e", [2, 3])], [value("h_out", [2, 3]), value("o", [2, 3])])
    nodes = [node("Scan", ["h0", "x"], ["y", "z"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
                  scan_output_axes=[2], scan_output_directions=[1])]
    written, h, parts = [constant("ones", [1] * 5), node("Split", ["x", "ones"], [f"e{k}" for k in range(5)], axis=1)], "h0", []
    for k in range(5):
        out = "y" if k == 4 else f"h_{k}"
        written += [constant(f"d{k}", [2, 3]), node("Reshape", [f"e{4 - k}", f"d{k}"], [f"r{k}"]), node("Mul", [h, "w"], [f"m{k}"]),
                    node("Add", [f"m{k}", f"r{k}"], [out]), node("Mul", [out, "v"], [f"o{k}"]), constant(f"q{k}", [2, 3, 1]),
                    node("Reshape", [f"o{k}", f"q{k}"], [f"p{k}"])]
        h, parts = out, [f"p{k}", *parts]
    written.append(node("Concat", parts, ["z"], axis=2))
    return [value("x", [2, 5, 3])], [value("y", [2, 3]), value("z", [2, 3, 5])], ["w", "v", "h0"], nodes, written, True


def longest():
    """As many steps as one model may have; the sum so far."""
    body = helper.make_graph([node("Add", ["h", "e"], ["h_out"])], "body", [value("h", [3]), value("e", [3])], [value("h_out", [3])])
    nodes = [constant("zero", np.zeros(3, np.float32)), node("Scan", ["zero", "x"], ["y"], body=body, num_scan_inputs=1)]
    return [value("x", [10_000, 3])], [value("y", [3])], nodes


def run(*argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: {done.stderr}")


def fetched(path, feeds, globs, *settings):
    plan, out = FOLDER / "cf.plan", FOLDER / "cf.npz"
    np.savez(FOLDER / "cf_feeds.npz", **{k: v[None] for k, v in feeds.items()})
    run(AMPC, path, "--precision", "fp32", "-q", "-o", plan, *settings)
    data = ["--eval-data", f"{FOLDER}/cf_feeds.npz:layout=steps", "--steps", "0"] if "--forward-only" in settings else [
        "--data", f"{FOLDER}/cf_feeds.npz:layout=steps", "--steps", "1"]
    run(AMPRUN, plan, *data, "-q", *[f for g in globs for f in ("--fetch", g)], "--fetch-out", f"{out}:layout=steps")
    return dict(np.load(out))


for make in (branches, loop, scan):
    inputs, outputs, weights, nodes, written, both = make()
    feeds = {i.name: RANDOM.uniform(-1, 1, [d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in inputs}
    path = FOLDER / f"{make.__name__}.onnx"
    onnx.save(model(nodes, inputs, outputs, weights), path)
    # onnxruntime looks at both branches of an If: it is given what is written out.
    reference = FOLDER / f"{make.__name__}.written.onnx"
    onnx.save(model(written, inputs, outputs, weights), reference)
    wanted = onnxruntime.InferenceSession(path if both else reference, providers=["CPUExecutionProvider"]).run(None, feeds)
    got = fetched(path, feeds, [f"eval:{o.name}" for o in outputs], "--forward-only")
    for o, w in zip(outputs, wanted):
        if not np.array_equal(got[o.name][0], w):
            sys.exit(f"{make.__name__}: output '{o.name}' is {got[o.name][0]}, onnxruntime has {w}")
    grads = []
    for name, body in (("trained", nodes), ("by_hand", written)):
        total = [node("ReduceSum", [o.name], [f"sum_{o.name}"], keepdims=0) for o in outputs]
        total.append(node("Sum", [f"sum_{o.name}" for o in outputs], ["loss"]))
        onnx.save(model([*body, *total], inputs, [value("loss", [])], weights), FOLDER / f"{name}.onnx")
        grads.append(fetched(FOLDER / f"{name}.onnx", feeds, [*(f"grad:{n}" for n in weights), "loss"], "--loss", "output"))
    for key, gradient in grads[0].items():
        # the contributions of the iterations are added in another order
        if not np.allclose(gradient, grads[1][key], rtol=1e-6, atol=0) or (key.startswith("grad:") and not gradient.any()):
            sys.exit(f"{make.__name__}: {key} is {gradient}, by hand {grads[1][key]}")
    print(f"{make.__name__}: {len(wanted)} outputs as in onnxruntime, {len(weights)} gradients as by hand")

inputs, outputs, nodes = longest()
feeds = {"x": RANDOM.uniform(-1, 1, (10_000, 3)).astype(np.float32)}
onnx.save(model(nodes, inputs, outputs, []), FOLDER / "longest.onnx")
got = fetched(FOLDER / "longest.onnx", feeds, ["eval:y"], "--forward-only")["y"][0]
[wanted] = onnxruntime.InferenceSession(FOLDER / "longest.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
print("longest: 10000 steps", "as in onnxruntime" if np.array_equal(got, wanted) else f"{got}, onnxruntime has {wanted}")
