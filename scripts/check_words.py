#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps out of the sources what would not hold on another machine, and marks of unfinished work.

Paths of one person's or one machine's folders; host names of package registries (pip and apt know theirs);
unfinished marks; files over a size limit. Exits with 1 and one line per offence.
"""

import os
import re
import sys

from project_files import ROOT, project_files

# The brackets keep this file from finding itself.
FORBIDDEN = [
    (r"(?<![\w.$}/])[/](home|root|work|farm|Users)[/]\w", "a path of one machine"),
    (r"[/]tmp/(build|bash|ground)", "a path of one machine"),
    (r"(py[p]i|pythonhoste[d])\.org|de[b]ian\.org|ubuntu\.co[m]|crates\.i[o]|npmjs\.co[m]|conda\.anacond[a]", "a registry's host name"),
    (r"\b(TO[D]O|FIXM[E]|XX[X])\b", "a mark of unfinished work"),
]
BINARY = (".onnx", ".npz", ".npy", ".gz", ".safetensors", ".data", ".png", ".plan", ".pb", ".ckpt", ".bin")
SIZE_LIMIT = 1 << 20
LARGE = {"examples/mnist/data/t10k-images-idx3-ubyte.gz", "examples/data/tinyshakespeare/input.txt"}


def main():
    rules = [(re.compile(pattern), what) for pattern, what in FORBIDDEN]
    count = bad = 0
    for name in project_files():
        path = os.path.join(ROOT, name)
        count += 1
        if os.path.getsize(path) > SIZE_LIMIT and name not in LARGE:
            bad += 1
            print(f"{name}: larger than {SIZE_LIMIT} bytes")
        if name.endswith(BINARY):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                for rule, what in rules:
                    found = rule.search(line)
                    if found:
                        bad += 1
                        print(f"{name}:{number}: {what}: {found.group(0)}")
    print(f"check_words: {count} files, {bad} offences")
    return 1 if bad or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
