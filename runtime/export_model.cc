// SPDX-License-Identifier: Apache-2.0
#include "runtime/export_model.h"

#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/float16.h"
#include "runtime/base/model_writer.h"
#include "runtime/data/safetensors.h"

namespace ampc {
namespace {

using plan::Export;

template <typename To, typename From, typename F>
std::vector<std::byte> Convert(std::span<const std::byte> in, F&& convert) {
  const size_t n = in.size() / sizeof(From);
  std::vector<std::byte> out(n * sizeof(To));
  for (size_t i = 0; i < n; ++i) {
    From from;
    std::memcpy(&from, in.data() + i * sizeof(From), sizeof from);
    const To to = convert(from);
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof to);
  }
  return out;
}

/// One rounding from the state's type to the source's.
Result<std::vector<std::byte>> Round(std::span<const std::byte> in, DType from, DType to) {
  const bool wide = from == DType::kFloat64;
  if (wide || from == DType::kFloat32) {
    switch (to) {
      case DType::kFloat32:
        return Convert<float, double>(in, [](double v) { return static_cast<float>(v); });
      case DType::kFloat64:
        return Convert<double, float>(in, [](float v) { return static_cast<double>(v); });
      case DType::kFloat16:
        return wide ? Convert<uint16_t, double>(in, HalfFromDouble)
                    : Convert<uint16_t, float>(in, HalfFromFloat);
      case DType::kBFloat16:
        return wide ? Convert<uint16_t, double>(in, BFloat16FromDouble)
                    : Convert<uint16_t, float>(in, BFloat16FromFloat);
      default:
        break;
    }
  }
  return InternalError("E0661", "no rounding from {} to {}", Name(from), Name(to));
}

/// The initializer's bytes, as they are written.
Result<std::vector<std::byte>> ValueOf(const plan::Plan& plan, Executor& executor,
                                       const Export& e) {
  if (e.state < 0) {
    std::vector<std::byte> bytes(static_cast<size_t>(e.length));
    AMPC_TRY(plan::ReadWeight(plan, e.offset, e.crc, e.initializer, bytes));
    return bytes;
  }
  const TensorDesc& desc = plan.states[static_cast<size_t>(e.state)].desc;
  std::vector<std::byte> bytes(static_cast<size_t>(desc.bytes()));
  AMPC_TRY(executor.ReadState(e.state, bytes));
  if (desc.dtype == e.dtype) return bytes;
  return Round(bytes, desc.dtype, e.dtype);
}

ModelInitializer FormOf(const Export& e) { return {e.initializer, e.dtype, e.dims, e.notes}; }

}  // namespace

Status ExportModel(const plan::Plan& plan, Executor& executor, const std::string& path,
                   const ExportOptions& options) {
  if (plan.source_model.empty()) {
    return BadInput("E0662",
                    "the plan holds no source model, so there is nothing to export; compile it "
                    "again with ampc");
  }
  std::string_view source = plan.source_model;
  int64_t total = static_cast<int64_t>(source.size());
  for (const Export& e : plan.exports) total += FormOf(e).inline_bytes();
  AMPC_ASSIGN(ModelWriter writer, ModelWriter::Create(path, total > options.max_inline_bytes));
  for (const Export& e : plan.exports) {
    AMPC_ASSIGN(const std::vector<std::byte> value, ValueOf(plan, executor, e));
    const size_t before = source.size() - static_cast<size_t>(e.rest);
    AMPC_TRY(writer.Append(source.substr(0, before)));
    source.remove_prefix(before);
    AMPC_TRY(writer.Begin(FormOf(e)));
    AMPC_TRY(writer.AppendData(value));
  }
  AMPC_TRY(writer.Append(source));
  return writer.Commit();
}

Status SaveWeights(const plan::Plan& plan, Executor& executor, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, const Export*> by_name;
  for (const Export& e : plan.exports) {
    by_name[e.initializer] = &e;
    SafetensorsEntry entry;
    entry.name = e.initializer;
    entry.dtype = e.dtype;
    entry.dims = e.dims;
    entries.push_back(std::move(entry));
  }
  AMPC_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(path, std::move(entries)));
  for (const SafetensorsEntry& entry : writer.entries()) {
    AMPC_ASSIGN(const std::vector<std::byte> value,
                ValueOf(plan, executor, *by_name.at(entry.name)));
    AMPC_TRY(writer.Append(value));
  }
  return writer.Commit();
}

}  // namespace ampc
