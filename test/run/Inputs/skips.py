# SPDX-License-Identifier: Apache-2.0
"""skips.py LOG: how many steps were skipped in a row at the start."""
import json
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]
skipped = [line["skipped"] for line in lines if "skipped" in line]
print(f"first steps skipped: {skipped.index(False)}")
