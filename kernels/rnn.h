// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recurrent layers (RNN, GRU, LSTM): what the reference, the CPU kernels and the bodies in ONNX
// share. The arithmetic of a cell is written once, as elementwise programs (kernels/expr.h) made
// from the layer's attributes; who runs them adds the matrix products and the order of the steps.
//
// A step has up to two programs with a product between them. x: inputs, y: outputs; "pre" is what
// a gate's activation reads, before clipping and peepholes; h', c' are those of the step before;
// everything is one element of the hidden state.
//
// clang-format off
//   forward    RNN                      pre, h'                            -> h
//              GRU, reset before   (1)  pre_r, h'                          -> r h'      (product with R_h)
//                                  (2)  pre_z, pre_h, h'                   -> h
//              GRU, linear before       pre_z, pre_r, pre_h, hn, h'        -> h         (hn = h' R_h + Rb_h)
//              LSTM                     pre_i, pre_o, pre_f, pre_c, c', [P_i, P_o, P_f]  -> c, h
//   backward   RNN                      pre, dh                            -> dpre
//              GRU, reset before   (1)  pre_z, pre_h, h', dh               -> dpre_z, dpre_h, dh'
//                                  (2)  pre_r, h', d(r h'), dh'            -> dpre_r, dh', r h'
//              GRU, linear before       pre_z, pre_r, pre_h, hn, h', dh    -> dpre_z, dpre_r, dpre_h, dhn, dh'
//              LSTM                     pre_i, .., c', c, dh, dc, [P_i, P_o, P_f]  -> dpre_i, .., dc'
// clang-format on
//
// dh' is the part that does not pass through a product. What a product or another op reads (h, r
// h', dpre, dhn) is rounded to the operands' type inside the program; c, dc and dh are not. `clip`
// bounds what the gates' activations read, peepholes included, but not c before the LSTM's third
// activation: ONNX leaves that open, and onnxruntime does it so.

#include <string>
#include <vector>

#include "kernels/expr.h"
#include "runtime/base/tensor.h"

namespace ampc {

enum class RnnKind : uint8_t { kRnn, kGru, kLstm };

struct RnnActivation {
  std::string name;  ///< lower case
  double alpha = 0, beta = 0;
};

/// The cell of one direction.
struct RnnCell {
  RnnKind kind = RnnKind::kRnn;
  std::vector<RnnActivation> activations;  ///< f, [g, [h]]
  double clip = 0;                         ///< 0: none
  bool linear_before_reset = false;        ///< GRU
  bool input_forget = false;               ///< LSTM
  bool peepholes = false;                  ///< LSTM
  DType operand = DType::kNone;  ///< fp16 or bf16: the products read that; else no rounding

  int64_t gates() const { return kind == RnnKind::kRnn ? 1 : kind == RnnKind::kGru ? 3 : 4; }
  bool reset_first() const { return kind == RnnKind::kGru && !linear_before_reset; }
  bool reset_last() const { return kind == RnnKind::kGru && linear_before_reset; }
};

/// A layer by its attributes, which are those of the ONNX operators.
struct RnnLayer {
  std::vector<RnnCell> cells;  ///< one per direction
  std::vector<bool> reverse;   ///< likewise: steps run from the last to the first
  int64_t directions() const { return static_cast<int64_t>(cells.size()); }
};

/// `operand`: the type that the products read. Errors are E0107.
Result<RnnLayer> ReadRnnLayer(RnnKind kind, const Attrs& attrs, bool peepholes, DType operand);

/// Program texts of the forward and the backward step; the second is "" where there is one program.
struct RnnTexts {
  std::string first, second;
};
RnnTexts RnnForward(const RnnCell& cell);
RnnTexts RnnBackward(const RnnCell& cell);

/// The same, parsed.
struct RnnPrograms {
  ExprProgram first, second;
};
Result<RnnPrograms> ParseRnn(const RnnTexts& texts);

}  // namespace ampc
