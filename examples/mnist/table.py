#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table at the end of run.sh: one row per precision, read from amprun's logs and ampc's summaries.

usage: table.py FOLDER PRECISION...
"""
import json
import pathlib
import re
import sys


def scale_history(steps):
    """'65536 @1, 32768 @41': the scale, and each step from which it was another one; '-' without loss scaling."""
    changes, last = [], None
    for line in steps:
        if "scale" in line and line["scale"] != last:
            last = line["scale"]
            changes.append(f"{last:g} @{line['step']}")
    return ", ".join(changes) or "-"


def row(folder, precision):
    lines = [json.loads(text) for text in (folder / f"{precision}.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "step" in line]
    evals = [line for line in lines if "eval_accuracy" in line and "step" in line]
    done = lines[-1]["done"]
    summary = (folder / f"{precision}.summary").read_text()
    casts = re.search(r"program\s+step\s.*?(\d+) casts", summary).group(1)
    tail = steps[-20:]
    return [
        precision,
        f"{sum(line['loss'] for line in tail) / len(tail):.4f}",
        f"{100 * evals[-1]['eval_accuracy']:.1f} % of {evals[-1]['eval_samples']:g}",
        casts,
        f"{done['skipped']} of {done['steps']}",
        scale_history(steps),
        f"{done['planned_bytes'] / 2**20:.1f} MiB",
        f"{done['seconds']:.1f} s",
    ]


def main():
    folder = pathlib.Path(sys.argv[1])
    head = ["precision", "loss (last 20)", "accuracy", "casts", "skipped", "scale history", "planned memory", "time"]
    rows = [head] + [row(folder, precision) for precision in sys.argv[2:]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(r, widths)).rstrip())


main()
