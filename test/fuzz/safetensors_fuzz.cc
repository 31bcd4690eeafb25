// SPDX-License-Identifier: Apache-2.0
// safetensors files: what opens can be read to the last byte and writes back to a file that says
// the same.

#include "runtime/data/safetensors.h"
#include "test/fuzz/fuzz.h"

namespace ampc {
namespace {

void WriteBack(const SafetensorsFile& file, const std::string& path) {
  auto writer = SafetensorsWriter::Create(path, file.entries(), file.metadata());
  fuzz::NoBug(writer.status());
  if (!writer.ok()) return;
  for (const SafetensorsEntry& entry : writer->entries()) {
    const SafetensorsEntry* source = file.Find(entry.name);
    if (source == nullptr) return fuzz::Fail("a tensor is lost");
    if (!writer->Append(file.bytes(*source)).ok()) fuzz::Fail("cannot append");
  }
  if (Status s = writer->Commit(); !s.ok()) fuzz::Fail(s.ToString());
  auto again = SafetensorsFile::Open(path);
  if (!again.ok()) return fuzz::Fail(again.status().ToString());
  if (again->metadata() != file.metadata()) fuzz::Fail("metadata differ");
  for (const SafetensorsEntry& entry : file.entries()) {
    const SafetensorsEntry* copy = again->Find(entry.name);
    if (copy == nullptr || copy->dims != entry.dims || copy->dtype != entry.dtype)
      return fuzz::Fail("a tensor differs");
    const auto a = file.bytes(entry), b = again->bytes(*copy);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) fuzz::Fail("data differ");
  }
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  const auto file =
      ampc::SafetensorsFile::Open(folder.Write("in.safetensors", ampc::fuzz::TextOf(data, size)));
  ampc::fuzz::NoBug(file.status());
  if (file.ok()) ampc::WriteBack(*file, folder.path() + "/out.safetensors");
  return 0;
}
