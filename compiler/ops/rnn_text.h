// SPDX-License-Identifier: Apache-2.0
#pragma once
// Statements of ONNX text that the bodies of recurrent layers share: entries of stacked tensors,
// slices, masks, elementwise programs written out node by node, and Scan.
//
// Names: of direction d begin with "ad" outside the Scan and "sd" inside it.
#include <cctype>

#include <fmt/ranges.h>

#include "compiler/ops/body.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/rnn.h"

namespace ampc {

/// Where a value of the Scan is declared: "float[2,3] name".
struct RnnScanned {
  std::string name;
  Dims dims;
  DType dtype;
};

/// Writes the statements of a body.
class RnnText {
 public:
  explicit RnnText(const BodyContext& c, DType operand) : c_(c), acc_(AccOf(operand)) {}

  DType acc() const { return acc_; }
  bool Has(size_t i) const { return i < c_.inputs.size() && c_.inputs[i] != nullptr; }

  template <typename... Args>
  void Line(fmt::format_string<Args...> f, Args&&... args) {
    text_ += fmt::format(f, std::forward<Args>(args)...) + "\n";
  }
  std::string Take() { return std::move(text_); }

  /// to = entry d of an input along `axis`, in acc.
  void Entry(const std::string& to, size_t input, int64_t d, int64_t axis = 0) {
    Line(
        "{0}_e = Constant <value_int = {1}> ()\n{0}_g = Gather <axis = {2}> (i{3}, {0}_e)\n"
        "{0} = Cast <to = {4}> ({0}_g)",
        to, d, axis, input, static_cast<int>(acc_));
  }
  void Zeros(const std::string& to, const Dims& dims) {
    Line(
        "{0}_s = Constant <value_ints = [{1}]> ()\n"
        "{0}_z = ConstantOfShape <value = float[1] {{0}}> ({0}_s)\n{0} = Cast <to = {2}> ({0}_z)",
        to, ListText(dims), static_cast<int>(acc_));
  }
  void EntryOrZeros(const std::string& to, size_t input, int64_t d, const Dims& dims) {
    if (Has(input)) {
      Entry(to, input, d);
    } else {
      Zeros(to, dims);
    }
  }
  void Slice(const std::string& to, const std::string& from, int64_t axis, int64_t begin,
             int64_t end) {
    Line(
        "{0}_b = Constant <value_ints = [{2}]> ()\n{0}_f = Constant <value_ints = [{3}]> ()\n"
        "{0}_a = Constant <value_ints = [{4}]> ()\n{0} = Slice ({1}, {0}_b, {0}_f, {0}_a)",
        to, from, begin, end, axis);
  }
  /// parts of the last axis, each `width` wide: name0, name1, …
  void Parts(const std::string& name, const std::string& from, int64_t count, int64_t axis) {
    if (count == 1) return Line("{}0 = Identity ({})", name, from);
    std::string to;
    for (int64_t i = 0; i < count; ++i) to += fmt::format("{}{}{}", i == 0 ? "" : ", ", name, i);
    Line("{} = Split <axis = {}, num_outputs = {}> ({})", to, axis, count, from);
  }
  /// m [steps, rows, 1]: is the row's length beyond the step?
  void Mask(const std::string& to, size_t lengths, int64_t steps, int64_t rows) {
    std::vector<int64_t> all(static_cast<size_t>(steps));
    for (int64_t t = 0; t < steps; ++t) all[static_cast<size_t>(t)] = t;
    Line(
        "{0}_t = Constant <value_ints = [{1}]> ()\n{0}_ts = Constant <value_ints = [{2}, 1, 1]> "
        "()\n"
        "{0}_tr = Reshape ({0}_t, {0}_ts)\n{0}_l = Cast <to = 7> (i{3})\n"
        "{0}_ls = Constant <value_ints = [1, {4}, 1]> ()\n{0}_lr = Reshape ({0}_l, {0}_ls)\n"
        "{0} = Less ({0}_tr, {0}_lr)",
        to, ListText(all), steps, lengths, rows);
  }
  /// Values of all directions side by side along a new axis, in `type`.
  void Join(const std::string& to, const std::string& name, int64_t directions, int64_t axis,
            DType type) {
    std::string list;
    Line("{}_x = Constant <value_ints = [{}]> ()", to, axis);
    for (int64_t d = 0; d < directions; ++d) {
      Line("{0}_{1} = Unsqueeze (a{1}_{2}, {0}_x)", to, d, name);
      list += fmt::format("{}{}_{}", d == 0 ? "" : ", ", to, d);
    }
    Line("{0}_c = Concat <axis = {1}> ({2})\n{0} = Cast <to = {3}> ({0}_c)", to, axis, list,
         static_cast<int>(type));
  }
  /// An elementwise program: its inputs and outputs by name; registers begin with `prefix`.
  Status Program(const std::string& program, const std::string& prefix,
                 const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
    const ir::TensorType type{acc_, {}};
    const Attrs none;
    const BodyContext context{c_.op, none, std::vector<const ir::TensorType*>(inputs.size(), &type),
                              std::vector<const ir::TensorType*>(outputs.size(), &type)};
    AMPC_ASSIGN(const std::string text, MapBody(program, context));
    text_ += Renamed(text, prefix, inputs, outputs);
    return {};
  }
  /// outputs = Scan over the states and the scanned values of a body.
  void Scan(const std::string& body, const std::vector<std::string>& initial,
            const std::vector<RnnScanned>& states, const std::vector<std::string>& from,
            const std::vector<RnnScanned>& in, const std::vector<std::string>& to,
            const std::vector<RnnScanned>& out, bool backwards, const std::string& inner) {
    const auto list = [](const std::vector<RnnScanned>& values, std::string suffix) {
      std::string text;
      for (const RnnScanned& v : values) {
        text += fmt::format("{}{}[{}] {}{}", text.empty() ? "" : ", ", Name(v.dtype),
                            ListText(v.dims), v.name, suffix);
      }
      return text;
    };
    const auto join = [](std::vector<std::string> a, const std::vector<std::string>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return fmt::format("{}", fmt::join(a, ", "));
    };
    const std::vector<int64_t> in_way(in.size(), backwards ? 1 : 0), out_way(out.size(), in_way[0]);
    std::string inputs = list(states, "");
    inputs += ", " + list(in, "");
    std::string outputs = list(states, "_next");
    outputs += ", " + list(out, "");
    Line(
        "{} = Scan <num_scan_inputs = {}, scan_input_directions = [{}], "
        "scan_output_directions = [{}], body = {} ({}) => ({}) {{\n{}}}> ({})",
        fmt::join(to, ", "), in.size(), ListText(in_way), ListText(out_way), body, inputs, outputs,
        inner, join(initial, from));
  }

 private:
  // i0 … and o0 … are the program's own names in MapBody's text, r0 … its registers.
  static std::string Renamed(const std::string& text, const std::string& prefix,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs) {
    std::string result;
    const auto word = [](char ch) {
      return std::isalnum(static_cast<unsigned char>(ch)) != 0 || ch == '_';
    };
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && word(text[end])) ++end;
      const std::string token = text.substr(i, end - i);
      const bool numbered = token.size() > 1 && std::isdigit(static_cast<unsigned char>(token[1]));
      if (end == i) {
        result += text[end++];
      } else if (numbered && token[0] == 'i') {
        result += inputs[std::stoul(token.substr(1))];
      } else if (numbered && token[0] == 'o') {
        result += outputs[std::stoul(token.substr(1))];
      } else if (numbered && token[0] == 'r') {
        result += prefix + token;
      } else {
        result += token;
      }
      i = end;
    }
    return result;
  }

  const BodyContext& c_;
  DType acc_;
  std::string text_;
};

/// Dims of a layer.
struct RnnSizes {
  int64_t steps, batch, hidden, gates;
};

}  // namespace ampc
