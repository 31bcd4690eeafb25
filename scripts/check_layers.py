#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces the order of the layers by reading #include lines.

    runtime/base < kernels/kernel.h < { compiler/ir + compiler/ops < passes < compiler }  and  { runtime }

The compiler and the runtime meet only in runtime/plan and the kernel vocabulary (kernels/*.h, *.def). ONNX,
oneDNN, CUDA, YAML and flag parsing are each confined to a few places. Tests and benchmarks may include anything.
Exits with 1 and one line per offence.
"""

import fnmatch
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCT = ("runtime", "kernels", "compiler", "passes", "tools")

BASE = ["runtime/base/*"]
CONFIG = ["runtime/config/*"]  # flags and YAML: both tools and both sides read settings
VOCABULARY = ["kernels/*.h", "kernels/*.def"]  # top level only: `*` does not cross a slash
PROTO = ["compiler/onnx/proto_util.h"]  # the converter alone; stands below the importer
PLAN = ["runtime/plan/*"]
IR = ["compiler/ir/*", "compiler/diagnostics.h"]
OPS = ["compiler/ops/*"]
PASSES = ["passes/passes.h", "passes/passes.def", "passes/options.h"]  # helpers; no pass has a header
PATTERNS = ["passes/recover_match.h"]  # shared by the files of one pass

# First match wins: (files, what they may include of ours). `/**` at the end crosses slashes.
LAYERS = [
    ("runtime/base/*", BASE),
    ("runtime/config/*", BASE + CONFIG),
    ("kernels/*", BASE + VOCABULARY),
    ("kernels/ref/**", BASE + VOCABULARY + ["kernels/ref/**"]),
    ("kernels/cpu/**", BASE + VOCABULARY + ["kernels/cpu/**", "kernels/ref/**"]),
    ("kernels/cuda/**", BASE + VOCABULARY + ["kernels/cuda/**", "kernels/ref/**"]),
    ("kernels/cuda_emu/**", BASE + VOCABULARY + ["kernels/cuda_emu/**", "kernels/cuda/**"]),
    ("runtime/plan/*", BASE + VOCABULARY + PLAN),
    ("runtime/data/*", BASE + CONFIG + PLAN + ["runtime/*", "runtime/data/*"]),
    ("runtime/*", BASE + CONFIG + VOCABULARY + PLAN + ["runtime/*", "runtime/data/*", "kernels/*/*"]),
    ("compiler/diagnostics.*", BASE + ["compiler/diagnostics.h"]),
    ("compiler/onnx/proto_util.*", BASE + PROTO),
    ("compiler/ir/text*", BASE + VOCABULARY + IR + PLAN + PROTO + ["compiler/ops/op_def.h", "compiler/ops/infer.h"]),
    ("compiler/ir/*", BASE + VOCABULARY + IR + PLAN + ["compiler/ops/op_def.h", "compiler/ops/infer.h"]),  # one layer with ops
    ("compiler/ops/infer.cc", BASE + VOCABULARY + IR + OPS + PROTO),
    ("compiler/ops/*", BASE + VOCABULARY + IR + OPS),
    ("passes/recover*", BASE + IR + ["compiler/ops/op_def.h"] + PASSES + PATTERNS),
    ("passes/*", BASE + IR + ["compiler/ops/op_def.h", "compiler/ops/infer.h"] + PASSES),
    ("compiler/*", BASE + CONFIG + VOCABULARY + IR + OPS + PLAN + PASSES + ["compiler/*", "compiler/onnx/*", "compiler/lower/*"]),
    ("compiler/onnx/*", BASE + CONFIG + PLAN + IR + OPS + PASSES + ["compiler/*", "compiler/onnx/*"]),
    ("compiler/lower/*", BASE + VOCABULARY + IR + OPS + PLAN + ["compiler/*", "compiler/lower/*"]),
    ("tools/*", BASE + CONFIG + VOCABULARY + IR + OPS + PLAN + PASSES + ["tools/*", "compiler/*", "compiler/onnx/*", "compiler/lower/*", "runtime/*", "runtime/data/*"]),
]

# Libraries that only these files may include.
CONFINED = [
    ("ONNX", r"onnx/|.*onnx.*\.pb\.h", ["compiler/onnx/*", "compiler/ir/text*", "compiler/ops/infer.cc", "compiler/ops/body.cc"]),
    ("oneDNN", r"(oneapi/)?dnnl", ["kernels/cpu/**", "runtime/device_cpu.*"]),
    ("CUDA", r"cuda|cudnn|cublas|nvrtc|nccl", ["kernels/cuda/**", "kernels/cuda_emu/**", "runtime/device_cuda*"]),
    ("yaml-cpp", r"yaml-cpp/", ["runtime/config/*"]),
    ("CLI11", r"CLI/", ["tools/*"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def matches(path, patterns):
    """fnmatch by path component: '*' stays inside one folder, a final '**' means any depth."""
    parts = path.split("/")
    for pattern in patterns:
        wanted = pattern.split("/")
        if wanted[-1] == "**":
            wanted, have = wanted[:-1], parts[:len(wanted) - 1]
        else:
            have = parts
        if len(wanted) == len(have) and all(fnmatch.fnmatchcase(p, w) for p, w in zip(have, wanted)):
            return True
    return False


def sources():
    for top in PRODUCT:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".cu", ".cuh", ".def", ".inc")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT).replace(os.sep, "/")


def offences(path):
    allowed = next((allow for pattern, allow in LAYERS if matches(path, [pattern])), None)
    if allowed is None:
        yield 0, "is in no layer; add its folder to LAYERS in scripts/check_layers.py"
        return
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            bracket, header = found.groups()
            if header.split("/")[0] in PRODUCT and "/" in header:
                if bracket == "<":
                    yield number, f"<{header}> is ours: use quotes"
                elif not matches(header, allowed):
                    yield number, f'"{header}" is not below this file in the order of layers'
                continue
            if bracket == '"' and not header.endswith(".pb.h") and os.path.exists(
                    os.path.join(ROOT, os.path.dirname(path), header)):
                yield number, f'"{header}": includes are relative to the root of the project'
            for library, pattern, places in CONFINED:
                if re.match(pattern, header) and not matches(path, places):
                    yield number, f"{library} header {header} here; it belongs to {', '.join(places)} alone"


def main():
    count = bad = 0
    for path in sources():
        count += 1
        for line, text in offences(path):
            bad += 1
            print(f"{path}:{line}: {text}")
    print(f"check_layers: {count} files, {bad} offences")
    if count == 0:
        print(f"check_layers: nothing to read under {ROOT}; is this the project?")
    return 1 if bad or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
