# SPDX-License-Identifier: Apache-2.0
"""show.py FILE.npz [NAME…]: name, dtype and values of each array; a long one's range."""
import sys

import numpy as np

arrays = np.load(sys.argv[1])
for name in sys.argv[2:] or sorted(arrays):
    values = np.asarray(arrays[name], np.float64).ravel() + 0.0  # no minus zeros
    text = " ".join(f"{v:.5g}" for v in values) if len(values) <= 16 else f"{values.min():.5g} to {values.max():.5g}"
    print(name, arrays[name].dtype, text)
