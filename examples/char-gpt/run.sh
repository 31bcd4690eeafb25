#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small GPT on Shakespeare's characters, and lets the trained model write.
#
#   examples/char-gpt/run.sh [BIN [OUT]]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
train
plot
python3 "$here/../generate.py" "$bin" "$out/trained.onnx" "$here/../data/tinyshakespeare/input.txt" "$out" \
  --characters "${AMPC_EXAMPLE_STEPS:-400}"
