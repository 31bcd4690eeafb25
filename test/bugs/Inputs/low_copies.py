# SPDX-License-Identifier: Apache-2.0
"""low_copies.py STEPS.npz INIT.npz: after every step the bf16 copy is the rounded weight; a run from saved weights starts from them."""
import sys

import numpy as np


def rounded(w):
    """To bf16, nearest even."""
    bits = w.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)).view(np.float32)


steps, init = (np.load(name) for name in sys.argv[1:])
weights, copies = (np.concatenate([steps[name], init[name]]) for name in ("w", "w.bf16"))
right = sum(int((rounded(w) == c).all()) for w, c in zip(weights, copies))
print(f"{len(weights)} steps, {right} copies are the rounded weights; moved: {bool((copies[0] != copies[1]).any())};", end=" ")
print(f"taken over: {bool((init['w'][0] == steps['w'][-1]).all())}")
