// SPDX-License-Identifier: Apache-2.0
// Token files and texts. Byte 0 of an input chooses type, window, stride, shift and header; byte 1
// is how much of the rest is the text of the vocabulary (0: the text is its own). What opens is
// read, first and last batch; what is encoded must be the text again.

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/data/array.h"
#include "runtime/data/dataset.h"
#include "runtime/data/tokens.h"
#include "test/fuzz/fuzz.h"

namespace ampc {
namespace {

void Read(ArrayLoader& loader, const DataSource& source, int64_t length, int64_t limit) {
  const FeedSpec feed{"x", DType::kInt64, {2, length}, {limit, {}}};
  DatasetOptions options;
  options.pad_tail = true;
  options.shuffle = true;
  auto data = Dataset::Open(std::span(&feed, 1), std::span(&source, 1), options, loader);
  fuzz::NoBug(data.status());
  if (!data.ok()) return;
  std::vector<int64_t> buffer(static_cast<size_t>(2 * length) + 8);
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(buffer.data())};
  int64_t valid = 0;
  fuzz::NoBug((*data)->Fill(0, 0, buffers, &valid));
  fuzz::NoBug((*data)->Fill((*data)->num_batches() - 1, 1, buffers, &valid));
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto tail = [&](int shift) { *out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    *out += static_cast<char>(c);
  } else if (c < 0x800) {
    *out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    *out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    *out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

void CheckText(const TextTokens& text, std::string_view expected) {
  std::string again;
  const std::span<const char32_t> characters = text.vocabulary->characters();
  for (int64_t i = 0; i < text.ids.elements(); ++i) {
    uint32_t id = 0;
    const auto size = static_cast<size_t>(SizeOf(text.ids.dtype));
    std::memcpy(&id, text.ids.data + static_cast<size_t>(i) * size, size);
    if (id >= characters.size()) return fuzz::Fail("an id beyond the vocabulary");
    AppendUtf8(characters[id], &again);
  }
  if (again != expected) fuzz::Fail("the tokens are another text");
}

void Run(const std::string& input) {
  if (input.size() < 2) return;
  static const fuzz::WorkFolder folder;
  const auto choice = static_cast<unsigned char>(input[0]);
  const size_t cut = std::min<size_t>(static_cast<unsigned char>(input[1]), input.size() - 2);
  const std::string vocabulary = input.substr(2, cut), text = input.substr(2 + cut);
  ArrayLoader loader;
  DataSource source;
  source.feed = "x";
  source.path = folder.Write("data", text);
  source.stride = choice % 4;
  source.shift = choice / 4 % 4;
  constexpr DType kTypes[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kInt64};
  source.tokens = TokenForm{.dtype = kTypes[choice / 16 % 4], .header = choice / 64 % 2 * 7};
  Read(loader, source, 1 + choice % 3, choice / 128 * 200);
  source.tokens = TokenForm{.kind = TokenForm::Kind::kCharacters};
  if (cut > 0) source.tokens->vocabulary = folder.Write("vocabulary", vocabulary);
  Read(loader, source, 1 + choice % 3, choice / 128 * 200);
  const auto tokens =
      loader.LoadText(source.path, cut > 0 ? source.tokens->vocabulary : source.path);
  fuzz::NoBug(tokens.status());
  if (tokens.ok()) CheckText(*tokens, text);
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ampc::Run(std::string(ampc::fuzz::TextOf(data, size)));
  return 0;
}
