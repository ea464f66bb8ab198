// Which kernels the passes may put elsewhere in the order: early_exchanges, late_updates.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// True for kernels without effects that take their commands one behind the other.
inline bool has_commands_only(const Kernel& k) {
  switch (k.kind) {
    case KernelClass::kLoop:
    case KernelClass::kContract:
    case KernelClass::kConcatenate:
    case KernelClass::kPad:
    case KernelClass::kIndexed:
    case KernelClass::kDynamicSlice:
    case KernelClass::kDynamicUpdate:
      return true;
    case KernelClass::kAllReduce:
    case KernelClass::kCopyOut:
    case KernelClass::kExchange:
    case KernelClass::kHost:
    case KernelClass::kWhile:
    case KernelClass::kBranch:
    case KernelClass::kYield:
      break;
  }
  return false;
}

}  // namespace tpu::compiler
