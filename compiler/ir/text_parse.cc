// SPDX-License-Identifier: Apache-2.0
// Text to module, first part: tokens, types, data, states, and the frame. The form is described in
// text.h.
#include <limits>

#include "compiler/ir/text.h"
#include "compiler/ir/text_data.h"
#include "compiler/ir/text_parser.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/verify.h"
#include "runtime/base/file.h"

namespace ampc::ir {
namespace {

constexpr size_t kMaxText = size_t{1} << 31;
constexpr size_t kMaxRank = 64;

}  // namespace

// A file that states name, mapped: its pages are read when somebody wants the bytes.
class MappedSource final : public ByteSource {
 public:
  explicit MappedSource(MappedFile file) : file_(std::move(file)) {}
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    const auto length = static_cast<int64_t>(out.size());
    if (offset < 0 || length > size() || offset > size() - length) {
      return InternalError("E7001", "range [{}, +{}) of '{}', which has {} bytes", offset, length,
                           path(), size());
    }
    std::memcpy(out.data(), file_.data() + offset, out.size());
    return {};
  }
  std::string_view path() const override { return file_.path(); }
  int64_t size() const { return file_.size(); }

 private:
  MappedFile file_;
};

Parser::Parser(std::string_view text) : lexer_(text), module_(std::make_unique<Module>()) {
  lexer_.Next(&token_);
}

// ---- tokens -------------------------------------------------------------------------------------

bool Parser::Accept(std::string_view what) {
  if (!token_.Is(what)) return false;
  Advance();
  return true;
}

Status Parser::Expect(std::string_view what) {
  if (Accept(what)) return {};
  return Unexpected(fmt::format("'{}'", what));
}

Status Parser::Unexpected(std::string_view expected) const {
  if (token_.kind == Token::Kind::kBad) return Fail(token_.offset, "E0120", "{}", token_.value);
  if (token_.kind == Token::Kind::kEnd) {
    return Fail(token_.offset, "E0120", "expected {}, found the end", expected);
  }
  return Fail(token_.offset, "E0120", "expected {}, found '{}'", expected,
              token_.text.substr(0, 40));
}

// A status of another part, with the place in the text.
Status Parser::Place(size_t offset, Status status) const {
  return Status::Error(status.error_class(), status.id(),
                       lexer_.Position(offset) + ": " + status.message())
      .At(status.node());
}

Status Parser::Name(std::string* name, std::string_view what) {
  if (!token_.IsName()) return Unexpected(what);
  name->assign(token_.name());
  Advance();
  return {};
}

Status Parser::Integer(int64_t* value) {
  const auto parsed = token_.kind == Token::Kind::kNumber ? ParseInt64(token_.text) : std::nullopt;
  if (!parsed) return Unexpected("an integer");
  *value = *parsed;
  Advance();
  return {};
}

Status Parser::Real(double* value) {
  const bool word = token_.Is("inf") || token_.Is("nan");
  const auto parsed =
      word || token_.kind == Token::Kind::kNumber ? ParseDouble(token_.text) : std::nullopt;
  if (!parsed) return Unexpected("a number");
  *value = *parsed;
  Advance();
  return {};
}

// ---- types and data -----------------------------------------------------------------------------

Status Parser::Dims(std::vector<int64_t>* dims, DType dtype) {
  const size_t offset = token_.offset;
  const auto dim = [&] { return Integer(&dims->emplace_back()); };
  AMPC_TRY(List("[", "]", dim));
  if (dims->size() > kMaxRank) {
    return Fail(offset, "E0125", "{} dims; at most {} are possible", dims->size(), kMaxRank);
  }
  if (!CheckedNumElements(*dims, SizeOf(dtype))) {
    return Fail(offset, "E0124", "dims {} are negative or too large", ampc::ToString(*dims));
  }
  return {};
}

Status Parser::Type(TypeId* type) {
  const auto dtype =
      token_.kind == Token::Kind::kIdentifier ? ParseDType(token_.text) : std::nullopt;
  if (!dtype) return Unexpected("an element type (float, int64, …)");
  Advance();
  std::vector<int64_t> dims;
  if (token_.Is("[")) AMPC_TRY(Dims(&dims, *dtype));
  *type = module_->types.Intern(*dtype, dims);
  return {};
}

// `{…}` or `hex("…")`, exactly as much as the type holds.
Status Parser::Data(const TensorType& type, std::vector<std::byte>* bytes) {
  const size_t offset = token_.offset;
  const auto size = static_cast<size_t>(SizeOf(type.dtype));
  if (Accept("hex")) {
    AMPC_TRY(Expect("("));
    if (token_.kind != Token::Kind::kString) return Unexpected("a string of hex digits");
    auto parsed = ParseHex(token_.value);
    if (!parsed) return Fail(token_.offset, "E0124", "no string of hex digit pairs");
    *bytes = std::move(*parsed);
    Advance();
    AMPC_TRY(Expect(")"));
  } else {
    const auto read = [&] {
      std::byte element[8];
      if (token_.kind != Token::Kind::kNumber && token_.kind != Token::Kind::kIdentifier) {
        return Unexpected("an element");
      }
      if (!ParseElement(type.dtype, token_.text, element)) {
        return Fail(token_.offset, "E0124", "'{}' is no {}", token_.text.substr(0, 40),
                    ampc::Name(type.dtype));
      }
      bytes->insert(bytes->end(), element, element + size);
      Advance();
      return Status();
    };
    AMPC_TRY(List("{", "}", read));
  }
  if (static_cast<int64_t>(bytes->size()) != type.bytes()) {
    return Fail(offset, "E0124", "{} bytes of data; {} has {}", bytes->size(), ToString(type),
                type.bytes());
  }
  return {};
}

// ---- states -------------------------------------------------------------------------------------

Status Parser::State() {
  StateVar state;
  const auto role = token_.kind == Token::Kind::kIdentifier ? ParseRole(token_.text) : std::nullopt;
  if (!role) return Unexpected("a role (weight, low, moment, statistic, hyper, …) or '}'");
  state.role = *role;
  Advance();
  state.trainable = Accept("trainable");
  if (Accept("setting")) AMPC_TRY(Name(&state.setting, "the name of a setting"));
  const size_t offset = token_.offset;
  AMPC_TRY(Name(&state.name, "the name of a state"));
  if (state.name.empty()) return Fail(offset, "E0124", "a state without a name");
  if (module_->FindState(state.name) != kNone) {
    return Fail(offset, "E0123", "state '{}' is defined twice", state.name);
  }
  AMPC_TRY(Expect(":"));
  AMPC_TRY(Type(&state.type));
  AMPC_TRY(Expect("="));
  AMPC_TRY(InitialValue(&state));
  state.source = DefaultSource(state.role, state.name);
  if (Accept("source")) AMPC_TRY(Name(&state.source, "the name of an initializer"));
  module_->AddState(std::move(state));
  return {};
}

Status Parser::InitialValue(StateVar* state) {
  Initial& initial = state->initial;
  if (Accept("auto")) {
    initial.kind = plan::Initial::Kind::kAuto;
    initial.fill = std::numeric_limits<double>::quiet_NaN();
    return {};
  }
  if (Accept("fill")) {
    initial.kind = plan::Initial::Kind::kFill;
    AMPC_TRY(Expect("("));
    AMPC_TRY(Real(&initial.fill));
    return Expect(")");
  }
  if (Accept("derived")) {
    initial.kind = plan::Initial::Kind::kDerived;
    AMPC_TRY(Expect("("));
    const size_t offset = token_.offset;
    std::string source;
    AMPC_TRY(Name(&source, "the name of a state"));
    initial.derived_from = module_->FindState(source);
    if (initial.derived_from == kNone) {
      return Fail(offset, "E0122", "state '{}' is not defined above", source);
    }
    return Expect(")");
  }
  initial.kind = plan::Initial::Kind::kBytes;
  const TensorType& type = module_->types.Get(state->type);
  initial.stored = type.dtype;
  if (token_.kind == Token::Kind::kIdentifier) {
    if (const auto stored = ParseDType(token_.text)) {
      initial.stored = *stored;
      Advance();
    }
  }
  const TensorType stored{initial.stored, type.dims};
  const size_t offset = token_.offset;
  if (token_.kind == Token::Kind::kString) {
    AMPC_TRY(FileRange(&initial.bytes, offset));
    if (initial.bytes.length != stored.bytes()) {
      return Fail(offset, "E0124", "{} bytes of data; {} has {}", initial.bytes.length,
                  ToString(stored), stored.bytes());
    }
    return {};
  }
  if (!token_.Is("{") && !token_.Is("hex")) {
    return Unexpected("fill(…), auto, derived(…), {…}, hex(\"…\") or \"file\":offset:length");
  }
  std::vector<std::byte> bytes;
  AMPC_TRY(Data(stored, &bytes));
  initial.bytes.length = static_cast<int64_t>(bytes.size());
  initial.bytes.source = MemorySource(std::move(bytes));
  return {};
}

Status Parser::FileRange(ByteRef* ref, size_t offset) {
  const std::string path = token_.value;
  Advance();
  AMPC_TRY(Expect(":"));
  AMPC_TRY(Integer(&ref->offset));
  AMPC_TRY(Expect(":"));
  AMPC_TRY(Integer(&ref->length));
  auto it = files_.find(path);
  if (it == files_.end()) {
    auto file = MappedFile::Open(path);
    if (!file.ok()) return Place(offset, std::move(file).TakeStatus());
    it = files_.emplace(path, std::make_shared<const MappedSource>(std::move(*file))).first;
  }
  const int64_t size = it->second->size();
  if (ref->offset < 0 || ref->length < 0 || ref->length > size ||
      ref->offset > size - ref->length) {
    return Fail(offset, "E0127", "bytes [{}, +{}) of '{}', which has {}", ref->offset, ref->length,
                path, size);
  }
  ref->source = it->second;
  return {};
}

// ---- module -------------------------------------------------------------------------------------

Result<std::unique_ptr<Module>> Parser::Run() {
  if (Accept("state")) {
    AMPC_TRY(Expect("{"));
    while (!Accept("}")) AMPC_TRY(State());
  }
  while (token_.kind != Token::Kind::kEnd) {
    if (token_.Is("train")) {
      AMPC_TRY(GraphBlock(&module_->train, "train"));
    } else if (token_.Is("apply")) {
      AMPC_TRY(GraphBlock(&module_->apply, "apply"));
    } else if (token_.Is("update")) {
      AMPC_TRY(GraphBlock(&module_->update, "update"));
    } else if (token_.Is("eval")) {
      AMPC_TRY(GraphBlock(&module_->eval, "eval"));
    } else {
      return Unexpected("'state', 'train', 'apply', 'update' or 'eval'");
    }
  }
  return std::move(module_);
}

bool IsModuleText(std::string_view text) {
  Lexer lexer(text);
  Token token;
  lexer.Next(&token);
  return token.Is("state") || token.Is("train") || token.Is("apply") || token.Is("update") ||
         token.Is("eval");
}

Result<std::unique_ptr<Module>> ParseModule(std::string_view text, std::string_view name,
                                            TextCheck check) {
  if (text.size() > kMaxText) {
    return BadInput("E0125", "{} bytes of text; at most {} are read", text.size(), kMaxText)
        .Of(name);
  }
  auto module = Parser(text).Run();
  if (!module.ok()) return std::move(module).TakeStatus().Of(name);
  if (check == TextCheck::kVerify) {
    // Here the text is to blame, not a pass.
    if (Status status = Verify(**module); !status.ok()) {
      return BadInput("E0128", "{}", status.message()).At(status.node()).Of(name);
    }
  }
  return module;
}

}  // namespace ampc::ir
