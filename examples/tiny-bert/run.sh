#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small BERT encoder to tell how a line of Shakespeare ends.
#
#   examples/tiny-bert/run.sh [BIN [OUT]]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
python3 "$here/lines.py" "$here/../data/tinyshakespeare/input.txt" "$out"
train --data "tokens=$out/tokens.bin:dtype=u8" --data "attention_mask=$out/mask.bin:dtype=u8" \
  --data "label=$out/label.bin:dtype=u8"
plot
