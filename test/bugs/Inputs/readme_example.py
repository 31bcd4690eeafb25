# SPDX-License-Identifier: Apache-2.0
"""readme_example.py AMPC README FOLDER: runs the README's example in FOLDER, which has the examples, with AMPC's folder on PATH."""
import os
import re
import subprocess
import sys

tool, readme, folder = sys.argv[1:]
with open(readme, encoding="utf-8") as file:
    script = re.search(r"^## In ten lines\n+```sh\n(.*?)^```", file.read(), re.S | re.M)[1]
environment = dict(os.environ, PATH=os.path.dirname(tool) + ":/usr/bin:/bin")
sys.exit(subprocess.run(["/bin/sh", "-e", "-c", script], cwd=folder, env=environment, stderr=subprocess.STDOUT).returncode)
