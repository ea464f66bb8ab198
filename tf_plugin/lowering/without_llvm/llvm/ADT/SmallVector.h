// A name for TensorFlow 2.19's description of GPU tensors (ArrayRef.h), of which nobody here has
// one: this class has not LLVM's layout.
#pragma once

#include "llvm/ADT/ArrayRef.h"

namespace llvm {

template <typename T>
class SmallVector {
 public:
  operator ArrayRef<T>() const { return {}; }  // NOLINT: as LLVM's
};

}  // namespace llvm
