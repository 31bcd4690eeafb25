#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX's own node tests (onnx.backend.test, made by the installed package) through ampc --forward-only and amprun.

    node_tests.py BIN_FOLDER [--update] [--only SUBSTRING] [--jobs N] [--table]

A node test hands every input in at run time, axes and shapes too. ampc wants those that decide shapes at compile time, so a
case is tried as it is, then with its integer and bool inputs as initializers, then with all inputs but the first. It has
passed when names, element types, shapes and values of all outputs agree; it is refused when ampc says so (exit 3, or 1 with
E0108: not known at compile time). Anything else is wrong, and the run fails. node_tests.json keeps which cases are refused
and why: a case that is refused but not listed, or listed but not refused, fails, too. --update writes the file.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

EXPECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_tests.json")
# The values are random, so that only types and shapes can be compared.
RANDOM = re.compile(r"test_(bernoulli|training_dropout)(?!.*zero_ratio)")
# One rounding of the element type on either side where the test's own tolerance is finer.
EPSILON = {np.dtype(np.float16): 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2.0**-7}


class Refused(Exception):
    pass


class Wrong(Exception):
    pass


def reason_of(message):
    found = re.search(r"error\[(E\d+)\]: (.*)", message, re.S)
    if not found:
        return message.strip()[-200:]
    lines = [line.strip() for line in found.group(2).strip().splitlines() if line.strip()]
    text = lines[0] if not lines[0].endswith("not supported:") else lines[1]
    return f"{found.group(1)} " + re.sub(r"node '[^']*'|\(op[^)]*\)|: $", "", text).strip(" :")[:120]


def shaped(info, array):
    """The declared input with the dims of the data: node tests leave some open."""
    tensor = info.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for d in array.shape:
        tensor.shape.dim.add().dim_value = d


def with_initializers(model, arrays, names):
    model = onnx.ModelProto.FromString(model.SerializeToString())
    keep = [info for info in model.graph.input if info.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(keep)
    for info in model.graph.input:
        if isinstance(arrays[info.name], np.ndarray) and info.type.HasField("tensor_type"):
            shaped(info, arrays[info.name])
    for name in names:
        model.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return model


def forms(arrays):
    """Which inputs become initializers, from none on."""
    tensors = [name for name, a in arrays.items() if isinstance(a, np.ndarray) and a.dtype != object]
    whole = [name for name in tensors if arrays[name].dtype.kind in "iub"]
    yield []
    if whole and len(whole) < len(arrays):
        yield whole
    if len(tensors) > 1:
        yield tensors[1:]
    yield tensors


def as_array(value):
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def widened(array):
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def call(*argv, folder):
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace", timeout=60)
    return done.returncode, done.stderr + done.stdout


def compile_case(case, arrays, bin_folder, folder):
    for names in forms(arrays):
        model = with_initializers(case.model, arrays, names)
        onnx.save(model, os.path.join(folder, "m.onnx"))
        code, text = call(os.path.join(bin_folder, "ampc"), "m.onnx", "--forward-only", "-q", "-o", "m.plan", folder=folder)
        if code == 0:
            return names
        # What is decided by a shape shows in later forms; a refusal of the op does not go away.
        if code not in (1, 2, 3) or (code in (1, 2) and "E0108" not in text and "E0112" not in text):
            raise Wrong(f"ampc exits with {code}: {text.strip()[:300]}")
        if code == 3:
            break
    raise Refused(reason_of(text))


def run_case(case, bin_folder):
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = ([as_array(v) for v in values] for values in case.data_sets[0])
        arrays = {info.name: a for info, a in zip(case.model.graph.input, inputs)}
        constant = compile_case(case, arrays, bin_folder, folder)
        feeds = {name: widened(a)[None] for name, a in arrays.items() if name not in constant}
        argv = [os.path.join(bin_folder, "amprun"), "m.plan", "-q", "--threads", "1", "--eval-steps", "1"]
        if feeds:
            np.savez(os.path.join(folder, "in.npz"), **feeds)
            argv += ["--eval-data", "in.npz:layout=steps"]
        else:
            argv += ["--eval-data", "const"]
        for info in case.model.graph.output:
            argv += ["--fetch", f"eval:{info.name}"]
        code, text = call(*argv, "--fetch-out", "out.npz:layout=steps", folder=folder)
        if code != 0:
            raise Wrong(f"amprun exits with {code}: {text.strip()[:300]}")
        with np.load(os.path.join(folder, "out.npz")) as found:
            got = {name: found[name] for name in found.files}
        for info, expected in zip(case.model.graph.output, outputs):
            compare(case, info.name, np.asarray(expected), got)
        return f"{len(constant)} of {len(arrays)} inputs constant" if constant else ""


def compare(case, name, expected, got):
    if name not in got:
        raise Wrong(f"output '{name}' is not there")
    value = got[name][0]
    if value.shape != expected.shape:
        raise Wrong(f"'{name}' has shape {value.shape}, expected {expected.shape}")
    low = expected.dtype == ml_dtypes.bfloat16
    if not low and value.dtype != expected.dtype:
        raise Wrong(f"'{name}' is {value.dtype}, expected {expected.dtype}")
    if RANDOM.match(case.name):
        return
    if expected.dtype.kind in "iub":
        if not np.array_equal(value, expected):
            raise Wrong(f"'{name}' differs: {value.ravel()[:8]}, expected {expected.ravel()[:8]}")
        return
    rtol = max(case.rtol, 2 * EPSILON.get(expected.dtype, 0))
    a, b = value.astype(np.float64), expected.astype(np.float64)
    if not np.allclose(a, b, rtol=rtol, atol=max(case.atol, EPSILON.get(expected.dtype, 0) * 1e-3), equal_nan=True):
        worst = np.nanmax(np.abs(a - b)) if a.size else 0
        raise Wrong(f"'{name}' differs by up to {worst:.3g}: {a.ravel()[:6]}, expected {b.ravel()[:6]}")


def judge(case, bin_folder):
    try:
        return case, "passed", run_case(case, bin_folder)
    except Refused as e:
        return case, "refused", str(e)
    except Wrong as e:
        return case, "wrong", str(e)
    except Exception as e:  # the harness itself: never taken for a refusal
        return case, "wrong", f"{type(e).__name__}: {e}"


def op_of(case):
    return case.model.graph.node[0].op_type if len(case.model.graph.node) == 1 else "(several nodes)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in collect_testcases(None) if args.only in c.name]
    bin_folder = os.path.abspath(args.bin_folder)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda c: judge(c, bin_folder), cases))
    counts = collections.Counter(verdict for _, verdict, _ in results)
    refused = {c.name: why for c, verdict, why in results if verdict == "refused"}
    failures = [f"{c.name}: {why}" for c, verdict, why in results if verdict == "wrong"]
    if args.update:
        with open(EXPECTED, "w") as file:
            json.dump(dict(sorted(refused.items())), file, indent=0)
            file.write("\n")
    elif os.path.exists(EXPECTED):
        with open(EXPECTED) as file:
            listed = json.load(file)
        names = {c.name for c in cases}
        failures += [f"{n}: refused, but not listed: {why}" for n, why in refused.items() if n not in listed]
        failures += [f"{n}: passes, but is listed as refused" for n in listed if n in names and n not in refused]
    if args.table:
        table = collections.defaultdict(collections.Counter)
        for case, verdict, why in results:
            table[op_of(case)][verdict] += 1
        for op, row in sorted(table.items()):
            print(f"{op:32} passed {row['passed']:3}  refused {row['refused']:3}  wrong {row['wrong']:3}")
        for why, n in collections.Counter(refused.values()).most_common():
            print(f"{n:4}  {why}")
    for failure in failures:
        print("FAILED", failure)
    ops = {op_of(c) for c, verdict, _ in results if verdict == "passed"}
    print(f"{len(cases)} node tests of onnx {onnx.__version__}: {counts['passed']} passed ({len(ops)} ops), {counts['refused']} refused, "
          f"{counts['wrong']} wrong")
    sys.exit(1 if failures or not cases else 0)


if __name__ == "__main__":
    main()
