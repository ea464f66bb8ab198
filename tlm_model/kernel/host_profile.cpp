// Counters of the host's time.
#include "kernel/host_profile.hpp"

namespace tpu::model {
namespace {

struct alignas(64) Cell {
  std::atomic<uint64_t> nanoseconds{0};
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> amount{0};
  std::atomic<uint64_t> bytes{0};
};

std::array<Cell, kHostWorks> cells;

}  // namespace

void HostProfile::add(HostWork kind, uint64_t nanoseconds, uint64_t amount, uint64_t bytes) {
  Cell& cell = cells[static_cast<size_t>(kind)];
  cell.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
  cell.count.fetch_add(1, std::memory_order_relaxed);
  cell.amount.fetch_add(amount, std::memory_order_relaxed);
  cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

HostProfile::Counters HostProfile::read() {
  Counters counters;
  for (size_t i = 0; i < kHostWorks; ++i) {
    counters[i] = {cells[i].nanoseconds.load(std::memory_order_relaxed),
                   cells[i].count.load(std::memory_order_relaxed),
                   cells[i].amount.load(std::memory_order_relaxed),
                   cells[i].bytes.load(std::memory_order_relaxed)};
  }
  return counters;
}

}  // namespace tpu::model
