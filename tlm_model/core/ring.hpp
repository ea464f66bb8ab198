// Queue of fixed capacity whose elements stay in their places.
#pragma once

#include <cstddef>
#include <vector>

namespace tpu::model {

template <class T>
class Ring {
 public:
  explicit Ring(size_t capacity) : places_(capacity) {}

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == places_.size(); }
  // All places, of elements or not.
  std::vector<T>& places() { return places_; }
  // 0 is the oldest; size() is the place of the next one.
  T& at(size_t index) { return places_[(head_ + index) % places_.size()]; }
  const T& at(size_t index) const { return places_[(head_ + index) % places_.size()]; }
  // at(size()) becomes an element.
  void push() { ++count_; }
  void pop_oldest() {
    head_ = (head_ + 1) % places_.size();
    --count_;
  }
  void pop_newest() { --count_; }
  void clear() { count_ = 0; }

 private:
  std::vector<T> places_;
  size_t head_ = 0;
  size_t count_ = 0;
};

}  // namespace tpu::model
