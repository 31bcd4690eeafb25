// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ids by name, for tables that keep the names themselves: a hash table of (hash, id) pairs, probed
// in line, without a copy of any name. Every function is given `name_of`, which says the name of an
// id. Modules have hundreds of thousands of names; a node-based map of strings costs more than
// everything else that happens to a value.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace ampc {

class NameIndex {
 public:
  static constexpr int32_t kAbsent = -1;

  /// The id of that name, or kAbsent.
  template <typename NameOf>
  int32_t Find(std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return kAbsent;
    const uint32_t hash = Hash(name);
    for (size_t i = Home(hash);; i = Next(i)) {
      const Slot& slot = slots_[i];
      if (slot.id == kAbsent) return kAbsent;
      if (slot.hash == hash && name_of(slot.id) == name) return slot.id;
    }
  }

  /// Adds a name that is not there.
  void Add(std::string_view name, int32_t id) { Place({Hash(name), id}); }

  /// The id of that name; where there is none, `id` gets it and kAbsent comes back.
  template <typename NameOf>
  int32_t FindOrAdd(std::string_view name, int32_t id, const NameOf& name_of) {
    const int32_t found = Find(name, name_of);
    if (found == kAbsent) Add(name, id);
    return found;
  }

  /// Removes what Find(name) gives; nothing when it is not there.
  template <typename NameOf>
  void Remove(std::string_view name, const NameOf& name_of) {
    if (slots_.empty()) return;
    const uint32_t hash = Hash(name);
    size_t hole = Home(hash);
    for (;; hole = Next(hole)) {
      if (slots_[hole].id == kAbsent) return;
      if (slots_[hole].hash == hash && name_of(slots_[hole].id) == name) break;
    }
    // What was pushed past the hole moves back, so that no search ends early.
    for (size_t i = Next(hole); slots_[i].id != kAbsent; i = Next(i)) {
      const size_t home = Home(slots_[i].hash);
      const bool between = hole < i ? hole < home && home <= i : hole < home || home <= i;
      if (between) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole].id = kAbsent;
    --size_;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = kAbsent;
  };
  static uint32_t Hash(std::string_view name) {
    const size_t h = std::hash<std::string_view>{}(name);
    return static_cast<uint32_t>(h ^ (h >> 32));
  }
  size_t Home(uint32_t hash) const { return hash & (slots_.size() - 1); }
  size_t Next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void Place(Slot slot) {
    if (2 * (size_ + 1) > slots_.size()) Grow();
    size_t i = Home(slot.hash);
    while (slots_[i].id != kAbsent) i = Next(i);
    slots_[i] = slot;
    ++size_;
  }
  void Grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : 2 * old.size(), {});
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.id != kAbsent) Place(slot);
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace ampc
