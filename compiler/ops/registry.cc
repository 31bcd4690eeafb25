// SPDX-License-Identifier: Apache-2.0
// Joins the op tables. An explicit list: nothing registers itself.
#include <array>
#include <unordered_map>

#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

std::array<std::span<const OpDef>, 20> Tables() {
  return {ElementwiseOps(), MatmulOps(),    ConvOps(),   PoolOps(),      ResizeOps(),
          GridSampleOps(),  NormOps(),      RnnOps(),    LayerNormOps(), NormMapOps(),
          SoftmaxOps(),     AttentionOps(), LossOps(),   ShapeOps(),     MovementOps(),
          IndexingOps(),    AlongAxisOps(), ReduceOps(), RandomOps(),    TrainingOps()};
}

std::string Key(std::string_view domain, std::string_view name) {
  std::string key(domain);
  key += '/';
  key += name;
  return key;
}

std::unordered_map<std::string, const OpDef*> Index() {
  std::unordered_map<std::string, const OpDef*> index;
  for (std::span<const OpDef> table : Tables()) {
    for (const OpDef& op : table) index.emplace(Key(op.domain, op.name), &op);
  }
  return index;
}

}  // namespace

const OpDef* FindOp(std::string_view domain, std::string_view name) {
  static const std::unordered_map<std::string, const OpDef*> index =
      Index();  // immutable, made on first use
  auto it = index.find(Key(domain, name));
  return it == index.end() ? nullptr : it->second;
}

std::vector<const OpDef*> AllOps() {
  std::vector<const OpDef*> all;
  for (std::span<const OpDef> table : Tables()) {
    for (const OpDef& op : table) all.push_back(&op);
  }
  return all;
}

}  // namespace ampc
