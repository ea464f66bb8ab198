// Kernels of control flow and dynamic slices, made by the fuser of the region that holds the op.
#pragma once

#include "kernel/control_facts.hpp"
#include "kernel/kernels.hpp"

namespace tpu::compiler {

// What the fuser of a region offers.
class RegionFuser {
 public:
  virtual ~RegionFuser() = default;
  virtual void ready(const Value* v) = 0;           // whatever it is a view of has a kernel
  virtual const Value* packed(const Value* v) = 0;  // the buffer in which it lies dense
  virtual NestAccess strided(const Value* v) = 0;   // a buffer and strides along its dims
  virtual void add(Kernel kernel) = 0;              // behind all others
  // Strides over a buffer if `v` can be read so; never copies.
  virtual std::optional<NestAccess> view(const Value* v) = 0;
  virtual const Op* only_reader(const Value* v) = 0;  // null: none or several
  // A copy of the value with its dims in this order, in a buffer.
  virtual const Value* turned(Value* v, const Dims& order, const LocRef& loc) = 0;
  // Kernels of a region of `op`. `uniform`: all cores that run this region run it together.
  virtual KernelProgram fuse(const Region& region, bool uniform) = 0;
};

void place_dynamic_slice(const Op& op, const ControlFacts& facts, RegionFuser& fuser);
void place_dynamic_update(const Op& op, const ControlFacts& facts, RegionFuser& fuser);
// while, if, case. `uniform`: of the region around it.
void place_control(const Op& op, const ControlFacts& facts, bool uniform, RegionFuser& fuser);
// The end of a region: its results in buffers. `skip`: carried value that the sequencer counts.
void place_yield(const Op& ret, std::optional<size_t> skip, RegionFuser& fuser);

}  // namespace tpu::compiler
