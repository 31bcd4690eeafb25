#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints one table over the build folders given: tests per kind, skipped ones with reasons, the slowest entries.

Reads BUILD/test-results/ctest-entries.xml (ctest's report) and, where an entry left a report of its own beside it
(GoogleTest and lit do), counts that one's cases instead of the entry. Exits with 1 if anything failed or nothing ran.
"""

import os
import sys
import xml.etree.ElementTree as xml
from collections import defaultdict


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0


def skip_reason(case, fallback):
    element = case.find("skipped")
    text = (element.get("message") or element.text or "") if element is not None else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else fallback


def read_entry(entry, results):
    """Yields (case name, outcome, reason) of one ctest entry."""
    name = entry.get("name")
    status = entry.get("status")
    output = (entry.findtext("system-out") or "").strip().splitlines()
    own = os.path.join(results, name + ".xml")
    cases = list(xml.parse(own).getroot().iter("testcase")) if os.path.exists(own) else []
    any_failed = False
    for case in cases:
        label = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            any_failed = True
            yield label, "failed", ""
        elif case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") == "skipped":
            yield label, "skipped", skip_reason(case, "disabled")
        else:
            yield label, "passed", ""
    if status == "fail":
        if not any_failed:  # it crashed, timed out, or has no report of its own
            yield name, "failed", ""
    elif status in ("notrun", "disabled"):
        yield name, "skipped", output[-1] if output else skip_reason(entry, status)
    elif not cases:
        yield name, "passed", ""


def labels_of(build):
    """ctest's report leaves labels out; the generated test files have them."""
    found = {}
    for folder, _, files in os.walk(build):
        if "CTestTestfile.cmake" not in files:
            continue
        with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("set_tests_properties(") and ' LABELS "' in line:
                    name = line[len("set_tests_properties("):].split()[0].strip('"[]=')
                    found[name] = line.split(' LABELS "')[1].split('"')[0]
    return found


def main(builds):
    tallies, skips, slowest, failures = defaultdict(Tally), [], [], []
    for build in builds:
        results = os.path.join(build, "test-results")
        report = os.path.join(results, "ctest-entries.xml")
        if not os.path.exists(report):
            print(f"{build}: no test report; the run did not finish")
            failures.append(build)
            continue
        labels = labels_of(build)
        for entry in xml.parse(report).getroot().iter("testcase"):
            tally = tallies[os.path.basename(build), labels.get(entry.get("name"), "other")]
            tally.seconds += float(entry.get("time") or 0)
            slowest.append((float(entry.get("time") or 0), f"{os.path.basename(build)} {entry.get('name')}"))
            for name, outcome, reason in read_entry(entry, results):
                setattr(tally, outcome, getattr(tally, outcome) + 1)
                if outcome == "failed":
                    failures.append(f"{os.path.basename(build)} {name}")
                elif outcome == "skipped":
                    skips.append(f"{os.path.basename(build)} {name}: {reason}")

    row = "{:<10} {:<12} {:>7} {:>7} {:>7} {:>8} {:>9}"
    print(row.format("build", "kind", "tests", "passed", "failed", "skipped", "time"))
    total = Tally()
    for (build, kind), tally in sorted(tallies.items(), key=lambda item: (item[0][0] != "release", item[0])):
        count = tally.passed + tally.failed + tally.skipped
        print(row.format(build, kind, count, tally.passed, tally.failed, tally.skipped, f"{tally.seconds:.1f} s"))
        for field in ("passed", "failed", "skipped", "seconds"):
            setattr(total, field, getattr(total, field) + getattr(tally, field))
    count = total.passed + total.failed + total.skipped
    print(row.format("all", "", count, total.passed, total.failed, total.skipped, f"{total.seconds:.1f} s"))

    print("slowest:", ", ".join(f"{name} {seconds:.1f} s" for seconds, name in sorted(slowest, reverse=True)[:5]))
    for title, lines in (("skipped", skips), ("failed", failures)):
        if lines:
            print(f"{title} ({len(lines)}):")
            for line in lines:
                print("  " + line)
    return 1 if failures or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
