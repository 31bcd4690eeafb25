// SPDX-License-Identifier: Apache-2.0
// --help and --version, from the flag table.
#include "runtime/config/settings.h"

namespace ampc {
namespace {

constexpr std::string_view kVersion = AMPC_VERSION;

std::string_view Title(Group group) {
  switch (group) {
    case Group::kModel:
      return "Model";
    case Group::kLoss:
      return "Loss and metrics";
    case Group::kOptimizer:
      return "Optimizer";
    case Group::kPrecision:
      return "Precision";
    case Group::kData:
      return "Data";
    case Group::kRun:
      return "Run";
    case Group::kOutput:
      return "Output";
    case Group::kGeneral:
      return "General";
    case Group::kDebug:
      return "Debugging";
  }
  return "";
}

std::string_view Usage(Tool tool) {
  switch (tool) {
    case Tool::kAmpc:
      return "usage: ampc MODEL.onnx --info\n"
             "       ampc MODEL.onnx [flags]                 compiles and prints the summary\n"
             "       ampc MODEL.onnx -o train.plan [flags]\n"
             "Compiles an ONNX model into a mixed-precision training plan.\n";
    case Tool::kAmprun:
      return "usage: amprun PLAN [flags]\n"
             "       amprun PLAN --info | --dump\n"
             "Trains a model by running its plan.\n";
    case Tool::kAmpcOpt:
      return "usage: ampc-opt --passes=a,b IN.onnxtext [flags]\n"
             "Runs compiler passes on a module in text form.\n";
  }
  return "";
}

constexpr size_t kColumn = 26, kWidth = 100;

/// `text` broken at spaces, indented to the help column.
std::string Wrapped(std::string_view text, size_t column) {
  std::string out;
  while (text.size() > kWidth - column) {
    size_t space = text.rfind(' ', kWidth - column);
    if (space == std::string_view::npos || space == 0) break;
    out += fmt::format("{}\n{:{}}", text.substr(0, space), "", column);
    text.remove_prefix(space + 1);
  }
  return out + std::string(text);
}

std::string KeyLine(const KeySpec& key) {
  std::string text(key.name);
  text += '=';
  if (!key.choices.empty()) text += fmt::format("{} ", key.choices);
  if (!key.fallback.empty()) text += fmt::format("({}) ", key.fallback);
  if (!key.heads.empty()) text += fmt::format("[{}] ", key.heads);
  text += key.help;
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string FlagHelp(const FlagSpec& flag) {
  std::string left = flag.short_name == 0 ? "    " : fmt::format("-{}, ", flag.short_name);
  left += fmt::format("--{}", flag.name);
  if (flag.meta.starts_with("[=")) {
    left += flag.meta;
  } else if (!flag.meta.empty()) {
    left += fmt::format(" {}{}", flag.meta, flag.keys.empty() ? "" : "[:k=v,..]");
  }
  std::string right(flag.help);
  if (!flag.fallback.empty()) right += fmt::format(" (default: {})", flag.fallback);
  if (flag.repeatable) right += "; repeatable";
  std::string out = "  " + left;
  out += left.size() + 3 > kColumn ? fmt::format("\n{:{}}", "", kColumn + 2)
                                   : fmt::format("{:{}}", "", kColumn - left.size());
  out += Wrapped(right, kColumn + 2) + "\n";
  std::string words;
  for (const Choice& choice : flag.choices) {
    if (choice.built) words += fmt::format("{}{}", words.empty() ? "" : "|", choice.name);
  }
  if (!words.empty() && flag.meta.find('|') == std::string_view::npos)
    out += fmt::format("{:{}}{}: {}\n", "", kColumn + 2, flag.meta, Wrapped(words, kColumn + 8));
  for (const KeySpec& key : flag.keys) {
    if (key.built)
      out += fmt::format("{:{}}{}\n", "", kColumn + 4, Wrapped(KeyLine(key), kColumn + 6));
  }
  return out;
}

}  // namespace

std::string HelpText(Tool tool) {
  std::string out(Usage(tool));
  out +=
      "\nA value is HEAD[:key=value,..]; lists are [a,b]; '..' quotes; numbers may be fractions "
      "(1/255).\n";
  for (int g = 0; g <= static_cast<int>(Group::kDebug); ++g) {
    Group group = static_cast<Group>(g);
    bool first = true;
    for (const FlagSpec& flag : AllFlags()) {
      if (!flag.For(tool) || !flag.built || flag.group != group) continue;
      if (first) out += fmt::format("\n{}:\n", Title(group));
      first = false;
      out += FlagHelp(flag);
    }
  }
  return out;
}

std::string VersionText(Tool tool) { return fmt::format("{} {}", Name(tool), kVersion); }

}  // namespace ampc
