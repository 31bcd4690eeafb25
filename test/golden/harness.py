# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the exported models of this folder; what the golden checks share."""
import json
import pathlib
import subprocess
import tempfile

import numpy as np

MODELS = pathlib.Path(__file__).resolve().parent / "models"
NAMES = ["mlp_mnist", "lenet_mnist", "resnet_mnist", "conv1d_tcn", "autoencoder_mnist"]
OPTIMIZERS = ["sgd", "adamw"]
# Only this stands against the golden files of these exports: ampc puts BatchNormalization into training mode itself.
MODE_ONLY = "BatchNormalization is not in training mode in this file"


class Failed(Exception):
    pass


class Model:
    def __init__(self, name):
        self.name, self.folder = name, MODELS / name
        self.curves = json.loads((self.folder / "golden" / "curves.json").read_text())
        self.exports = json.loads((self.folder / "exports.json").read_text())

    def variants(self):
        """Exports that the golden files apply to, up to BatchNormalization's mode."""
        for variant, info in self.exports.items():
            if info.get("golden") in ("applies", MODE_ONLY, [MODE_ONLY]):
                yield variant
        if (self.folder / "external").exists():
            yield "external/dynamo_train"

    def path(self, variant):
        folder = "opsets/" if variant.startswith("opset") else ""
        return self.folder / f"{folder}{variant}.onnx"

    def is_dynamic(self, variant):
        return self.exports.get(variant, {}).get("dynamic_batch", False)


class Tools:
    """ampc and amprun of one build, with a scratch folder."""

    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries)
        self.scratch = tempfile.TemporaryDirectory(prefix="golden")
        self.folder = pathlib.Path(self.scratch.name)

    def run(self, tool, *arguments, expect=0):
        done = subprocess.run([self.binaries / tool, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != expect:
            raise Failed(f"{tool} {' '.join(map(str, arguments))}: exit {done.returncode}, expected {expect}\n{done.stderr[-800:]}")
        return done

    def compile(self, model, variant, precision, optimizer, *extra, policy="torch-cpu", scaler=""):
        """A plan with the golden run's settings."""
        settings = model.curves["optimizers"][optimizer]
        update = f"sgd:momentum={settings['momentum']}" if optimizer == "sgd" else f"adamw:weight_decay={settings['weight_decay']}"
        loss = "cross-entropy:target=label" if model.curves["loss"] == "ce" else "mse:target=target"
        plan = self.folder / "golden.plan"
        arguments = [model.path(variant), "--loss", loss, "--precision", precision, "--policy", policy, "--optimizer", update,
                     "--lr", settings["lr"], "--bn-var", "unbiased", "-q", "-o", plan]
        if model.is_dynamic(variant):
            arguments += ["--dim", "batch=16"]
        if precision == "fp16":
            s = dict(model.curves["scaler"])
            keys = ",".join(f"{k}={s[k]:g}" for k in ("init_scale", "growth_factor", "backoff_factor", "growth_interval") if k not in scaler)
            arguments += ["--loss-scale", f"dynamic:{keys}{',' if scaler else ''}{scaler}"]
        self.run("ampc", *arguments, *extra)
        return plan

    def train(self, plan, feeds, steps, *extra):
        """JSONL lines of the steps."""
        log = self.folder / "log.jsonl"
        self.run("amprun", plan, "--data", f"{feeds}:layout=steps", "--steps", steps, "--log", log, "-q", *extra)
        lines = [json.loads(text) for text in log.read_text().splitlines()]
        return [line for line in lines if "step" in line and "loss" in line]

    def fetch(self, plan, feeds, steps, *globs, extra=()):
        """{value: array, leading axis = step}."""
        out = self.folder / "fetch.npz"
        wanted = [flag for glob in globs for flag in ("--fetch", glob)]
        self.train(plan, feeds, steps, *wanted, "--fetch-out", out, *extra)
        return dict(np.load(out))


def losses(lines):
    return np.array([float(line["loss"]) for line in lines])
