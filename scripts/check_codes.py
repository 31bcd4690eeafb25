#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Diagnostic codes are stable and belong to one subsystem: a code may appear only in the folders of its family.

Exits with 1 and one line per offence. `--list` prints every code with the files that raise it.
"""

import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCT = ("runtime", "kernels", "compiler", "passes", "tools")

# First match wins: (codes, what they speak of, the path prefixes that may raise them).
FAMILIES = [
    (r"E010[0-9]|E011[0-9]", "the model", ["compiler/onnx/", "compiler/ops/", "runtime/base/status.h", "runtime/base/external_data.cc", "kernels/rnn.cc"]),
    (r"E012[0-9]", "Module text", ["compiler/ir/"]),
    (r"E02..", "loss, metrics, optimizer", ["passes/", "compiler/"]),
    (r"E03..", "passes and policies", ["passes/", "compiler/", "tools/"]),
    (r"E04..", "what can't be trained", ["passes/", "compiler/ops/"]),
    (r"E05..", "files", ["runtime/base/", "compiler/onnx/", "tools/"]),
    (r"E064.", "the plan file", ["runtime/plan/"]),
    (r"E06[0-3].", "flags and recipes", ["runtime/config/", "runtime/trainer", "tools/"]),
    (r"E06..", "checkpoints and weights", ["runtime/"]),
    (r"E070.", "devices and memory", ["runtime/device", "tools/"]),
    (r"E07..", "training data", ["runtime/data/"]),
    (r"E08..", "kernels and their execution", ["kernels/", "runtime/", "compiler/lower/"]),
    (r"E09..", "the run", ["kernels/", "runtime/", "tools/"]),
    (r"E7...", "faults of ampc", ["compiler/"]),
    (r"E9999", "faults of ampc", ["tools/"]),
]


def codes():
    """code -> the files with it."""
    found = collections.defaultdict(set)
    for top in PRODUCT:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith((".cc", ".h")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as f:
                        for code in re.findall(r'"(E\d{4})"', f.read()):
                            found[code].add(os.path.relpath(path, ROOT))
    return found


def main():
    found, offences = codes(), []
    for code, files in sorted(found.items()):
        family = next((f for f in FAMILIES if re.fullmatch(f[0], code)), None)
        if family is None:
            offences.append(f"{code}: no family in scripts/check_codes.py ({', '.join(sorted(files))})")
            continue
        for file in sorted(files):
            if not file.startswith(tuple(family[2])):
                offences.append(f"{file}: {code} is of the family '{family[1]}', raised in {', '.join(family[2])}")
        if "--list" in sys.argv[1:]:
            print(code, family[1], *sorted(files), sep="\t")
    for offence in offences:
        print(offence)
    print(f"check_codes: {len(found)} codes, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
