// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/text.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace ampc::plan {
namespace {

struct ParamPrinter {
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return Quote(v); }
  std::string operator()(const std::vector<int64_t>& v) const { return ToString(v); }
  std::string operator()(const std::vector<double>& v) const {
    return fmt::format("[{}]", fmt::join(v, ","));
  }
  std::string operator()(const std::vector<std::string>& v) const {
    std::vector<std::string> quoted;
    for (const std::string& s : v) quoted.push_back(Quote(s));
    return fmt::format("[{}]", fmt::join(quoted, ","));
  }
  std::string operator()(const std::shared_ptr<const HostTensor>& v) const {
    return fmt::format("{}{}", Name(v->dtype), ToString(v->dims));
  }
};

/// "block", "state 'w'", "feed 'x'", "constant 2"
std::string SpaceToString(const Plan& plan, const Buffer& b) {
  const auto index = static_cast<size_t>(b.index);
  switch (b.space) {
    case Space::kBlock:
      return "block";
    case Space::kState:
      return "state " + Quote(plan.states[index].name);
    case Space::kFeed:
      return "feed " + Quote(plan.feeds[index].name);
    case Space::kConstant:
      return fmt::format("constant {}", b.index);
  }
  return "?";
}

std::string Operands(const Plan& plan, const Program& program, const std::vector<int32_t>& list) {
  std::string text;
  for (const int32_t i : list) {
    if (!text.empty()) text += ", ";
    if (i < 0) {
      text += "-";
      continue;
    }
    const Tensor& t = program.tensors[static_cast<size_t>(i)];
    const Buffer& b = program.buffers[static_cast<size_t>(t.buffer)];
    const int64_t place = t.byte_offset + (b.space == Space::kBlock ? b.offset : 0);
    text += fmt::format("{} {}{}{} {}+{}", t.name, Name(t.desc.dtype), ToString(t.desc.dims),
                        t.desc.layout == Layout::kChannelsLast ? "cl" : "", SpaceToString(plan, b),
                        place);
  }
  return text;
}

}  // namespace

std::string Quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string CallToString(const Plan& plan, const Program& program, size_t call) {
  const Call& c = program.calls[call];
  std::string text =
      fmt::format("call {}: {}({}) -> ({})", call, c.kernel, Operands(plan, program, c.inputs),
                  Operands(plan, program, c.outputs));
  if (!c.params.empty()) {
    text += " {";
    for (const Attrs::Entry& e : c.params.entries()) {
      if (&e != c.params.entries().data()) text += ", ";
      text += e.first + "=" + std::visit(ParamPrinter{}, e.second);
    }
    text += "}";
  }
  if (!c.loc.empty()) text += " of " + Quote(c.loc);
  return text;
}

std::string ProgramToString(const Plan& plan, const Program& program) {
  std::string text =
      fmt::format("program {}: {} calls, block {} bytes, bound {} bytes\n", Quote(program.name),
                  program.calls.size(), program.block_bytes, program.bound_bytes);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    text += fmt::format("  buffer {}: {}", i, SpaceToString(plan, b));
    if (b.space == Space::kBlock) {
      text += fmt::format("+{}, {} bytes, calls {}..{}\n", b.offset, b.bytes, b.first, b.last);
    } else {
      text += fmt::format(", {} bytes\n", b.bytes);
    }
  }
  for (size_t i = 0; i < program.calls.size(); ++i) {
    text += "  " + CallToString(plan, program, i) + "\n";
  }
  for (const Output& o : program.outputs) {
    text += fmt::format("  output {} = {}\n", o.name, Operands(plan, program, {o.tensor}));
  }
  return text;
}

}  // namespace ampc::plan
