// SPDX-License-Identifier: Apache-2.0
// Attributes of recurrent layers, and their cells as elementwise programs.
#include "kernels/rnn.h"

#include <cctype>

namespace ampc {
namespace {

/// What ONNX knows: how many of alpha and beta an activation takes, and their defaults.
struct KnownActivation {
  std::string_view name;
  bool alpha, beta, has_default;
  double alpha_default, beta_default;
};
constexpr KnownActivation kKnown[] = {
    {"sigmoid", false, false, true, 0, 0},       {"tanh", false, false, true, 0, 0},
    {"relu", false, false, true, 0, 0},          {"softsign", false, false, true, 0, 0},
    {"softplus", false, false, true, 0, 0},      {"affine", true, true, true, 1, 0},
    {"leakyrelu", true, false, true, 0.01, 0},   {"thresholdedrelu", true, false, true, 1, 0},
    {"hardsigmoid", true, true, true, 0.2, 0.5}, {"elu", true, false, true, 1, 0},
    {"scaledtanh", true, true, false, 0, 0},
};

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string> DefaultNames(RnnKind kind) {
  switch (kind) {
    case RnnKind::kRnn:
      return {"Tanh"};
    case RnnKind::kGru:
      return {"Sigmoid", "Tanh"};
    case RnnKind::kLstm:
      return {"Sigmoid", "Tanh", "Tanh"};
  }
  return {};
}

/// Activations of all directions. Alphas and betas are consumed in the order of the activations
/// that take one.
Result<std::vector<RnnActivation>> ReadActivations(RnnKind kind, const Attrs& attrs,
                                                   size_t directions) {
  const std::vector<std::string> defaults = DefaultNames(kind);
  std::vector<std::string> names;
  if (const auto* given = attrs.Find("activations");
      given != nullptr && std::holds_alternative<std::vector<std::string>>(*given)) {
    names = std::get<std::vector<std::string>>(*given);
  }
  if (names.empty()) {
    for (size_t d = 0; d < directions; ++d)
      names.insert(names.end(), defaults.begin(), defaults.end());
  }
  // The schema's default has names for two directions.
  if (directions == 1 && names.size() == 2 * defaults.size()) names.resize(defaults.size());
  if (names.size() != directions * defaults.size()) {
    return BadInput("E0107", "expected {} activations, found {}", directions * defaults.size(),
                    names.size());
  }
  const std::vector<double> alphas = attrs.Floats("activation_alpha"),
                            betas = attrs.Floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<RnnActivation> out;
  for (const std::string& name : names) {
    const std::string lower = Lower(name);
    const KnownActivation* known = nullptr;
    for (const KnownActivation& k : kKnown) {
      if (k.name == lower) known = &k;
    }
    if (known == nullptr) return BadInput("E0107", "activation '{}' is not one of ONNX's", name);
    RnnActivation a{lower, known->alpha_default, known->beta_default};
    const bool given_alpha = next_alpha < alphas.size(), given_beta = next_beta < betas.size();
    if (!known->has_default && (!given_alpha || !given_beta)) {
      return BadInput("E0107", "activation '{}' wants activation_alpha and activation_beta", name);
    }
    if (known->alpha && given_alpha) a.alpha = alphas[next_alpha++];
    if (known->beta && given_beta) a.beta = betas[next_beta++];
    out.push_back(std::move(a));
  }
  return out;
}

/// A number as the program text takes it: with all digits, negative ones in parentheses.
std::string Number(double v) {
  return v < 0 ? fmt::format("(0 - {:.17g})", -v) : fmt::format("{:.17g}", v);
}

/// Writes statements; names of values are chosen by the caller.
class CellText {
 public:
  explicit CellText(const RnnCell& cell) : cell_(cell) {}

  void Set(std::string_view name, const std::string& expression) {
    text_ += fmt::format("{} = {}; ", name, expression);
  }
  /// `name` = activation k of `x`; what its derivative needs stays in name_u. Gates are clipped.
  void Activate(const std::string& name, size_t k, const std::string& x, bool gate = true) {
    const RnnActivation& a = cell_.activations[k];
    const std::string u = name + "_u", alpha = Number(a.alpha), beta = Number(a.beta);
    const std::string c = Number(cell_.clip);
    Set(name + "_x", x);
    Set(u, gate && cell_.clip > 0 ? fmt::format("max(min({0}_x, {1}), 0 - {1})", name, c)
                                  : name + "_x");
    if (a.name == "sigmoid") Set(name, fmt::format("sigmoid({})", u));
    if (a.name == "tanh") Set(name, fmt::format("tanh({})", u));
    if (a.name == "relu") Set(name, fmt::format("max({}, 0)", u));
    if (a.name == "affine") Set(name, fmt::format("{} * {} + {}", alpha, u, beta));
    if (a.name == "leakyrelu") Set(name, fmt::format("where({0} < 0, {1} * {0}, {0})", u, alpha));
    if (a.name == "thresholdedrelu") Set(name, fmt::format("where({0} < {1}, 0, {0})", u, alpha));
    if (a.name == "scaledtanh") Set(name, fmt::format("{} * tanh({} * {})", alpha, beta, u));
    if (a.name == "hardsigmoid")
      Set(name, fmt::format("max(min({} * {} + {}, 1), 0)", alpha, u, beta));
    if (a.name == "elu") Set(name, fmt::format("where({0} < 0, {1} * expm1({0}), {0})", u, alpha));
    if (a.name == "softsign") Set(name, fmt::format("{0} / (1 + abs({0}))", u));
    if (a.name == "softplus") Set(name, fmt::format("max({0}, 0) + log1p(exp(0 - abs({0})))", u));
  }
  /// dv times the derivative of activation k, whose value `name` Activate has set.
  std::string Through(const std::string& name, size_t k, const std::string& dv,
                      bool gate = true) const {
    const std::string d = fmt::format("({}) * ({})", dv, Derivative(name, k));
    if (!gate || cell_.clip <= 0) return d;
    return fmt::format("where(abs({}_x) > {}, 0, {})", name, Number(cell_.clip), d);
  }
  /// Rounded to what the products read.
  std::string Rounded(const std::string& expression) const {
    if (cell_.operand == DType::kBFloat16) return fmt::format("bf16({})", expression);
    if (cell_.operand == DType::kFloat16) return fmt::format("fp16({})", expression);
    return expression;
  }
  std::string Take() {
    if (text_.ends_with("; ")) text_.resize(text_.size() - 2);
    return std::move(text_);
  }

 private:
  std::string Derivative(const std::string& v, size_t k) const {
    const RnnActivation& a = cell_.activations[k];
    const std::string u = v + "_u", alpha = Number(a.alpha), beta = Number(a.beta);
    if (a.name == "sigmoid") return fmt::format("{0} * (1 - {0})", v);
    if (a.name == "tanh") return fmt::format("1 - {0} * {0}", v);
    if (a.name == "relu") return fmt::format("where({} > 0, 1, 0)", u);
    if (a.name == "affine") return alpha;
    if (a.name == "leakyrelu") return fmt::format("where({} < 0, {}, 1)", u, alpha);
    if (a.name == "thresholdedrelu") return fmt::format("where({} < {}, 0, 1)", u, alpha);
    if (a.name == "scaledtanh") {
      const std::string t = fmt::format("tanh({} * {})", beta, u);
      return fmt::format("{} * {} * (1 - {} * {})", alpha, beta, t, t);
    }
    if (a.name == "hardsigmoid") return fmt::format("where({0} > 0 && {0} < 1, {1}, 0)", v, alpha);
    if (a.name == "elu") return fmt::format("where({} < 0, {} + {}, 1)", u, v, alpha);
    if (a.name == "softsign") return fmt::format("1 / ((1 + abs({0})) * (1 + abs({0})))", u);
    return fmt::format("sigmoid({})", u);  // softplus
  }

  const RnnCell& cell_;
  std::string text_;
};

// ---- LSTM

/// Gates, cell and its activation; p: number of the input that holds P_i.
void LstmGates(CellText& t, const RnnCell& cell, int p, bool backward) {
  const auto peep = [&](int i, int slot, std::string_view c) {
    return cell.peepholes ? fmt::format("x{} + x{} * {}", i, p + slot, c) : fmt::format("x{}", i);
  };
  t.Activate("i", 0, peep(0, 0, "x4"));
  if (cell.input_forget) {
    t.Set("f", "1 - i");
  } else {
    t.Activate("f", 0, peep(2, 2, "x4"));
  }
  t.Activate("g", 1, "x3");
  t.Set("c", backward ? "x5" : "f * x4 + i * g");
  t.Activate("o", 0, peep(1, 1, "c"));
  t.Activate("k", 2, "c", false);
}

RnnTexts LstmForward(const RnnCell& cell) {
  CellText t(cell);
  LstmGates(t, cell, 5, false);
  t.Set("y0", "c");
  t.Set("y1", t.Rounded("o * k"));
  return {t.Take(), ""};
}

RnnTexts LstmBackward(const RnnCell& cell) {
  CellText t(cell);
  LstmGates(t, cell, 8, true);
  t.Set("dpo", t.Through("o", 0, "x6 * k"));
  t.Set("dc", "x7 + " + t.Through("k", 2, "x6 * o", false) + (cell.peepholes ? " + dpo * x9" : ""));
  t.Set("df", "dc * x4");
  if (cell.input_forget) {
    t.Set("dpi", t.Through("i", 0, "dc * g - df"));
    t.Set("dpf", "0 * df");
  } else {
    t.Set("dpi", t.Through("i", 0, "dc * g"));
    t.Set("dpf", t.Through("f", 0, "df"));
  }
  t.Set("dpg", t.Through("g", 1, "dc * i"));
  t.Set("y0", t.Rounded("dpi"));
  t.Set("y1", t.Rounded("dpo"));
  t.Set("y2", t.Rounded("dpf"));
  t.Set("y3", t.Rounded("dpg"));
  t.Set("y4", cell.peepholes ? "dc * f + dpi * x8 + dpf * x10" : "dc * f");
  return {t.Take(), ""};
}

// ---- GRU

RnnTexts GruForward(const RnnCell& cell) {
  CellText a(cell), b(cell);
  if (cell.linear_before_reset) {
    a.Activate("z", 0, "x0");
    a.Activate("r", 0, "x1");
    a.Activate("n", 1, "x2 + r * x3");
    a.Set("y0", a.Rounded("(1 - z) * n + z * x4"));
    return {a.Take(), ""};
  }
  a.Activate("r", 0, "x0");
  a.Set("y0", a.Rounded("r * x1"));
  b.Activate("z", 0, "x0");
  b.Activate("n", 1, "x1");
  b.Set("y0", b.Rounded("(1 - z) * n + z * x2"));
  return {a.Take(), b.Take()};
}

RnnTexts GruBackward(const RnnCell& cell) {
  CellText a(cell), b(cell);
  a.Activate("z", 0, "x0");
  if (cell.linear_before_reset) {
    a.Activate("r", 0, "x1");
    a.Activate("n", 1, "x2 + r * x3");
    a.Set("dpn", a.Through("n", 1, "x5 * (1 - z)"));
    a.Set("y0", a.Rounded(a.Through("z", 0, "x5 * (x4 - n)")));
    a.Set("y1", a.Rounded(a.Through("r", 0, "dpn * x3")));
    a.Set("y2", a.Rounded("dpn"));
    a.Set("y3", a.Rounded("dpn * r"));
    a.Set("y4", "x5 * z");
    return {a.Take(), ""};
  }
  a.Activate("n", 1, "x1");
  a.Set("y0", a.Rounded(a.Through("z", 0, "x3 * (x2 - n)")));
  a.Set("y1", a.Rounded(a.Through("n", 1, "x3 * (1 - z)")));
  a.Set("y2", "x3 * z");
  b.Activate("r", 0, "x0");
  b.Set("y0", b.Rounded(b.Through("r", 0, "x2 * x1")));
  b.Set("y1", "x3 + x2 * r");
  b.Set("y2", b.Rounded("r * x1"));
  return {a.Take(), b.Take()};
}

}  // namespace

Result<RnnLayer> ReadRnnLayer(RnnKind kind, const Attrs& attrs, bool peepholes, DType operand) {
  const std::string_view direction = attrs.String("direction", "forward");
  RnnLayer layer;
  if (direction == "forward") {
    layer.reverse = {false};
  } else if (direction == "reverse") {
    layer.reverse = {true};
  } else if (direction == "bidirectional") {
    layer.reverse = {false, true};
  } else {
    return BadInput("E0107", "direction is '{}', expected forward, reverse or bidirectional",
                    direction);
  }
  const size_t directions = layer.reverse.size();
  auto activations = ReadActivations(kind, attrs, directions);
  if (!activations.ok()) return std::move(activations).TakeStatus();
  const double clip = attrs.Float("clip", 0);
  if (attrs.Has("clip") && !(clip >= 0))
    return BadInput("E0107", "clip is {}, expected a number that is not negative", clip);
  const size_t each = activations->size() / directions;
  for (size_t d = 0; d < directions; ++d) {
    const auto first = activations->begin() + static_cast<std::ptrdiff_t>(d * each);
    layer.cells.push_back({.kind = kind,
                           .activations = {first, first + static_cast<std::ptrdiff_t>(each)},
                           .clip = clip,
                           .linear_before_reset = attrs.Int("linear_before_reset") != 0,
                           .input_forget = attrs.Int("input_forget") != 0,
                           .peepholes = peepholes,
                           .operand = IsLow(operand) ? operand : DType::kNone});
  }
  return layer;
}

RnnTexts RnnForward(const RnnCell& cell) {
  if (cell.kind == RnnKind::kLstm) return LstmForward(cell);
  if (cell.kind == RnnKind::kGru) return GruForward(cell);
  CellText t(cell);
  t.Activate("f", 0, "x0");
  t.Set("y0", t.Rounded("f"));
  return {t.Take(), ""};
}

RnnTexts RnnBackward(const RnnCell& cell) {
  if (cell.kind == RnnKind::kLstm) return LstmBackward(cell);
  if (cell.kind == RnnKind::kGru) return GruBackward(cell);
  CellText t(cell);
  t.Activate("f", 0, "x0");
  t.Set("y0", t.Rounded(t.Through("f", 0, "x1")));
  return {t.Take(), ""};
}

Result<RnnPrograms> ParseRnn(const RnnTexts& texts) {
  auto first = ParseExpr(texts.first, {});
  if (!first.ok()) return std::move(first).TakeStatus();
  RnnPrograms programs{std::move(*first), {}};
  if (texts.second.empty()) return programs;
  auto second = ParseExpr(texts.second, {});
  if (!second.ok()) return std::move(second).TakeStatus();
  programs.second = std::move(*second);
  return programs;
}

}  // namespace ampc
