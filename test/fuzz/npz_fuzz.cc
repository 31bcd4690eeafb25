// SPDX-License-Identifier: Apache-2.0
// Data files: .npy, .npz, idx, idx.gz, told apart by their first bytes. What loads is bound to a
// feed of its own shape and read, first and last batch.

#include <vector>

#include "runtime/data/array.h"
#include "runtime/data/dataset.h"
#include "test/fuzz/fuzz.h"

namespace ampc {
namespace {

constexpr int64_t kMaxElements = 1 << 16;

void Bind(ArrayLoader& loader, const std::string& path, const std::string& member,
          const Array& array, DType feed_type) {
  FeedSpec feed{"x", feed_type, array.dims, {}};
  feed.dims[0] = 1;
  if (CheckedNumElements(feed.dims, 8).value_or(kMaxElements) > kMaxElements) return;
  DataSource source;
  source.feed = "x";
  source.path = path;
  source.member = member;
  DatasetOptions options;
  options.pad_tail = true;
  options.shuffle = array.dims[0] < kMaxElements;
  auto data = Dataset::Open(std::span(&feed, 1), std::span(&source, 1), options, loader);
  fuzz::NoBug(data.status());
  if (!data.ok()) return;
  std::vector<uint64_t> buffer(static_cast<size_t>(NumElements(feed.dims)) + 8);
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(buffer.data())};
  int64_t valid = 0;
  fuzz::NoBug((*data)->Fill(0, 0, buffers, &valid));
  fuzz::NoBug((*data)->Fill((*data)->num_batches() - 1, 1, buffers, &valid));
}

void Load(ArrayLoader& loader, const std::string& path, const std::string& member) {
  const auto array = loader.Load(path, member);
  fuzz::NoBug(array.status());
  if (!array.ok()) return;
  if (array->elements() <= kMaxElements &&
      static_cast<int64_t>(PackedBytes(*array).size()) != array->bytes()) {
    fuzz::Fail("packed to another size");
  }
  if (array->dims.empty() || array->elements() == 0) return;
  Bind(loader, path, member, *array, DType::kFloat32);
  Bind(loader, path, member, *array, DType::kInt64);
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  const std::string path = folder.Write("data", ampc::fuzz::TextOf(data, size));
  ampc::ArrayLoader loader;
  const auto npz = loader.IsNpz(path);
  ampc::fuzz::NoBug(npz.status());
  if (npz.ok() && *npz) {
    const auto members = loader.Members(path);
    if (!members.ok()) return 0;
    for (size_t i = 0; i < members->size() && i < 8; ++i) ampc::Load(loader, path, (*members)[i]);
  } else if (npz.ok()) {
    ampc::Load(loader, path, "");
  }
  return 0;
}
