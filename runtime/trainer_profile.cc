// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_profile.h"

#include "runtime/metrics.h"

#include <algorithm>
#include <map>

namespace ampc {
namespace {

constexpr int64_t kMaxSamples = int64_t{4} << 20;  ///< numbers kept per program
constexpr int64_t kMaxRuns = 1000;
constexpr size_t kShownCalls = 30;

int64_t KeptRuns(const plan::Program& program) {
  int64_t calls = std::max<int64_t>(static_cast<int64_t>(program.calls.size()), 1);
  return std::clamp<int64_t>(kMaxSamples / calls, 16, kMaxRuns);
}

const TensorDesc* Operand(const plan::Program& program, const std::vector<int32_t>& list,
                          size_t i) {
  if (i >= list.size() || list[i] < 0) return nullptr;
  return &program.tensors[static_cast<size_t>(list[i])].desc;
}

/// Product of a filter's dims behind the first: multiply-adds per element of the convolution's
/// output.
double FilterSize(const TensorDesc* filter) {
  if (filter == nullptr || filter->dims.empty() || filter->dims[0] == 0) return 0;
  return static_cast<double>(filter->elements() / filter->dims[0]);
}

double Elements(const TensorDesc* desc) {
  return desc == nullptr ? 0 : static_cast<double>(desc->elements());
}

double Percentile(const std::vector<int64_t>& sorted, double p) {
  if (sorted.empty()) return 0;
  auto index = static_cast<size_t>(p * static_cast<double>(sorted.size() - 1) + 0.5);
  return static_cast<double>(sorted[index]);
}

std::string Rate(double work, double nanoseconds) {
  return work > 0 && nanoseconds > 0 ? fmt::format("{:.1f}", work / nanoseconds) : "-";
}

/// Dim i of an operand, 1 where there is none.
double Dim(const TensorDesc* desc, size_t i) {
  return desc == nullptr || i >= desc->dims.size() ? 1 : static_cast<double>(desc->dims[i]);
}

/// Pairs of a query and a key whose score counts, masks apart.
double ScoresOf(const plan::Call& call, const TensorDesc* q, const TensorDesc* k) {
  const double heads = Dim(q, 0) * Dim(q, 1), queries = Dim(q, 2), keys = Dim(k, 2);
  if (call.params.Int("causal") == 0) return heads * queries * keys;
  const auto offset = static_cast<double>(call.params.Int("offset"));
  double pairs = 0;
  for (double i = 0; i < queries; ++i) pairs += std::clamp<double>(i + offset + 1, 0, keys);
  return heads * pairs;
}

}  // namespace

double FlopsOf(const plan::Program& program, const plan::Call& call) {
  const auto in = [&](size_t i) { return Operand(program, call.inputs, i); };
  const TensorDesc* y = Operand(program, call.outputs, 0);
  if (call.kernel == "matmul") {
    const TensorDesc* a = in(0);
    if (a == nullptr || a->dims.size() < 2) return 0;
    int64_t k = a->dims[a->dims.size() - (call.params.Int("trans_a") != 0 ? 2 : 1)];
    return 2 * Elements(y) * static_cast<double>(k);
  }
  if (call.kernel == "conv") return 2 * Elements(y) * FilterSize(in(1));
  if (call.kernel == "conv_bwd_data") return 2 * Elements(in(0)) * FilterSize(in(1));
  if (call.kernel == "conv_bwd_weights") return 2 * Elements(in(1)) * FilterSize(y);
  if (call.kernel == "rnn")  // x w and h' r in every step
    return 2 * Dim(in(0), 0) * Dim(in(0), 1) * (Elements(in(1)) + Elements(in(2)));
  if (call.kernel == "rnn_bwd") return 2 * Elements(y) * Dim(in(0), 2);  // dgates r
  if (call.kernel == "attention")                                        // q k, p v
    return 2 * ScoresOf(call, in(0), in(1)) * (Dim(in(1), 3) + Dim(in(2), 3));
  if (call.kernel == "attention_bwd")  // q k again, dy v, p dy, ds k, ds q
    return 2 * ScoresOf(call, in(0), in(1)) * (3 * Dim(in(1), 3) + 2 * Dim(in(2), 3));
  return 0;
}

int64_t BytesOf(const plan::Program& program, const plan::Call& call) {
  int64_t bytes = 0;
  for (const std::vector<int32_t>* list : {&call.inputs, &call.outputs}) {
    for (int32_t t : *list) {
      if (t >= 0) bytes += program.tensors[static_cast<size_t>(t)].desc.bytes();
    }
  }
  return bytes;
}

/// The times of one call, in nanoseconds.
struct Profile::Row {
  int program = 0, call = 0;
  double median = 0, p90 = 0, p99 = 0;
  int64_t runs = 0;
};

Profile::Profile(const plan::Plan& plan, const Executor& executor, int64_t warm_up)
    : plan_(plan), executor_(executor), warm_up_(warm_up), programs_(plan.programs.size()) {
  for (size_t p = 0; p < programs_.size(); ++p) {
    size_t calls = plan.programs[p].calls.size();
    programs_[p].times.resize(calls);
    programs_[p].samples.resize(calls * static_cast<size_t>(KeptRuns(plan.programs[p])));
  }
}

void Profile::Add(int program) {
  ProgramTimes& p = programs_[static_cast<size_t>(program)];
  if (++p.runs <= warm_up_) return;
  int64_t kept = KeptRuns(plan_.programs[static_cast<size_t>(program)]);
  auto row = static_cast<size_t>((p.runs - warm_up_ - 1) % kept) * p.times.size();
  std::copy(p.times.begin(), p.times.end(), p.samples.begin() + static_cast<int64_t>(row));
  p.kept = std::min(p.kept + 1, kept);
}

std::vector<Profile::Row> Profile::Rows() const {
  std::vector<Row> rows;
  for (size_t p = 0; p < programs_.size(); ++p) {
    const ProgramTimes& times = programs_[p];
    size_t calls = times.times.size();
    std::vector<int64_t> sorted(static_cast<size_t>(times.kept));
    for (size_t c = 0; times.kept > 0 && c < calls; ++c) {
      for (size_t r = 0; r < sorted.size(); ++r) sorted[r] = times.samples[r * calls + c];
      std::sort(sorted.begin(), sorted.end());
      rows.push_back({static_cast<int>(p), static_cast<int>(c), Percentile(sorted, 0.5),
                      Percentile(sorted, 0.9), Percentile(sorted, 0.99), times.kept});
    }
  }
  return rows;
}

std::string Profile::ToText() const {
  std::vector<Row> rows = Rows();
  double total = 0;
  std::map<std::string, std::pair<int64_t, double>> kernels;
  for (const Row& r : rows) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(r.program)];
    const plan::Call& call = program.calls[static_cast<size_t>(r.call)];
    total += r.median;
    auto& kernel =
        kernels[fmt::format("{}/{}", call.kernel, executor_.implementation(r.program, r.call))];
    kernel.first += 1;
    kernel.second += r.median;
  }
  if (rows.empty()) return fmt::format("profile: no run after the {} of warm-up\n", warm_up_);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.median > b.median; });
  Table calls(
      {"program", "call", "kernel", "median us", "p90", "p99", "%", "GFLOP/s", "GB/s", "node"});
  for (size_t i = 0; i < std::min(rows.size(), kShownCalls); ++i) {
    const Row& r = rows[i];
    const plan::Program& program = plan_.programs[static_cast<size_t>(r.program)];
    const plan::Call& call = program.calls[static_cast<size_t>(r.call)];
    calls.Add({program.name, fmt::format("{}", r.call),
               fmt::format("{}/{}", call.kernel, executor_.implementation(r.program, r.call)),
               fmt::format("{:.1f}", r.median / 1e3), fmt::format("{:.1f}", r.p90 / 1e3),
               fmt::format("{:.1f}", r.p99 / 1e3),
               fmt::format("{:.1f}", total > 0 ? 100 * r.median / total : 0),
               Rate(FlopsOf(program, call), r.median),
               Rate(static_cast<double>(BytesOf(program, call)), r.median), call.loc});
  }
  std::vector<std::pair<std::string, std::pair<int64_t, double>>> order(kernels.begin(),
                                                                        kernels.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  Table summary({"kernel", "calls", "us", "%"});
  for (const auto& [name, kernel] : order)
    summary.Add({name, fmt::format("{}", kernel.first), fmt::format("{:.1f}", kernel.second / 1e3),
                 fmt::format("{:.1f}", total > 0 ? 100 * kernel.second / total : 0)});
  return calls.ToString() + '\n' + summary.ToString();
}

std::string Profile::ToJson() const {
  std::string out = "{\"calls\":[";
  bool first = true;
  JsonLine line;
  for (const Row& r : Rows()) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(r.program)];
    const plan::Call& call = program.calls[static_cast<size_t>(r.call)];
    double flops = FlopsOf(program, call);
    line.Begin();
    line.Add("program", std::string_view(program.name));
    line.Add("call", int64_t{r.call});
    line.Add("kernel", std::string_view(call.kernel));
    line.Add("implementation", executor_.implementation(r.program, r.call));
    line.Add("node", std::string_view(call.loc));
    line.Add("runs", r.runs);
    line.AddFixed("median_us", r.median / 1e3, 3);
    line.AddFixed("p90_us", r.p90 / 1e3, 3);
    line.AddFixed("p99_us", r.p99 / 1e3, 3);
    line.Add("flops", flops);
    line.Add("bytes", BytesOf(program, call));
    if (r.median > 0) {
      line.AddFixed("gflops", flops / r.median, 3);
      line.AddFixed("gbs", static_cast<double>(BytesOf(program, call)) / r.median, 3);
    }
    std::string_view text = line.Finish();
    text.remove_suffix(1);
    out += fmt::format("{}\n{}", first ? "" : ",", text);
    first = false;
  }
  return out + "\n]}\n";
}

}  // namespace ampc
