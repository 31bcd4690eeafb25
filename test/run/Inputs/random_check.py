# SPDX-License-Identifier: Apache-2.0
"""Distribution and repetition of what random_model.py draws: usage: random_check.py RUN SAME_RUN OTHER_SEED (.npz each)"""
import math
import sys

import numpy as np

run, same, other = (dict(np.load(path)) for path in sys.argv[1:4])
# name: mean, deviation, range that holds every number
EXPECTED = {
    "uniform": (0.5, 5 / math.sqrt(12), (-2, 3)),
    "normal": (1, 2, (-12, 14)),
    "like": (0.5, 1 / math.sqrt(12), (0, 1)),
    "noisy": (0, 1, (-6.5, 6.5)),
    "coin": (0.25, math.sqrt(0.25 * 0.75), (0, 1)),
}
for name, (mean, deviation, (low, high)) in EXPECTED.items():
    x = run[name].astype(np.float64)
    assert x.shape == (128, 500), (name, x.shape)  # two batches of 64
    off = abs(x.mean() - mean) / (deviation / math.sqrt(x.size))
    assert off < 5, f"{name}: the mean {x.mean()} is {off:.1f} deviations from {mean}"
    assert abs(x.std() / deviation - 1) < 0.02, f"{name}: deviation {x.std()}, expected {deviation}"
    assert low <= x.min() and x.max() <= high, f"{name}: {x.min()} to {x.max()}"
    neighbours = np.corrcoef(x.ravel()[:-1], x.ravel()[1:])[0, 1]
    assert abs(neighbours) < 0.02, f"{name}: neighbours correlate by {neighbours}"
    assert (x[:64] != x[64:]).any(), f"{name}: two steps draw the same"
    assert run[name].tobytes() == same[name].tobytes(), f"{name}: another run of the same seed"
    assert run[name].tobytes() != other[name].tobytes(), f"{name}: another seed draws the same"
normal = (run["normal"].astype(np.float64).ravel() - 1) / 2
for edge in (-2.0, -1.0, -0.3, 0.5, 1.5):  # the distribution, not just its moments
    expected = 0.5 * (1 + math.erf(edge / math.sqrt(2)))
    assert abs((normal < edge).mean() - expected) < 0.01, edge
print(len(EXPECTED), "outputs as asked")
