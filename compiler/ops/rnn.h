// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the rows of recurrent layers (rnn.cc) and their bodies in standard ONNX (rnn_body.cc) share.

#include "compiler/ops/op_def.h"
#include "kernels/rnn.h"

namespace ampc {

// Slots of RNN, GRU, LSTM and of the own ops RnnTrain, GruTrain, LstmTrain.
namespace rnn_in {
enum : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };
}
// Outputs of the own ops; GRU ends behind kState, RNN before it.
namespace rnn_out {
enum : size_t { kY, kYh, kGates, kHPrev, kState, kYc };
}
// Slots of RnnGrad, GruGrad, LstmGrad; GRU ends behind kState, RNN before it.
namespace rnn_grad_in {
enum : size_t { kR, kLengths, kGates, kHPrev, kDy, kDyh, kState, kC0, kDyc, kP };
}
// Their outputs.
namespace rnn_grad_out {
enum : size_t { kDgates, kDh0, kExtra = 2, kDc0 = 2, kDp = 3 };
}

/// The cell of an op "RNN", "GruTrain", "LstmGrad", ….
RnnKind RnnKindOf(const OpDef& op);

/// Bodies in standard ONNX.
Result<std::string> BodyRnnTrain(const BodyContext& c);
Result<std::string> BodyRnnGrad(const BodyContext& c);

}  // namespace ampc
