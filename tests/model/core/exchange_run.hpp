// Cores of two chips that send each other rows and signals, and what is seen of it: for benches
// that must give equal bits and times.
#pragma once

#include <cstdint>
#include <vector>

#include "core_bench.hpp"

namespace tpu::model::test {

using spec::Queue;

inline constexpr uint32_t kCores = 4;
inline constexpr uint32_t kBytes = 192 * 1024;

// Sends rows with gaps into the partner's HBM and dense bytes into its VMEM, both ways at once,
// then a signal alone; brings home what came. `slot_registers`: slots 1 and 2 come from a register.
inline ProgramBuilder exchange_program(uint32_t partner_mask, bool slot_registers = false) {
  const auto slot = [slot_registers](uint16_t number, int64_t offset) {
    return slot_registers ? hbm(static_cast<uint16_t>(number - 1), offset, 0, 2)
                          : hbm(number, offset);
  };
  ProgramBuilder p;
  p.li(2, 1);
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), kBytes, Sync().signal(1));
  p.scalar(spec::ScalarOp::kRid, 1);
  p.scalar(spec::ScalarOp::kXori, 1, 1, 0, static_cast<int32_t>(partner_mask));
  spec::DmaCommand rows;
  rows.src = vmem(64), rows.dst = slot(1, 100), rows.elem_bytes = 4, rows.peer_reg = 1;
  rows.counts = {1, 3, 5, 7, 300};
  rows.src_strides = {0, 40'000, 8'000, 1'200, 4};
  rows.dst_strides = {0, 60'000, 9'000, -1'204, 4};
  rows.dst.offset += 6 * 1'204;
  p.command(rows, spec::Opcode::kDma, Queue::kDmaRemote, Sync().wait(1).remote(2, 1));
  p.copy(Queue::kDmaRemote, vmem(0), vmem(0x100000), kBytes, Sync().remote(3, 1), 1);
  p.nop(Queue::kDmaRemote, Sync().remote(4, 1));
  p.nop(Queue::kDmaIn, Sync().wait(2));
  p.copy(Queue::kDmaIn, slot(1, 0), vmem(0x200000), kBytes, Sync().wait(4).signal(5));
  p.copy(Queue::kDmaOut, vmem(0x100000), slot(2, 0), kBytes, Sync().wait(3));
  p.copy(Queue::kDmaOut, vmem(0x200000), slot(2, kBytes), kBytes, Sync().wait(5));
  p.halt();
  return p;
}

struct Seen {
  std::vector<std::vector<uint32_t>> results;  // by core
  std::vector<std::vector<uint64_t>> times;    // of its commands, from the first start
  std::vector<uint32_t> faults;
  std::vector<uint64_t> received;
  bool operator==(const Seen&) const = default;
};

inline Seen run(CoreBench& bench, const ProgramBuilder& program) {
  ProgramBuilder builder = program;
  const auto image = builder.image(3);
  for (uint32_t core = 0; core < kCores; ++core) {
    std::vector<uint32_t> data(kBytes / 4);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<uint32_t>(i * 2654435761u + core);
    }
    bench.write(core, CoreBench::kHbm, 0, data);
    bench.bind_slot(core, 0, 0, kBytes);
    bench.bind_slot(core, 1, 0x100000, kBytes);
    bench.bind_slot(core, 2, 0x200000, 2 * kBytes);
    bench.load(core, image, 3, (1u << kCores) - 1);
  }
  const uint64_t begin = now_cycles();
  for (uint32_t core = 0; core < kCores; ++core) {
    bench.start(core);
  }
  bench.run();
  Seen seen;
  for (uint32_t core = 0; core < kCores; ++core) {
    seen.results.push_back(bench.read<uint32_t>(core, CoreBench::kHbm, 0x200000, 2 * kBytes / 4));
    seen.faults.push_back(bench.fault_record(core).code);
    seen.received.push_back(bench.cores[core]->counters()[spec::perf::kIciReceivedBytes]);
    seen.times.emplace_back();
    for (const DoneEvent& c : bench.sink.commands) {
      if (c.source.core == core) {
        seen.times.back().insert(seen.times.back().end(), {c.start - begin, c.cycle - begin});
      }
    }
  }
  return seen;
}

}  // namespace tpu::model::test
