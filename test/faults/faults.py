#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that survive: kills the tools and fails their system calls, one at a time, and looks at what is left.

faults.py BIN_FOLDER INJECTOR.so [--all] [--seed N] [--only SCENARIO] [--kinds kill,tear] [--jobs N]

A scenario is a command that writes files, run once under injector.cc to count its calls. Then, for points among
those calls (a seeded sample; --all: every one), the command is started again and

  kill   SIGKILL before the call                tear   half of the bytes are written, then SIGKILL
  EIO, ENOSPC, EDQUOT, EACCES                   the call fails once
  full   from here on the disk is full          EINTR, short   what a program has to take in its stride

Afterwards, whatever happened: every file under its final name is the old one or the new one, complete; the exit
status is 6, with a message that names the file and the reason (kill: none; EINTR and short: 0); a failed run leaves
no temporaries; the log consists of whole lines; every checkpoint that was reported as saved is there. Then the
command is run again, undisturbed and with --resume: it goes on from the newest checkpoint, ends with the bits of an
unbroken run, its log too, and no temporaries are left.
"""

import argparse
import concurrent.futures
import errno
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import onnx

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DATA = PROJECT / "examples" / "mnist" / "data"
MODEL = PROJECT / "test" / "golden" / "models" / "dropout_mlp" / "ts_train.onnx"

FAILURES = {name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EDQUOT", "EACCES")}
WRITES = ("write", "pwrite", "writev", "copy_file_range")
RETRIED = (*WRITES, "open", "fsync")
STEPS, SPLIT = 14, 7
STALE_PID = (1 << 22) + 1  # larger than any that Linux gives to a process
STALE = b"left by a process that is gone"


class Wrong(Exception):
    """What a check found."""


class Call:
    """One counted call of the undisturbed command."""

    def __init__(self, line):
        number, self.name, path = line.rstrip("\n").split(" ", 2)
        self.number, self.path = int(number), path
        self.last_of_log = False  # a log is closed after it was read, and at the end

    def best_effort(self):
        """A failure that costs nothing: clearing a temporary away, closing what was only read, removing a folder."""
        if self.name in ("unlink", "open", "close") and f".tmp.{STALE_PID}" in self.path:
            return True
        if self.name == "unlink":
            return ".tmp." in self.path
        return self.name == "rmdir" or (self.name == "close" and ".tmp." not in self.path and not self.last_of_log)


def files_below(folder):
    return [f for f in folder.rglob("*") if f.is_file()]


def log_values(text):
    """The lines of steps and evaluations without their times."""
    lines = [line for line in text.splitlines() if line.startswith('{"step"')]
    return [re.sub(r',"(ms|samples_per_s|wait_ms|time)":[0-9.]+', "", line) for line in lines]


class Scenario:
    """A command over a folder: what stands there before, what is run, what must be there after."""

    name = ""
    outputs = ()  # that must be the old file or the reference, bit for bit

    def __init__(self, tools, scratch, injector):
        self.tools, self.injector = tools, injector
        self.scratch = scratch / self.name
        self.scratch.mkdir()
        self.setup()
        folder = self.scratch / "reference"
        trace = self.scratch / "trace"
        self.prepare(folder)
        run = self.run(self.command(folder), folder, {"FAULT_TRACE": str(trace)})
        if run.returncode != 0:
            sys.exit(f"{self.name}: the undisturbed run fails: {run.stderr}")
        self.calls = [Call(line) for line in trace.read_text().splitlines()]
        for call in [c for c in self.calls if c.name == "close" and c.path.endswith(".jsonl")][-1:]:
            call.last_of_log = True
        self.reference = {name: (folder / name).read_bytes() for name in self.outputs}
        self.keep_reference(folder)

    def setup(self):
        pass

    def keep_reference(self, folder):
        pass

    def old(self, name):
        return f"the old {name}\n".encode()

    def prepare(self, folder):
        folder.mkdir()
        for name in self.outputs:
            (folder / name).write_bytes(self.old(name))

    def run(self, command, folder, faults=None):
        env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        if faults is not None:
            env |= {"LD_PRELOAD": str(self.injector), "FAULT_PREFIX": str(folder), **faults}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    def try_point(self, call, kind):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        shutil.rmtree(folder)
        self.prepare(folder)
        try:
            faults = {"FAULT_AT": str(call.number), "FAULT_TRACE": str(folder) + ".trace"}
            faults["FAULT_ACTION"] = {"full": str(errno.ENOSPC), "EINTR": str(errno.EINTR)}.get(
                kind, str(FAILURES.get(kind, kind)))
            if kind == "full":
                faults["FAULT_PERSIST"] = "1"
            self.check_exit(self.run(self.command(folder), folder, faults), call, kind, folder)
            self.check_outputs(folder)
            self.check_left(folder, kind)
            self.check_again(folder, call)
            temporaries = [f.name for f in files_below(folder) if ".tmp." in f.name]
            if temporaries:
                raise Wrong(f"temporaries after the second run: {temporaries}")
        except Wrong as wrong:
            return f"{self.name}: {kind} at call {call.number} ({call.name} {call.path}): {wrong}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            pathlib.Path(str(folder) + ".trace").unlink(missing_ok=True)
        return None

    def check_exit(self, run, call, kind, folder):
        if kind in ("kill", "tear"):
            if run.returncode != -9:
                raise Wrong(f"expected SIGKILL, got status {run.returncode}: {run.stderr}")
            return
        if kind in ("EINTR", "short") or (call.best_effort() and run.returncode == 0):
            if run.returncode != 0:
                raise Wrong(f"expected success, got {run.returncode}: {run.stderr}")
            for name in self.outputs:
                if (folder / name).read_bytes() != self.reference[name]:
                    raise Wrong(f"'{name}' differs from the reference")
            return
        if run.returncode != 6:
            raise Wrong(f"expected exit status 6, got {run.returncode}: {run.stderr}")
        errors = [line for line in run.stderr.splitlines() if "error[E" in line]
        if not errors or (len(errors) > 1 and kind != "full"):
            raise Wrong(f"expected one error, got: {run.stderr}")
        reason = os.strerror(errno.ENOSPC if kind == "full" else FAILURES[kind])
        if any(reason not in error for error in errors):
            raise Wrong(f"the message lacks '{reason}': {errors}")
        # The file as the user knows it; an unnamed temporary file stands for the output that it serves.
        name = os.path.basename(re.sub(r"\.tmp\.\d+$", "", call.path))
        name = "f.npz" if name.startswith("#") or ".ampc_spill" in name else name
        name = folder.name if name == "reference" else name
        if not call.best_effort() and not any(name in error for error in errors):
            raise Wrong(f"the message does not name '{name}': {errors}")
        # Once the disk is full the first failure may hide in a best effort; temporaries go all the same.
        if call.best_effort():
            return
        temporaries = [f.name for f in files_below(folder) if ".tmp." in f.name and f.read_bytes() != STALE]
        if temporaries:
            raise Wrong(f"temporaries left: {temporaries}")

    def check_outputs(self, folder):
        for name in self.outputs:
            if (folder / name).read_bytes() not in (self.old(name), self.reference[name]):
                raise Wrong(f"'{name}' is neither the old file nor the new one")

    def check_left(self, folder, kind):
        pass

    def check_again(self, folder, call):
        run = self.run(self.command(folder), folder)
        if run.returncode != 0:
            raise Wrong(f"the second run fails: {run.stderr}")
        for name in self.outputs:
            if (folder / name).read_bytes() != self.reference[name]:
                raise Wrong(f"after the second run '{name}' differs from the reference")

    def command(self, folder):
        raise NotImplementedError


class Compile(Scenario):
    """ampc -o over an old plan."""

    name = "compile"
    outputs = ("train.plan",)

    def command(self, folder):
        return [self.tools / "ampc", MODEL, "--loss", "cross-entropy:target=label", "--precision", "fp16",
                "--optimizer", "adamw", "-q", "-o", folder / "train.plan"]


class EmitText(Compile):
    """ampc --emit text."""

    name = "emit"
    outputs = ("train.text",)

    def command(self, folder):
        return [*super().command(folder)[:-1], folder / "train.text", "--emit", "text"]


class EmitStep(Compile):
    """ampc --emit step in two files: both are there or, up to the moment between two renames, none is."""

    name = "step"
    outputs = ("s.train.onnx", "s.apply.onnx")

    def command(self, folder):
        return [*super().command(folder)[:-1], folder / "s.onnx", "--emit", "step", "--accumulate", "2"]

    def check_exit(self, run, call, kind, folder):
        super().check_exit(run, call, kind, folder)
        new = [name for name in self.outputs if (folder / name).read_bytes() == self.reference[name]]
        renamed = [c.number for c in self.calls if c.name == "rename"]
        if new and run.returncode != 0 and call.number <= renamed[0]:
            raise Wrong(f"{new} written at call {call.number}, before all of both was")


class ModelBeside(Scenario):
    """A model with its data beside it, over an old one: at any moment whole, and of one run."""

    name = "beside"

    def prepare(self, folder):
        folder.mkdir()
        subprocess.run([self.tools / "write_model", folder / "m.onnx", "1"], check=True)

    def command(self, folder):
        return [self.tools / "write_model", folder / "m.onnx", "2"]

    def value(self, folder):
        """The model's data, all of which is the same, and where it lies."""
        model = onnx.load(folder / "m.onnx", load_external_data=False)
        onnx.load_external_data_for_model(model, str(folder))
        [tensor] = model.graph.initializer
        data = set(onnx.numpy_helper.to_array(tensor).tolist())
        if len(data) != 1:
            raise Wrong(f"data of {data}")
        return data.pop()

    def check_exit(self, run, call, kind, folder):
        super().check_exit(run, call, kind, folder)
        if self.value(folder) not in (1, 2):
            raise Wrong(f"the model has data of {self.value(folder)}")
        # The model's own rename is what makes it the new one.
        own = [c.number for c in self.calls if c.name == "rename"][1]
        if call.number <= own and kind not in ("EINTR", "short") and self.value(folder) != 1 and run.returncode != 0:
            raise Wrong("the old model has other data")

    def check_again(self, folder, call):
        super().check_again(folder, call)
        if self.value(folder) != 2 or len(files_below(folder)) != 2:
            raise Wrong(f"after the second run: data of {self.value(folder)}, files {files_below(folder)}")


class Train(Scenario):
    """amprun with every output there is; a model with dropout, fp16 and a loss scale; shuffled epochs."""

    name = "train"
    outputs = ("w.safetensors", "m.onnx")

    def setup(self):
        self.plan = self.scratch / "train.plan"
        subprocess.run([self.tools / "ampc", MODEL, "--loss", "cross-entropy:target=label", "--precision", "fp16",
                        "--optimizer", "adamw", "-q", "-o", self.plan], check=True)

    def keep_reference(self, folder):
        self.log = log_values((folder / "log.jsonl").read_text())
        self.fetched = (folder / "f.npz").read_bytes()

    def prepare(self, folder):
        super().prepare(folder)
        for name in ("f.npz", "p.json", "log.jsonl"):
            (folder / name).write_bytes(self.old(name))
        (folder / "ck.notes").write_text("of others\n")

    def command(self, folder, steps=STEPS):
        return [self.tools / "amprun", self.plan, "--threads", "1", "--seed", "5",
                "--data", f"image={DATA}/t10k-images-idx3-ubyte.gz:scale=1/256",
                "--data", f"label={DATA}/t10k-labels-idx1-ubyte.gz", "--range", "0:96", "--eval-range", "100:132",
                "--steps", str(steps), "--checkpoint-dir", folder / "ck", "--checkpoint-every", "1", "--keep", "2",
                "--log", folder / "log.jsonl", "--save-weights", folder / "w.safetensors",
                "--export-model", folder / "m.onnx", "--fetch", "loss", "--fetch-out", folder / "f.npz",
                f"--profile={folder / 'p.json'}"]

    def checkpoints(self, folder):
        return sorted(int(f.name[5:17]) for f in (folder / "ck").glob("step-*.ckpt"))

    def check_left(self, folder, kind):
        fetched = (folder / "f.npz").read_bytes()
        if fetched not in (self.old("f.npz"), self.fetched) and not self.is_npz(folder / "f.npz"):
            raise Wrong("'f.npz' is neither the old file nor a whole one")
        profile = (folder / "p.json").read_bytes()
        if profile != self.old("p.json"):
            json.loads(profile)
        self.check_log(folder, kind)
        # Renamed and its folder synced: reported as saved.
        trace = pathlib.Path(str(folder) + ".trace").read_text().splitlines()[:-1]
        renamed = [int(m[1]) for line in trace if (m := re.search(r" rename .*/step-(\d+)\.ckpt$", line))]
        present = self.checkpoints(folder)
        if kind not in FAILURES and kind != "full" and renamed and (not present or present[-1] < renamed[-1]):
            raise Wrong(f"step {renamed[-1]} was saved, there are {present}")
        if (folder / "ck.notes").read_text() != "of others\n":
            raise Wrong("a file of others has changed")

    @staticmethod
    def is_npz(path):
        try:
            return zipfile.ZipFile(path).testzip() is None
        except zipfile.BadZipFile:
            return False

    def check_log(self, folder, kind):
        text = (folder / "log.jsonl").read_bytes()
        if text == self.old("log.jsonl"):
            return
        lines = text.decode().split("\n")
        if lines[-1] and kind != "tear":
            raise Wrong(f"the log ends in a part of a line: {lines[-1]}")
        for line in lines[:-1]:
            json.loads(line)
        values = log_values("\n".join(lines[:-1]))
        if values != self.log[:len(values)]:
            raise Wrong("the log's values differ from those of the unbroken run")

    def check_again(self, folder, call):
        saved = self.checkpoints(folder)
        if (folder / "log.jsonl").read_bytes() == self.old("log.jsonl"):
            (folder / "log.jsonl").unlink()  # which is no log, so a resume would refuse it
        run = self.run([*self.command(folder), "--resume"], folder)
        if run.returncode != 0:
            raise Wrong(f"the resumed run fails: {run.stderr}")
        told = f"resumed after step {saved[-1]}\n" if saved else "nothing to resume"
        if told not in run.stderr or "damaged" in run.stderr:
            raise Wrong(f"expected '{told}': {run.stderr}")
        for name in self.outputs:
            if (folder / name).read_bytes() != self.reference[name]:
                raise Wrong(f"'{name}' of the resumed run differs from the unbroken one's")
        if log_values((folder / "log.jsonl").read_text()) != self.log:
            raise Wrong("the log of the resumed run differs from the unbroken one's")
        # One too many where the run before could not remove it and this one saved nothing.
        if self.checkpoints(folder)[-1] != STEPS or len(self.checkpoints(folder)) > 3:
            raise Wrong(f"checkpoints after the resumed run: {self.checkpoints(folder)}")


class Resume(Train):
    """The second half of a run."""

    name = "resume"

    def setup(self):
        super().setup()
        self.half = self.scratch / "half"
        super().prepare(self.half)
        first = Train.run(self, Train.command(self, self.half, steps=SPLIT), self.half)
        if first.returncode != 0:
            sys.exit(f"{self.name}: the first half fails: {first.stderr}")
        for name in self.outputs:
            (self.half / name).write_bytes(self.old(name))
        for name in ("f.npz", "p.json"):
            (self.half / name).write_bytes(self.old(name))
        # What a killed process left: to be swept.
        for name in ("ck/step-000000000008.ckpt", "w.safetensors"):
            (self.half / f"{name}.tmp.{STALE_PID}").write_bytes(STALE)

    def prepare(self, folder):
        shutil.copytree(self.half, folder)

    def command(self, folder, steps=STEPS):
        return [*super().command(folder, steps), "--resume"]

    def check_again(self, folder, call):
        if not self.checkpoints(folder):
            raise Wrong("the checkpoints of the first half are gone")
        Train.check_again(self, folder, call)


SCENARIOS = (Compile, EmitText, EmitStep, ModelBeside, Train, Resume)


def points_of(scenario):
    """(call, kind) of every point that can be tried."""
    points = []
    for call in scenario.calls:
        points.append((call, "kill"))
        points += [(call, kind) for kind in FAILURES]
        if call.name in WRITES:
            points += [(call, "tear"), (call, "short")]
        if call.name in RETRIED:
            points.append((call, "EINTR"))
        if call.name in (*WRITES, "open", "fsync", "mkdir"):
            points.append((call, "full"))
    return points


def sample(points, rng):
    """20 kills, and a few points of every other kind."""
    chosen = []
    for kind in sorted({kind for _, _, kind in points}):
        of_kind = [p for p in points if p[2] == kind]
        chosen += rng.sample(of_kind, min(20 if kind == "kill" else 5, len(of_kind)))
    return chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("injector", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ampc-faults-") as scratch:
        scenarios = [s(args.tools, pathlib.Path(scratch), args.injector) for s in SCENARIOS
                     if args.only in (None, s.name)]
        points = [(s, call, kind) for s in scenarios for call, kind in points_of(s)
                  if args.kinds is None or kind in args.kinds]
        if not args.all:
            points = sample(points, random.Random(args.seed))
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda p: p[0].try_point(p[1], p[2]), points))
    for wrong in filter(None, results):
        print(wrong)
    for kind in sorted({kind for _, _, kind in points}):
        of_kind = [r for p, r in zip(points, results) if p[2] == kind]
        print(f"{kind:7} {len(of_kind):5} tried {of_kind.count(None):5} passed")
    print(f"seed {args.seed}, {sum(len(s.calls) for s in scenarios)} calls in {len(scenarios)} scenarios")
    sys.exit(any(results))


if __name__ == "__main__":
    main()
