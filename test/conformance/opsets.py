#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An op is what its own version says, whatever newer opset the model imports: one node test of each op at every opset.

    opsets.py BIN_FOLDER [--only SUBSTRING] [--jobs N] [--table]

Of each op that ampc imports, the first of ONNX's node tests that it takes is imported again with every opset from 7 on in
which the op has the same version. All of them must be taken. --table lists the opsets of each op.
"""

import argparse
import concurrent.futures
import os
import sys
import tempfile
import warnings

import onnx
from onnx.backend.test.case.node import collect_testcases

from node_tests import Refused, Wrong, as_array, call, compile_case, with_initializers

OLDEST = 7


def opset_of(model):
    return next(i.version for i in model.opset_import if i.domain == "")


def version_at(op, opset):
    try:
        return onnx.defs.get_schema(op, opset, "").since_version
    except onnx.defs.SchemaError:
        return None


def same_opsets(op, opset):
    return [o for o in range(OLDEST, onnx.defs.onnx_opset_version() + 1) if version_at(op, o) == version_at(op, opset)]


def judge(op, cases, bin_folder):
    """None where ampc takes no case of the op, else the opsets that it takes and those that it refuses with the reason."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            inputs = [as_array(v) for v in case.data_sets[0][0]]
            arrays = {info.name: a for info, a in zip(case.model.graph.input, inputs)}
            try:
                constant = compile_case(case, arrays, bin_folder, folder)
            except (Refused, Wrong):
                continue
            taken, refused = [], {}
            for opset in same_opsets(op, opset_of(case.model)):
                model = with_initializers(case.model, arrays, constant)
                next(i for i in model.opset_import if i.domain == "").version = opset
                onnx.save(model, os.path.join(folder, "m.onnx"))
                code, text = call(os.path.join(bin_folder, "ampc"), "m.onnx", "--forward-only", "-q", "-o", "m.plan", folder=folder)
                if code == 0:
                    taken.append(opset)
                else:
                    refused[opset] = text.strip()[:200]
            return case, taken, refused
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    ops = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            nodes = case.model.graph.node
            if len(nodes) == 1 and nodes[0].domain == "" and args.only in nodes[0].op_type:
                ops.setdefault(nodes[0].op_type, []).append(case)
    bin_folder = os.path.abspath(args.bin_folder)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = dict(zip(ops, pool.map(lambda op: judge(op, ops[op], bin_folder), ops)))
    failures, runs, taken_ops = [], 0, 0
    for op, result in sorted(results.items()):
        if result is None:
            continue
        case, taken, refused = result
        runs += len(taken) + len(refused)
        taken_ops += 1
        failures += [f"{op} ({case.name}) in opset {opset}: {why}" for opset, why in refused.items()]
        if args.table:
            print(f"{op:32} version {version_at(op, opset_of(case.model)):2}  opsets {min(taken, default=0)} to {max(taken, default=0)}")
    for failure in failures:
        print("FAILED", failure)
    print(f"{taken_ops} ops of onnx {onnx.__version__} in {runs} opsets: {len(failures)} refused")
    sys.exit(1 if failures or not taken_ops else 0)


if __name__ == "__main__":
    main()
