#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the exported model answer in onnxruntime as amprun does?  Compares all 1,000 evaluation images.

usage: check_export.py MODEL.onnx LOGITS.npz IMAGES.gz      LOGITS: amprun --fetch eval:logits

Prints the largest difference and every image whose answer differs, with the margin between its two best classes; fails when
a margin is not below 1e-5.
"""
import gzip
import sys

import numpy as np
import onnxruntime


def main():
    model, logits, images = sys.argv[1:]
    ours = np.load(logits)["logits"]
    pixels = np.frombuffer(gzip.open(images).read()[16:], np.uint8).reshape(-1, 1, 28, 28)[9000:]
    session = onnxruntime.InferenceSession(model)
    theirs = session.run(None, {session.get_inputs()[0].name: pixels.astype(np.float32) / 256})[0]
    differ = np.flatnonzero(ours.argmax(1) != theirs.argmax(1))
    bad = 0
    for i in differ:
        best = np.sort(ours[i])[-2:]
        margin = best[1] - best[0]
        bad += margin >= 1e-5
        print(f"image {9000 + i}: {ours[i].argmax()} here, {theirs[i].argmax()} in onnxruntime, margin {margin:.1e}")
    print(f"onnxruntime: {len(ours) - len(differ)} of {len(ours)} answers equal, largest difference of a logit {np.abs(ours - theirs).max():.1e}")
    sys.exit(bool(bad))


main()
