#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile inputs: every reader of ampc and amprun against files that are wrong on purpose.

    matrix.py BIN_FOLDER [--junit FILE] [--only TEXT] [--sanitized]

One line a case: exit code, seconds, name, and the message that a user sees. A case states the exit code and a
pattern of the message (the file, the tensor or node, what was expected and what was found). Besides, for every case:
no signal and no sanitizer report, less than 10 s of processor time (four times that under sanitizers) and 1 GiB,
one `error[E…]` line when it fails, and then a folder that is as it was, whether a file stood at the output's place
or not.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor

import cases_data
import cases_files
import cases_model
import cases_settings
import cases_training
from case import OLD_OUTPUT, OUTPUTS

SECONDS = 10
HANG = 6  # times SECONDS on the clock: other tests run at the same time
MEMORY = 1 << 30
ADDRESS_SPACE = 16 << 30  # a runaway allocation fails instead of taking the machine along
PARALLEL = 2


class Tools:
    """Where the binaries are, and what cases start from: built once, copied per case."""

    def __init__(self, bin_folder, scratch, sanitized):
        self.bin, self.scratch, self.sanitized = bin_folder, scratch, sanitized
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", NO_COLOR="1",
                                ASAN_OPTIONS="exitcode=99:allocator_may_return_null=0",
                                UBSAN_OPTIONS="exitcode=99:print_stacktrace=1", LSAN_OPTIONS="exitcode=99")

    def run(self, argv, folder):
        """(exit code or -signal, output, seconds, bytes of memory)"""
        command = [os.path.join(self.bin, argv[0]), *argv[1:]]
        limit = HANG * SECONDS * (4 if self.sanitized else 1)

        def limits():
            os.setsid()
            if not self.sanitized:
                resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

        with tempfile.TemporaryFile(dir=self.scratch) as output:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env=self.environment, preexec_fn=limits)
            killer = threading.Timer(limit, lambda: os.killpg(process.pid, signal.SIGKILL))
            killer.start()
            _, status, usage = os.wait4(process.pid, 0)
            killer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = usage.ru_utime + usage.ru_stime
            output.seek(0)
            text = output.read(1 << 20).decode("utf-8", "replace")
        return process.returncode, text, seconds, usage.ru_maxrss * 1024

    def make(self, argv, folder):
        code, text, _, _ = self.run(argv, folder)
        if code != 0:
            sys.exit(f"{' '.join(argv)} fails:\n{text}")


def listing(folder):
    """Every file with what would show a change."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(parent, name)
            info = os.lstat(path)
            found[os.path.relpath(path, folder)] = (info.st_mode, info.st_size if name in files else 0,
                                                    info.st_mtime_ns if name in files else 0)
    return found


def check(case, number, tools):
    """Runs one case; (fields of the table, list of complaints)."""
    folder = os.path.join(tools.scratch, f"case{number}")
    os.makedirs(folder)
    try:
        case.prepare(folder, tools)
        outputs = [a for a in case.argv if a in OUTPUTS]
        if number % 2 == 0:  # every other case finds an old file at the output's place
            for name in outputs:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(OLD_OUTPUT)
        before = listing(folder)
        code, text, seconds, memory = tools.run(case.argv, folder)
        after = listing(folder)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error\[E\d{4}\]", line)]
    shown = errors[0] if errors else (lines[-1] if lines else "")
    wrong = []
    if code < 0:
        wrong.append(f"ended by signal {-code}" + (" (time is over)" if code == -9 else ""))
    elif code != case.exit:
        wrong.append(f"exit {code}, expected {case.exit}")
    if "Sanitizer" in text or "runtime error:" in text:
        wrong.append("sanitizer report:\n" + text[:4000])
    if not re.search(case.pattern, text):
        wrong.append(f"no match of /{case.pattern}/ in:\n{text[:1500]}")
    if case.exit not in (0, 4) and len(errors) != 1:
        wrong.append(f"{len(errors)} error lines, expected 1:\n{text[:1500]}")
    if any(ord(c) < 32 and c not in "\n\t" for c in text):
        wrong.append("control characters reach the terminal")
    if seconds > SECONDS * (4 if tools.sanitized else 1):
        wrong.append(f"{seconds:.1f} s")
    if memory > MEMORY:
        wrong.append(f"{memory >> 20} MiB of memory")
    if case.exit != 0 and before != after:
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        wrong.append(f"the folder changed: {changed}")
    return (code, seconds, memory, shown), wrong


def write_junit(path, results):
    suite = xml.Element("testsuite", name="hostile-matrix", tests=str(len(results)))
    for case, (_, seconds, _, _), wrong in results:
        element = xml.SubElement(suite, "testcase", classname="hostile", name=case.name, time=f"{seconds:.3f}")
        if wrong:
            xml.SubElement(element, "failure", message="; ".join(wrong)[:2000])
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    xml.ElementTree(suite).write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--junit")
    parser.add_argument("--only", default="")
    parser.add_argument("--sanitized", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ampc-hostile.") as scratch:
        tools = Tools(os.path.abspath(args.bin), scratch, args.sanitized)
        cases_files.make_material(tools)
        cases = [case for module in (cases_model, cases_files, cases_data, cases_settings, cases_training) for case in module.cases()]
        names = [case.name for case in cases]
        if len(set(names)) != len(names):
            sys.exit(f"cases with one name: {sorted({n for n in names if names.count(n) > 1})}")
        chosen = [(i, case) for i, case in enumerate(cases) if args.only in case.name]
        with ThreadPoolExecutor(PARALLEL) as pool:
            outcomes = list(pool.map(lambda item: check(item[1], item[0], tools), chosen))
    results = [(case, shown, wrong) for (_, case), (shown, wrong) in zip(chosen, outcomes)]
    for case, (code, seconds, memory, text), wrong in results:
        print(f"{code:>3} {seconds:5.1f}s {memory >> 20:4} MiB  {case.name:<44} {text[:200]}")
    failed = [(case, wrong) for case, _, wrong in results if wrong]
    for case, wrong in failed:
        print(f"\nFAILED {case.name}: {' '.join(case.argv)}")
        for line in wrong:
            print("  " + line.replace("\n", "\n    "))
    print(f"\n{len(results)} hostile inputs, {len(failed)} failed; longest "
          f"{max(r[1][1] for r in results):.1f} s, most memory {max(r[1][2] for r in results) >> 20} MiB")
    if args.junit:
        write_junit(args.junit, results)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
