// What form.cpp offers to the functions that form the kernel of one op: how its operands reach
// memory, and where the kernel goes.
#pragma once

#include <optional>
#include <string>

#include "kernel/core_classes.hpp"
#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Throws the error of an op that has no kernel.
[[noreturn]] void unsupported(const Op& op, const std::string& why);

class Fusion {
 public:
  virtual ~Fusion() = default;
  virtual void materialise(const Value* v) = 0;    // whatever it is a view of has a kernel
  virtual const Value* dense(const Value* v) = 0;  // the buffer in which it lies dense
  // A buffer and strides along its dims; copies the value where no strides read it.
  virtual NestAccess strided(const Value* v) = 0;
  virtual void add(Kernel kernel) = 0;  // behind all others
  // In front of all others; its result is there as what comes from outside.
  virtual void give(Kernel kernel) = 0;
  // Strides over a buffer if `v` can be read so; never copies.
  virtual std::optional<NestAccess> view(const Value* v) = 0;
  virtual const Op* only_reader(const Value* v) = 0;  // null: none or several
  // A copy of the value with its dims in this order, in a buffer.
  virtual const Value* transposed(Value* v, const Dims& order, const LocRef& loc) = 0;
  // Kernels of a region of `op`. `together`: cores of a class run this region together.
  virtual KernelProgram form(const Region& region, const CoreClasses& together) = 0;
};

}  // namespace tpu::compiler
