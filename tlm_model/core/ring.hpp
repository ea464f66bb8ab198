// Queue of fixed capacity whose elements stay in their places.
#pragma once

#include <cstddef>
#include <vector>

namespace tpu::model {

template <class T>
class Ring {
 public:
  explicit Ring(size_t capacity) : capacity_(capacity), places_(capacity) {}

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == capacity_; }
  size_t capacity() const { return capacity_; }
  // 0 is the oldest; size() is the place of the next one.
  T& at(size_t index) { return places_[place(head_ + index)]; }
  const T& at(size_t index) const { return places_[place(head_ + index)]; }
  // at(size()) becomes an element.
  void push() { ++count_; }
  void pop_oldest() {
    head_ = place(head_ + 1);
    --count_;
  }
  void pop_newest() { --count_; }
  void clear() { count_ = 0; }

 private:
  // Without a division, which would cost more than all else here.
  size_t place(size_t index) const { return index < capacity_ ? index : index - capacity_; }

  const size_t capacity_;
  std::vector<T> places_;
  size_t head_ = 0;
  size_t count_ = 0;
};

}  // namespace tpu::model
