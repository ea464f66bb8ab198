// The Verilated semaphore unit and its clock.
#include "core/verilog/semaphore_verilog.hpp"

#include <Vsem_128_d1.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "run/assertions.hpp"
#include "run/host.hpp"
#include "tpu/spec/rtl_units.hpp"

namespace tpu::model {
namespace {

using spec::rtl::kSemCount;
using spec::rtl::kSemDelay;
static_assert(kSemCount == 128 && kSemDelay == 1, "the unit that rtl/CMakeLists.txt makes");
constexpr uint32_t kLargestSum = (1U << spec::rtl::kSemSumBits) - 1;
static_assert(kLargestSum > spec::rtl::kSemLimit);
static_assert((spec::rtl::kSemLimit & (spec::rtl::kSemLimit + 1)) == 0, "the unit: all ones");

}  // namespace

struct SemaphoreVerilog::Unit {
  VerilatedContext context;
  Vsem_128_d1 model{&context};
  FailureObserver failed;
  uint64_t cycle = 0;  // whose inputs the ports have
  bool stale = false;  // they have changed since the outputs were computed

  ~Unit() {
    rtl::use_context(context);
    model.final();
  }
  void edge() {
    rtl::use_context(context);
    model.clk_i = 0;
    model.eval();
    model.clk_i = 1;
    model.eval();
    if (const rtl::FailedAssertions failures = rtl::take_failed_assertions(); failures && failed) {
      failed(cycle, failures.text());
    }
    model.clear_i = 0;
    std::ranges::fill(model.add_i, 0U);
    std::ranges::fill(model.take_i, SData{0});
    stale = true;
  }
  void settle() {
    if (stale) {
      model.eval();
      stale = false;
    }
  }
};

SemaphoreVerilog::SemaphoreVerilog(uint32_t count, uint64_t delay, FailureObserver failed) {
  if (count != kSemCount || delay != kSemDelay) {
    throw std::runtime_error("the Verilog of the semaphores needs a board with core.semaphores = " +
                             std::to_string(kSemCount) +
                             " and core.semaphore_cycles = " + std::to_string(kSemDelay) +
                             ", found " + std::to_string(count) + " and " + std::to_string(delay));
  }
  if (!rtl::host_runs_units()) {
    throw std::runtime_error("the Verilog of the semaphores needs a host with AVX2");
  }
  unit_ = std::make_unique<Unit>();
  unit_->model.rst_ni = 0;
  unit_->edge();
  unit_->model.rst_ni = 1;
  unit_->failed = std::move(failed);
}

SemaphoreVerilog::~SemaphoreVerilog() = default;

void SemaphoreVerilog::advance(uint64_t cycle) {
  Unit& unit = *unit_;
  if (cycle == unit.cycle) {
    return;
  }
  unit.edge();  // ends the cycle of the inputs
  unit.settle();
  for (++unit.cycle; unit.cycle < cycle && unit.model.settled_o == 0; ++unit.cycle) {
    unit.edge();
    unit.settle();
  }
  if (unit.cycle < cycle) {  // a cycle without inputs ends what was said of an overflow
    unit.edge();
    unit.cycle = cycle;
  }
}

void SemaphoreVerilog::add(uint64_t cycle, uint32_t semaphore, uint32_t amount) {
  advance(cycle);
  IData& sum = unit_->model.add_i[semaphore];
  sum = std::min(sum + amount, kLargestSum);
  unit_->stale = true;
}

void SemaphoreVerilog::take(uint64_t cycle, uint32_t semaphore, uint32_t amount) {
  advance(cycle);
  SData& sum = unit_->model.take_i[semaphore];
  sum = static_cast<SData>(sum + amount);
  unit_->stale = true;
}

void SemaphoreVerilog::clear(uint64_t cycle) {
  advance(cycle);
  Unit& unit = *unit_;
  std::ranges::fill(unit.model.add_i, 0U);
  std::ranges::fill(unit.model.take_i, SData{0});
  unit.model.clear_i = 1;
  unit.stale = true;
}

uint32_t SemaphoreVerilog::value(uint64_t cycle, uint32_t semaphore) {
  advance(cycle);
  unit_->settle();
  return unit_->model.value_o[semaphore];
}

bool SemaphoreVerilog::overflow(uint64_t cycle, uint32_t semaphore) {
  advance(cycle);
  unit_->settle();
  return unit_->model.overflow_o[semaphore] != 0;
}

uint32_t SemaphoreVerilog::nonzero(uint64_t cycle) {
  advance(cycle);
  unit_->settle();
  return unit_->model.nonzero_o;
}

uint32_t SemaphoreVerilog::first_nonzero(uint64_t cycle) {
  advance(cycle);
  unit_->settle();
  return unit_->model.first_nonzero_o;
}

}  // namespace tpu::model
