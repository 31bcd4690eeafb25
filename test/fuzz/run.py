#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one libFuzzer target: the kept inputs of past faults, then --runs inputs grown from the seed corpus.

Prints the executions and exits with 1 when an input crashed, hung, or took too much memory; the input stays in the
folder --crashes. A test run repeats itself: a fixed seed, a fixed number of inputs, nothing left of earlier runs, and
the same addresses (libFuzzer learns from compared values, pointers among them) where setarch may fix them. To search by
hand, AMPC_FUZZ_SECONDS in the environment replaces --runs: every such run is another one and goes on from what
the earlier ones learnt, which is kept in the folder grown beside the corpora. AMPC_FUZZ_SECONDS=0 runs each kept input
and seed once.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time


def fixed_addresses(name):
    prefix = ["setarch", "-R"]
    try:
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    except FileNotFoundError:
        pass
    print(f"{name}: setarch -R is not allowed here, so the inputs vary a little from run to run")
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--max-len", type=int, default=4096)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--regressions", required=True)
    parser.add_argument("--crashes", required=True)
    args = parser.parse_args()
    seconds = os.environ.get("AMPC_FUZZ_SECONDS")
    name = os.path.basename(args.target)
    if not os.listdir(args.corpus):
        sys.exit(f"{name}: the seed corpus {args.corpus} is empty")
    os.makedirs(args.crashes, exist_ok=True)
    limits = ["-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=1024",
              f"-artifact_prefix={args.crashes}/{name}-"]
    environment = dict(os.environ)
    # A size that cannot be allocated is an error that our tools report, not a crash.
    environment["ASAN_OPTIONS"] = "allocator_may_return_null=0:detect_leaks=1"
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1"

    known = [os.path.join(folder, file) for folder in (args.regressions, args.corpus) if os.path.isdir(folder)
             for file in sorted(os.listdir(folder))]
    once = subprocess.run([args.target, *limits, *known], env=environment, capture_output=True, text=True,
                          errors="replace")
    if once.returncode != 0:
        print(once.stdout[-4000:], once.stderr[-8000:])
        sys.exit(f"{name}: one of the {len(known)} kept inputs and seeds fails")
    print(f"{name}: {len(known)} kept inputs and seeds pass")
    if seconds == "0":
        return
    with contextlib.ExitStack() as stack:
        if seconds is None:
            budget = [f"-runs={args.runs}", "-seed=1"]
            grown = stack.enter_context(tempfile.TemporaryDirectory())
            prefix = fixed_addresses(name)
        else:
            budget, prefix = [f"-max_total_time={int(seconds)}"], []
            grown = os.path.join(os.path.dirname(os.path.dirname(args.corpus)), "grown", os.path.basename(args.corpus))
            os.makedirs(grown, exist_ok=True)
        command = [*prefix, args.target, *limits, *budget, f"-max_len={args.max_len}", "-print_final_stats=1", grown,
                   args.corpus]
        if os.path.isdir(args.regressions):
            command.append(args.regressions)
        started = time.monotonic()
        run = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", run.stderr)
    print(f"{name}: {found.group(1) if found else '?'} executions in {time.monotonic() - started:.0f} s, "
          f"exit {run.returncode}")
    if run.returncode != 0:
        print(run.stderr[-8000:])
        sys.exit(f"{name}: an input fails; it is in {args.crashes}")


if __name__ == "__main__":
    main()
