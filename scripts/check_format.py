#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the C++ sources formatted as .clang-format says?  --fix formats them.

Only clang-format 14 is asked, since versions differ in small things; exits with 77 (skipped) where it is not installed.
"""

import os
import re
import shutil
import subprocess
import sys

from project_files import ROOT, project_files

VERSION = "14"
SUFFIXES = (".h", ".cc", ".cu", ".cuh")


def find_formatter():
    for name in ("clang-format-" + VERSION, "clang-format"):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            found = re.search(r"version (\d+)", text)
            if found and found.group(1) == VERSION:
                return path
    return None


def main():
    formatter = find_formatter()
    if formatter is None:
        print(f"skipped: clang-format {VERSION} is not installed")
        return 77
    files = [name for name in project_files() if name.endswith(SUFFIXES)]
    mode = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "--Werror", "--ferror-limit=1"]
    bad = []
    for start in range(0, len(files), 40):
        batch = files[start:start + 40]
        run = subprocess.run([formatter, *mode, *batch], cwd=ROOT, capture_output=True, text=True, check=False)
        bad += sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error: code should be clang-formatted", run.stderr, re.M)))
        if run.returncode != 0 and not bad:
            print(run.stderr)
            return 1
    for name in bad:
        print(f"{name}: not formatted; scripts/check_format.py --fix")
    print(f"check_format: {len(files)} files, {len(bad)} offences")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
