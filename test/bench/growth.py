#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Growth of compile time: graphs of 10, 20 and 40 thousand nodes, per pass, and the ratio of each doubling.

usage: growth.py [--small] [--large] [--runs N] [--kind KIND] AMPC [NODES...]
                                      not a test: timings depend on the machine

Three kinds of graph, all trained in bf16: a chain of residual blocks with their own weights; one value that a fan of nodes
reads; one weight that every node uses. --small adds 1000 nodes, --large 200,000. A figure is the least of N runs (3). User
time (of all threads) moves less than wall time on a machine that does other things, too. Limits: 2.2 for the ratio of a
doubling; 50 ms for 1000 nodes, 1 s for 40,000, 6 s for 200,000; memory of 64 MiB + 2 KiB per node.
The system counts the memory that this script had when it started the command, too: about 46 MiB is the least it says.
"""
import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

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


def measure(ampc, path, plan):
    """One compilation: {pass: ms}, with the whole command as "wall", "user" and "system", and its peak memory in MiB."""
    command = [ampc, str(path), "--loss", "mse", "--optimizer", "adamw", "--precision", "bf16", "--time-passes", "-q", "-o",
               str(plan)]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)  # the usage of this child alone
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        stderr.seek(0)
        text = stderr.read()
    if process.returncode:
        sys.exit(text)
    times = {}
    for match in re.finditer(r"^([a-z][a-z-]+)\s+([0-9.]+)\s", text, re.MULTILINE):  # dce and cse run more than once
        times[match.group(1)] = times.get(match.group(1), 0) + float(match.group(2))
    times |= {"wall": 1e3 * wall, "user": 1e3 * usage.ru_utime, "system": 1e3 * usage.ru_stime}
    unit = 1 if platform.system() == "Darwin" else 1024
    return times, usage.ru_maxrss * unit / 2**20


def least(ampc, path, plan, runs):
    """The least of several runs, figure by figure."""
    best, memory = {}, float("inf")
    for _ in range(runs):
        times, peak = measure(ampc, path, plan)
        best = {name: min(ms, best.get(name, ms)) for name, ms in times.items()}
        memory = min(memory, peak)
    return best, memory


def ratios(row, sizes):
    """Growth per doubling, where the sizes are doublings and the figures large enough to mean something."""
    return ", ".join(f"{b / a:.2f}" for a, b, m, n in zip(row, row[1:], sizes, sizes[1:]) if a >= 0.5 and n == 2 * m)


def report(build, sizes, columns):
    print(f"\n{build.__name__}: {build.__doc__}")
    print(f"{'pass':18}" + "".join(f"{n:>10}" for n in sizes) + "   ms; ratio of each doubling")
    for name in columns[0][0]:
        row = [times.get(name, 0) for times, _ in columns]
        print(f"{name:18}" + "".join(f"{ms:10.1f}" for ms in row) + f"   {ratios(row, sizes)}")
    memory = [peak for _, peak in columns]
    limits = [64 + 2 * n / 1024 for n in sizes]
    print(f"{'MiB':18}" + "".join(f"{m:10.1f}" for m in memory) + "   limits " + ", ".join(f"{m:.0f}" for m in limits))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ampc")
    parser.add_argument("nodes", type=int, nargs="*", default=[10000, 20000, 40000])
    parser.add_argument("--small", action="store_true", help="1000 nodes, too")
    parser.add_argument("--large", action="store_true", help="200,000 nodes, too")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kind", choices=["chain", "fan", "shared"], help="only this kind of graph")
    args = parser.parse_args()
    sizes = [1000] * args.small + args.nodes + [200000] * args.large
    summary = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for build in (chain, fan, shared):
            if args.kind not in (None, build.__name__):
                continue
            columns = []
            for nodes in sizes:
                model(build, nodes, folder / "m.onnx")
                columns.append(least(args.ampc, folder / "m.onnx", folder / "m.plan", args.runs))
            report(build, sizes, columns)
            totals = [times["wall"] for times, _ in columns], [times["user"] for times, _ in columns]
            summary.append(f"{build.__name__:8} wall {ratios(totals[0], sizes)}   user {ratios(totals[1], sizes)}")
    print("\ngrowth of the whole command per doubling (limit 2.2):")
    print("\n".join(summary))


main()
