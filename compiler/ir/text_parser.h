// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parser of module text, for the two files that make it: text_parse.cc (tokens, types, data,
// states) and text_parse_graph.cc (graphs, nodes). Recursive descent with one token of lookahead.
// Nothing nests deeper than a list in an attribute, so the stack is bounded; sizes are checked
// before memory is taken.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compiler/ir/graph.h"
#include "compiler/ir/text_lexer.h"

namespace ampc::ir {

class MappedSource;

class Parser {
 public:
  explicit Parser(std::string_view text);
  Result<std::unique_ptr<Module>> Run();

 private:
  // A name in the header whose value may stand later in the body.
  struct Reference {
    size_t offset = 0;
    std::string name, value;
    TypeId type = kNone;
  };
  struct Operand {
    std::string name;
    TypeId type = kNone;
    Layout layout = Layout::kRowMajor;
    size_t offset = 0;
  };

  // Tokens.
  void Advance() { lexer_.Next(&token_); }
  bool Accept(std::string_view what);
  Status Expect(std::string_view what);
  Status Unexpected(std::string_view expected) const;
  template <typename... Args>
  Status Fail(size_t offset, std::string_view id, fmt::format_string<Args...> f,
              Args&&... args) const {
    return Status::Error(
        ErrorClass::kBadInput, id,
        lexer_.Position(offset) + ": " + fmt::format(f, std::forward<Args>(args)...));
  }
  Status Place(size_t offset, Status status) const;
  Status Name(std::string* name, std::string_view what);
  Status Integer(int64_t* value);
  Status Real(double* value);
  /// Calls `item` for each element between the brackets.
  template <typename F>
  Status List(std::string_view open, std::string_view close, F item);

  // Types and data.
  Status Dims(std::vector<int64_t>* dims, DType dtype);
  Status Type(TypeId* type);
  Status Data(const TensorType& type, std::vector<std::byte>* bytes);

  // States.
  Status State();
  Status InitialValue(StateVar* state);
  Status FileRange(ByteRef* ref, size_t offset);

  // Graphs.
  Status GraphBlock(std::unique_ptr<Graph>* slot, std::string_view place);
  Status Feed();
  Status StateName();
  Status Output();
  Status Next();
  Status Node();
  Status NodeOutput(Operand* output);
  Status Attributes(Attrs* attrs);
  Status Attribute(std::string_view type, Attr* value);
  Status Tensor(Attr* value);
  Status MakeNode(const OpDef& op, Attrs attrs, const std::vector<ValueId>& inputs,
                  const std::vector<Operand>& outputs, LocId loc, size_t offset);
  Status Resolve(std::string_view name, size_t offset, ValueId* v);
  Status Finish();

  Lexer lexer_;
  Token token_;
  std::unique_ptr<Module> module_;
  Graph* graph_ = nullptr;
  std::vector<Reference> outputs_, nexts_;
  std::map<std::string, std::shared_ptr<const MappedSource>, std::less<>> files_;
};

template <typename F>
Status Parser::List(std::string_view open, std::string_view close, F item) {
  AMPC_TRY(Expect(open));
  if (Accept(close)) return {};
  while (true) {
    AMPC_TRY(item());
    if (Accept(close)) return {};
    if (!Accept(",")) return Unexpected(fmt::format("',' or '{}'", close));
  }
}

}  // namespace ampc::ir
