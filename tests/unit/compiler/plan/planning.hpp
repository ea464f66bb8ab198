// The kernels of a graph, and VMEM of some KiB in which nothing lies yet: for tests of plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler::test {

inline constexpr int64_t kKib = 1024;

struct Planning {
  Planning(const Module& m, int vmem_kib, int64_t piece = 512 * kKib)
      : board(spec::load_board("v3_8", {"core.vmem_kib=" + std::to_string(vmem_kib)})),
        program(kernels(m, board, piece)),
        slots(make_slots(m, program, board.hbm.gib_per_core << 30)),
        memory(program, slots, {}, board, 0) {}

  static KernelProgram kernels(const Module& m, const spec::BoardParams& board, int64_t piece) {
    KernelContext context{m, board, piece};
    return run_kernel_passes(context);
  }

  // The first of its kind.
  const Kernel& kernel(KernelClass kind) {
    const auto it = std::find_if(program.kernels.begin(), program.kernels.end(),
                                 [&](const Kernel& k) { return k.kind == kind; });
    memory.enter(it->order, 0);
    return *it;
  }

  // All that a plan may change: places of buffers, free VMEM, moves, what is held.
  std::string state() {
    std::string text;
    for (const Buffer* b : memory.all()) {
      text += std::to_string(b->slot) + " " + std::to_string(b->offset) + " " +
              std::to_string(b->vmem) + (b->in_hbm ? " home" : "") +
              (b->scratch ? " scratch" : "") + (memory.pins().held.contains(b) ? " held" : "") +
              (memory.shared().contains(b->vmem) ? " shares" : "") + "\n";
    }
    Reservation attempt(memory);
    for (const Buffer* b : memory.all()) {
      memory.pins().add(*b);
    }
    std::set<int64_t> free;
    while (const auto address = memory.take(1)) {
      free.insert(*address);
    }
    for (const int64_t address : free) {
      text += " " + std::to_string(address);
    }
    return text;
  }

  spec::BoardParams board;
  KernelProgram program;
  Slots slots;
  Residency memory;
};

// A plan that does not fit leaves everything as it was.
template <typename Plan>
void expect_no_trace(Planning& p, const Plan& plan) {
  p.memory.take_moves();
  const std::string before = p.state();
  EXPECT_FALSE(plan());
  EXPECT_EQ(p.state(), before);
  EXPECT_TRUE(p.memory.take_moves().empty());
}

}  // namespace tpu::compiler::test
