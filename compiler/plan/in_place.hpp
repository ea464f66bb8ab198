// Which results may be written over a value that they replace: a donated argument, a carried value.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel/kernels.hpp"
#include "plan/residency.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

// Whether the epilogue of a contraction may write over what it reads element by element, and over
// an operand of the contraction: the latter if all of it is read before the epilogue begins.
enum class Epilogues : uint8_t { kApart, kInPlace, kOverOperands };

// True if `made` may be written where `old` lies: nobody of the program reads `old` afterwards.
bool may_replace(const KernelProgram& program, const Value* made, const Value* old,
                 Epilogues epilogues = Epilogues::kApart);

// True if contraction `k` reads `v` as an operand.
bool is_operand(const Kernel& k, const Value* v);

// True if the program loads an access behind a store of a node, of which `meets` says that the
// store may have been to the same place.
bool loads_what_it_stored(const VpuGenResult& program,
                          const std::function<bool(int node, int access)>& meets);

// True if `made` may lie where `old` lies in VMEM: no block of `old` is loaded after the block of
// `made` has been stored (the register allocator loads operands again rather than keep them).
bool stores_last(const Kernel& k, const Value* made, const Value* old);

// Gives values the slots of the results that they are, where they may be written there at once.
// By result: the value whose home it is, or null.
std::vector<const Value*> place_results(const KernelProgram& kernels, const Slots& slots,
                                        Residency& memory);

// After kernel `order` has been cut: results that are not made yet and may no longer be written
// over an argument lose their homes. `homes`: of place_results.
void revise_results(const KernelProgram& kernels, const Slots& slots, int order, Residency& memory,
                    std::vector<const Value*>& homes);

}  // namespace tpu::compiler
