#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Growth of compile time: graphs of 10, 20 and 40 thousand nodes, per pass, and the ratio of each doubling.

usage: growth.py AMPC [NODES...]      not a test: timings depend on the machine

Three kinds of graph, all trained in bf16: a chain of residual blocks with their own weights; one value that a fan of nodes
reads; one weight that every node uses.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 8


def weight(name, rng):
    return numpy_helper.from_array(rng.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32), name)


def chain(nodes):
    """Blocks of MatMul, Tanh, Mul, Add with a weight each."""
    rng, out, weights, x = np.random.default_rng(0), [], [], "x"
    for i in range(nodes // 4):
        weights.append(weight(f"w{i}", rng))
        out += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"], f"/block{i}/MatMul"),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], f"/block{i}/Tanh"),
            helper.make_node("Mul", [f"t{i}", f"t{i}"], [f"s{i}"], f"/block{i}/Mul"),
            helper.make_node("Add", [x, f"s{i}"], [f"x{i}"], f"/block{i}/Add"),
        ]
        x = f"x{i}"
    return out, weights, x


def fan(nodes):
    """One value read by half of the nodes; the other half sums them up."""
    rng = np.random.default_rng(0)
    weights = [weight("w", rng)]
    out = [helper.make_node("MatMul", ["x", "w"], ["h"], "/h")]
    total = "h"
    for i in range(nodes // 2):
        out.append(helper.make_node("Tanh", ["h"], [f"t{i}"], f"/t{i}"))
        out.append(helper.make_node("Add", [total, f"t{i}"], [f"a{i}"], f"/a{i}"))
        total = f"a{i}"
    return out, weights, total


def shared(nodes):
    """One weight used by a quarter of the nodes."""
    rng = np.random.default_rng(0)
    weights, out, x = [weight("w", rng)], [], "x"
    for i in range(nodes // 4):
        out += [
            helper.make_node("MatMul", [x, "w"], [f"m{i}"], f"/m{i}"),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], f"/t{i}"),
            helper.make_node("Add", [f"t{i}", x], [f"a{i}"], f"/a{i}"),
            helper.make_node("Neg", [f"a{i}"], [f"n{i}"], f"/n{i}"),
        ]
        x = f"n{i}"
    return out, weights, x


def model(build, nodes, path):
    body, weights, last = build(nodes)
    graph = helper.make_graph(
        body, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [4, WIDTH])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def passes(ampc, path, plan):
    """{pass: ms}, and the wall time of the whole command."""
    command = [ampc, str(path), "--loss", "mse", "--optimizer", "adamw", "--precision", "bf16", "--time-passes", "-o", str(plan)]
    best = {}
    for _ in range(3):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        times = {}
        for line in run.stderr.splitlines():
            match = re.match(r"([a-z][a-z-]+)\s+([0-9.]+)\s", line)
            if match:
                times[match.group(1)] = times.get(match.group(1), 0) + float(match.group(2))
        for name, ms in times.items():
            best[name] = min(best.get(name, ms), ms)
    return best


def main():
    ampc = sys.argv[1]
    sizes = [int(n) for n in sys.argv[2:]] or [10000, 20000, 40000]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for build in (chain, fan, shared):
            columns = []
            for nodes in sizes:
                model(build, nodes, folder / "m.onnx")
                columns.append(passes(ampc, folder / "m.onnx", folder / "m.plan"))
            print(f"\n{build.__name__}: {build.__doc__}")
            print(f"{'pass':18}" + "".join(f"{n:>10}" for n in sizes) + "   ms; ratio of each doubling")
            for name in columns[0]:
                row = [c.get(name, 0) for c in columns]
                ratios = ", ".join(f"{b / a:.2f}" for a, b in zip(row, row[1:]) if a >= 0.5)
                print(f"{name:18}" + "".join(f"{ms:10.1f}" for ms in row) + f"   {ratios}")


main()
