#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision learns what fp32 learns: nanoGPT's character model, 1,000 steps on Shakespeare, fp32 against bf16 and fp16.

usage: char_gpt.py BIN [VARIANT...]      BIN: folder of ampc and amprun

Exports with attention as single nodes (below opset 23) and with the Attention op. The loss over the last tenth of the text
differs by at most 1 % from that of the fp32 run, and is far below the one of a model that knows frequencies only.
"""
import json
import pathlib
import sys

from harness import Failed, Model, Tools, expect

TEXT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data" / "tinyshakespeare" / "input.txt"
VARIANTS = ["opset15_ts_train", "ts_train", "opset23_dynamo_train", "opset25_dynamo_train"]
FREQUENCIES = 3.31  # entropy of single characters of the text, in nats
STEPS = 1000


def evaluated(tools, model, variant, precision):
    """Loss over the last tenth after training on the rest."""
    plan = tools.folder / "gpt.plan"
    batch = ["--dim", "batch=16"] if model.is_dynamic(variant) else []
    tools.run("ampc", model.path(variant), *batch, "--loss", model.loss(), "--metric", "perplexity", "--optimizer", "adamw", "--lr", "2e-3",
              "--lr-schedule", "cosine:warmup=50", "--precision", precision, "-o", plan, "-q")
    log = tools.folder / "log.jsonl"
    tools.run("amprun", plan, "--data", f"tokens={TEXT}:tokens=char", "--data", f"label={TEXT}:tokens=char,shift=1", "--range", ":90%",
              "--eval-range", "90%:", "--steps", STEPS, "--eval-every", STEPS, "--log", log, "-q", "--threads", "2")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    evaluations = [line["eval_loss"] for line in lines if "step" in line and "eval_loss" in line]
    return evaluations[-1], sum(line.get("skipped") is True for line in lines)


def compared(tools, model, variant):
    fp32, _ = evaluated(tools, model, variant, "fp32")
    expect(fp32 < 0.75 * FREQUENCIES, f"{variant}: fp32 learnt too little: {fp32:.3f}")
    text = f"{variant:22} fp32 {fp32:.5f}"
    for precision in ("bf16", "fp16"):
        loss, skipped = evaluated(tools, model, variant, precision)
        expect(abs(loss / fp32 - 1) <= 0.01, f"{variant}: {precision} ends at {loss:.5f}, fp32 at {fp32:.5f}")
        text += f"  {precision} {loss:.5f} ({100 * (loss / fp32 - 1):+.3f} %, {skipped} skipped)"
    return text


def main():
    tools, model = Tools(sys.argv[1]), Model("nanogpt_char")
    try:
        for variant in sys.argv[2:] or VARIANTS:
            print(compared(tools, model, variant), flush=True)
    except Failed as failed:
        sys.exit(str(failed))


main()
