// rtl/dma/dma_queue.sv, Verilated: the granules that it makes of a transfer. Their bytes are moved
// by whoever asks. No SystemC here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "command/strided_box.hpp"

namespace tpu::model {

struct Granule {
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool operator==(const Granule&) const = default;
};

// In the order in which they are asked for.
struct DmaGranules {
  std::vector<Granule> reads;  // none of a fill
  std::vector<Granule> writes;
  uint64_t cycles = 0;   // of the unit's clock, start to done
  std::string failed{};  // the assertions that did, empty if none

  uint64_t most() const { return std::max(reads.size(), writes.size()); }
};

class DmaVerilog {
 public:
  // Throws std::runtime_error if there is no Verilog for granules of this size, or if the host
  // lacks AVX2.
  explicit DmaVerilog(uint64_t granule);
  ~DmaVerilog();
  DmaVerilog(const DmaVerilog&) = delete;
  DmaVerilog& operator=(const DmaVerilog&) = delete;

  // Runs a transfer whose offset 0 is at `src` and `dst`; the box is not empty. Memory answers
  // after a few cycles. Throws std::runtime_error when the unit stands still, with the
  // assertions that failed before.
  const DmaGranules& run(const spec::StridedBox& box, bool fill, uint64_t src, uint64_t dst);

 private:
  struct Unit;
  std::unique_ptr<Unit> unit_;
  DmaGranules granules_;
};

// The same by the rules in C++: what lockstep compares with.
std::vector<Granule> side_granules(const spec::StridedBox& box, spec::BoxSide side, uint64_t base,
                                   uint64_t granule);
// Where they differ, for people: "read 3 is 512 B at 0x..., the Verilog has ..."; empty if nowhere.
std::string granules_difference(const char* what, const std::vector<Granule>& model,
                                const std::vector<Granule>& verilog);

}  // namespace tpu::model
