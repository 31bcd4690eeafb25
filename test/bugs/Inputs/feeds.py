# SPDX-License-Identifier: Apache-2.0
"""feeds.py OUT.npz NAME=EXPRESSION…: one step of feeds; the expressions are numpy's, floats become float32."""
import sys

import numpy as np

feeds = {}
for item in sys.argv[2:]:
    name, expression = item.split("=", 1)
    array = np.asarray(eval(expression, {"np": np, "inf": np.inf}))
    feeds[name] = (array.astype(np.float32) if array.dtype.kind == "f" else array)[None]
np.savez(sys.argv[1], **feeds)
