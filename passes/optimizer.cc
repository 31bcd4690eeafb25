// SPDX-License-Identifier: Apache-2.0
// Updates masters and moments, predicated on found_inf, and steps the learning-rate schedule.
//
//   before   apply: "grad:<state>", "found_inf" = outputs
//   after    apply: next of every trained weight and its moments, of counter "applied_steps";
//            "lr", "applied" = outputs
//
// An update that the model brings along (graph `update`) goes into `apply` instead.
//
// Settings are double hyper states; what the update needs of them (lr of this step, 1 - beta, bias
// corrections) is computed in double by Map nodes and rounded once. The schedule is indexed by the
// applied-step counter, so a skipped step does not move it. One multi-tensor node per parameter
// group. Test: test/passes/optimizer.onnxtext
#include <map>

#include "compiler/ir/clone.h"
#include "passes/passes.h"
#include "runtime/base/glob.h"
#include "runtime/base/suggest.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::StateId;
using ir::ValueId;

// Which hyper states a parameter uses: its own, or the optimizer's.
struct Group {
  std::string lr = "lr", weight_decay = "weight_decay";
  std::vector<StateId> weights;
};

class OptimizerBuilder {
 public:
  OptimizerBuilder(ir::Module& module, PassContext& context)
      : module_(module),
        g_(*module.apply),
        o_(context.options.optimizer),
        s_(context.options.schedule),
        context_(context),
        b_(g_, module.locs.Intern("optimizer")) {}

  Status Run() {
    found_inf_ = g_.FindOutput("found_inf");
    if (module_.update != nullptr) {
      MakeCounter();
      return TakeUpdate();
    }
    AMPC_TRY(MakeGroups());
    MakeCounter();
    for (const Group& group : groups_) {
      const ValueId lr = ScheduledLr(group.lr);
      if (g_.FindOutput("lr") == kNone && !b_.failed()) g_.SetOutput("lr", lr);
      AMPC_TRY(Update(group, lr));
    }
    return b_.TakeStatus();
  }

 private:
  // The model's own update: its feeds are the gradients and found_inf.
  Status TakeUpdate() {
    const ir::Graph& update = *module_.update;
    std::unordered_map<ValueId, ValueId> map;
    for (const ir::FeedInfo& feed : update.feeds()) {
      if (g_.FindOutput(feed.name) == kNone) {
        return BadInput("E0406",
                        "the model's update reads '{}', but no path leads from there to "
                        "the loss",
                        feed.name);
      }
      map.emplace(feed.value, g_.FindOutput(feed.name));
    }
    ir::CopyNodes(update, g_, map);
    const auto counterpart = [&](ValueId v) {
      if (auto it = map.find(v); it != map.end()) return it->second;
      return g_.State(update.value(v).index);
    };
    for (const ir::NextInfo& next : update.nexts()) g_.SetNext(next.state, counterpart(next.value));
    for (const ir::OutputInfo& out : update.outputs())
      g_.SetOutput(out.name, counterpart(out.value));
    module_.update.reset();
    return b_.TakeStatus();
  }

  // A double scalar that amprun may override. kAuto when its value is not known yet.
  ValueId Hyper(const std::string& name, double value, bool is_auto = false) {
    StateId id = module_.FindSetting(name);
    if (id == kNone) {
      ir::Initial initial{.kind = is_auto ? plan::Initial::Kind::kAuto : plan::Initial::Kind::kFill,
                          .fill = value};
      id = module_.AddState({.name = name,
                             .type = module_.types.Intern(DType::kFloat64, {}),
                             .role = ir::Role::kHyper,
                             .initial = std::move(initial),
                             .setting = name});
    }
    return g_.State(id);
  }

  // First match of --param-group, then --no-decay; parameters with equal overrides share a group.
  Status MakeGroups() {
    std::map<std::pair<int, bool>, size_t> index;
    std::vector<bool> group_used(o_.groups.size(), false), no_decay_used(o_.no_decay.size(), false);
    for (size_t s = 0; s < module_.states.size(); ++s) {
      const ir::StateVar& state = module_.states[s];
      if (g_.FindOutput("grad:" + state.name) == kNone) continue;
      const std::string& name = state.source.empty() ? state.name : state.source;
      int of = -1;
      for (size_t i = 0; i < o_.groups.size() && of < 0; ++i) {
        if (GlobMatches(o_.groups[i].glob, name)) of = static_cast<int>(i);
      }
      if (of >= 0) group_used[static_cast<size_t>(of)] = true;
      bool exempt = false;
      for (size_t i = 0; i < o_.no_decay.size(); ++i) {
        const bool hit = o_.no_decay[i] == "1d" ? module_.types.Get(state.type).rank() <= 1
                                                : GlobMatches(o_.no_decay[i], name);
        if (hit) no_decay_used[i] = exempt = true;
      }
      if (of >= 0 && o_.groups[static_cast<size_t>(of)].has_weight_decay) exempt = false;
      if (exempt) context_.diagnostics.Explain(name, "decay", "none: --no-decay");
      auto [it, fresh] = index.try_emplace({of, exempt}, groups_.size());
      if (fresh) groups_.push_back(MakeGroup(of, exempt));
      groups_[it->second].weights.push_back(static_cast<StateId>(s));
    }
    for (size_t i = 0; i < o_.groups.size(); ++i) {
      if (!group_used[i]) return NoMatch("--param-group", o_.groups[i].glob);
    }
    for (size_t i = 0; i < o_.no_decay.size(); ++i) {
      if (!no_decay_used[i]) return NoMatch("--no-decay", o_.no_decay[i]);
    }
    return {};
  }

  Status NoMatch(std::string_view flag, const std::string& glob) const {
    std::vector<std::string_view> names;
    for (const ir::StateVar& s : module_.states) {
      if (g_.FindOutput("grad:" + s.name) != kNone)
        names.push_back(s.source.empty() ? s.name : s.source);
    }
    return UsageError("E0211", "{} '{}' matches no trained parameter{}", flag, glob,
                      Suggest(glob, names));
  }

  Group MakeGroup(int of, bool exempt) {
    Group group;
    if (of >= 0) {
      const ParamGroup& p = o_.groups[static_cast<size_t>(of)];
      if (p.has_lr) Hyper(group.lr = fmt::format("param_group.{}.lr", of), p.lr);
      if (p.has_weight_decay)
        Hyper(group.weight_decay = fmt::format("param_group.{}.weight_decay", of), p.weight_decay);
    }
    if (exempt) group.weight_decay = "";
    return group;
  }

  // applied' = applied + !found_inf
  void MakeCounter() {
    const StateId id = module_.AddState({.name = "applied_steps",
                                         .type = module_.types.Intern(DType::kInt64, {}),
                                         .role = ir::Role::kCounter});
    applied_ = g_.State(id);
    const ValueId next = b_.Map("x0 + (x1 == 0)", {applied_, found_inf_}, DType::kInt64);
    if (b_.failed()) return;
    g_.SetNext(id, next);
    g_.SetOutput("applied", next);
  }

  // lr * f(applied steps), in double; before the end of the warm-up lr times its share.
  ValueId ScheduledLr(const std::string& lr_name) {
    const ValueId lr = Hyper(lr_name, o_.lr);
    using Kind = ScheduleSpec::Kind;
    if (s_.kind == Kind::kConstant && s_.warmup == 0) return lr;
    // x0, x1, x2 of the program; what f needs besides follows as x3 and x4.
    std::vector<ValueId> operands = {lr, applied_,
                                     Hyper("lr_schedule.warmup", static_cast<double>(s_.warmup))};
    std::string f = "f = 1";
    if (s_.kind == Kind::kLinear || s_.kind == Kind::kCosine) {
      operands.push_back(Hyper("lr_schedule.total", static_cast<double>(s_.total), s_.total < 0));
      operands.push_back(Hyper("lr_schedule.end_factor", s_.end_factor));
      f = fmt::format(
          "p = min(1, max(0, (x1 - x2) / max(1, x3 - x2))); f = x4 + (1 - x4) * ({})",
          s_.kind == Kind::kLinear ? "1 - p" : "0.5 * (1 + cos(3.14159265358979323846 * p))");
    } else if (s_.kind == Kind::kStep) {
      operands.push_back(Hyper("lr_schedule.step_size", static_cast<double>(s_.step_size)));
      operands.push_back(Hyper("lr_schedule.gamma", s_.gamma));
      f = "f = pow(x4, floor(max(0, x1 - x2) / x3))";
    }
    return b_.Map(f + "; y0 = x0 * where(x1 < x2, (x1 + 1) / x2, f)", operands, DType::kFloat64);
  }

  ValueId WeightDecay(const Group& group) {
    return group.weight_decay.empty() ? b_.Scalar(DType::kFloat64, 0)
                                      : Hyper(group.weight_decay, o_.weight_decay);
  }

  StateId Moment(StateId weight, std::string_view suffix) {
    const ir::StateVar& w = module_.state(weight);
    const std::string name = fmt::format("{}.{}", w.name, suffix);
    return module_.AddState({.name = name, .type = w.type, .role = ir::Role::kMoment});
  }

  Status Update(const Group& group, ValueId lr) {
    // fp64 plans keep everything in double; scalars are in the weights' type.
    const DType acc = module_.types.Get(module_.state(group.weights[0]).type).dtype;
    const bool sgd = o_.kind == OptimizerSpec::Kind::kSgd;
    std::vector<ValueId> inputs = sgd ? SgdScalars(group, lr, acc) : AdamScalars(group, lr, acc);
    if (b_.failed()) return b_.TakeStatus();
    const size_t n = group.weights.size();
    std::vector<std::vector<StateId>> updated = {group.weights};
    for (StateId w : group.weights) inputs.push_back(g_.State(w));
    for (StateId w : group.weights)
      inputs.push_back(g_.FindOutput("grad:" + module_.state(w).name));
    std::vector<std::string_view> moments;
    if (!sgd) moments = {"exp_avg", "exp_avg_sq"};
    if (sgd && o_.momentum != 0) moments = {"momentum_buffer"};
    for (std::string_view suffix : moments) {
      std::vector<StateId>& list = updated.emplace_back();
      for (StateId w : group.weights) list.push_back(Moment(w, suffix));
      for (StateId m : list) inputs.push_back(g_.State(m));
    }
    Attrs attrs{{"n", static_cast<int64_t>(n)}};
    if (sgd) {
      attrs.Set("nesterov", int64_t{o_.nesterov});
    } else {
      attrs.Set("decoupled", int64_t{o_.kind == OptimizerSpec::Kind::kAdamW});
    }
    const std::vector<ValueId> outs =
        b_.Multi(kOwnDomain, sgd ? "Sgd" : "Adam", inputs, std::move(attrs), n * updated.size());
    if (b_.failed()) return b_.TakeStatus();
    for (size_t list = 0; list < updated.size(); ++list) {
      for (size_t i = 0; i < n; ++i) {
        const StateId state = updated[list][i];
        const ValueId next = outs[list * n + i];
        g_.SetNext(state, next);
        g_.Rename(next, module_.state(state).name + ".next");
      }
    }
    return {};
  }

  std::vector<ValueId> SgdScalars(const Group& group, ValueId lr, DType acc) {
    const ValueId first = b_.Map("x0 == 0", {applied_}, DType::kBool);
    return {found_inf_,
            b_.Cast(lr, acc),
            b_.Cast(Momentum("momentum", o_.momentum), acc),
            b_.Cast(Momentum("dampening", o_.dampening), acc),
            b_.Cast(WeightDecay(group), acc),
            first};
  }

  // Without momentum there are no buffers for it, so amprun can't turn it on: no setting.
  ValueId Momentum(const std::string& name, double value) {
    return o_.momentum != 0 ? Hyper(name, value) : b_.Scalar(DType::kFloat64, 0);
  }

  // step_size = lr / (1 - beta1^t), bias_correction2_sqrt = sqrt(1 - beta2^t), t = applied + 1.
  std::vector<ValueId> AdamScalars(const Group& group, ValueId lr, DType acc) {
    const ValueId beta1 = Hyper("beta1", o_.beta1), beta2 = Hyper("beta2", o_.beta2),
                  eps = Hyper("eps", o_.eps);
    const ValueId inputs[] = {lr, beta1, beta2, eps, WeightDecay(group), applied_};
    std::string expr = o_.correct_bias
                           ? "t = x5 + 1; c1 = 1 - pow(x1, t); c2 = sqrt(1 - pow(x2, t)); "
                           : "c1 = 1; c2 = 1; ";
    // The update is w * (1 - lr * decay) - step * m / (sqrt(v) / correction + eps). With the
    // correction in the step, epsilon stands alone; a step that decays, too, is a decay behind it.
    expr +=
        o_.decay_last ? "y1 = x0 * c2 / c1 * (1 - x0 * x4); y6 = 1; " : "y1 = x0 / c1; y6 = c2; ";
    expr += "y0 = x0; y2 = x1; y3 = 1 - x1; y4 = x2; y5 = 1 - x2; y7 = x3; y8 = x4";
    Attrs attrs{{"expr", std::move(expr)},
                {"to", std::vector<int64_t>(9, static_cast<int64_t>(acc))}};
    std::vector<ValueId> scalars = b_.Multi(kOwnDomain, "Map", inputs, std::move(attrs), 9);
    scalars.insert(scalars.begin(), found_inf_);
    return scalars;
  }

  ir::Module& module_;
  ir::Graph& g_;
  const OptimizerSpec& o_;
  const ScheduleSpec& s_;
  PassContext& context_;
  ir::Builder b_;
  std::vector<Group> groups_;
  ValueId found_inf_ = kNone, applied_ = kNone;
};

}  // namespace

Status ApplyOptimizer(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.apply, "apply", {"found_inf"}));
  return OptimizerBuilder(module, context).Run();
}

}  // namespace ampc
