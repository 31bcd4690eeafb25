// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_weights.h"

#include "runtime/data/convert.h"
#include "runtime/data/safetensors.h"

#include <algorithm>

namespace ampc {
namespace {

constexpr size_t kListed = 20;

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kListed); ++i)
    text += fmt::format("\n  {}", lines[i]);
  if (lines.size() > kListed) text += fmt::format("\n  and {} more", lines.size() - kListed);
  return text;
}

struct Match {
  const SafetensorsEntry* entry;
  int32_t state;
};

Status WriteMatch(const plan::Plan& plan, Executor& executor, const SafetensorsFile& file,
                  const Match& match) {
  const plan::State& state = plan.states[static_cast<size_t>(match.state)];
  AMPC_ASSIGN(Converter converter,
              Converter::Make(match.entry->dtype, state.desc.dtype, {}, {}, {}));
  std::vector<std::byte> data(static_cast<size_t>(state.desc.bytes()));
  int64_t bad =
      converter.Convert(file.bytes(*match.entry).data(), data.data(), state.desc.elements());
  if (bad >= 0)
    return BadInput("E0971", "'{}': {}", match.entry->name,
                    converter.DescribeBad(file.bytes(*match.entry).data(), bad));
  return executor.WriteState(match.state, data);
}

}  // namespace

Status InitWeights(const plan::Plan& plan, Executor& executor, const std::string& path, bool strict,
                   std::vector<std::string>* notes) {
  if (path.ends_with(".onnx"))
    return UsageError("E0602", "--init-from: ONNX files are not built; give a .safetensors file");
  AMPC_ASSIGN(SafetensorsFile file, SafetensorsFile::Open(path));
  std::vector<Match> matches;
  std::vector<std::string> wrong, loose;
  for (const plan::Export& e : plan.exports) {
    const SafetensorsEntry* entry = file.Find(e.initializer);
    if (e.state < 0) {
      if (entry != nullptr)
        loose.push_back(fmt::format("'{}' is compiled in and stays as it is", e.initializer));
      continue;
    }
    if (entry == nullptr) {
      loose.push_back(fmt::format("'{}' {} is not in the file", e.initializer, ToString(e.dims)));
      continue;
    }
    const TensorDesc& desc = plan.states[static_cast<size_t>(e.state)].desc;
    if (entry->dims != desc.dims) {
      wrong.push_back(fmt::format("'{}' is {} in the model and {} in the file", e.initializer,
                                  ToString(desc.dims), ToString(entry->dims)));
    } else if (IsFloat(entry->dtype) != IsFloat(desc.dtype)) {
      wrong.push_back(fmt::format("'{}' is {} in the model and {} in the file", e.initializer,
                                  Name(desc.dtype), Name(entry->dtype)));
    } else {
      matches.push_back({entry, e.state});
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    bool known = std::any_of(plan.exports.begin(), plan.exports.end(),
                             [&](const plan::Export& e) { return e.initializer == entry.name; });
    if (!known)
      loose.push_back(fmt::format("'{}' {} is not in the model", entry.name, ToString(entry.dims)));
  }
  if (strict) wrong.insert(wrong.end(), loose.begin(), loose.end());
  if (!wrong.empty())
    return BadInput("E0971", "{} tensors do not match{}:{}", wrong.size(),
                    strict ? " (strict=false lets names differ)" : "", Join(wrong))
        .Of(path);
  if (matches.empty())
    return BadInput("E0971", "no tensor has the name of an initializer").Of(path);
  for (const Match& match : matches) AMPC_TRY(WriteMatch(plan, executor, file, match));
  for (std::string& note : loose) notes->push_back(fmt::format("{}: {}", path, note));
  return {};
}

}  // namespace ampc
