#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Curves of amprun's JSONL logs: one chart per quantity, in the terminal and as one HTML file.

    plot.py LOG.jsonl [LOG.jsonl …] [-o curves.html]

Training values are averaged over stretches of steps; evaluations are dots. Standard library only.
"""

import argparse
import html
import json
import math
import os
import sys

COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 260, 56, 28, 12
BUCKETS = 160
# The rest of a step's line is time and bookkeeping; these are shown when they change.
OTHER = {"lr": "learning rate", "scale": "loss scale", "grad_norm": "gradient norm"}
NOT_SHOWN = {"step", "epoch", "skipped", "applied", "ms", "samples_per_s", "wait_ms", "time", "eval_samples"}


class Log:
    """One run: name -> [(step, value)], training and evaluation apart."""

    def __init__(self, path):
        folder, file = os.path.split(os.path.abspath(path))
        self.name = os.path.splitext(file)[0]
        if self.name == "log":  # what the examples call theirs
            self.name = os.path.basename(folder)
        self.run, self.train, self.evaluation = {}, {}, {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if "run" in entry:
                    self.run = entry["run"]
                elif "step" in entry:
                    self.add(entry)

    def add(self, entry):
        for key, value in entry.items():
            if key in NOT_SHOWN or isinstance(value, bool):
                continue
            value = float(value)  # "inf" and "nan" are strings in the log
            if math.isfinite(value):
                series = self.evaluation if key.startswith("eval_") else self.train
                series.setdefault(key.removeprefix("eval_"), []).append((entry["step"], value))


def averaged(points, buckets=BUCKETS):
    """At most `buckets` points: the means of neighbours."""
    size = max(1, math.ceil(len(points) / buckets))
    chunks = [points[i:i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in c) / len(c), sum(y for _, y in c) / len(c)) for c in chunks]


def scale_of(values):
    """math.log10 where the values span more than a factor of twenty, else themselves."""
    low, high = min(values), max(values)
    return (math.log10, "logarithmic") if low > 0 and high / low > 20 else (float, "linear")


def ticks(low, high, kind, count=5):
    """Round numbers between low and high; logarithmic: 1, 2 and 5 times powers of ten between 10^low and 10^high."""
    if kind == "logarithmic":
        values = (f * 10 ** e for e in range(math.floor(low), math.ceil(high)) for f in (1, 2, 5))
        return [v for v in values if low <= math.log10(v) <= high]
    span = (high - low) or abs(high) or 1
    step = 10 ** math.floor(math.log10(span / count))
    step *= min((f for f in (1, 2, 5, 10) if span / (step * f) <= count), default=10)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(v):
    return f"{v:.4g}"


class Frame:
    """From steps and values to places; 5 % of air above and below."""

    def __init__(self, series):
        xs = [x for points in series for x, _ in points]
        ys = [y for points in series for _, y in points]
        self.x0, self.x1 = min(xs), max(max(xs), min(xs) + 1)
        self.scale, self.kind = scale_of(ys)
        low, high = self.scale(min(ys)), self.scale(max(ys))
        air = 0.05 * (high - low) or 0.05 * abs(high) or 1
        self.y0, self.y1 = low - air, high + air

    def x(self, v):
        return LEFT + (v - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - 12)

    def y(self, v):
        return TOP + (self.y1 - self.scale(v)) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)


def chart(title, curves, dots):
    """`curves`, `dots`: [(label, color, points)]"""
    frame = Frame([points for _, _, points in curves + dots])
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for v in ticks(frame.y0, frame.y1, frame.kind):
        y = frame.y(v)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(v)}</text>')
    for v in ticks(frame.x0, frame.x1, "linear", 6):
        parts.append(f'<text x="{frame.x(v):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{v:g}</text>')
    for label, color, points in curves:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.6" points="{path}"><title>{html.escape(label)}</title></polyline>')
    for label, color, points in dots:
        for x, y in points:
            parts.append(f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3" fill="{color}">'
                         f"<title>{html.escape(label)}, step {x}: {number(y)}</title></circle>")
    parts.append("</svg>")
    legend = " ".join(f'<span style="color:{c}">{s} {html.escape(label)}</span>'
                      for s, rows in (("&#8212;", curves), ("&#9679;", dots)) for label, c, _ in rows)
    return f"<figure><figcaption>{html.escape(title)} <small>{legend}</small></figcaption>{''.join(parts)}</figure>"


def names_of(logs):
    names = dict.fromkeys(["loss"])
    for log in logs:
        names.update(dict.fromkeys(n for series in (log.evaluation, log.train) for n in series if n not in OTHER))
    changing = [n for n in OTHER if any(len({y for _, y in log.train.get(n, [])}) > 1 for log in logs)]
    return [*names, *changing]


def page(logs):
    figures = []
    for name in names_of(logs):
        curves, dots = [], []
        for i, log in enumerate(logs):
            prefix = f"{log.name} " if len(logs) > 1 else ""
            if name in log.train:
                curves.append((prefix + "training", COLORS[2 * i % 6], averaged(log.train[name])))
            if name in log.evaluation:
                dots.append((prefix + "evaluation", COLORS[(2 * i + 1) % 6], log.evaluation[name]))
        if curves or dots:
            figures.append(chart(OTHER.get(name, name), curves, dots))
    about = "; ".join(", ".join(str(log.run.get(k, "-")) for k in ("model", "precision", "device")) for log in logs)
    return f"""<!doctype html>
<meta charset="utf-8">
<title>{html.escape(", ".join(log.name for log in logs))}</title>
<style>
body {{ font: 14px system-ui, sans-serif; max-width: 1360px; margin: 2em auto; color: #1f2328; }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 1.5em; }}
figure {{ margin: 0; }} small span {{ margin-left: 1em; }}
svg {{ width: 100%; }} svg text {{ font-size: 11px; fill: #57606a; }} .grid {{ stroke: #d8dee4; }}
</style>
<p>{html.escape(about)}</p>
<main>{"".join(figures)}</main>
"""


def terminal(log, columns=64, rows=12):
    """The loss as text: one column a stretch of steps, o where there was an evaluation."""
    curve, dots = averaged(log.train.get("loss", []), columns), log.evaluation.get("loss", [])
    if not curve:
        return ""
    x1 = max(x for x, _ in curve + dots)
    values = [y for _, y in curve + dots]
    scale, kind = scale_of(values)
    low, high = scale(min(values)), scale(max(values))
    grid = [[" "] * columns for _ in range(rows)]
    for mark, points in (("·", curve), ("o", dots)):
        for x, y in points:
            column = min(columns - 1, int(x / (x1 + 1) * columns))
            row = round((high - scale(y)) / ((high - low) or 1) * (rows - 1))
            grid[row][column] = mark
    labels = {0: number(max(values)), rows - 1: number(min(values))}
    lines = [f"{labels.get(r, ''):>8} |{''.join(grid[r]).rstrip()}" for r in range(rows)]
    last = {n: points[-1][1] for n, points in log.evaluation.items()}
    told = "".join(f", {n} {number(v)}" for n, v in last.items())
    head = f"loss over {x1:g} steps, {kind} (o: evaluation{'; the last: ' + told[2:] if told else ''})"
    return "\n".join([head, *lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("logs", nargs="+", metavar="LOG.jsonl")
    parser.add_argument("-o", metavar="FILE.html", help="where the charts go")
    args = parser.parse_args()
    logs = [Log(path) for path in args.logs]
    if not any(log.train or log.evaluation for log in logs):
        sys.exit("plot.py: no steps in " + ", ".join(args.logs))
    for log in logs:
        print(terminal(log))
    if args.o:
        with open(args.o, "w", encoding="utf-8") as file:
            file.write(page(logs))
        print(f"curves: {args.o}")


if __name__ == "__main__":
    main()
