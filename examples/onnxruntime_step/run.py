#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains an exported step in onnxruntime.

usage: run.py FEEDS.npz STEPS STEP.onnx               FEEDS: a member per feed, leading axis = batch
       run.py FEEDS.npz STEPS STEP.train.onnx STEP.apply.onnx     the two files of --accumulate K
"""
import json
import sys

import numpy as np
import onnxruntime as ort


class Step:
    def __init__(self, path):
        options = ort.SessionOptions()
        # As written: higher levels fuse operations and drop the casts in which low precision rounds.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3  # it warns of every input that has a default value
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.about = json.loads(self.session.get_modelmeta().custom_metadata_map["ampc.step"])

    def run(self, feeds, states):
        """The step's outputs by name. `states` moves on; one that is not in it has its initial value."""
        inputs = {feed["input"]: np.asarray(feeds[name]) for name, feed in self.about["feeds"].items()}
        inputs |= {s["input"]: states[name] for name, s in self.about["states"].items() if s["input"] and name in states}
        names = [output.name for output in self.session.get_outputs()]
        values = dict(zip(names, self.session.run(names, inputs)))
        states |= {name: values[s["output"]] for name, s in self.about["states"].items() if s["output"]}
        return {name: values[output] for name, output in self.about["outputs"].items()}


def train(steps, batches, states):
    """Outputs of each update; with two files the first runs K times before the second."""
    for _ in range(steps[0].about["accumulate"]):
        outputs = steps[0].run(next(batches), states)
    return outputs | (steps[1].run({}, states) if len(steps) > 1 else {})


if __name__ == "__main__":
    data = np.load(sys.argv[1])
    data = {name: data[name] for name in data.files}
    steps, states = [Step(path) for path in sys.argv[3:]], {}
    batches = ({name: array[i % len(array)] for name, array in data.items()} for i in range(2**62))
    for number in range(int(sys.argv[2])):
        outputs = train(steps, batches, states)
        print(number + 1, *(f"{name} {outputs[name]:g}" for name in ("loss", "lr", "scale", "grad_norm") if name in outputs),
              "skipped" if outputs["found_inf"] else "")
