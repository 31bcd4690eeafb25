// SPDX-License-Identifier: Apache-2.0
// ONNX import, from binary models and (inputs that start with '<', as the text form does) from ONNX
// text, which lets the fuzzer keep a model's structure. What imports verifies and prints.

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/lower/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/info.h"
#include "test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  const std::string_view bytes = ampc::fuzz::TextOf(data, size);
  const std::string path = folder.Write(bytes.starts_with('<') ? "in.onnxtext" : "in.onnx", bytes);
  ampc::CompileOptions options;
  ampc::Diagnostics diagnostics;
  const auto imported = ampc::ImportModel(path, options, diagnostics, ampc::EvaluateNode);
  ampc::fuzz::NoBug(imported.status());
  if (!imported.ok()) return 0;
  if (ampc::Status s = ampc::ir::Verify(*imported->module); !s.ok())
    ampc::fuzz::Fail("the imported graph is not valid: " + s.ToString());
  const auto printed = ampc::ir::PrintModule(*imported->module);
  ampc::fuzz::NoBug(printed.status());
  return 0;
}
