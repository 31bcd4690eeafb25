// SPDX-License-Identifier: Apache-2.0
#pragma once
// A vector that keeps its first N elements in itself: no allocation for the short lists that a
// graph is made of (operands and uses of a node). Only for types that are copied as bytes.
//
// It has the members of std::vector that the compiler uses, and turns into a std::vector where one
// is wanted. Elements move when the object moves: references to them end with it.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ampc {

template <typename T, uint32_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && N > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() {}
  InlineVector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  InlineVector(const InlineVector& other) { assign(other.begin(), other.end()); }
  InlineVector(InlineVector&& other) noexcept { Take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      Free();
      Take(other);
    }
    return *this;
  }
  ~InlineVector() { Free(); }

  operator std::vector<T>() const { return {begin(), end()}; }  // NOLINT: implicit by design

  T* data() { return IsInline() ? inline_ : heap_; }
  const T* data() const { return IsInline() ? inline_ : heap_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void clear() { size_ = 0; }
  void reserve(size_t n) {
    if (n > capacity_) Grow(n);
  }
  void push_back(T value) {
    if (size_ == capacity_) Grow(2 * static_cast<size_t>(capacity_));
    data()[size_++] = value;
  }
  void pop_back() { --size_; }
  void resize(size_t n, T value = T()) {
    reserve(n);
    if (n > size_) std::fill(data() + size_, data() + n, value);
    size_ = static_cast<uint32_t>(n);
  }
  void assign(size_t n, T value) {
    size_ = 0;
    resize(n, value);
  }
  template <typename Iterator, typename = typename std::iterator_traits<Iterator>::pointer>
  void assign(Iterator first, Iterator last) {
    const auto n = static_cast<size_t>(std::distance(first, last));
    reserve(n);
    std::copy(first, last, data());
    size_ = static_cast<uint32_t>(n);
  }

  bool operator==(const InlineVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  bool operator==(const std::vector<T>& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  bool IsInline() const { return capacity_ == N; }
  void Free() {
    if (!IsInline()) delete[] heap_;
    capacity_ = N;
    size_ = 0;
  }
  // Moves to the heap, for at least `n` elements. n > capacity_ >= N, so that the heap's capacity
  // never looks like the inline one.
  void Grow(size_t n) {
    T* heap = new T[n];
    std::copy(begin(), end(), heap);
    const uint32_t size = size_;
    Free();
    heap_ = heap;
    capacity_ = static_cast<uint32_t>(n);
    size_ = size;
  }
  // Takes over the elements of another one, which becomes empty; this one holds no memory.
  void Take(InlineVector& other) noexcept {
    size_ = other.size_;
    capacity_ = other.capacity_;
    if (other.IsInline()) {
      std::copy(other.begin(), other.end(), inline_);
    } else {
      heap_ = other.heap_;
    }
    other.capacity_ = N;
    other.size_ = 0;
  }

  uint32_t size_ = 0, capacity_ = N;
  union {
    T inline_[N];
    T* heap_;
  };
};

}  // namespace ampc
