#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds test/bugs/README.md to the tests: every row is there once, and every test that a row names exists.

A name in backticks in the last column is one of

    folder/file.test, folder/file.onnxtext, folder/file.cc   a file below test/
    Suite.Name                                               a GoogleTest
    hostile: name                                            a case of test/hostile; * matches any text
    golden-x: function                                       a check of a golden ctest entry
    word                                                     a ctest entry

A row without tests starts with "Does not apply:". A lit file in test/bugs that no row names is an offence too.
Exits with 1 and one line per offence. Needs what the tests need (numpy, onnx).
"""

import os
import re
import sys

from project_files import ROOT, project_files

TABLE = "test/bugs/README.md"
COUNTS = {"A": (32, 9), "B": (33, 8), "C": (24, 6), "D": (22, 7), "F": (14, 4)}  # reports, what follows from them
ROWS = [f"{group}{dash}{i}" for group, counts in COUNTS.items() for dash, count in zip(("", "-"), counts) for i in range(1, count + 1)]
LATER = {"B15", "D3", "F4", "F6", "F9", "F-3"}  # parts of them come with the explanations


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def gtests(files):
    found = set()
    for name in files:
        if name.startswith(("test/unit/", "test/conformance/", "test/device/")) and name.endswith(".cc"):
            found |= {f"{suite}.{test}" for suite, test in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)", read(name), re.M)}
    return found


def hostile_cases():
    sys.path.insert(0, os.path.join(ROOT, "test", "hostile"))
    sys.dont_write_bytecode = True
    import cases_data, cases_files, cases_model, cases_settings  # noqa: E401
    return [case.name for module in (cases_data, cases_files, cases_model, cases_settings) for case in module.cases()]


def ctest_entries():
    """Names given to add_test() and ampc_test(), with the variables of the loops around them filled in."""
    text, found = read("test/CMakeLists.txt"), set()
    loops = [(m.start(), m[1], m[2].split()) for m in re.finditer(r"foreach\((\w+) ([^)]*)\)", text)]
    for match in re.finditer(r"\b(?:add_test|ampc_test)\(NAME (\S+)", text):
        variable = re.search(r"\$\{(\w+)\}", match[1])
        if not variable:
            found.add(match[1])
            continue
        values = [v for at, name, v in loops if name == variable[1] and at < match.start()]
        if values:
            found |= {match[1].replace(variable[0], value) for value in values[-1]}
    return found


def golden_functions(files):
    return {function for name in files if name.startswith("test/golden/") and name.endswith(".py")
            for function in re.findall(r"^def (\w+)\(", read(name), re.M)}


class Tests:
    def __init__(self):
        self.files = set(project_files())
        self.gtests, self.hostile = gtests(self.files), hostile_cases()
        self.entries, self.golden = ctest_entries(), golden_functions(self.files)

    def has(self, name):
        if name.startswith("hostile: "):
            pattern = ".*".join(map(re.escape, name.removeprefix("hostile: ").split("*")))
            return any(re.fullmatch(pattern, case) for case in self.hostile)
        if name.startswith("golden-"):
            entry, _, function = name.partition(": ")
            return entry in self.entries and function in self.golden
        if "/" in name:
            return f"test/{name}" in self.files
        return name in (self.gtests if "." in name else self.entries)


def main():
    tests, offences, seen, named = Tests(), [], set(), set()
    for number, line in enumerate(read(TABLE).splitlines(), 1):
        match = re.match(r"\| ([A-F]-?\d+) \|", line)
        if not match:
            continue
        row, cells = match[1], [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        where = f"{TABLE}:{number}: {row}"
        if row in seen:
            offences.append(f"{where} is there twice")
        seen.add(row)
        if row not in ROWS:
            offences.append(f"{where} is no row that scripts/check_faults.py knows")
        if len(cells) != 4:
            offences.append(f"{where} has {len(cells)} columns, not 4")
            continue
        names = re.findall(r"`([^`]+)`", cells[3])
        named |= set(names)
        if not names and not cells[3].startswith("Does not apply: "):
            offences.append(f"{where} names no test and does not say why it does not apply")
        offences += [f"{where}: there is no test `{name}`" for name in names if not tests.has(name)]
        if ("come later" in cells[2]) != (row in LATER):
            offences.append(f"{where}: only {', '.join(sorted(LATER))} may, and do, wait for the explanations")
    offences += [f"{TABLE}: no row {row}" for row in ROWS if row not in seen]
    offences += [f"{name}: no row of {TABLE} names it" for name in sorted(tests.files)
                 if re.fullmatch(r"test/bugs/[^/]+\.(test|onnxtext)", name) and name.removeprefix("test/") not in named]
    for offence in offences:
        print(offence)
    print(f"check_faults: {len(seen)} rows, {len(named)} tests, {len(offences)} offences")
    return 1 if offences or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
