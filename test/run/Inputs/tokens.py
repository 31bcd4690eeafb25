# SPDX-License-Identifier: Apache-2.0
"""What tokens.test compares with, in Python's words.

    tokens.py write TEXT PREFIX         the ids of the characters: PREFIXu16.bin with a header of 1024 bytes, PREFIXi64.bin
    tokens.py exp LOG                   perplexity is exp(loss) in every line that has both
    tokens.py recipe MODEL TEXT         a recipe that trains on the text
    tokens.py perplexity TEXT LOGITS LOG   eval_perplexity from the fetched logits; label 1 is ignored
"""

import json
import math
import os
import sys

import numpy as np

LENGTH = 32


def ids_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    rank = {c: i for i, c in enumerate(sorted(set(text)))}
    return np.array([rank[c] for c in text])


def lines_of(log):
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(text, prefix):
    ids = ids_of(text)
    with open(prefix + "u16.bin", "wb") as file:
        file.write(b"\xff" * 1024 + ids.astype("<u2").tobytes())
    ids.astype("<i8").tofile(prefix + "i64.bin")


def exp(log):
    checked = 0
    for line in lines_of(log):
        for prefix in ("", "eval_"):
            if prefix + "perplexity" in line and prefix + "loss" in line:
                loss, perplexity = line[prefix + "loss"], line[prefix + "perplexity"]
                # The loss is a mean made in fp32, the perplexity comes from a sum and a count.
                assert abs(perplexity / math.exp(loss) - 1) < 2e-6, line
                checked += 1
    assert checked > 0, "no line has both"


def recipe(model, text):
    paths = [os.path.abspath(p) for p in (model, text)]
    print(f"""model: {paths[0]}
dim: {{batch: 16}}
loss: {{kind: cross-entropy, target: label, axis: 2}}
metric: [perplexity]
precision: fp32
data:
  tokens: {{file: {paths[1]}, tokens: char}}
  label: {{file: {paths[1]}, tokens: char, shift: 1, vocab: {paths[1]}}}
steps: 3""")


def perplexity(text, fetched, log):
    logits = np.load(fetched)["logits"].astype(np.float64)
    samples = len(logits)
    label = ids_of(text)[1:samples * LENGTH + 1].reshape(samples, LENGTH)
    shifted = logits - logits.max(-1, keepdims=True)
    nll = np.log(np.exp(shifted).sum(-1)) - np.take_along_axis(shifted, label[..., None], -1)[..., 0]
    expected = math.exp(nll[label != 1].mean())
    told = [line["eval_perplexity"] for line in lines_of(log) if "eval_perplexity" in line]
    assert samples == 35 and told, (samples, told)
    assert abs(told[0] / expected - 1) < 1e-6, (told, expected)


if __name__ == "__main__":
    {"write": write, "exp": exp, "recipe": recipe, "perplexity": perplexity}[sys.argv[1]](*sys.argv[2:])
