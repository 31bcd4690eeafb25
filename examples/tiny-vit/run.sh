#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small vision transformer on MNIST.
#
#   examples/tiny-vit/run.sh [BIN [OUT]]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
train
plot
