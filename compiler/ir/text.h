// SPDX-License-Identifier: Apache-2.0
#pragma once
// A module as text, and back. What PrintModule writes, ParseModule reads into an equal module:
// printing it again gives the same bytes.
//
//   state {                                                   # one line per state, in order
//     weight trainable "fc1.weight" : float[64,784] = "model.onnx":1234:200704   # file : offset :
//     length weight trainable "fc1.bias" : float[3] = {0.1, -0, nan}  # small data in place; more
//     than 64 elements: hex("…") weight trainable "half" : float[2] = float16 {1, 2}      # stored
//     as float16 low "fc1.weight.low" : bfloat16[64,784] = derived("fc1.weight") moment
//     "fc1.weight.m" : float[64,784] = fill(0) hyper setting "lr" "lr" : double = fill(0.1) #
//     `auto`: amprun fills it weight "renamed" : float[2] = fill(1) source "/net/w"    # weight,
//     statistic, constant: default the own name
//   }
//   train (float[16,784] "image", int64[16] "label" target limit 10 ignore -100)
//     => ("loss" = "v12", "probs")                             # output "loss" is value "v12";
//     "probs" is value "probs" next ("fc1.weight" = "v20")
//   {
//     ["/fc1/Gemm"] "h" = Gemm <transB: int = 1> ("image", "fc1.weight", "fc1.bias")  #
//     float[16,64] "y" channels_last, "" = ai.ampc.Own ("h", "")           # "" = optional operand
//     left out
//   }
//
// Nodes are in ONNX text syntax. Names that are identiers (letters, digits, '_', '.') need no
// quotes when read; a name that no feed or node defines is a state. Types of nodes are inferred; a
// type may stand before an output (`float[2] "y" = …`) and is then checked; the printer writes them
// as a comment. Clauses that few graphs need: `train "name" (…)` when the graph isn't called after
// its place, `"feed" as "value"`, `with ("state" as "value")` where a value isn't named as what it
// reads, `channels_last` after a value. An element or number may be the hexadecimal bits of its
// type: 0x7fc00001.
//
// Errors (BadInput, "LINE:COLUMN: …"): E0120 syntax, E0121 unknown op, E0122 unknown name, E0123
// defined twice, E0124 wrong type, number or amount of data, E0125 too large, E0126 arity, E0127
// file range, E0128 breaks an invariant of the IR, and those of type inference.

#include <memory>
#include <string>
#include <string_view>

#include "compiler/ir/graph.h"

namespace ampc::ir {

/// True when `text` starts like a module (after comments), false when it can only be a plain ONNX
/// text model.
bool IsModuleText(std::string_view text);

enum class TextCheck : uint8_t { kVerify, kSkip };

/// `name` stands in messages. File names in the text are relative to the working directory. Time is
/// linear in the text. TextCheck::kSkip leaves out the verifier (tests of the verifier).
Result<std::unique_ptr<Module>> ParseModule(std::string_view text, std::string_view name,
                                            TextCheck check = TextCheck::kVerify);

/// Fails only when the bytes of a state can't be read.
Result<std::string> PrintModule(const Module& module);

/// One node as PrintModule writes it, without a line break.
std::string PrintNode(const Graph& graph, NodeId node);

}  // namespace ampc::ir
