# SPDX-License-Identifier: Apache-2.0
"""full_stdout.py CMD…: runs CMD with a standard output that is always full, and exits with its status."""
import subprocess
import sys

with open("/dev/full", "wb") as full:
    sys.exit(subprocess.run(sys.argv[1:], stdout=full).returncode)
