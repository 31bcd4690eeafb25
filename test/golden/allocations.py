#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps 2..N allocate nothing: a long run of a real amprun process asks for memory exactly as often as a short one.

usage: allocations.py BIN COUNTER [CHECK...]      COUNTER: the library of allocation_counter.cc

The counter is preloaded and sees malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign and mmap of every thread:
kernels, oneDNN, OpenMP, the reading and the writing of data, the log. Real data, JSONL log on, several epochs in the long run.
"""
import os
import subprocess
import sys

import numpy as np

from harness import NAMES, Failed, Model, expect, log_lines, run_checks

COUNTER = sys.argv.pop(2)
FEW, MANY = 5, 75


def counts(tools, plan, data, steps, *flags):
    """{function: calls} of one training run."""
    out, log = tools.folder / "counts.txt", tools.folder / "counted.jsonl"
    for file in (out, log):
        file.unlink(missing_ok=True)
    command = [tools.binaries / "amprun", plan, *data, "--steps", steps, "--log", log, "--threads", 2, "-q", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env=os.environ | {"LD_PRELOAD": COUNTER, "AMPC_ALLOCATIONS_OUT": str(out), "OMP_WAIT_POLICY": "passive"})
    if done.returncode != 0:
        raise Failed(f"amprun: exit {done.returncode}\n{done.stderr[-800:]}")
    expect(len(log_lines(log)) == steps, f"{len(log_lines(log))} lines of the log in {steps} steps")
    return {name: int(count) for name, count in (line.split() for line in out.read_text().splitlines())}


def expect_equal(tools, label, plan, data, *flags):
    few, many = (counts(tools, plan, data, steps, *flags) for steps in (FEW, MANY))
    expect(few["malloc"] > 1000 and few["mmap"] > 0, f"{label}: the counter saw only {few}")
    expect(few == many, f"{label}: {FEW} steps {few}, {MANY} steps {many}")


def samples(tools, model):
    """The model's recorded feeds as one array of samples each, to be shuffled."""
    path = tools.folder / "samples.npz"
    np.savez(path, **{name: v.reshape(-1, *v.shape[2:]) for name, v in np.load(model.folder / "feeds.npz").items()})
    return path


def steps_allocate_nothing(tools):
    """Every model in every precision."""
    runs = 0
    for name in NAMES:
        model = Model(name)
        data = ("--data", f"{model.folder / 'feeds.npz'}:layout=steps")
        for precision in ("fp32", "bf16", "fp16"):
            expect_equal(tools, f"{name} {precision}", tools.compile(model, "ts_train", precision, "adamw"), data)
            runs += 1
    return f"{runs} plans, {MANY} steps ask for memory as often as {FEW}"


def epochs_windows_and_skips_allocate_nothing(tools):
    """Shuffled epochs, accumulation, clipping, a schedule, and steps that are skipped."""
    model = Model("lenet_mnist")
    data = ("--data", samples(tools, model))
    plan = tools.compile(model, "ts_train", "fp16", "sgd", "--accumulate", "3", "--clip-norm", "1", "--lr-schedule", "cosine:warmup=3",
                         scaler="init_scale=16777216")
    expect_equal(tools, "windows", plan, data)
    return "accumulate 3, clip, cosine, dynamic scale"


if __name__ == "__main__":
    run_checks([steps_allocate_nothing, epochs_windows_and_skips_allocate_nothing])
