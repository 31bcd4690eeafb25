// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/array.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/data/idx.h"
#include "runtime/data/npy.h"
#include "runtime/data/strided.h"
#include "runtime/data/tokens.h"
#include "runtime/data/zip.h"

namespace ampc {

Array MakeArray(DType dtype, Dims dims, const std::byte* data, std::shared_ptr<const void> owner) {
  Array array{dtype, std::move(dims), {}, data, std::move(owner)};
  // An empty array may have other dims of any size, whose products would overflow.
  if (array.elements() == 0) {
    array.strides.assign(array.dims.size(), 0);
  } else {
    array.strides = StridesOf(array.dims, Layout::kRowMajor);
  }
  return array;
}

std::vector<std::byte> PackedBytes(const Array& array) {
  std::vector<std::byte> packed(static_cast<size_t>(array.bytes()));
  if (packed.empty()) return packed;
  StridedBlock(array.dims, array.strides, SizeOf(array.dtype)).Gather(array.data, packed.data());
  return packed;
}

Result<OwnedBytes> AllocateBytes(int64_t size) {
  const int64_t memory =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  if (size < 0 || size > memory) {
    return BadInput("E0787", "needs {} bytes of memory, this machine has {}", size, memory);
  }
  return OwnedBytes{std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(size)), size};
}

namespace {

template <typename T, typename Swap>
void SwapEach(std::span<std::byte> data, Swap swap) {
  for (size_t i = 0; i + sizeof(T) <= data.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, data.data() + i, sizeof(T));
    value = swap(value);
    std::memcpy(data.data() + i, &value, sizeof(T));
  }
}

}  // namespace

void SwapByteOrder(std::span<std::byte> data, int64_t element_size) {
  if (element_size == 2) SwapEach<uint16_t>(data, [](uint16_t v) { return __builtin_bswap16(v); });
  if (element_size == 4) SwapEach<uint32_t>(data, [](uint32_t v) { return __builtin_bswap32(v); });
  if (element_size == 8) SwapEach<uint64_t>(data, [](uint64_t v) { return __builtin_bswap64(v); });
}

struct ArrayLoader::File {
  std::string path;
  std::shared_ptr<const MappedFile> map;
  std::unique_ptr<ZipArchive> zip;  // null for other formats
  std::map<std::string, Array> arrays;
  std::shared_ptr<const Vocabulary> vocabulary;  // of the file as text; null until asked for
  std::map<std::string, Array> texts;            // its ids, by the file of the vocabulary

  std::vector<std::string> Members() const {
    std::vector<std::string> names;
    for (const ZipEntry& entry : zip->entries()) {
      std::string name = entry.name;
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      names.push_back(std::move(name));
    }
    return names;
  }
};

ArrayLoader::ArrayLoader() = default;
ArrayLoader::~ArrayLoader() = default;
ArrayLoader::ArrayLoader(ArrayLoader&&) noexcept = default;
ArrayLoader& ArrayLoader::operator=(ArrayLoader&&) noexcept = default;

Result<ArrayLoader::File*> ArrayLoader::Open(const std::string& path) {
  std::unique_ptr<File>& slot = files_[path];
  if (slot) return slot.get();
  auto file = std::make_unique<File>();
  file->path = path;
  AMPC_ASSIGN(MappedFile map, MappedFile::Open(path));
  file->map = std::make_shared<const MappedFile>(std::move(map));
  const std::string_view start(reinterpret_cast<const char*>(file->map->data()),
                               static_cast<size_t>(std::min<int64_t>(4, file->map->size())));
  if (start == "PK\x03\x04" || start == "PK\x05\x06") {  // the second: an archive without members
    Result<ZipArchive> zip = ZipArchive::Open(file->map);
    if (!zip.ok()) return std::move(zip).TakeStatus().Of(path);
    file->zip = std::make_unique<ZipArchive>(std::move(zip).value());
  }
  slot = std::move(file);
  return slot.get();
}

Result<bool> ArrayLoader::IsNpz(const std::string& path) {
  AMPC_ASSIGN(const File* file, Open(path));
  return file->zip != nullptr;
}

Result<std::vector<std::string>> ArrayLoader::Members(const std::string& path) {
  AMPC_ASSIGN(const File* file, Open(path));
  if (!file->zip) return BadInput("E0786", "not a .npz file").Of(path);
  return file->Members();
}

Result<Array> ArrayLoader::Load(const std::string& path, const std::string& member) {
  AMPC_ASSIGN(File * file, Open(path));
  const auto known = file->arrays.find(member);
  if (known != file->arrays.end()) return known->second;
  Result<Array> array = Decode(*file, member);
  if (!array.ok())
    return std::move(array).TakeStatus().Of(member.empty() ? path : path + ":member=" + member);
  file->arrays.emplace(member, *array);
  return array;
}

Result<Array> ArrayLoader::LoadTokens(const std::string& path, DType dtype, int64_t header) {
  AMPC_ASSIGN(const File* file, Open(path));
  Result<Array> tokens = BinaryTokens(file->map, dtype, header);
  if (!tokens.ok()) return std::move(tokens).TakeStatus().Of(path);
  return tokens;
}

Result<std::shared_ptr<const Vocabulary>> ArrayLoader::VocabularyOf(const std::string& path) {
  AMPC_ASSIGN(File * file, Open(path));
  if (file->vocabulary == nullptr) {
    Result<Vocabulary> vocabulary = Vocabulary::Of(file->map->bytes());
    if (!vocabulary.ok()) return std::move(vocabulary).TakeStatus().Of(path);
    file->vocabulary = std::make_shared<const Vocabulary>(std::move(vocabulary).value());
  }
  return file->vocabulary;
}

Result<TextTokens> ArrayLoader::LoadText(const std::string& path, const std::string& vocabulary) {
  TextTokens text;
  AMPC_ASSIGN(text.vocabulary, VocabularyOf(vocabulary));
  AMPC_ASSIGN(File * file, Open(path));
  if (const auto known = file->texts.find(vocabulary); known != file->texts.end()) {
    text.ids = known->second;
    return text;
  }
  Result<Array> ids = text.vocabulary->Encode(file->map->bytes(), vocabulary);
  if (!ids.ok()) return std::move(ids).TakeStatus().Of(path);
  text.ids = std::move(ids).value();
  file->texts.emplace(vocabulary, text.ids);
  return text;
}

Result<Array> ArrayLoader::Decode(const File& file, const std::string& member) const {
  const std::span<const std::byte> bytes = file.map->bytes();
  if (file.zip) {
    const ZipEntry* entry = file.zip->Find(member + ".npy");
    if (entry == nullptr) entry = file.zip->Find(member);
    if (member.empty() && file.zip->entries().size() == 1) entry = &file.zip->entries().front();
    if (entry == nullptr) {
      return BadInput("E0788", "{}; it has {}",
                      member.empty() ? "name one array with member=" : "no such array",
                      fmt::format("{}", JoinNames(file.Members())));
    }
    AMPC_ASSIGN(ZipMember data, file.zip->Read(*entry));
    return NpyArray(data.bytes, data.owner);
  }
  if (!member.empty())
    return UsageError("E0789", "member= is for .npz files, this is another format");
  if (LooksLikeGzip(bytes)) return GzippedIdxArray(bytes);
  if (LooksLikeIdx(bytes)) return IdxArray(file.map);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x93NUMPY")) return NpyArray(bytes, file.map);
  return BadInput("E0786",
                  "unknown format: expected .npy, .npz, idx or idx.gz by the file's first bytes "
                  "(text takes tokens=char, raw tokens dtype=)");
}

std::string JoinNames(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 20; ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > 20) text += fmt::format(", … ({} in all)", names.size());
  return text.empty() ? "none" : text;
}

}  // namespace ampc
