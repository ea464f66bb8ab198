// The Verilated DMA queue, memory as it sees it, and the granules by the rules in C++.
#include "core/verilog/dma_verilog.hpp"

#include <Vdma_queue_512.h>

#include <algorithm>
#include <deque>
#include <sstream>
#include <stdexcept>

#include "run/assertions.hpp"
#include "run/host.hpp"
#include "tpu/spec/rtl_units.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kGranule = spec::rtl::kDmaGranule;
static_assert(kGranule == 512, "the unit that rtl/CMakeLists.txt makes");
// Of the memory beside the unit; any would do, since the board's time is that of the shared
// bandwidth (docs/timing_model.md).
constexpr uint64_t kReadCycles = 4;
constexpr uint64_t kWriteCycles = 2;
constexpr uint64_t kPatience = 64;  // cycles without a request, an answer or the end

}  // namespace

struct DmaVerilog::Unit {
  VerilatedContext context;
  Vdma_queue_512 model{&context};

  ~Unit() {
    rtl::use_context(context);
    model.final();
  }
  void low() {
    rtl::use_context(context);
    model.clk_i = 0;
    model.eval();
  }
  void high() {
    model.clk_i = 1;
    model.eval();
  }
};

DmaVerilog::DmaVerilog(uint64_t granule) : unit_(std::make_unique<Unit>()) {
  if (granule != kGranule) {
    throw std::runtime_error("there is Verilog for granules of " + std::to_string(kGranule) +
                             " bytes, not of " + std::to_string(granule) + " (dma.granule_bytes)");
  }
  if (!rtl::host_runs_units()) {
    throw std::runtime_error("the Verilog of a DMA queue needs a host with AVX2");
  }
  unit_->model.rst_ni = 0;
  unit_->low();
  unit_->high();
  unit_->model.rst_ni = 1;
}

DmaVerilog::~DmaVerilog() = default;

const DmaGranules& DmaVerilog::run(const spec::StridedBox& box, bool fill, uint64_t src,
                                   uint64_t dst) {
  auto& port = unit_->model;
  granules_.reads.clear();
  granules_.writes.clear();
  granules_.cycles = 0;
  granules_.failed.clear();
  port.fill_i = fill;
  port.src_base_i = src;
  port.dst_base_i = dst;
  port.run_i = box.run_bytes;
  constexpr size_t kLevels = spec::StridedBox::kMaxLevels;
  const size_t unused = kLevels - static_cast<size_t>(box.levels);
  for (size_t l = 0; l < kLevels; ++l) {
    const bool used = l >= unused;
    port.count_i[l] = used ? box.count[l - unused] : 1;
    port.src_stride_i[l] = used ? static_cast<uint64_t>(box.src[l - unused]) : 0;
    port.dst_stride_i[l] = used ? static_cast<uint64_t>(box.dst[l - unused]) : 0;
  }
  port.start_i = 1;
  port.rd_ready_i = 1;
  port.wr_ready_i = 1;
  std::deque<uint64_t> reading, writing;  // cycles of the answers
  uint64_t quiet = 0;
  for (uint64_t cycle = 0;; ++cycle) {
    const auto answers = [cycle](std::deque<uint64_t>& way) {
      const bool now = !way.empty() && way.front() == cycle;
      if (now) {
        way.pop_front();
      }
      return now;
    };
    port.rd_done_i = answers(reading);
    port.wr_done_i = answers(writing);
    unit_->low();
    if (port.rd_valid_o != 0) {
      granules_.reads.push_back({port.rd_addr_o, port.rd_bytes_o});
      reading.push_back(cycle + kReadCycles);
    }
    if (port.wr_valid_o != 0) {
      granules_.writes.push_back({port.wr_addr_o, port.wr_bytes_o});
      writing.push_back(cycle + kWriteCycles);
    }
    const bool done = port.done_o != 0;
    const bool moved =
        port.rd_valid_o != 0 || port.wr_valid_o != 0 || !reading.empty() || !writing.empty();
    unit_->high();
    if (const rtl::FailedAssertions failures = rtl::take_failed_assertions();
        failures && granules_.failed.empty()) {
      granules_.failed =
          "in cycle " + std::to_string(cycle) + " of the transfer: " + failures.text();
    }
    port.start_i = 0;
    if (done) {
      granules_.cycles = cycle + 1;
      return granules_;
    }
    quiet = moved ? 0 : quiet + 1;
    if (quiet > kPatience) {
      throw std::runtime_error("the Verilog of the DMA queue made no progress for " +
                               std::to_string(kPatience) + " cycles, after " +
                               std::to_string(granules_.writes.size()) + " granules" +
                               (granules_.failed.empty() ? "" : "; " + granules_.failed));
    }
  }
}

std::vector<Granule> side_granules(const spec::StridedBox& box, spec::BoxSide side, uint64_t base,
                                   uint64_t granule) {
  const auto& stride = side == spec::BoxSide::kSrc ? box.src : box.dst;
  uint64_t run = box.run_bytes;
  int open = box.levels;  // levels that are no part of the run
  while (open > 0 && stride[static_cast<size_t>(open - 1)] == static_cast<int64_t>(run)) {
    run *= box.count[static_cast<size_t>(--open)];
  }
  std::vector<Granule> granules;
  std::array<uint64_t, spec::StridedBox::kMaxLevels> index{};
  for (;;) {
    uint64_t address = base;
    for (size_t l = 0; l < static_cast<size_t>(open); ++l) {
      address += index[l] * static_cast<uint64_t>(stride[l]);
    }
    for (uint64_t at = 0; at < run; at += granule) {
      granules.push_back({address + at, static_cast<uint32_t>(std::min(granule, run - at))});
    }
    int level = open - 1;
    while (level >= 0 &&
           ++index[static_cast<size_t>(level)] == box.count[static_cast<size_t>(level)]) {
      index[static_cast<size_t>(level--)] = 0;
    }
    if (level < 0) {
      return granules;
    }
  }
}

std::string granules_difference(const char* what, const std::vector<Granule>& model,
                                const std::vector<Granule>& verilog) {
  const auto [mine, theirs] = std::ranges::mismatch(model, verilog);
  if (mine == model.end() && theirs == verilog.end()) {
    return {};
  }
  std::ostringstream text;
  const auto say = [&text](const std::vector<Granule>& side,
                           std::vector<Granule>::const_iterator at) {
    if (at == side.end()) {
      text << "none";
    } else {
      text << at->bytes << " B at 0x" << std::hex << at->address << std::dec;
    }
  };
  text << what << " " << mine - model.begin() << " of " << model.size() << " is ";
  say(model, mine);
  text << ", of the Verilog's " << verilog.size() << " it is ";
  say(verilog, theirs);
  return text.str();
}

}  // namespace tpu::model
