// Kernels of control flow and dynamic slices, formed while the region that holds the op is walked.
#pragma once

#include "kernel/control_facts.hpp"
#include "kernel/fusion.hpp"

namespace tpu::compiler {

void place_dynamic_slice(const Op& op, const ControlFacts& facts, Fusion& fusion);
void place_dynamic_update(const Op& op, const ControlFacts& facts, Fusion& fusion);
// while, if, case. `together`: of the region around it.
void place_control(const Op& op, const ControlFacts& facts, const CoreClasses& together,
                   Fusion& fusion);
// The end of a region: its results in buffers, without what the sequencer counts (`counted`: of the
// loop) and stacks of results. Makes what they lack; the caller adds the kernel.
Kernel yield_of(const Op& ret, const CountedLoop* counted, const ControlFacts& facts,
                Fusion& fusion);

}  // namespace tpu::compiler
