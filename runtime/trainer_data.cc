// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_data.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

namespace ampc {
namespace {

/// Leaves out sources of feeds that another program of the plan has, but not this one (a mask that
/// only training reads).
std::vector<DataSource> SourcesFor(const plan::Plan& plan, const FeedSet& feeds,
                                   std::vector<DataSource> sources) {
  std::erase_if(sources, [&](const DataSource& source) {
    if (source.feed.empty()) return false;
    bool here = std::any_of(feeds.specs.begin(), feeds.specs.end(),
                            [&](const FeedSpec& f) { return f.name == source.feed; });
    bool elsewhere = std::any_of(plan.feeds.begin(), plan.feeds.end(),
                                 [&](const plan::Feed& f) { return f.name == source.feed; });
    return !here && elsewhere;
  });
  return sources;
}

/// How the file of a source becomes tokens; nullopt: it is an array.
std::optional<TokenForm> TokensOf(const Option& option) {
  TokenForm form;
  if (option.Given("tokens")) {
    form.kind = TokenForm::Kind::kCharacters;
    if (option.Given("vocab")) form.vocabulary = option.Text("vocab");
    return form;
  }
  if (!option.Given("dtype") && !option.Given("header") && !option.head.ends_with(".bin"))
    return std::nullopt;
  if (option.Given("dtype")) form.dtype = TokenTypeOf(option.Text("dtype"));
  if (option.Given("header")) form.header = option.Int("header");
  return form;
}

/// Keys that would have no effect are refused.
Status CheckTokenKeys(const Option& option, const DataSource& source) {
  const auto refuse = [&](std::initializer_list<std::string_view> keys, std::string_view what) {
    for (std::string_view key : keys) {
      if (option.Given(key))
        return UsageError("E0605", "'{}': key '{}' is for {}", option.head, key, what);
    }
    return Status();
  };
  const bool text = source.tokens && source.tokens->kind == TokenForm::Kind::kCharacters;
  if (text) AMPC_TRY(refuse({"dtype", "header"}, "raw tokens, not for text"));
  if (!text) AMPC_TRY(refuse({"vocab"}, "text with tokens=char"));
  if (!source.tokens)
    return refuse({"stride", "shift"}, "tokens: a .bin file, dtype=, or text with tokens=char");
  AMPC_TRY(refuse({"member", "permute"}, "arrays, not for tokens"));
  if (source.layout != DataSource::Layout::kSamples || source.axis != 0)
    return UsageError("E0605", "'{}': keys 'layout' and 'axis' are for arrays, not for tokens",
                      option.head);
  return {};
}

/// An evaluation text has the vocabulary of the training text of the same feed, so that a token
/// means the same in both.
void ShareVocabularies(std::span<const DataSource> training, std::vector<DataSource>& evaluation) {
  for (DataSource& source : evaluation) {
    if (!source.tokens || !source.tokens->vocabulary.empty()) continue;
    for (const DataSource& other : training) {
      if (other.feed != source.feed || !other.tokens || other.tokens->kind != source.tokens->kind)
        continue;
      source.tokens->vocabulary =
          other.tokens->vocabulary.empty() ? other.path : other.tokens->vocabulary;
    }
  }
}

/// The dataset says what is wrong; this says which flag can mend it.
Result<std::unique_ptr<Dataset>> Open(const plan::Plan& plan, const FeedSet& feeds,
                                      std::vector<DataSource> sources,
                                      const DatasetOptions& options, ArrayLoader& loader) {
  return Dataset::Open(feeds.specs, SourcesFor(plan, feeds, std::move(sources)), options, loader);
}

}  // namespace

FeedSet FeedsOf(const plan::Plan& plan, const plan::Program& program) {
  FeedSet set;
  bool eval = program.name == "eval";
  for (size_t i = 0; i < plan.feeds.size(); ++i) {
    const plan::Feed& feed = plan.feeds[i];
    if (!feed.program.empty() && (feed.program == "eval") != eval) continue;
    bool used =
        std::any_of(program.buffers.begin(), program.buffers.end(), [&](const plan::Buffer& b) {
          return b.space == plan::Space::kFeed && b.index == static_cast<int32_t>(i);
        });
    if (feed.kind == plan::Feed::Kind::kValid) {
      if (used) set.valid = static_cast<int>(i);
      continue;
    }
    if (!used) continue;
    FeedSpec spec{feed.name, feed.desc.dtype, feed.desc.dims, {.limit = feed.limit}};
    if (feed.from_end) spec.range.low = -feed.limit;
    if (feed.has_ignore) spec.range.ignore = feed.ignore;
    set.specs.push_back(std::move(spec));
    set.feeds.push_back(static_cast<int>(i));
  }
  return set;
}

void FeedSet::Bind(Executor& executor) {
  buffers.clear();
  for (int feed : feeds) buffers.push_back(executor.feed(feed).data());
}

Result<std::vector<DataSource>> SourcesOf(const std::vector<Option>& options) {
  std::vector<DataSource> sources;
  for (const Option& option : options) {
    DataSource source;
    source.feed = option.name;
    if (option.head == "random") {
      source.kind = DataSource::Kind::kRandom;
      source.high = option.Int("below");
    } else if (option.head == "const") {
      source.kind = DataSource::Kind::kConst;
      source.value = option.Number("value");
    } else {
      source.path = option.head;
    }
    if (option.Given("member")) source.member = option.Text("member");
    if (option.Text("layout") == "steps") source.layout = DataSource::Layout::kSteps;
    source.normalization.scale = option.Number("scale");
    source.normalization.mean = option.Numbers("mean");
    source.normalization.std = option.Numbers("std");
    if (option.Given("permute")) source.permute = option.Ints("permute");
    source.axis = option.Int("axis");
    source.tokens = TokensOf(option);
    if (option.Given("stride")) source.stride = option.Int("stride");
    if (option.Given("shift")) source.shift = option.Int("shift");
    AMPC_TRY(CheckTokenKeys(option, source));
    sources.push_back(std::move(source));
  }
  return sources;
}

Result<std::unique_ptr<Dataset>> OpenTrainingData(const plan::Plan& plan, const FeedSet& feeds,
                                                  const Settings& settings, ArrayLoader& loader) {
  DatasetOptions options;
  options.range = settings.Text("range");
  options.seed = static_cast<uint64_t>(settings.Int("seed").value_or(0));
  options.shuffle = !settings.Switch("no-shuffle");
  options.batches_per_update = plan.accumulate;
  AMPC_ASSIGN(std::vector<DataSource> sources, SourcesOf(settings.All("data")));
  return Open(plan, feeds, std::move(sources), options, loader);
}

bool HasEvalData(const Settings& settings) {
  return !settings.All("eval-data").empty() || settings.Find("eval-range") != nullptr;
}

Result<std::unique_ptr<Dataset>> OpenEvalData(const plan::Plan& plan, const FeedSet& feeds,
                                              const Settings& settings, bool pad,
                                              ArrayLoader& loader) {
  DatasetOptions options;
  bool own = !settings.All("eval-data").empty();
  options.range = settings.Text("eval-range");
  options.range_flag = "--eval-range";
  if (!own && options.range.empty()) {
    options.range = settings.Text("range");
    options.range_flag = "--range";
  }
  options.seed = static_cast<uint64_t>(settings.Int("seed").value_or(0));
  options.pad_tail = pad;
  AMPC_ASSIGN(std::vector<DataSource> sources, SourcesOf(settings.All("data")));
  if (own) {
    AMPC_ASSIGN(std::vector<DataSource> evaluation, SourcesOf(settings.All("eval-data")));
    ShareVocabularies(sources, evaluation);
    sources = std::move(evaluation);
  }
  return Open(plan, feeds, std::move(sources), options, loader);
}

}  // namespace ampc
