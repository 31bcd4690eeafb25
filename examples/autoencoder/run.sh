#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a convolutional autoencoder on MNIST, and shows digits that it has not seen beside what it made of them.
#
#   examples/autoencoder/run.sh [BIN [OUT]]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
train --save-weights "$out/weights.safetensors"
plot
"$bin/amprun" "$out/train.plan" -q --steps 0 --init-from "$out/weights.safetensors" --eval-range 9000:9004 \
  --fetch eval:recon --fetch-out "$out/recon.npz" >/dev/null
python3 "$here/show.py" "$here/../mnist/data/t10k-images-idx3-ubyte.gz" "$out/recon.npz" 9000 4
