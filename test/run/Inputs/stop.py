# SPDX-License-Identifier: Apache-2.0
"""stop.py SKIPS CMD…: runs CMD so that it stops at the last of the steps that skips.py counted; prints how it ended."""
import subprocess
import sys

count = open(sys.argv[1]).read().split()[-1]
run = subprocess.run([*sys.argv[2:], "--loss-scale", f"dynamic:max_skips={count}"], capture_output=True, text=True)
print(f"status {run.returncode}: {run.stdout}", run.stderr, sep="")
