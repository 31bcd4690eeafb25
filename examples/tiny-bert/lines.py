#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of a text as token files for a classifier: how does a line end, when its last character is hidden?

    lines.py TEXT.txt FOLDER

Writes three files of bytes, one row a line: tokens.bin (the last 24 characters before the hidden one, as ids; 65 fills up
shorter lines), mask.bin (1 for a character, 0 for filling) and label.bin: 0 a colon, so the name of a speaker; 1 a letter or
a comma, so the sentence goes on; 2 any other mark, so it ends. Standard library only.
"""

import collections
import os
import sys

LENGTH, FILLING = 24, 65


def label_of(last):
    return 0 if last == ":" else 1 if last.isalpha() or last == "," else 2


def main():
    text, folder = sys.argv[1:]
    with open(text, encoding="utf-8") as file:
        whole = file.read()
    rank = {c: i for i, c in enumerate(sorted(set(whole)))}
    assert len(rank) <= FILLING, "the model knows 65 characters"
    tokens, mask, labels = bytearray(), bytearray(), bytearray()
    for line in whole.split("\n"):
        if len(line) < 2:
            continue
        shown = line[:-1][-LENGTH:]
        tokens += bytes([rank[c] for c in shown] + [FILLING] * (LENGTH - len(shown)))
        mask += bytes([1] * len(shown) + [0] * (LENGTH - len(shown)))
        labels.append(label_of(line[-1]))
    for name, data in (("tokens", tokens), ("mask", mask), ("label", labels)):
        with open(os.path.join(folder, name + ".bin"), "wb") as file:
            file.write(data)
    most = collections.Counter(labels[len(labels) * 9 // 10:]).most_common(1)[0]
    print(f"{len(labels)} lines; of the last tenth {most[1] / (len(labels) - len(labels) * 9 // 10):.1%} end in the commonest way")


if __name__ == "__main__":
    main()
