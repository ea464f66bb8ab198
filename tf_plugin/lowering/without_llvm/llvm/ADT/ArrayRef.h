// The wheels of TensorFlow have headers that include LLVM's, and none of LLVM: these are the
// layouts of its classes that such signatures have. They are passed by value, as a pointer and a
// size.
#pragma once

#include <cstddef>

namespace llvm {

template <typename T>
class ArrayRef {
 public:
  const T* data = nullptr;
  size_t size = 0;
};

template <typename T>
class MutableArrayRef : public ArrayRef<T> {};

}  // namespace llvm
