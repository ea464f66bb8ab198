// Regions of control flow. At a boundary all queues are empty and VMEM holds nothing but locked
// buffers, whatever path leads there: values that cross the boundary (carried values, results, what
// the region takes from outside) keep one place from its beginning to its end, either locked in
// VMEM or in HBM. Everything else in VMEM is the region's own and gone at its end.
#pragma once

#include <vector>

#include "plan/residency.hpp"

namespace tpu::compiler {

// True if `b` is an argument of a loop's body and lies in its VMEM home: the body may write over
// it, since it brings the next one. A condition may not.
bool is_carried_here(Residency& memory, const Buffer& b);

// Homes of the carried values of a loop, and the initial values in them.
void place_carried(Residency& memory, const Slots& slots, const Kernel& k, uint32_t op_id);
// The arguments of a region lie in the homes.
void enter_body(Residency& memory, const Kernel& k, const Region& region);
void leave_body(Residency& memory, const Kernel& k, const Region& region);

// Brings VMEM into the state that holds at every boundary of the regions of `k`: what they take
// from outside is locked (loaded first, with `preload`), then other live values while there is
// room; the rest goes home. Returns the buffers that it locked.
std::vector<Buffer*> settle(Residency& memory, const Kernel& k, bool preload, uint32_t op_id);

// The place of a result (or carried value) of an op with regions: VMEM if it is small enough.
void give_region_home(Residency& memory, Buffer& out);
void end_region_home(Residency& memory, Buffer& out, uint32_t op_id);

// Lets `made` be written into the home of the value that it replaces, if that is dead by then.
void aim_at_home(Residency& memory, const KernelProgram& region, const Value* made,
                 const Value* old, const Buffer& home);

// Results of a region to the homes of the results of `owner`.
std::vector<size_t> yield(Residency& memory, const Slots& slots, const Kernel& yield,
                          const Op& owner, uint32_t op_id);
// Everything in VMEM that is not locked goes; buffers of the region are dead.
void clean_region(Residency& memory, const KernelProgram& region);

}  // namespace tpu::compiler
