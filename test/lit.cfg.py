# SPDX-License-Identifier: Apache-2.0
"""The lit suite: every .onnxtext and .test file is one test; its RUN: lines are shell commands.

Substitutions:
  %ampc %ampc-opt %amprun   the tools of this build      %python   the tests' Python (numpy, onnx, onnxruntime)
  %models  test/golden/models      %data  examples/mnist/data      %scripts  test/scripts
  %examples  examples      %bin  the folder of the tools
  %exits N CMD…             runs CMD and succeeds if it exits with exactly N (its output passes through);
                            N = nonzero: with any code of its own, never a crash or a sanitizer's report
  %s %S %t                  this file, its folder, a scratch name of this test (lit's own)

Features for REQUIRES: and UNSUPPORTED:   cuda (built with CUDA, and a device is present), sanitize.

The suite lives in the build folder; one file:  lit -v build/release/test/passes/x.onnxtext
"""

import os
import subprocess

import lit.formats

config.name = "ampc"
config.test_format = lit.formats.ShTest(False)  # lit's own shell: the same on every machine
config.suffixes = [".onnxtext", ".test"]
config.excludes = ["golden", "Inputs", "inputs"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))

project = os.path.dirname(config.test_source_root)
tool = lambda name: os.path.join(config.ampc_bin, name)

# Longer names first: lit replaces in this order, and %ampc is a prefix of %ampc-opt.
config.substitutions += [
    ("%ampc-opt", tool("ampc-opt")),
    ("%amprun", tool("amprun")),
    ("%ampc", tool("ampc")),
    ("%python", config.ampc_python),
    ("%models", os.path.join(config.test_source_root, "golden", "models")),
    ("%data", os.path.join(project, "examples", "mnist", "data")),
    ("%examples", os.path.join(project, "examples")),
    ("%bin", config.ampc_bin),
    ("%scripts", os.path.join(config.test_source_root, "scripts")),
    ("%exits", os.path.join(config.test_source_root, "exits.sh")),
    (r"\bFileCheck\b", config.ampc_filecheck),
]

# Results never depend on the environment: what a test may see is named here. A sanitizer's report exits
# with 199, so that no test that expects exit 1 takes it for a refusal.
for name in ("HOME", "CUDA_VISIBLE_DEVICES"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
config.environment.update(
    OMP_WAIT_POLICY="passive",
    NO_COLOR="1",
    ASAN_OPTIONS="exitcode=199",
    LSAN_OPTIONS="exitcode=199",
    UBSAN_OPTIONS="exitcode=199:print_stacktrace=1",
)


def has_cuda_device():
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listing.returncode == 0 and "GPU" in listing.stdout


if config.ampc_have_cuda and has_cuda_device():
    config.available_features.add("cuda")
if config.ampc_sanitize:
    config.available_features.add("sanitize")
