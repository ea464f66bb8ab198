// Names of the counters.
#include "tpu/counters.hpp"

#include <array>

#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

namespace perf = spec::perf;

constexpr std::array<std::string_view, perf::kCounters> kNames = {
    "cycles",
    "run_cycles",
    "idle_cycles",
    "stall_cycles",
    "issue_stall_cycles",
    "commands",
    "instructions",
    "mxu_flops",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "ici_sent_bytes",
    "ici_received_bytes",
    "mxu0_busy_cycles",
    "mxu1_busy_cycles",
    "vpu_busy_cycles",
    "xlu_busy_cycles",
    "dma_in_busy_cycles",
    "dma_out_busy_cycles",
    "dma_remote_busy_cycles",
    "mxu0_commands",
    "mxu1_commands",
    "vpu_commands",
    "xlu_commands",
    "dma_in_commands",
    "dma_out_commands",
    "dma_remote_commands",
    "programs",
    "mxu2_busy_cycles",
    "mxu2_commands",
    "mxu3_busy_cycles",
    "mxu3_commands",
};
static_assert(!kNames.back().empty());
static_assert(perf::kMxu0BusyCycles == 12 && perf::kVpuBusyCycles == 14 &&
              perf::kDmaRemoteBusyCycles == 18 && perf::kMxu0Commands == 19 &&
              perf::kPrograms == 26 && perf::kMxu3Commands == 30);

}  // namespace

std::span<const std::string_view> counter_names() { return kNames; }

}  // namespace tpu::driver
