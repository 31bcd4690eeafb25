# SPDX-License-Identifier: Apache-2.0
"""curves.py FILE.html TITLE…: the page of plot.py has one well-formed chart for each title, with curves and finite places,
and loads nothing."""

import re
import sys
import xml.etree.ElementTree as xml

page = open(sys.argv[1], encoding="utf-8").read()
assert not re.search(r"https?:|src=|href=|<script|nan|inf\b", page), "the page refers to something, or holds no numbers"
figures = [xml.fromstring(f.replace("&#8212;", "-").replace("&#9679;", "o")) for f in re.findall(r"<figure>.*?</figure>", page, re.S)]
titles = [f.find("svg").get("aria-label") for f in figures]
assert titles == sys.argv[2:], titles
for figure, title in zip(figures, titles):
    svg = figure.find("svg")
    places = [float(v) for line in svg.findall("polyline") for v in re.split("[ ,]", line.get("points"))]
    places += [float(c.get(a)) for c in svg.findall("circle") for a in ("cx", "cy")]
    assert places and min(places) >= 0 and max(places) <= 640, (title, places)
    assert len(svg.findall("text")) >= 3, title
