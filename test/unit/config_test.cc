// SPDX-License-Identifier: Apache-2.0
// The flag grammar, YAML recipes and the flag table, with hostile input.
#include "runtime/config/settings.h"
#include "runtime/config/yaml.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace ampc {
namespace {

Result<Settings> Parse(Tool tool, std::vector<const char*> args) {
  args.insert(args.begin(), "tool");
  return ParseCommandLine(tool, static_cast<int>(args.size()), args.data());
}

/// The message of the error, or "" when there is none.
std::string Error(Tool tool, std::vector<const char*> args) {
  Result<Settings> settings = Parse(tool, std::move(args));
  if (settings.ok()) return "";
  EXPECT_EQ(settings.status().exit_code(), 2) << settings.status().ToString();
  return settings.status().message();
}

Settings Must(Tool tool, std::vector<const char*> args) {
  Result<Settings> settings = Parse(tool, std::move(args));
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  return settings.ok() ? std::move(settings).value() : Settings(tool);
}

/// Merges `yaml` into the settings of `args`.
Result<Settings> Merge(Tool tool, std::string_view yaml, std::vector<const char*> args = {},
                       const std::string& dir = ".") {
  Settings settings = Must(tool, std::move(args));
  AMPC_ASSIGN(ConfigValue recipe, ParseYaml(yaml, "r.yaml"));
  AMPC_TRY(MergeRecipe(settings, recipe, dir, "r.yaml"));
  return settings;
}

std::string MergeError(std::string_view yaml) {
  Result<Settings> settings = Merge(Tool::kAmpc, yaml);
  return settings.ok() ? "" : settings.status().ToString();
}

// ---- numbers and grammar ----

TEST(Number, ReadsDecimalsFractionsAndInfinity) {
  EXPECT_EQ(ParseNumber("4.0e-3"), 4e-3);
  EXPECT_EQ(ParseNumber("1/256"), 1.0 / 256);
  EXPECT_EQ(ParseNumber("-1.5/0.5"), -3.0);
  EXPECT_EQ(ParseNumber("inf"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(ParseNumber("+2"), 2.0);
  for (const char* bad :
       {"", "nan", "1/0", "x", "1x", "0x10", "1/", "/2", "1/2/3", "+-1", " 1", "inf/inf"})
    EXPECT_FALSE(ParseNumber(bad)) << bad;
}

TEST(Number, ReadsIntegersExactly) {
  EXPECT_EQ(ParseInt("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ParseInt("1e3"), 1000);
  for (const char* bad : {"1.5", "1e30", "9223372036854775808", "", "+"})
    EXPECT_FALSE(ParseInt(bad)) << bad;
}

TEST(Grammar, OptionPartStartsAtLastColonBeforeKey) {
  EXPECT_EQ(FindOptionPart("onnx::MatMul_1"), std::string::npos);
  EXPECT_EQ(FindOptionPart("onnx::MatMul_1:axis=2"), 14u);
  EXPECT_EQ(FindOptionPart("a:b=1:c=2"), 5u);
  EXPECT_EQ(FindOptionPart("'a:b=1'"), std::string::npos);
  EXPECT_EQ(FindOptionPart("0:9000"), std::string::npos);
}

TEST(Grammar, SplitsKeysListsAndQuotes) {
  Result<ParsedOption> o =
      ParseOptionText("adam:betas=[0.9,[1,2]],name='it''s, a:b=c',eps=1e-8", true);
  ASSERT_TRUE(o.ok()) << o.status().ToString();
  EXPECT_EQ(o->head, "adam");
  ASSERT_EQ(o->keys.size(), 3u);
  EXPECT_EQ(o->keys[0].second.ToString(), "[0.9,[1,2]]");
  EXPECT_EQ(o->keys[1].second.text, "it's, a:b=c");
  EXPECT_EQ(o->keys[2].second.Number(), 1e-8);
}

TEST(Grammar, RefusesBrokenText) {
  for (const char* bad :
       {"k:a='x", "k:a=[1", "k:a=1]", "k:a=1,b", "k:a=1,a=2", "k:a=[1]x", "k:a=1,=2"})
    EXPECT_FALSE(ParseOptionText(bad, true).ok()) << bad;
  std::string deep = "k:a=" + std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(ParseOptionText(deep, true).ok());
}

TEST(Grammar, SuggestsTheNearestName) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(Suggest("momentun", {"momentum", "eps"}), "; did you mean 'momentum'?");
  EXPECT_EQ(Suggest("zzzz", {"momentum", "eps"}), "");
}

// ---- table ----

TEST(Table, EveryDefaultPassesItsOwnCheck) {
  for (const FlagSpec& flag : AllFlags()) {
    for (const KeySpec& key : flag.keys) {
      if (key.fallback.empty() || !key.built) continue;
      Option option;
      option.spec = &flag;
      option.head = !key.heads.empty()      ? std::string(Words(key.heads)[0])
                    : !flag.choices.empty() ? std::string(flag.choices[0].name)
                                            : "x.y";
      Result<ConfigValue> value = ParseValueText(key.fallback);
      ASSERT_TRUE(value.ok());
      option.keys.emplace_back(key.name, *value);
      option.name = flag.naming == Naming::kNone ? "" : "n";
      Status status = CheckOption(option, "default");
      bool built_head = status.ok() || status.id() != "E0602";
      EXPECT_TRUE(status.ok() || !built_head)
          << flag.name << "." << key.name << ": " << status.ToString();
    }
    if (flag.fallback.empty()) continue;
    Option option;
    option.spec = &flag;
    option.head = flag.fallback;
    EXPECT_TRUE(CheckOption(option, "default").ok()) << flag.name;
  }
}

TEST(Table, NamesAreUniquePerTool) {
  for (Tool tool : {Tool::kAmpc, Tool::kAmprun, Tool::kAmpcOpt}) {
    std::set<std::string_view> names;
    std::set<char> shorts;
    for (const FlagSpec& flag : AllFlags()) {
      if (!flag.For(tool)) continue;
      EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
      if (flag.short_name == 0) continue;
      EXPECT_TRUE(shorts.insert(flag.short_name).second) << flag.name;
    }
  }
}

TEST(Table, HelpNamesEveryBuiltFlagAndNoOther) {
  for (Tool tool : {Tool::kAmpc, Tool::kAmprun, Tool::kAmpcOpt}) {
    std::string help = HelpText(tool);
    for (const FlagSpec& flag : AllFlags()) {
      if (!flag.For(tool)) continue;
      bool found = help.find(fmt::format("--{}", flag.name)) != std::string::npos;
      EXPECT_EQ(found, flag.built) << flag.name;
    }
  }
}

// ---- command line ----

TEST(CommandLine, ReadsFlagsInEveryForm) {
  Settings s = Must(Tool::kAmpc,
                    {"m.onnx", "-o", "t.plan", "--lr=0.1", "--dim", "batch=16", "--dim",
                     "eval:batch=250", "--explain", "-v", "--optimizer", "adamw:betas=[0.8,0.9]"});
  EXPECT_EQ(s.positional(), "m.onnx");
  EXPECT_EQ(s.Text("output"), "t.plan");
  EXPECT_EQ(s.Number("lr"), 0.1);
  ASSERT_EQ(s.All("dim").size(), 2u);
  EXPECT_EQ(s.All("dim")[1].name, "eval:batch");
  EXPECT_EQ(s.All("dim")[1].HeadInt(), 250);
  EXPECT_TRUE(s.Given("explain"));
  EXPECT_TRUE(s.Switch("verbose"));
  EXPECT_FALSE(s.Switch("quiet"));
  const Option& optimizer = *s.Find("optimizer");
  EXPECT_EQ(optimizer.Numbers("betas"), (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(optimizer.Number("weight_decay"), 0.01);
  EXPECT_FALSE(optimizer.Given("weight_decay"));
  EXPECT_FALSE(optimizer.Has("momentum"));
}

TEST(CommandLine, DefaultsComeFromTheTable) {
  Settings s = Must(Tool::kAmpc, {"m.onnx"});
  EXPECT_EQ(s.Text("precision"), "bf16");
  EXPECT_EQ(s.Find("optimizer")->Number("weight_decay"), 0);
  EXPECT_EQ(s.Find("loss-scale")->Number("init_scale"), 65536);
  EXPECT_FALSE(s.Given("precision"));
  EXPECT_EQ(s.Find("clip-norm"), nullptr);
}

TEST(CommandLine, ReadsDataOptions) {
  Settings s =
      Must(Tool::kAmprun,
           {"p.plan", "--data", "x=a.npz:member=m,scale=1/255,mean=[1,2],permute=[0,2,1]", "--data",
            "m=const:value=1", "--data", "z=random", "--eval-data", "f.npz:layout=steps"});
  const std::vector<Option>& data = s.All("data");
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0].name, "x");
  EXPECT_EQ(data[0].head, "a.npz");
  EXPECT_EQ(data[0].Text("member"), "m");
  EXPECT_EQ(data[0].Number("scale"), 1.0 / 255);
  EXPECT_EQ(data[0].Numbers("mean"), (std::vector<double>{1, 2}));
  EXPECT_EQ(data[0].Numbers("std"), (std::vector<double>{1}));
  EXPECT_EQ(data[0].Ints("permute"), (std::vector<int64_t>{0, 2, 1}));
  EXPECT_EQ(data[1].Number("value"), 1);
  EXPECT_EQ(data[2].head, "random");
  EXPECT_EQ(s.Find("eval-data")->name, "");
  EXPECT_EQ(s.Find("eval-data")->Text("layout"), "steps");
}

TEST(CommandLine, NamesWithColonsAreSafe) {
  Settings s = Must(Tool::kAmprun,
                    {"p.plan", "--data", "onnx::X_0=a.npy", "--data", "'a:layout=b'=c.npy:scale=2",
                     "--fetch", "eval:onnx::MatMul_1:layout=steps", "--fetch", "grad:fc1.weight"});
  EXPECT_EQ(s.All("data")[0].name, "onnx::X_0");
  EXPECT_EQ(s.All("data")[0].head, "a.npy");
  EXPECT_EQ(s.All("data")[1].name, "a:layout=b");
  EXPECT_EQ(s.All("data")[1].Number("scale"), 2);
  EXPECT_EQ(s.All("fetch")[0].head, "eval:onnx::MatMul_1");
  EXPECT_EQ(s.All("fetch")[1].head, "grad:fc1.weight");
}

TEST(CommandLine, NumberOrWordAsLossScale) {
  EXPECT_EQ(
      Must(Tool::kAmpc, {"--loss-scale", "1024:max_skips=3"}).Find("loss-scale")->Int("max_skips"),
      3);
  EXPECT_EQ(Error(Tool::kAmpc, {"--loss-scale", "-1"}),
            "--loss-scale: expected a positive number, found -1");
  EXPECT_NE(Error(Tool::kAmpc, {"--loss-scale", "dynamc"}).find("did you mean 'dynamic'"),
            std::string::npos);
  EXPECT_NE(Error(Tool::kAmpc, {"--loss-scale", "off:init_scale=2"})
                .find("'off' has no key 'init_scale'"),
            std::string::npos);
}

TEST(CommandLine, UnknownFlagsKeysAndValuesSuggest) {
  EXPECT_EQ(Error(Tool::kAmpc, {"--optimiser", "sgd"}),
            "unknown flag --optimiser; did you mean '--optimizer'?");
  EXPECT_EQ(Error(Tool::kAmpc, {"--optimizer", "adm"}),
            "--optimizer: unknown value 'adm'; did you mean 'adam'?");
  EXPECT_EQ(Error(Tool::kAmpc, {"--optimizer", "sgd:momentun=1"}),
            "--optimizer: unknown key 'momentun'; did you mean 'momentum'?");
  EXPECT_EQ(Error(Tool::kAmprun, {"--data", "f.npz:layot=steps"}),
            "--data: unknown key 'layot'; did you mean 'layout'?");
  EXPECT_NE(Error(Tool::kAmpc, {"-z"}), "");
}

TEST(CommandLine, RefusesWhatIsNotBuilt) {
  EXPECT_EQ(Error(Tool::kAmpc, {"--optimizer", "lamb"}), "--optimizer: 'lamb' is not built");
  EXPECT_EQ(Error(Tool::kAmpc, {"--memory-limit", "512M"}), "--memory-limit is not built");
  EXPECT_EQ(Error(Tool::kAmprun, {"--diagnose=overflow"}), "--diagnose is not built");
}

TEST(CommandLine, AmprunRefusesCompiledInFlags) {
  EXPECT_EQ(Error(Tool::kAmprun, {"--precision", "fp32"}), "--precision is compiled in; use ampc");
  EXPECT_EQ(Error(Tool::kAmprun, {"--loss=mse"}), "--loss is compiled in; use ampc");
  EXPECT_EQ(Error(Tool::kAmprun, {"--pad-to=8"}), "--pad-to is not built");
  EXPECT_NE(Error(Tool::kAmpc, {"--epochs", "3"}).find("flag of amprun"), std::string::npos);
}

TEST(CommandLine, RefusesBadNumbers) {
  EXPECT_EQ(Error(Tool::kAmpc, {"--lr", "fast"}), "--lr: expected a number, found 'fast'");
  EXPECT_EQ(Error(Tool::kAmpc, {"--accumulate", "0"}),
            "--accumulate: expected at least 1, found 0");
  EXPECT_EQ(Error(Tool::kAmpc, {"--accumulate", "1.5"}),
            "--accumulate: expected an integer, found '1.5'");
  EXPECT_EQ(Error(Tool::kAmpc, {"--dim", "batch=many"}),
            "--dim: expected an integer, found 'many'");
  EXPECT_EQ(Error(Tool::kAmpc, {"--dim", "16"}), "--dim: expected NAME=N, found '16'");
  EXPECT_EQ(Error(Tool::kAmprun, {"--range", "5"}),
            "--range: expected a:b (either may be left out, or a percentage), found '5'");
}

TEST(CommandLine, RefusesMissingDoubleAndSpareArguments) {
  EXPECT_EQ(Error(Tool::kAmpc, {"--lr"}), "--lr needs a value: X");
  EXPECT_EQ(Error(Tool::kAmpc, {"--lr", "--verbose"}), "--lr needs a value: X");
  EXPECT_EQ(Error(Tool::kAmpc, {"--lr", "1", "--lr=2"}), "--lr is given twice");
  EXPECT_EQ(Error(Tool::kAmpc, {"--dim", "a=1", "--dim", "a=2"}), "--dim is given twice for 'a'");
  EXPECT_EQ(Error(Tool::kAmpc, {"a.onnx", "b.onnx"}),
            "expected one file, found 'a.onnx' and 'b.onnx'");
  EXPECT_EQ(Error(Tool::kAmprun, {"--resume=yes"}), "--resume takes no value, found 'yes'");
}

// ---- YAML ----

TEST(Yaml, RoundTripsThroughText) {
  const char* text =
      "a: 1/256\nb: [1, \"2\", [x, {y: z}]]\nc:\n  'eval:batch': 250\n  d: {k: \"a: b\"}\ne: "
      "\"\"\n";
  Result<ConfigValue> first = ParseYaml(text, "t");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  std::string printed = WriteYaml(*first);
  Result<ConfigValue> second = ParseYaml(printed, "t");
  ASSERT_TRUE(second.ok()) << printed << second.status().ToString();
  EXPECT_EQ(WriteYaml(*second), printed);
  EXPECT_EQ(second->Find("e")->text, "");
  EXPECT_EQ(second->Find("c")->Find("d")->Find("k")->text, "a: b");
  EXPECT_FALSE(second->Find("b")->items[1].Number());
}

TEST(Yaml, LongKeysReadBack) {
  // Beyond 1,024 characters, counted with their escapes, YAML wants "? key".
  for (const std::string& key : {std::string(2000, 'k'), std::string(400, '\x01')}) {
    ConfigValue inner = ConfigValue::Map();
    inner.Set(key, ConfigValue::Scalar("1"));
    ConfigValue root = ConfigValue::Map();
    root.Set(key, ConfigValue::Scalar("2"));
    root.Set("m", inner);
    ConfigValue deep = ConfigValue::Map();
    deep.Set("d", inner);
    root.Set("n", deep);
    const std::string printed = WriteYaml(root);
    const auto again = ParseYaml(printed, "again");
    ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << printed;
    EXPECT_EQ(WriteYaml(*again), printed);
  }
}

TEST(Yaml, EveryScalarReadsBack) {
  // What ends a plain scalar differs between block and flow, keys and values.
  std::vector<std::string> texts = {"...", "---",  "null", "-1e3",
                                    "a b", "a: b", "a #b", "\xc3\xa9"};
  for (char c = 1; c > 0 && c < 127; ++c) {
    for (const char* form : {"%", "%b", "a%", "a%b", "a%%b", "a% b", "a %b"}) {
      std::string text = form;
      for (size_t at = 0; (at = text.find('%', at)) != std::string::npos; ++at) text[at] = c;
      texts.push_back(text);
    }
  }
  for (const std::string& text : texts) {
    const ConfigValue scalar = ConfigValue::Scalar(text);
    const ConfigValue list = ConfigValue::List({scalar, scalar});
    ConfigValue flow = ConfigValue::Map(), root = ConfigValue::Map();
    flow.Set(text, scalar);
    flow.Set("list", list);
    root.Set(text, scalar);
    root.Set("flow", flow);
    root.Set("list", list);
    const auto again = ParseYaml(WriteYaml(root), "again");
    ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << WriteYaml(root);
    ASSERT_NE(again->Find(text), nullptr) << WriteYaml(root);
    EXPECT_EQ(again->Find(text)->text, text) << WriteYaml(root);
    EXPECT_EQ(again->Find("flow")->Find(text)->text, text) << WriteYaml(root);
    EXPECT_EQ(again->Find("flow")->Find("list")->items[1].text, text) << WriteYaml(root);
    EXPECT_EQ(again->Find("list")->items[0].text, text) << WriteYaml(root);
  }
}

/// The option that a recipe's own written form says again, once it is read back.
Option ReadBack(Tool tool, std::string_view flag, std::string_view yaml) {
  const Result<Settings> given = Merge(tool, yaml, {}, ".");
  EXPECT_TRUE(given.ok()) << given.status().ToString() << yaml;
  if (!given.ok()) return {};
  const std::string text = RecipeText(*given, "");
  const Result<Settings> again = Merge(tool, text, {}, ".");
  EXPECT_TRUE(again.ok()) << again.status().ToString() << text;
  return again.ok() ? again->All(flag).front() : Option();
}

TEST(Recipe, NamesThatLookLikeKeysReadBack) {
  const Option data =
      ReadBack(Tool::kAmprun, "data", "data:\n  image: {file: \"a:scale=1b/c.npy\"}\n");
  EXPECT_EQ(data.head, "a:scale=1b/c.npy");
}

TEST(Recipe, FileNamesThatLookLikeWordsOrNumbersReadBack) {
  for (const std::string name : {"noise", "random", "1", "0.5", "1/2", "inf", "-", "00[1,2"}) {
    const std::string file = "./" + name;
    const Option data =
        ReadBack(Tool::kAmprun, "data", fmt::format("data: {{image: {{file: '{}'}}}}\n", file));
    EXPECT_EQ(data.head, file);
    const Option loss = ReadBack(
        Tool::kAmpc, "loss", fmt::format("loss: {{kind: cross-entropy, weight: '{}'}}\n", file));
    ASSERT_EQ(loss.keys.size(), 1u);
    EXPECT_EQ(loss.keys.front().second.text, file);
  }
}

TEST(Yaml, RefusesHostileText) {
  const std::string cases[] = {
      "a: &x 1\nb: *x\n",   // alias
      "a: !!binary xx\n",   // tag
      "a: 1\na: 2\n",       // duplicate
      "a: {b: 1, b: 2}\n",  // duplicate below
      "a: 1\n---\nb: 2\n",  // two documents
      "- a\n- b\n",         // no map
      "a: [1\n",            // syntax
      "a: b: c\n",          // syntax
      "? [a, b]\n: 1\n",    // list as a key
      "a: " + std::string(17, '[') + std::string(17, ']') + "\n",
      "a: " + std::string(20000, '[') + "\n",  // deep enough to overflow a naive reader's stack
      std::string(5 << 20, 'a'),               // too long
  };
  for (const std::string& text : cases) {
    Result<ConfigValue> value = ParseYaml(text, "t.yaml");
    ASSERT_FALSE(value.ok()) << text.substr(0, 40);
    EXPECT_EQ(value.status().exit_code(), 1);
    EXPECT_EQ(value.status().file(), "t.yaml");
  }
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i)
    laughs += fmt::format("a{}: &a{} [*a{}, *a{}]\n", i, i, i - 1, i - 1);
  EXPECT_FALSE(ParseYaml(laughs, "t").ok());
}

TEST(Yaml, EmptyTextIsAnEmptyMap) {
  EXPECT_TRUE(ParseYaml("", "t")->is_map());
  EXPECT_TRUE(ParseYaml("# nothing\n", "t")->is_map());
}

// ---- recipe ----

constexpr const char* kRecipe = R"(
model: ts_train_dynamic.onnx
dim: {batch: 64, "eval:batch": 250}
loss: {kind: cross-entropy, target: label}
metric: [accuracy, {kind: accuracy, k: 5}]
optimizer: {kind: adamw, weight_decay: 0.01}
lr: 4.0e-3
lr_schedule: {kind: cosine, warmup: 50}
precision: bf16
param_group: {"*.bias": {lr: 0.1}}
data:
  image: {file: t10k-images-idx3-ubyte.gz, scale: 1/256}
  label: {file: /abs/labels.gz}
  mask: {kind: const, value: 1}
  noise: random
  words: {file: t.txt, tokens: char, vocab: texts/v.txt, shift: 1}
range: "0:9000"
eval_range: 9000:10000
epochs: 5
checkpoint_every: 200
no_shuffle: true
keep: 2
)";

TEST(Recipe, MeansTheSameAsFlags) {
  Result<Settings> s = Merge(Tool::kAmprun, kRecipe, {"p.plan"}, "dir");
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  EXPECT_EQ(s->Number("lr"), 4e-3);
  EXPECT_EQ(s->Int("epochs"), 5);
  EXPECT_EQ(s->Int("keep"), 2);
  EXPECT_TRUE(s->Switch("no-shuffle"));
  EXPECT_EQ(s->origin("range"), Origin::kRecipe);
  ASSERT_EQ(s->All("data").size(), 5u);
  EXPECT_EQ(s->All("data")[0].ToString(), "image=dir/t10k-images-idx3-ubyte.gz:scale=1/256");
  EXPECT_EQ(s->All("data")[1].ToString(), "label=/abs/labels.gz");
  EXPECT_EQ(s->All("data")[2].ToString(), "mask=const:value=1");
  EXPECT_EQ(s->All("data")[3].ToString(), "noise=random");
  EXPECT_EQ(s->All("data")[4].ToString(),
            "words=dir/t.txt:tokens=char,vocab=dir/texts/v.txt,shift=1");
  EXPECT_EQ(s->All("param-group")[0].ToString(), "*.bias:lr=0.1");
  Result<Settings> c = Merge(Tool::kAmpc, kRecipe);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->All("metric")[1].Int("k"), 5);
  EXPECT_EQ(c->All("dim")[1].name, "eval:batch");
  EXPECT_FALSE(c->Given("keep"));
}

TEST(Recipe, FlagReplacesTheRecipesValueListsIncluded) {
  Result<Settings> s = Merge(Tool::kAmprun, kRecipe, {"--data", "image=b.npy", "--epochs", "1"});
  ASSERT_TRUE(s.ok());
  ASSERT_EQ(s->All("data").size(), 1u);
  EXPECT_EQ(s->All("data")[0].head, "b.npy");
  EXPECT_EQ(s->Int("epochs"), 1);
  EXPECT_EQ(s->origin("epochs"), Origin::kFlag);
}

TEST(Recipe, StoredTextIsRelativeToItsFolderAndStable) {
  Result<Settings> s = Merge(Tool::kAmpc, kRecipe, {"--lr", "0.5"}, "in/dir");
  ASSERT_TRUE(s.ok());
  std::string text = RecipeText(*s, "out");
  Result<Settings> again = Merge(Tool::kAmprun, text, {}, "out");
  ASSERT_TRUE(again.ok()) << text << again.status().ToString();
  EXPECT_EQ(again->Number("lr"), 0.5);
  EXPECT_EQ(again->All("data")[1].head, "/abs/labels.gz");
  EXPECT_EQ(std::filesystem::path(again->All("data")[0].head).lexically_normal(),
            "in/dir/t10k-images-idx3-ubyte.gz");
  Result<ConfigValue> parsed = ParseYaml(text, "t");
  EXPECT_EQ(parsed->Find("data")->Find("image")->Find("file")->text,
            "../in/dir/t10k-images-idx3-ubyte.gz");
  EXPECT_EQ(parsed->Find("data")->Find("words")->Find("vocab")->text, "../in/dir/texts/v.txt");
}

TEST(Recipe, ReadsTheFlagGrammarInScalars) {
  Result<Settings> s =
      Merge(Tool::kAmpc, "loss: 'cross-entropy:target=label,axis=1'\nmetric: accuracy\n");
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  EXPECT_EQ(s->Find("loss")->Int("axis"), 1);
}

TEST(Recipe, NamesLineAndNearestKey) {
  EXPECT_EQ(MergeError("a: 1\n"), "r.yaml: error[E0601]: line 1: unknown key 'a'");
  EXPECT_EQ(MergeError("\nepoch: 1\n"),
            "r.yaml: error[E0601]: line 2: unknown key 'epoch'; did you mean 'epochs'?");
  EXPECT_EQ(MergeError("lr-schedule: constant\n"),
            "r.yaml: error[E0601]: line 1: unknown key 'lr-schedule'; did you mean 'lr_schedule'?");
  EXPECT_EQ(
      MergeError("optimizer: {kind: sgd, momentun: 1}\n"),
      "r.yaml: error[E0605]: line 1: optimizer: unknown key 'momentun'; did you mean 'momentum'?");
  EXPECT_EQ(MergeError("lr: [1, 2]\n"),
            "r.yaml: error[E0603]: line 1: lr: expected one value, found a list");
  EXPECT_EQ(MergeError("lr:\n"), "r.yaml: error[E0603]: line 1: lr: expected X, found nothing");
  EXPECT_EQ(MergeError("optimizer: {momentum: 1}\n"),
            "r.yaml: error[E0603]: line 1: optimizer: the map needs 'kind'");
  EXPECT_EQ(MergeError("resume: true\n").find("r.yaml: error[E0601]"), 0u);
  EXPECT_NE(MergeError("trace: x.json\n").find("is not built"), std::string::npos);
  EXPECT_NE(MergeError("dim: {batch: {size: {a: 1}}}\n"), "");
}

TEST(Recipe, IsReadByAmpcWithNamesRelativeToIt) {
  std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("ampc_config_{}", getpid());
  std::filesystem::create_directories(dir);
  std::string path = (dir / "r.yaml").string();
  std::ofstream(path) << "model: m.onnx\nlr: 0.25\n";
  Settings s = Must(Tool::kAmpc, {"--recipe", path.c_str()});
  EXPECT_EQ(s.positional(), (dir / "m.onnx").string());
  EXPECT_EQ(s.Number("lr"), 0.25);
  std::filesystem::remove_all(dir);
  Result<Settings> missing = Parse(Tool::kAmpc, {"--recipe", path.c_str()});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().exit_code(), 6);
}

TEST(Config, PrintsEffectiveSettingsThatReadBackEqual) {
  Settings s = Must(Tool::kAmpc, {"m.onnx", "--optimizer", "adam:eps=1e-6", "--loss", "mse"});
  std::string text = ConfigText(s);
  EXPECT_NE(text.find("eps: 1e-6"), std::string::npos) << text;
  EXPECT_NE(text.find("betas: [0.9, 0.999]"), std::string::npos) << text;
  EXPECT_NE(text.find("precision: bf16"), std::string::npos) << text;
  Result<Settings> again = Merge(Tool::kAmpc, text);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(ConfigText(*again), text);
}

TEST(Range, AcceptsNumbersAndPercentages) {
  for (const char* good : {"0:9000", "90%:", ":50%", "5:", "12.5%:100%"})
    EXPECT_EQ(Error(Tool::kAmprun, {"--range", good}), "") << good;
  for (const char* bad : {":", "5", "a:b", "-1:2", "101%:", "1:2:3"})
    EXPECT_NE(Error(Tool::kAmprun, {"--range", bad}), "") << bad;
}

}  // namespace
}  // namespace ampc
