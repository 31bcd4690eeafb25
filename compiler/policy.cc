// SPDX-License-Identifier: Apache-2.0
#include "compiler/policy.h"

#include <algorithm>
#include <array>
#include <map>

#include "runtime/config/yaml.h"

namespace ampc {
namespace {

struct BaseName {
  std::string_view name;
  Policy::Base base;
};
constexpr std::array<BaseName, 3> kBases{{{"torch-cuda", Policy::Base::kTorchCuda},
                                          {"torch-cpu", Policy::Base::kTorchCpu},
                                          {"fp32", Policy::Base::kFp32}}};

struct ClassName {
  std::string_view name;
  CastClass cls;
};
constexpr std::array<ClassName, 5> kClasses{{{"low", CastClass::kLow},
                                             {"fp32", CastClass::kFp32},
                                             {"widest", CastClass::kWidest},
                                             {"follow", CastClass::kFollow},
                                             {"never", CastClass::kNever}}};

std::string_view NameOf(CastClass cls) {
  for (const ClassName& c : kClasses) {
    if (c.cls == cls) return c.name;
  }
  return "";
}
std::string_view NameOf(Policy::Base base) {
  for (const BaseName& b : kBases) {
    if (b.base == base) return b.name;
  }
  return "";
}

std::string Where(const std::string& file, const ConfigValue& v) {
  return fmt::format("{}:{}", file, v.line);
}

Status UnknownKey(const std::string& file, const ConfigValue& at, std::string_view key,
                  std::string_view known) {
  return BadInput("E0312", "{}: unknown key '{}'; expected one of {}", Where(file, at), key, known);
}

Result<std::string> NameFrom(const std::string& file, const ConfigValue& v, std::string_view key) {
  if (v.is_scalar() && !v.text.empty()) return v.text;
  return BadInput("E0312", "{}: {}: one name is expected, found '{}'", Where(file, v), key,
                  v.ToString());
}

Result<PolicyRule> RuleFrom(const std::string& file, const ConfigValue& v) {
  if (!v.is_map())
    return BadInput("E0312", "{}: a rule is a map such as {{op: Softmax, class: fp32}}",
                    Where(file, v));
  PolicyRule rule;
  bool has_class = false;
  for (const auto& [key, value] : v.entries) {
    if (key == "node" || key == "op") {
      AMPC_ASSIGN((key == "node" ? rule.node : rule.op), NameFrom(file, value, key));
    } else if (key == "between") {
      if (!value.is_list() || value.items.size() != 2)
        return BadInput("E0312", "{}: between: [from, to] names two values", Where(file, value));
      AMPC_ASSIGN(rule.from, NameFrom(file, value.items[0], key));
      AMPC_ASSIGN(rule.to, NameFrom(file, value.items[1], key));
    } else if (key == "class") {
      const auto* c = std::find_if(kClasses.begin(), kClasses.end(),
                                   [&](const ClassName& n) { return n.name == value.text; });
      if (c == kClasses.end()) {
        return BadInput("E0312", "{}: class '{}' is none of low, fp32, widest, follow, never",
                        Where(file, value), value.text);
      }
      rule.cls = c->cls;
      has_class = true;
    } else {
      return UnknownKey(file, value, key, "node, op, between, class");
    }
  }
  if (!has_class) return BadInput("E0312", "{}: the rule has no class", Where(file, v));
  if (rule.node.empty() && rule.op.empty() && rule.from.empty()) {
    return BadInput("E0312", "{}: the rule names no node, op or between", Where(file, v));
  }
  return rule;
}

Status ReadLimits(const std::string& file, const ConfigValue& v, Policy& policy) {
  if (!v.is_map())
    return BadInput("E0312", "{}: limits: a map such as {{init_abs_max: 65504}} is expected",
                    Where(file, v));
  for (const auto& [key, value] : v.entries) {
    const auto number = value.Number();
    if (!number || *number < 0)
      return BadInput("E0312", "{}: limit '{}' is not a number >= 0", Where(file, value), key);
    if (key == "init_abs_max") {
      policy.init_abs_max = *number;
    } else if (key == "reduction_depth" || key == "value_abs_max") {
      if (*number != 0) {
        return Unsupported("E0313", "{}: limit '{}' is not built; 0 switches it off",
                           Where(file, value), key);
      }
    } else {
      return UnknownKey(file, value, key, "init_abs_max, value_abs_max, reduction_depth");
    }
  }
  return {};
}

Result<Policy> ReadPolicy(const std::string& file) {
  AMPC_ASSIGN(const ConfigValue root, ReadYamlFile(file));
  Policy policy{.name = file};
  for (const auto& [key, value] : root.entries) {
    if (key == "base") {
      const auto* b = std::find_if(kBases.begin(), kBases.end(),
                                   [&](const BaseName& n) { return n.name == value.text; });
      if (b == kBases.end())
        return BadInput("E0312", "{}: base '{}' is none of torch-cuda, torch-cpu, fp32",
                        Where(file, value), value.text);
      policy.base = b->base;
    } else if (key == "rules") {
      if (!value.is_list())
        return BadInput("E0312", "{}: rules: a list of rules is expected", Where(file, value));
      for (const ConfigValue& item : value.items) {
        AMPC_ASSIGN(PolicyRule rule, RuleFrom(file, item));
        policy.rules.push_back(std::move(rule));
      }
    } else if (key == "limits") {
      AMPC_TRY(ReadLimits(file, value, policy));
    } else {
      return UnknownKey(file, value, key, "base, rules, limits");
    }
  }
  return policy;
}

}  // namespace

Result<Policy> LoadPolicy(const std::string& name) {
  for (const BaseName& b : kBases) {
    if (b.name == name) return Policy{.name = name, .base = b.base};
  }
  return ReadPolicy(name);
}

std::string PolicyText(const Policy& policy) {
  const auto scalar = [](std::string_view v) { return ConfigValue::Scalar(v); };
  ConfigValue root = ConfigValue::Map();
  root.Set("base", scalar(NameOf(policy.base)));
  std::vector<ConfigValue> rules;
  for (const PolicyRule& r : policy.rules) {
    ConfigValue rule = ConfigValue::Map();
    if (!r.node.empty()) rule.Set("node", scalar(r.node));
    if (!r.op.empty()) rule.Set("op", scalar(r.op));
    if (!r.from.empty()) rule.Set("between", ConfigValue::List({scalar(r.from), scalar(r.to)}));
    rule.Set("class", scalar(NameOf(r.cls)));
    rules.push_back(std::move(rule));
  }
  if (!rules.empty()) root.Set("rules", ConfigValue::List(std::move(rules)));
  ConfigValue limits = ConfigValue::Map();
  limits.Set("init_abs_max", scalar(fmt::format("{}", policy.init_abs_max)));
  root.Set("limits", std::move(limits));
  std::string text = WriteYaml(root);
  if (policy.base == Policy::Base::kFp32) return text;
  std::map<std::string_view, std::string> by_class;
  for (const OpDef* op : AllOps()) {
    if (!op->domain.empty() || op->traits.constant) continue;
    std::string& list =
        by_class[NameOf(policy.base == Policy::Base::kTorchCpu ? op->cast.cpu : op->cast.cuda)];
    list += (list.empty() ? "" : " ") + std::string(op->name);
  }
  for (const auto& [cls, ops] : by_class) text += fmt::format("# {}: {}\n", cls, ops);
  return text;
}

uint64_t PolicyHash(const Policy& policy) {
  uint64_t h = 1469598103934665603ull;
  for (const char c : PolicyText(policy)) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return h;
}

}  // namespace ampc
