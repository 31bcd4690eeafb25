// SPDX-License-Identifier: Apache-2.0
#include "runtime/fetch.h"

#include "runtime/base/glob.h"

#include <algorithm>

namespace ampc {
namespace {

constexpr std::string_view kGradient = "grad:";

/// Per tensor: the call after which it holds its value, or -1. A view that no call writes has it
/// after the last write to its buffer before it is read; a later one may reuse the memory.
std::vector<int> DefiningCalls(const plan::Program& program) {
  std::vector<int> calls(program.tensors.size(), -1), written(program.buffers.size(), -1);
  const auto buffer_of = [&](size_t tensor) {
    return static_cast<size_t>(program.tensors[tensor].buffer);
  };
  // A state's memory is written by its update, after the reads: see Fetcher::AddStates.
  const auto take = [&](size_t tensor) {
    if (calls[tensor] < 0 && program.buffers[buffer_of(tensor)].space == plan::Space::kBlock)
      calls[tensor] = written[buffer_of(tensor)];
  };
  for (size_t c = 0; c < program.calls.size(); ++c) {
    for (int32_t t : program.calls[c].inputs) {
      if (t >= 0) take(static_cast<size_t>(t));
    }
    for (int32_t t : program.calls[c].outputs) {
      if (t < 0) continue;
      calls[static_cast<size_t>(t)] = static_cast<int>(c);
      written[buffer_of(static_cast<size_t>(t))] = static_cast<int>(c);
    }
  }
  for (size_t t = 0; t < calls.size(); ++t) take(t);  // outputs that no call reads
  return calls;
}

/// Batch of a program's feeds; 0 when it has none.
int64_t BatchOf(const plan::Plan& plan, const std::string& program) {
  for (const plan::Feed& feed : plan.feeds) {
    if ((feed.program.empty() || feed.program == program) && !feed.desc.dims.empty())
      return feed.desc.dims[0];
  }
  return 0;
}

}  // namespace

struct Fetcher::Request {
  std::string given;    ///< as written
  std::string pattern;  ///< without the prefix
  bool train = true, apply = true, eval = true;
  bool prefixed = false;
  bool by_sample = true;

  bool Asks(const std::string& program) const {
    if (program == "step") return train || apply;
    return program == "train" ? train : program == "apply" ? apply : eval;
  }
};

int FindGradient(const plan::Program& program, const plan::State& weight) {
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const std::string& name = program.tensors[t].name;
    if (!name.starts_with(kGradient)) continue;
    std::string_view of = std::string_view(name).substr(kGradient.size());
    if (of == weight.name || (!weight.source.empty() && of == weight.source))
      return static_cast<int>(t);
  }
  return -1;
}

Fetcher::Fetcher(const plan::Plan& plan, Executor& executor, NpzWriter writer)
    : plan_(plan),
      executor_(executor),
      writer_(std::move(writer)),
      by_call_(plan.programs.size()),
      at_end_(plan.programs.size()),
      defining_(plan.programs.size()) {
  hook_.after = [this](int program, int call) { After(program, call); };
}

Result<std::unique_ptr<Fetcher>> Fetcher::Create(const plan::Plan& plan, Executor& executor,
                                                 const Settings& settings,
                                                 const std::set<int>& runs) {
  const std::vector<Option>& requests = settings.All("fetch");
  const Option* out = settings.Find("fetch-out");
  if (requests.empty() && out == nullptr) return std::unique_ptr<Fetcher>();
  if (requests.empty()) return UsageError("E0962", "--fetch-out needs --fetch GLOB");
  if (out == nullptr) return UsageError("E0962", "--fetch needs --fetch-out FILE.npz");
  AMPC_ASSIGN(NpzWriter writer, NpzWriter::Create(out->head));
  std::unique_ptr<Fetcher> fetcher(new Fetcher(plan, executor, std::move(writer)));
  for (const Option& request : requests) {
    std::string layout = request.Given("layout") ? request.Text("layout") : out->Text("layout");
    AMPC_TRY(fetcher->AddRequest(request, layout == "steps", runs));
  }
  AMPC_TRY(fetcher->Declare());
  return fetcher;
}

Status Fetcher::AddRequest(const Option& option, bool steps_layout, const std::set<int>& runs) {
  Request request;
  request.given = request.pattern = option.head;
  request.by_sample = !steps_layout;
  for (std::string_view prefix : {"train:", "apply:", "eval:"}) {
    if (!request.pattern.starts_with(prefix)) continue;
    request.pattern.erase(0, prefix.size());
    request.prefixed = true;
    request.train = prefix == "train:";
    request.apply = prefix == "apply:";
    request.eval = prefix == "eval:";
    break;
  }
  // The update's programs come first: of a name that both have (loss), a pattern without a prefix
  // means the window's.
  std::vector<int> order(runs.rbegin(), runs.rend());
  std::stable_partition(order.begin(), order.end(), [this](int p) { return NameOf(p) != "train"; });
  bool found = false, updates = false;
  for (int p : order) {
    const std::string& name = NameOf(p);
    if (name == "eval") continue;
    updates = true;
    if (request.Asks(name) && AddFromProgram(request, p)) found = true;
  }
  if (updates && (request.train || request.apply) && AddStates(request)) found = true;
  for (int p : runs) {
    if (NameOf(p) != "eval" || !request.eval) continue;
    // Without a prefix a value of the training graphs is meant, if there is one.
    if ((request.prefixed || !found) && AddFromProgram(request, p)) found = true;
  }
  return found ? Status() : NoMatch(request, runs);
}

Status Fetcher::NoMatch(const Request& request, const std::set<int>& runs) const {
  const bool gradient = request.pattern.starts_with(kGradient);
  bool runs_any = false, known_weight = false;
  std::vector<std::string_view> names;
  for (int p : runs) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(p)];
    if (!request.Asks(program.name)) continue;
    runs_any = true;
    for (const plan::Tensor& t : program.tensors) {
      if (names.size() < 20000 && t.name.starts_with(kGradient) == gradient)
        names.push_back(t.name);
    }
  }
  if (!runs_any) {
    return UsageError("E0963", "--fetch '{}': this run has none of these values{}", request.given,
                      request.eval ? ": no evaluation; give --eval-data or --eval-range"
                                   : ": no training step; give --data, and --steps above 0");
  }
  if (gradient) {
    const std::string_view weight = std::string_view(request.pattern).substr(kGradient.size());
    for (const plan::State& state : plan_.states) {
      known_weight = known_weight || (state.role == plan::Role::kWeight &&
                                      (state.name == weight || state.source == weight));
    }
    return UsageError("E0963", "--fetch: no gradient of this run matches '{}'{}", request.given,
                      known_weight ? ": the weight does not train, or its gradient is a constant"
                                   : Suggest(request.pattern, names));
  }
  return UsageError("E0963",
                    "--fetch: no value of this run matches '{}'{}; a value that was fused away can "
                    "be fetched after "
                    "`ampc --keep {}`",
                    request.given, Suggest(request.pattern, names), request.pattern);
}

bool Fetcher::AddFromProgram(const Request& request, int program) {
  const plan::Program& p = plan_.programs[static_cast<size_t>(program)];
  size_t before = members_.size();
  if (request.pattern.starts_with(kGradient)) {
    // Those of a micro-batch are scaled; the update holds the unscaled ones.
    if (p.name != "step" && p.name != "apply") return false;
    std::string weights = request.pattern.substr(kGradient.size());
    for (const plan::State& state : plan_.states) {
      if (state.role != plan::Role::kWeight) continue;
      const std::string& name = state.source.empty() ? state.name : state.source;
      int tensor = GlobMatches(weights, name) || GlobMatches(weights, state.name)
                       ? FindGradient(p, state)
                       : -1;
      if (tensor >= 0) AddTensor(request, program, tensor, fmt::format("{}{}", kGradient, name));
    }
    return members_.size() > before;
  }
  for (const plan::Output& output : p.outputs) {
    if (GlobMatches(request.pattern, output.name))
      AddTensor(request, program, output.tensor, output.name);
  }
  for (size_t t = 0; t < p.tensors.size(); ++t) {
    const plan::Tensor& tensor = p.tensors[t];
    plan::Space space = p.buffers[static_cast<size_t>(tensor.buffer)].space;
    if (space == plan::Space::kConstant || !GlobMatches(request.pattern, tensor.name)) continue;
    bool named_output = std::any_of(p.outputs.begin(), p.outputs.end(), [&](const plan::Output& o) {
      return o.tensor == static_cast<int32_t>(t) && GlobMatches(request.pattern, o.name);
    });
    if (!named_output) AddTensor(request, program, static_cast<int>(t), tensor.name);
  }
  return members_.size() > before;
}

void Fetcher::AddTensor(const Request& request, int program, int tensor, const std::string& name) {
  const plan::Program& p = plan_.programs[static_cast<size_t>(program)];
  const plan::Tensor& t = p.tensors[static_cast<size_t>(tensor)];
  std::vector<int>& defining = defining_[static_cast<size_t>(program)];
  if (defining.empty()) defining = DefiningCalls(p);
  const int call = defining[static_cast<size_t>(tensor)];
  plan::Space space = p.buffers[static_cast<size_t>(t.buffer)].space;
  if (call < 0 && space == plan::Space::kState) return;  // before the step: see AddStates
  for (const Member& m : members_) {
    if (m.program == program && m.tensor == tensor && m.key == name) return;
    if (!request.prefixed && m.program >= 0 && m.key == name && NameOf(m.program) == "apply")
      return;
  }
  Member member;
  member.key = name;
  member.program = program;
  member.tensor = tensor;
  member.dtype = t.desc.dtype;
  member.dims = t.desc.dims;
  member.by_sample = p.name == "eval" && request.by_sample && !t.desc.dims.empty() &&
                     t.desc.dims[0] == BatchOf(plan_, "eval");
  int index = static_cast<int>(members_.size());
  if (call < 0) {
    at_end_[static_cast<size_t>(program)].push_back(index);
  } else {
    auto& calls = by_call_[static_cast<size_t>(program)];
    calls.resize(p.calls.size());
    calls[static_cast<size_t>(call)].push_back(index);
  }
  members_.push_back(std::move(member));
}

bool Fetcher::AddStates(const Request& request) {
  bool found = false;
  for (size_t s = 0; s < plan_.states.size(); ++s) {
    const plan::State& state = plan_.states[s];
    bool by_source = !state.source.empty() && state.role != plan::Role::kLowCopy &&
                     GlobMatches(request.pattern, state.source);
    if (!by_source && !GlobMatches(request.pattern, state.name)) continue;
    found = true;
    const std::string& key = by_source ? state.source : state.name;
    bool taken = std::any_of(members_.begin(), members_.end(), [&](const Member& m) {
      return m.state == static_cast<int>(s) ||
             (m.key == key && m.program >= 0 &&
              plan_.programs[static_cast<size_t>(m.program)].name != "eval");
    });
    if (taken) continue;
    Member member;
    member.key = key;
    member.state = static_cast<int>(s);
    member.dtype = state.desc.dtype;
    member.dims = state.desc.dims;
    states_.push_back(static_cast<int>(members_.size()));
    members_.push_back(std::move(member));
  }
  return found;
}

Status Fetcher::Declare() {
  std::set<std::string> names;
  // In this order: of two values with one name, the later one is renamed.
  for (std::string_view of : {"step", "apply", "train", "eval"}) {
    for (Member& m : members_) {
      std::string_view program = m.program < 0 ? std::string_view("step") : NameOf(m.program);
      if (program != of) continue;
      if (!names.insert(m.key).second) {
        m.key = fmt::format("{}:{}", of, m.key);
        names.insert(m.key);
      }
      std::span<const int64_t> row(m.dims);
      AMPC_ASSIGN(m.array, writer_.AddArray(m.key, m.dtype, m.by_sample ? row.subspan(1) : row));
      m.bytes.resize(static_cast<size_t>(NumElements(m.dims) * SizeOf(m.dtype)));
    }
  }
  return {};
}

void Fetcher::After(int program, int call) {
  if (by_call_[static_cast<size_t>(program)].empty()) return;
  for (int index : by_call_[static_cast<size_t>(program)][static_cast<size_t>(call)]) {
    if (!status_.ok()) return;
    status_ = Copy(members_[static_cast<size_t>(index)]);
  }
}

Status Fetcher::Copy(Member& member) {
  if (member.state >= 0) {
    AMPC_TRY(executor_.ReadState(member.state, member.bytes));
  } else {
    AMPC_TRY(executor_.ReadTensor(member.program, member.tensor, member.bytes));
  }
  std::span<const std::byte> rows(member.bytes);
  if (!member.by_sample) return writer_.AppendRows(member.array, 1, rows);
  const int64_t count = std::min(samples_, member.dims[0]);
  if (count < member.dims[0])
    rows =
        rows.first(rows.size() / static_cast<size_t>(member.dims[0]) * static_cast<size_t>(count));
  return writer_.AppendRows(member.array, count, rows);
}

Status Fetcher::EndRun(int program) {
  AMPC_TRY(std::move(status_));
  status_ = {};
  for (int index : at_end_[static_cast<size_t>(program)])
    AMPC_TRY(Copy(members_[static_cast<size_t>(index)]));
  return {};
}

Status Fetcher::AfterUpdate() {
  for (int index : states_) AMPC_TRY(Copy(members_[static_cast<size_t>(index)]));
  return {};
}

Status Fetcher::Finish() { return writer_.Commit(); }

}  // namespace ampc
