// SPDX-License-Identifier: Apache-2.0
// Settings from all sides. The first byte says which: 'p' a policy file, 'a' and 'u' the arguments
// of ampc and amprun, one a line; anything else is a recipe. Settings that were accepted write a
// recipe that is accepted again and means the same.

#include <sstream>
#include <vector>

#include "compiler/policy.h"
#include "runtime/config/settings.h"
#include "runtime/config/yaml.h"
#include "test/fuzz/fuzz.h"

namespace ampc {
namespace {

void ReadBack(const Settings& settings) {
  const std::string recipe = RecipeText(settings, "");
  const auto parsed = ParseYaml(recipe, "written recipe");
  if (!parsed.ok()) return fuzz::Fail(parsed.status().ToString() + "\n" + recipe);
  Settings again(settings.tool());
  if (Status s = MergeRecipe(again, *parsed, "", "written recipe"); !s.ok())
    return fuzz::Fail(s.ToString() + "\n" + recipe);
  if (const std::string twice = RecipeText(again, ""); twice != recipe)
    fuzz::Fail("the recipe changes when it is read back:\n" + recipe + "---\n" + twice);
  const std::string config = ConfigText(settings);
  if (const auto written = ParseYaml(config, "config"); !written.ok())
    fuzz::Fail(written.status().ToString() + "\n" + config);
}

void Recipe(std::string_view text) {
  const auto root = ParseYaml(text, "input");
  fuzz::NoBug(root.status());
  if (!root.ok()) return;
  if (const auto again = ParseYaml(WriteYaml(*root), "written"); !again.ok())
    return fuzz::Fail(again.status().ToString() + "\n" + WriteYaml(*root));
  for (const Tool tool : {Tool::kAmpc, Tool::kAmprun}) {
    Settings settings(tool);
    Status status = MergeRecipe(settings, *root, ".", "input");
    fuzz::NoBug(status);
    if (status.ok()) ReadBack(settings);
  }
}

void Arguments(Tool tool, std::string_view text) {
  std::vector<std::string> lines = {"tool"};
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line) && lines.size() < 64;) lines.push_back(line);
  std::vector<const char*> argv;
  for (const std::string& line : lines) argv.push_back(line.c_str());
  const auto settings = ParseCommandLine(tool, static_cast<int>(argv.size()), argv.data());
  fuzz::NoBug(settings.status());
  if (settings.ok()) ReadBack(*settings);
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  const std::string_view text = ampc::fuzz::TextOf(data, size);
  const char kind = text.empty() ? ' ' : text.front();
  if (kind == 'p') {
    const auto policy = ampc::LoadPolicy(folder.Write("policy.yaml", text.substr(1)));
    ampc::fuzz::NoBug(policy.status());
    if (!policy.ok()) return 0;
    const std::string written = ampc::PolicyText(*policy);
    if (const auto again = ampc::LoadPolicy(folder.Write("again.yaml", written));
        !again.ok() || ampc::PolicyText(*again) != written)
      ampc::fuzz::Fail("the policy does not read back:\n" + written);
  } else if (kind == 'a' || kind == 'u') {
    ampc::Arguments(kind == 'a' ? ampc::Tool::kAmpc : ampc::Tool::kAmprun, text.substr(1));
  } else {
    ampc::Recipe(text);
  }
  return 0;
}
