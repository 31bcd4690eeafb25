// SPDX-License-Identifier: Apache-2.0
#include "runtime/config/yaml.h"

#include "runtime/base/file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <unordered_map>

namespace ampc {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr int64_t kMaxValues = 200'000;
constexpr size_t kMaxDepth = 16;

/// Builds the tree from the parser's events, so that aliases can be refused before anything is
/// expanded. The first thing that is not allowed is kept; later events are ignored.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view name) : name_(name) {}

  Status TakeStatus() { return std::move(status_); }
  ConfigValue TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (Allowed(mark, "", anchor)) Place(mark, {});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Refuse(mark, "an alias"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!Allowed(mark, tag, anchor)) return;
    ConfigValue scalar = ConfigValue::Scalar(value);
    scalar.quoted = tag == "!";
    Place(mark, std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    if (Allowed(mark, tag, anchor)) Open(mark, ConfigValue::List({}));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (Allowed(mark, tag, anchor)) Open(mark, ConfigValue::Map());
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    ConfigValue value;
    std::string key;
    bool has_key = false;
    int key_line = 0;
    std::unordered_map<std::string, int> lines;  ///< of a map's keys; its entries may be many
  };

  void Refuse(const YAML::Mark& mark, std::string_view what) {
    if (status_.ok())
      status_ = BadInput("E0612", "line {}: {} is not allowed here", mark.line + 1, what).Of(name_);
  }

  bool Allowed(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) Refuse(mark, "an anchor");
    // yaml-cpp gives "?" for a plain value and "!" for a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") Refuse(mark, "a tag");
    if (++values_ > kMaxValues) Refuse(mark, fmt::format("more than {} values", kMaxValues));
    return status_.ok();
  }

  void Open(const YAML::Mark& mark, ConfigValue value) {
    if (stack_.size() >= kMaxDepth) return Refuse(mark, fmt::format("nesting over {}", kMaxDepth));
    if (!stack_.empty() && stack_.back().value.is_map() && !stack_.back().has_key)
      return Refuse(mark, "a list or map as a key");
    value.line = mark.line + 1;
    stack_.push_back({std::move(value), "", false, 0, {}});
  }

  void Close() {
    if (!status_.ok() || stack_.empty()) return;
    ConfigValue done = std::move(stack_.back().value);
    stack_.pop_back();
    Attach(std::move(done));
  }

  void Place(const YAML::Mark& mark, ConfigValue value) {
    // The parser notices an empty value only at the token after it.
    bool empty_value = value.is_null() && !stack_.empty() && stack_.back().has_key;
    value.line = empty_value ? stack_.back().key_line : mark.line + 1;
    if (stack_.empty() || !stack_.back().value.is_map() || stack_.back().has_key)
      return Attach(std::move(value));
    Level& map = stack_.back();
    if (value.is_null()) return Refuse(mark, "an empty key");
    const auto [known, fresh] = map.lines.emplace(value.text, value.line);
    if (!fresh) {
      return Refuse(mark, fmt::format("key '{}', which already stands in line {},", value.text,
                                      known->second));
    }
    map.key = std::move(value.text);
    map.has_key = true;
    map.key_line = value.line;
  }

  void Attach(ConfigValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& top = stack_.back();
    if (top.value.is_list()) {
      top.value.items.push_back(std::move(value));
    } else {
      top.value.entries.emplace_back(std::move(top.key), std::move(value));
      top.has_key = false;
    }
  }

  std::string name_;
  Status status_;
  ConfigValue root_;
  std::vector<Level> stack_;
  int64_t values_ = 0;
};

/// True when a plain scalar would be read back as the same text and as nothing else, in a block and
/// in a flow. Only what no reader of YAML takes for an indicator (1.2.2, section 5.3) stands plain.
bool IsPlain(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL" ||
      text == "...")
    return false;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_./+").find(c) != std::string_view::npos;
  };
  if (!is_word(text.front()) && !(text.front() == '-' && ParseNumber(text))) return false;
  if (text.back() == ' ' || text.back() == ':' || text.find(": ") != std::string_view::npos)
    return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_word(c) || std::string_view("-=:*@%()~^ ").find(c) != std::string_view::npos;
  });
}

std::string QuotedScalar(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string ScalarText(const ConfigValue& v) {
  return v.quoted || !IsPlain(v.text) ? QuotedScalar(v.text) : v.text;
}
// A key with its colon. YAML 1.2 section 8.2.2: beyond 1,024 characters it must be an explicit one.
std::string KeyText(const std::string& key, std::string_view indent) {
  constexpr size_t kLongest = 1024;
  const std::string text = IsPlain(key) ? key : QuotedScalar(key);
  return text.size() <= kLongest ? text + ":" : fmt::format("? {}\n{}:", text, indent);
}

std::string Flow(const ConfigValue& v) {
  std::string out;
  switch (v.kind) {
    case ConfigValue::Kind::kNull:
      return "~";
    case ConfigValue::Kind::kScalar:
      return ScalarText(v);
    case ConfigValue::Kind::kList:
      for (const ConfigValue& item : v.items)
        out += fmt::format("{}{}", out.empty() ? "" : ", ", Flow(item));
      return fmt::format("[{}]", out);
    case ConfigValue::Kind::kMap:
      for (const auto& [key, value] : v.entries)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", KeyText(key, " "), Flow(value));
      return fmt::format("{{{}}}", out);
  }
  return out;
}

}  // namespace

Result<ConfigValue> ParseYaml(std::string_view text, std::string_view name) {
  if (text.size() > kMaxBytes)
    return BadInput("E0612", "{} bytes, but a settings file has at most {}", text.size(), kMaxBytes)
        .Of(name);
  TreeBuilder builder(name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      AMPC_TRY(builder.TakeStatus());
      TreeBuilder second(name);
      if (parser.HandleNextDocument(second))
        return BadInput("E0612", "a settings file holds one YAML document, found a second")
            .Of(name);
    }
  } catch (const YAML::Exception& e) {
    return BadInput("E0611", "line {}: {}", e.mark.line + 1, e.msg).Of(name);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return BadInput("E0611", "not a YAML file: {}", e.what()).Of(name);
  }
  ConfigValue root = builder.TakeRoot();
  if (root.is_null()) return ConfigValue::Map();
  if (!root.is_map())
    return BadInput("E0612", "line {}: expected `key: value` lines", root.line).Of(name);
  return root;
}

Result<ConfigValue> ReadYamlFile(const std::string& path) {
  AMPC_ASSIGN(std::string text, ReadFile(path, static_cast<int64_t>(kMaxBytes)));
  return ParseYaml(text, path);
}

std::string WriteYaml(const ConfigValue& value) {
  std::string out;
  for (const auto& [key, v] : value.entries) {
    if (v.is_map() && !v.entries.empty()) {
      out += fmt::format("{}\n", KeyText(key, ""));
      for (const auto& [inner, w] : v.entries)
        out += fmt::format("  {} {}\n", KeyText(inner, "  "), Flow(w));
    } else if (v.is_list() && !v.items.empty() && v.items[0].is_map()) {
      out += fmt::format("{}\n", KeyText(key, ""));
      for (const ConfigValue& item : v.items) out += fmt::format("  - {}\n", Flow(item));
    } else {
      out += fmt::format("{} {}\n", KeyText(key, ""), Flow(v));
    }
  }
  return out;
}

}  // namespace ampc
