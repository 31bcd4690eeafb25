// SPDX-License-Identifier: Apache-2.0
// Module text: what parses prints to a text that parses to the same text.

#include "compiler/ir/text.h"
#include "test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  const std::string_view text = ampc::fuzz::TextOf(data, size);
  const auto module = ampc::ir::ParseModule(text, "input");
  ampc::fuzz::NoBug(module.status());
  if (!module.ok()) return 0;
  const auto printed = ampc::ir::PrintModule(**module);
  ampc::fuzz::NoBug(printed.status());
  if (!printed.ok()) return 0;
  const auto again = ampc::ir::ParseModule(*printed, "printed");
  if (!again.ok()) {
    ampc::fuzz::Fail(again.status().ToString() + "\n" + *printed);
  } else if (const auto twice = ampc::ir::PrintModule(**again); !twice.ok() || *twice != *printed) {
    ampc::fuzz::Fail("printed twice, differently:\n" + *printed);
  }
  return 0;
}
