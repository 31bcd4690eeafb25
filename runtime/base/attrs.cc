// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/attrs.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace ampc {
namespace {

auto LowerBound(auto& entries, std::string_view name) {
  return std::lower_bound(entries.begin(), entries.end(), name,
                          [](const Attrs::Entry& e, std::string_view n) { return e.first < n; });
}

size_t Mix(size_t h, size_t v) { return (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); }

struct HashAttr {
  size_t operator()(int64_t v) const { return std::hash<int64_t>{}(v); }
  size_t operator()(double v) const { return std::hash<uint64_t>{}(std::bit_cast<uint64_t>(v)); }
  size_t operator()(const std::string& v) const { return std::hash<std::string>{}(v); }
  template <typename T>
  size_t operator()(const std::vector<T>& v) const {
    size_t h = v.size();
    for (const T& x : v) h = Mix(h, (*this)(x));
    return h;
  }
  size_t operator()(const std::shared_ptr<const HostTensor>& t) const {
    size_t h = Mix(static_cast<size_t>(t->dtype), (*this)(t->dims));
    return Mix(h, std::hash<std::string_view>{}(
                      {reinterpret_cast<const char*>(t->data.data()), t->data.size()}));
  }
};

// Doubles compare by bits: NaN equals itself, 0.0 differs from -0.0, as hashing and CSE need.
bool Equal(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const auto* t = std::get_if<std::shared_ptr<const HostTensor>>(&a)) {
    return **t == *std::get<std::shared_ptr<const HostTensor>>(b);
  }
  if (const auto* f = std::get_if<double>(&a)) {
    return std::bit_cast<uint64_t>(*f) == std::bit_cast<uint64_t>(std::get<double>(b));
  }
  if (const auto* v = std::get_if<std::vector<double>>(&a)) {
    const auto& w = std::get<std::vector<double>>(b);
    return std::equal(v->begin(), v->end(), w.begin(), w.end(), [](double x, double y) {
      return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
    });
  }
  return a == b;
}

}  // namespace

Attrs::Attrs(std::initializer_list<Entry> entries) {
  if (entries.size() == 0) return;
  Own().reserve(entries.size());
  for (const Entry& e : entries) Set(e.first, e.second);
}

std::vector<Attrs::Entry>& Attrs::Own() {
  if (entries_ == nullptr) {
    entries_ = std::make_shared<std::vector<Entry>>();
  } else if (entries_.use_count() > 1) {
    entries_ = std::make_shared<std::vector<Entry>>(*entries_);
  }
  return *entries_;
}

void Attrs::Set(std::string_view name, Attr value) {
  std::vector<Entry>& own = Own();
  auto it = LowerBound(own, name);
  if (it != own.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    own.emplace(it, std::string(name), std::move(value));
  }
}

void Attrs::Erase(std::string_view name) {
  if (!Has(name)) return;
  std::vector<Entry>& own = Own();
  own.erase(LowerBound(own, name));
}

const Attr* Attrs::Find(std::string_view name) const {
  for (const Entry& e : entries()) {
    if (e.first == name) return &e.second;
  }
  return nullptr;
}

int64_t Attrs::Int(std::string_view name, int64_t fallback) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<int64_t>(a) : nullptr;
  return v ? *v : fallback;
}

double Attrs::Float(std::string_view name, double fallback) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<double>(a) : nullptr;
  return v ? *v : fallback;
}

std::string_view Attrs::String(std::string_view name, std::string_view fallback) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<std::string>(a) : nullptr;
  return v ? std::string_view(*v) : fallback;
}

std::vector<int64_t> Attrs::Ints(std::string_view name, std::vector<int64_t> fallback) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<std::vector<int64_t>>(a) : nullptr;
  return v ? *v : fallback;
}

std::vector<double> Attrs::Floats(std::string_view name, std::vector<double> fallback) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<std::vector<double>>(a) : nullptr;
  return v ? *v : fallback;
}

const HostTensor* Attrs::Tensor(std::string_view name) const {
  const Attr* a = Find(name);
  const auto* v = a ? std::get_if<std::shared_ptr<const HostTensor>>(a) : nullptr;
  return v ? v->get() : nullptr;
}

bool Attrs::operator==(const Attrs& other) const {
  if (entries_ == other.entries_) return true;
  const auto a = entries(), b = other.entries();
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Entry& x, const Entry& y) {
    return x.first == y.first && Equal(x.second, y.second);
  });
}

size_t Attrs::Hash() const {
  size_t h = entries().size();
  for (const Entry& e : entries()) {
    h = Mix(h, std::hash<std::string>{}(e.first));
    h = Mix(h, std::visit(HashAttr{}, e.second));
  }
  return h;
}

}  // namespace ampc
