#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text from a trained character model, one character at a time.

    generate.py BIN MODEL.onnx TEXT.txt FOLDER [--length 32] [--characters 300] [--temperature 0.8] [--seed 1]

BIN: folder of ampc and amprun. The model is what `amprun --export-model` wrote; ampc compiles it with --forward-only and
amprun runs it once a character, on a file with the last characters as tokens. TEXT gave the vocabulary in training: sorted,
its characters have the ids 0, 1, …; the first of its lines start the generated text. Standard library only.
"""

import argparse
import math
import os
import random
import subprocess

import npz


def generate(args):
    with open(args.text, encoding="utf-8", newline="") as file:
        text = file.read()
    vocabulary = sorted(set(text))
    rank = {c: i for i, c in enumerate(vocabulary)}
    plan, tokens, fetched = (os.path.join(args.folder, n) for n in ("generate.plan", "tokens.bin", "logits.npz"))
    # Exported models keep the batch of their training as a symbol; one row is enough here.
    subprocess.run([os.path.join(args.bin, "ampc"), args.model, "--forward-only", "--precision", "fp32", "--dim", "batch=1", "-q",
                    "-o", plan], check=True)
    step = [os.path.join(args.bin, "amprun"), plan, "-q", "--threads", "1", "--data", f"tokens={tokens}:dtype=u8",
            "--fetch", "eval:logits", "--fetch-out", fetched]
    ids = [rank[c] for c in text[:args.length]]
    chance = random.Random(args.seed)
    for _ in range(args.characters):
        with open(tokens, "wb") as file:
            file.write(bytes(ids[-args.length:]))
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
        (_, length, classes), logits = npz.floats(fetched, "logits")
        last = logits[(length - 1) * classes:length * classes]
        top = max(last)
        ids.append(chance.choices(range(classes), [math.exp((v - top) / args.temperature) for v in last])[0])
    return "".join(vocabulary[i] for i in ids), args.length


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("bin", "model", "text", "folder"):
        parser.add_argument(name)
    parser.add_argument("--length", type=int, default=32, help="tokens that the model takes")
    parser.add_argument("--characters", type=int, default=300)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    text, start = generate(parser.parse_args())
    print(f"---- generated after the first {start} characters:")
    print(text)
    print("----")


if __name__ == "__main__":
    main()
