# SPDX-License-Identifier: Apache-2.0
"""The project's own files, for the checks: what git tracks or would track; without git, the tree less build folders."""

import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def project_files():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=False) if os.path.exists(os.path.join(ROOT, ".git")) else None
    if listing is not None and listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
    else:
        names = []
        for folder, below, files in os.walk(ROOT):
            below[:] = [d for d in below if not d.startswith(("build", ".git", "__pycache__"))]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted({n for n in names if n and os.path.isfile(os.path.join(ROOT, n))})
