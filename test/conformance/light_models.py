#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The light zoo models of the onnx package (opset 9; networks of the mixed-precision paper) against onnxruntime.

    light_models.py BIN_FOLDER [--only NAME[,NAME]] [--seed N]

The package holds the graphs without weights: ConstantOfShape nodes stand in their place. Here seeded random initializers
take it (He's for products, so that activations keep their size). Then, for every model: the forward pass equals
onnxruntime's; it compiles for training in fp32, bf16 and fp16, and takes a step with finite gradients; the fp32 step of
DEEP is exported, too, and its gradients equal those of onnxruntime within the spread of its own runs. A step of SGD shows
them: with a learning rate of 2^20 the weights after it are the gradients.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "onnxruntime_step"))
from run import Step, train  # noqa: E402 (the example's driver)

LIGHT = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512"]
DEEP = ("resnet50", "densenet121")
PRECISIONS = ("fp32", "bf16", "fp16")
LR = 2.0**20
RUNS = 8  # of onnxruntime, of which the largest distance is the spread
GRADIENT = 1e-5  # the bound where the spread is smaller
FORWARD = 2e-5  # of the largest output; sums of up to 25,088 terms, 100 layers


class Wrong(Exception):
    pass


def expect(fact, text):
    if not fact:
        raise Wrong(text)


def weight(random, node, slot, dims):
    """What slot `slot` of `node` may hold."""
    if node.op_type == "BatchNormalization":  # scale, bias, mean, variance
        low, high = {1: (0.5, 1.5), 2: (-0.2, 0.2), 3: (-0.2, 0.2), 4: (0.5, 1.5)}[slot]
        return random.uniform(low, high, dims)
    if node.op_type in ("Mul", "Unsqueeze"):
        return random.uniform(0.5, 1.5, dims)
    if len(dims) < 2:
        return random.uniform(-0.05, 0.05, dims)
    return random.normal(0, math.sqrt(2 / math.prod(dims[1:])), dims)


def with_weights(name, seed):
    """The model with initializers, its logits as the last output; the names of image and logits."""
    model, random = onnx.load(LIGHT / f"light_{name}.onnx"), np.random.default_rng(seed)
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    made = {n.output[0]: n for n in graph.node if n.op_type == "ConstantOfShape"}
    readers = {}
    for node in graph.node:
        for slot, value in enumerate(node.input):
            readers.setdefault(value, (node, slot))
    for value, node in made.items():
        dims = numpy_helper.to_array(stored[node.input[0]]).tolist()
        array = weight(random, *readers[value], dims).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(array, value))
        graph.initializer.remove(stored[node.input[0]])
        graph.node.remove(node)
    held = {t.name for t in graph.initializer}
    read = {value for node in graph.node for value in node.input}
    feeds = [i for i in graph.input if i.name not in held and i.name in read]
    gone = {n.input[0] for n in made.values()}
    graph.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer if t.name in made)
    for i in [i for i in graph.input if i.name in gone or i.name not in read | held]:
        graph.input.remove(i)  # IR version 3 lists initializers as inputs
    expect(len(feeds) == 1 and not gone & held, f"{name}: inputs {[i.name for i in feeds]}")
    [output] = [o.name for o in graph.output]
    last = next(n for n in graph.node if output in n.output)
    logits = last.input[0] if last.op_type == "Softmax" else output
    if logits != output:
        graph.output.add(name=logits).type.CopyFrom(graph.output[0].type)
    onnx.checker.check_model(model)
    return model, feeds[0].name, logits


class Case:
    def __init__(self, bin_folder, folder, name, seed):
        self.bin, self.folder, self.name = pathlib.Path(bin_folder), pathlib.Path(folder), name
        self.model, self.image, self.logits = with_weights(name, seed)
        onnx.save(self.model, self.folder / "m.onnx")
        random = np.random.default_rng(seed + 1)
        self.x = random.normal(0, 1, (1, 3, 224, 224)).astype(np.float32)
        self.session = onnxruntime.InferenceSession(self.folder / "m.onnx", providers=["CPUExecutionProvider"])
        self.dims = [d for o in self.session.get_outputs() if o.name == self.logits for d in o.shape]
        np.savez(self.folder / "x.npz", **{self.image: self.x[None]})
        self.target = np.full([1, *self.dims[2:]], 7, np.int64)
        np.savez(self.folder / "xy.npz", **{self.image: self.x[None], "target": self.target[None]})

    def call(self, tool, *argv):
        done = subprocess.run([self.bin / tool, *map(str, argv)], cwd=self.folder, capture_output=True, text=True)
        expect(done.returncode == 0, f"{tool} {' '.join(map(str, argv))} exits with {done.returncode}: {done.stderr.strip()[-600:]}")

    def forward(self):
        self.call("ampc", "m.onnx", "--forward-only", "-q", "-o", "f.plan")
        outputs = [o.name for o in self.session.get_outputs()]
        fetch = [flag for name in outputs for flag in ("--fetch", f"eval:{name}")]
        self.call("amprun", "f.plan", "-q", "--eval-data", "x.npz:layout=steps", "--eval-steps", 1, *fetch, "--fetch-out", "f.npz:layout=steps")
        ours, worst = np.load(self.folder / "f.npz"), 0.0
        for name, theirs in zip(outputs, self.session.run(outputs, {self.image: self.x})):
            expect(ours[name][0].shape == theirs.shape, f"{name} is {ours[name].shape}")
            expect(np.isfinite(theirs).all() and np.abs(theirs).max() > 0, f"onnxruntime's {name} says nothing")
            worst = max(worst, np.abs(ours[name][0] - theirs).max() / np.abs(theirs).max())
        expect(worst <= FORWARD, f"outputs differ by {worst:.1e} of the largest")
        return f"forward {worst:.1e}"

    def compile(self, precision, lr, *flags):
        loss = f"cross-entropy:input='{self.logits}',axis=1"
        self.call("ampc", "m.onnx", "--loss", loss, "--optimizer", "sgd", "--lr", lr, "--precision", precision, "-q", *flags)

    def step(self, precision):
        """A scale of 2^16 may overflow in fp16; each skip halves it."""
        self.compile(precision, 1e-6, "-o", "t.plan")
        attempts = 20 if precision == "fp16" else 1
        self.call("amprun", "t.plan", "-q", "--data", "xy.npz:layout=steps", "--steps", attempts, "--log", "l.jsonl")
        lines = [json.loads(line) for line in (self.folder / "l.jsonl").read_text().splitlines()]
        lines = [line for line in lines if "step" in line]
        applied = [line for line in lines if not line["skipped"]]
        expect(applied, f"{precision}: no step is applied: {lines[-1]}")
        for line in applied:
            expect(isinstance(line["loss"], float) and isinstance(line["grad_norm"], float) and line["grad_norm"] > 0, f"{precision}: {line}")
        first = applied[0]
        skips = f" {first['step'] - 1} skips" if first["step"] > 1 else ""
        return f"{precision} loss {first['loss']:.3f} norm {first['grad_norm']:.3g}{skips} {min(line['ms'] for line in lines):.0f} ms"

    def against_exported_step(self):
        """The gradients of both sides, and how far those of onnxruntime lie apart when the image changes by one ulp.

        A Relu whose operand is nearly 0 falls to another side, which these random networks show much of.
        """
        self.compile("fp32", LR, "--emit", "step", "-o", "s.onnx")
        step = Step(str(self.folder / "s.onnx"))
        weights = [name for name, state in step.about["states"].items() if state["role"] == "weight" and state["output"]]
        theirs, *others = [self.in_onnxruntime(step, weights, image) for image in [self.x, *self.neighbours()]]
        fetch = [flag for name in weights for flag in ("--fetch", name)]
        self.compile("fp32", LR, "-o", "t.plan")
        self.call("amprun", "t.plan", "-q", "--data", "xy.npz:layout=steps", "--steps", 1, *fetch, "--fetch-out", "w.npz")
        stored = np.load(self.folder / "w.npz")
        found = distances({name: stored[name][-1] for name in weights}, theirs)
        spread = np.max([distances(other, theirs) for other in others], axis=0)
        text = ", ".join(f"{kind} {a:.1e} of {2 * b:.1e}" for kind, a, b in zip(("all", "worst parameter"), found, spread))
        expect((found <= np.maximum(2 * spread, GRADIENT)).all(), f"gradients of {len(weights)} parameters: {text}")
        return f"gradients of {len(weights)} parameters: {text}"

    def neighbours(self):
        random = np.random.default_rng(1)
        for _ in range(RUNS):
            yield np.nextafter(self.x, np.where(random.random(self.x.shape) < 0.5, -np.inf, np.inf).astype(np.float32))

    def in_onnxruntime(self, step, weights, image):
        states = {}
        train([step], iter([{self.image: image, "target": self.target}]), states)
        return {name: states[name] for name in weights}


def distances(ours, theirs):
    """Of all gradients together, and of the worst parameter that is not next to nothing."""
    norms = {name: np.linalg.norm(g.astype(np.float64)) for name, g in theirs.items()}
    apart = {name: np.linalg.norm(ours[name].astype(np.float64) - g) for name, g in theirs.items()}
    floor = 1e-4 * max(norms.values())
    whole = math.sqrt(sum(d * d for d in apart.values()) / sum(n * n for n in norms.values()))
    return np.array([whole, max(apart[name] / max(norms[name], floor) for name in norms)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder")
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failures = 0
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            try:
                case = Case(pathlib.Path(args.bin_folder).resolve(), folder, name, args.seed)
                done = [case.forward(), *(case.step(precision) for precision in PRECISIONS)]
                if name in DEEP:
                    done.append(case.against_exported_step())
                print(f"passed {name}: {'; '.join(done)}", flush=True)
            except Wrong as wrong:
                failures += 1
                print(f"FAILED {name}: {wrong}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
