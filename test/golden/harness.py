# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the exported models of this folder; what the golden checks share."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx

MODELS = pathlib.Path(__file__).resolve().parent / "models"
NAMES = ["mlp_mnist", "lenet_mnist", "resnet_mnist", "conv1d_tcn", "autoencoder_mnist", "bert_tiny", "vit_tiny", "lstm_char", "gru_char", "rnn_mnist", "nanogpt_char"]
OPTIMIZERS = ["sgd", "adamw"]
# Only this stands against the golden files of these exports: ampc puts BatchNormalization into training mode itself.
MODE_ONLY = "BatchNormalization is not in training mode in this file"
# Settings of the model that is random in training, so that nothing was recorded.
UNRECORDED = {"loss": "ce", "optimizers": {"sgd": {"lr": 0.02, "momentum": 0.9}, "adamw": {"lr": 0.002, "weight_decay": 0.01}},
              "scaler": {"init_scale": 65536, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 20}}


class Failed(Exception):
    pass


class Model:
    def __init__(self, name):
        self.name, self.folder = name, MODELS / name
        recorded = self.folder / "golden" / "curves.json"
        self.curves = json.loads(recorded.read_text()) if name in NAMES else UNRECORDED
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

    def mapping(self, variant):
        """{initializer: {"param": PyTorch's name, "transform"}}; the file with external data is dynamo_train's."""
        return self.exports.get(variant, self.exports["dynamo_train"])["mapping"]["initializers"]

    def loss(self):
        if self.curves["loss"] != "ce":
            return "mse:target=target"
        # a class for every character of a row: logits [batch, characters, classes]
        return "cross-entropy:target=label" + (",axis=2" if self.name.endswith("_char") else "")

    def merged(self, variant, parameter):
        """Initializers of another parameter that this one of PyTorch's is stored in."""
        entry = self.exports.get(variant, self.exports["dynamo_train"])["mapping"]["parameters"].get(parameter)
        return entry.get("merged_into", []) if isinstance(entry, dict) else []

    def initializers(self, variant):
        return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(self.path(variant)).graph.initializer}

    def has_statistics(self):
        return any("running_" in name for name in self.mapping("ts_train"))

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

    def compile(self, model, variant, precision, optimizer, *extra, policy="torch-cpu", scaler="", output="golden.plan", source=None):
        """A plan with the golden run's settings; `output` names what `extra` asks for instead, `source` a copy of the model."""
        settings = model.curves["optimizers"][optimizer]
        update = f"sgd:momentum={settings['momentum']}" if optimizer == "sgd" else f"adamw:weight_decay={settings['weight_decay']}"
        loss = model.loss()
        plan = self.folder / output
        arguments = [source or model.path(variant), "--loss", loss, "--precision", precision, "--policy", policy, "--optimizer", update,
                     "--lr", settings["lr"], "--bn-var", "unbiased", "-q", "-o", plan]
        if model.is_dynamic(variant):
            arguments += ["--dim", "batch=16"]
        if precision == "fp16":
            s = dict(model.curves["scaler"])
            keys = ",".join(f"{k}={s[k]:g}" for k in ("init_scale", "growth_factor", "backoff_factor", "growth_interval") if k not in scaler)
            arguments += ["--loss-scale", f"dynamic:{keys}{',' if scaler else ''}{scaler}"]
        self.run("ampc", *arguments, *extra)
        return plan

    def perturbed(self, model, variant, seed):
        """A copy of the model, every weight multiplied by 1 +- 2^-23 at random, as the recording's own perturbed runs were."""
        proto, random = onnx.load(model.path(variant)), np.random.default_rng(seed)
        for tensor in proto.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if values.dtype == np.float32:
                values = (values * (1 + random.choice([-1, 1], values.shape) * 2.0**-23)).astype(np.float32)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        path = self.folder / "perturbed.onnx"
        onnx.save(proto, path)
        return path

    def train(self, plan, feeds, steps, *extra):
        """JSONL lines of the steps. The order of sums is part of a result: every machine runs two threads."""
        log = self.folder / "log.jsonl"
        log.unlink(missing_ok=True)  # a resumed run would add to it
        threads = () if "--threads" in extra else ("--threads", "2")
        self.run("amprun", plan, "--data", f"{feeds}:layout=steps", "--steps", steps, "--log", log, "-q", *threads, *extra)
        return log_lines(log)

    def fetch(self, plan, feeds, steps, *globs, extra=()):
        """{value: array, leading axis = step}."""
        out = self.folder / "fetch.npz"
        wanted = [flag for glob in globs for flag in ("--fetch", glob)]
        self.train(plan, feeds, steps, *wanted, "--fetch-out", out, *extra)
        return dict(np.load(out))


def losses(lines):
    return np.array([float(line["loss"]) for line in lines])


def log_lines(log):
    """Lines of training steps."""
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    return [line for line in lines if "step" in line and "loss" in line]


def widened(feeds):
    """The arrays of a file of feeds, float16 ones as float32, so that they can be changed."""
    return {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in np.load(feeds).items()}


def dump(tools, plan):
    """{kind: [row as a dict]} of amprun --dump, which names its columns in comments."""
    columns, rows = {}, {}
    for line in tools.run("amprun", plan, "--dump").stdout.splitlines():
        cells = line.split("\t")
        if line.startswith("# "):
            columns[cells[0][2:]] = [c.split(" ")[0] for c in cells[1:]]
        elif cells[0] in columns:
            rows.setdefault(cells[0], []).append(dict(zip(columns[cells[0]], cells[1:])))
    return rows


def expect(condition, what):
    if not condition:
        raise Failed(what)


def run_checks(checks):
    """One line per check function; what it returns is what was measured. Exits with 1 if one failed."""
    tools, wanted, failures = Tools(sys.argv[1]), sys.argv[2:], 0
    unknown = set(wanted) - {function.__name__ for function in checks}
    if unknown:
        sys.exit(f"no check {', '.join(sorted(unknown))}")
    for function in checks:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            print(f"{function.__name__}: {function(tools)}", flush=True)
        except Failed as failed:
            failures += 1
            print(f"{function.__name__}: FAIL {failed}", flush=True)
    sys.exit(failures != 0)
