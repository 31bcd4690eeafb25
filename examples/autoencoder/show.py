#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Digits and what an autoencoder made of them, side by side in the terminal.

    show.py IMAGES.gz FETCHED.npz FIRST COUNT

IMAGES: an idx file of 28x28 bytes; FETCHED: `recon` of its images FIRST …, as `amprun --fetch eval:recon` wrote it.
Standard library only.
"""

import gzip
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import npz  # noqa: E402 (the folder above)

SIDE = 28
SHADES = " .:-=+*#%@"


def rows(pixels):
    """Every second line of pixels: characters are about twice as high as wide."""
    shade = lambda v: SHADES[min(len(SHADES) - 1, max(0, int(v * len(SHADES))))]
    return ["".join(shade(v) for v in pixels[y * SIDE:(y + 1) * SIDE]) for y in range(2, SIDE - 2, 2)]


def main():
    images, fetched, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with gzip.open(images) as file:
        data = file.read()[16:]
    _, made = npz.floats(fetched, "recon")
    size = SIDE * SIDE
    given = [rows([b / 256 for b in data[i * size:(i + 1) * size]]) for i in range(first, first + count)]
    shown = [rows(made[i * size:(i + 1) * size]) for i in range(count)]
    for title, pictures in (("given", given), ("made", shown)):
        print(f"---- {title}")
        for line in zip(*pictures):
            print(" ".join(line).rstrip())


if __name__ == "__main__":
    main()
