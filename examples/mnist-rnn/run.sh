#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a recurrent net on MNIST, row by row.
#
#   examples/mnist-rnn/run.sh [BIN [OUT]]
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
train
plot
