// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_inspect.h"

#include "runtime/metrics.h"

#include <algorithm>

namespace ampc {
namespace {

using plan::Plan;
using plan::Program;

std::string_view SpaceName(plan::Space space) {
  switch (space) {
    case plan::Space::kBlock:
      return "block";
    case plan::Space::kState:
      return "state";
    case plan::Space::kFeed:
      return "feed";
    case plan::Space::kConstant:
      return "constant";
  }
  return "";
}

std::string_view KindName(plan::Feed::Kind kind) {
  switch (kind) {
    case plan::Feed::Kind::kInput:
      return "input";
    case plan::Feed::Kind::kTarget:
      return "target";
    case plan::Feed::Kind::kValid:
      return "mask";
  }
  return "";
}

std::string InitialText(const plan::State& state, const Plan& plan) {
  switch (state.initial.kind) {
    case plan::Initial::Kind::kFill:
      return fmt::format("{}", state.initial.fill);
    case plan::Initial::Kind::kBytes:
      return "stored";
    case plan::Initial::Kind::kDerived:
      return fmt::format("from {}",
                         plan.states[static_cast<size_t>(state.initial.derived_from)].name);
    case plan::Initial::Kind::kAuto:
      return "auto";
  }
  return "";
}

/// A field of a dump record: tabs and line ends would break the format.
std::string Field(std::string_view text) {
  std::string out(text.empty() ? "-" : text);
  for (char& c : out) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  return out;
}

std::string Indices(const std::vector<int32_t>& list) {
  std::string out;
  for (int32_t i : list) out += fmt::format("{}{}", out.empty() ? "" : ",", i);
  return out.empty() ? "none" : out;
}

std::string ProgramTable(const Plan& plan) {
  Table table({"program", "calls", "values", "block", "bound", "outputs"});
  for (const Program& p : plan.programs) {
    std::string outputs;
    for (const plan::Output& o : p.outputs)
      outputs += fmt::format("{}{}", outputs.empty() ? "" : " ", o.name);
    table.Add({p.name, fmt::format("{}", p.calls.size()), fmt::format("{}", p.tensors.size()),
               FormatBytes(p.block_bytes), FormatBytes(p.bound_bytes), outputs});
  }
  return table.ToString();
}

std::string FeedTable(const Plan& plan) {
  Table table({"feed", "kind", "form", "program", "values"});
  for (const plan::Feed& f : plan.feeds) {
    std::string values =
        f.limit > 0 ? fmt::format("[{},{})", f.from_end ? -f.limit : 0, f.limit) : "";
    if (f.has_ignore) values += fmt::format(" or {}", f.ignore);
    table.Add({f.name, std::string(KindName(f.kind)), FormText(f.desc),
               f.program.empty() ? "all" : f.program, values});
  }
  return table.ToString();
}

std::string RoleTable(const Plan& plan) {
  Table table({"states", "count", "elements", "bytes"});
  for (int r = 0; r <= static_cast<int>(plan::Role::kConstant); ++r) {
    int64_t count = 0, elements = 0, bytes = 0;
    for (const plan::State& s : plan.states) {
      if (static_cast<int>(s.role) != r) continue;
      ++count;
      elements += s.desc.elements();
      bytes += s.desc.bytes();
    }
    if (count > 0)
      table.Add({std::string(plan::Name(static_cast<plan::Role>(r))), fmt::format("{}", count),
                 fmt::format("{}", elements), FormatBytes(bytes)});
  }
  return table.ToString();
}

std::string SettingTable(const Plan& plan) {
  Table table({"setting", "value"});
  for (const plan::Setting& setting : plan.settings)
    table.Add({setting.name, InitialText(plan.states[static_cast<size_t>(setting.state)], plan)});
  return table.ToString();
}

void DumpBuffers(const Plan& plan, const Program& program, std::string* out) {
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const plan::Buffer& b = program.buffers[i];
    std::string of = "-";
    if (b.space == plan::Space::kState) of = plan.states[static_cast<size_t>(b.index)].name;
    if (b.space == plan::Space::kFeed) of = plan.feeds[static_cast<size_t>(b.index)].name;
    if (b.space == plan::Space::kConstant) of = fmt::format("{}", b.index);
    bool block = b.space == plan::Space::kBlock;
    *out += fmt::format("buffer\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", program.name, i,
                        SpaceName(b.space), Field(of), b.bytes, block ? b.offset : -1,
                        block ? b.first : -1, block ? b.last : -1);
  }
}

void DumpTensors(const Program& program, std::string* out) {
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    const plan::Tensor& t = program.tensors[i];
    *out += fmt::format("tensor\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", program.name, i,
                        Field(t.name), t.buffer, t.byte_offset, t.desc.bytes(), Name(t.desc.dtype),
                        ToString(t.desc.dims),
                        t.desc.layout == Layout::kChannelsLast ? "channels-last" : "row-major");
  }
}

}  // namespace

std::string FormText(const TensorDesc& desc) {
  return fmt::format("{} {}{}", Name(desc.dtype), ToString(desc.dims),
                     desc.layout == Layout::kChannelsLast ? " channels-last" : "");
}

std::string PlanInfoText(const Plan& plan, const std::string& path) {
  std::string out =
      fmt::format("{}: {}, fingerprint {:016x}\n", path, plan.producer, plan::Fingerprint(plan));
  out += fmt::format("model {}, precision {}, policy {} ({:016x}), {} micro-batch{} per update\n\n",
                     plan.source_name.empty() ? "-" : plan.source_name, plan.precision,
                     plan.policy_name, plan.policy_hash, plan.accumulate,
                     plan.accumulate == 1 ? "" : "es");
  out += ProgramTable(plan) + '\n' + FeedTable(plan) + '\n' + RoleTable(plan);
  if (!plan.settings.empty()) out += '\n' + SettingTable(plan);
  return out;
}

std::string PlanDumpText(const Plan& plan, const Executor* executor) {
  std::string out =
      "# state\tindex\tname\trole\tbytes\tdtype\tdims\tinitial\tsource\n"
      "# feed\tindex\tname\tkind\tbytes\tdtype\tdims\tprogram\n"
      "# program\tindex\tname\tcalls\tblock_bytes\tbound_bytes\n"
      "# buffer\tprogram\tindex\tspace\tof\tbytes\toffset\tfirst\tlast   (offset in the block; "
      "first and last call that "
      "use it; -1 outside the block)\n"
      "# tensor\tprogram\tindex\tname\tbuffer\tbyte_offset\tbytes\tdtype\tdims\tlayout\n"
      "# call\tprogram\tindex\tkernel\timplementation\tinputs\toutputs\tnode   (tensor indices; -1 "
      "= left out)\n"
      "# output\tprogram\tname\ttensor\n";
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const plan::State& s = plan.states[i];
    out += fmt::format("state\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", i, Field(s.name),
                       plan::Name(s.role), s.desc.bytes(), Name(s.desc.dtype),
                       ToString(s.desc.dims), Field(InitialText(s, plan)), Field(s.source));
  }
  for (size_t i = 0; i < plan.feeds.size(); ++i) {
    const plan::Feed& f = plan.feeds[i];
    out += fmt::format("feed\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", i, Field(f.name), KindName(f.kind),
                       f.desc.bytes(), Name(f.desc.dtype), ToString(f.desc.dims),
                       f.program.empty() ? "all" : f.program);
  }
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const Program& program = plan.programs[p];
    out += fmt::format("program\t{}\t{}\t{}\t{}\t{}\n", p, program.name, program.calls.size(),
                       program.block_bytes, program.bound_bytes);
    DumpBuffers(plan, program, &out);
    DumpTensors(program, &out);
    for (size_t c = 0; c < program.calls.size(); ++c) {
      const plan::Call& call = program.calls[c];
      std::string_view implementation =
          executor == nullptr ? "-"
                              : executor->implementation(static_cast<int>(p), static_cast<int>(c));
      out +=
          fmt::format("call\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", program.name, c, call.kernel,
                      implementation, Indices(call.inputs), Indices(call.outputs), Field(call.loc));
    }
    for (const plan::Output& o : program.outputs)
      out += fmt::format("output\t{}\t{}\t{}\n", program.name, Field(o.name), o.tensor);
  }
  return out;
}

}  // namespace ampc
