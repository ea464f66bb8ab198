// RtlArray on a class that Verilator made from rtl/mxu. Included only where such a class is linked.
// A null input pointer with its flag off leaves the port as it was: the array ignores it.
#pragma once

#include <verilated.h>
#include <verilated_fst_c.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "file/file_lock.hpp"
#include "mxu/rtl_array.hpp"
#include "run/assertions.hpp"
#include "run/host.hpp"

namespace tpu::model {

template <typename Model>
class VerilatedArray final : public RtlArray {
 public:
  explicit VerilatedArray(const spec::MxuShape& shape, const std::string& path = "mxu")
      : RtlArray(shape), scope_(path) {
    if (!rtl::host_runs_units()) {
      throw std::runtime_error(
          "mxu: the Verilated array needs a host with AVX2; use the fast or scalar engine here");
    }
    context_ = std::make_unique<VerilatedContext>();
    context_->traceEverOn(true);
    std::ranges::replace(scope_, '.', ' ');  // what separates scopes in a wave file
    model_ = std::make_unique<Model>(context_.get(), scope_.c_str());
    if (sizeof model_->w_i != shape.cols * sizeof(uint32_t) ||
        sizeof model_->x_i != shape.rows / 2 * sizeof(uint32_t)) {
      throw std::runtime_error("mxu: the Verilated array was built for another shape than " +
                               std::to_string(shape.rows) + "x" + std::to_string(shape.cols));
    }
    reset();
  }
  ~VerilatedArray() override {
    close_waves();
    rtl::use_context(*context_);
    model_->final();
  }

  void reset() override {
    model_->rst_ni = 0;
    model_->w_valid_i = 0;
    model_->x_valid_i = 0;
    model_->x_swap_i = 0;
    clock();
    model_->rst_ni = 1;
  }

  void step(const RtlArrayInput& in) override {
    model_->w_valid_i = in.w_valid;
    model_->x_valid_i = in.x_valid;
    model_->x_swap_i = in.x_swap;
    if (in.w_valid) {
      std::memcpy(&model_->w_i[0], in.w, sizeof model_->w_i);
    }
    if (in.x_valid) {
      std::memcpy(&model_->x_i[0], in.x, sizeof model_->x_i);
      if (in.acc != nullptr) {
        std::memcpy(&model_->acc_i[0], in.acc, sizeof model_->acc_i);
      } else {
        std::memset(&model_->acc_i[0], 0, sizeof model_->acc_i);
      }
    }
    tile_ = in.tile;
    op_id_ = in.op_id;
    clock();
  }

  bool y_valid() const override { return model_->y_valid_o != 0; }
  const uint32_t* y() const override { return &model_->y_o[0]; }
  bool busy() const override { return model_->busy_o != 0; }

  void open_waves(const WaveOptions& options) override {
    close_waves();
    check_wave_file(options);
    wave_error_.clear();
    waves_ = options;
    trace_ = std::make_unique<VerilatedFstC>();
    trace_->set_time_unit("1ps");
    trace_->set_time_resolution("1ps");
    model_->trace(trace_.get(), options.depth);
    trace_->spTrace()->addInitCb(&declare_marks, this);
    trace_->spTrace()->addFullCb(&dump_marks<true>, this);
    trace_->spTrace()->addChgCb(&dump_marks<false>, this);
    trace_->open(options.path.c_str());
    wave_lock_.emplace(options.path);  // the library has replaced the file
    cycle_ = options.start_cycle;
  }
  void set_wave_cycle(uint64_t cycle) override {
    if (cycle > cycle_) {
      cycle_ = cycle;
    }
  }
  void close_waves() override {
    if (trace_) {
      trace_->close();
      trace_.reset();
      wave_lock_.reset();
      // A dumped cycle ends with the clock high; without this the next rising edge would be lost.
      model_->clk_i = 0;
      model_->eval();
    }
  }
  const std::string& wave_error() const override { return wave_error_; }

 private:
  // Signals beside those of the Verilog, in the scope of the unit.
  static void declare_marks(void* self, VerilatedFst* trace, uint32_t code) {
    auto& array = *static_cast<VerilatedArray*>(self);
    array.marks_code_ = code;
    trace->pushNamePrefix(array.scope_ + ' ');
    trace->declQuad(code, "tile", -1, FST_VD_IMPLICIT, FST_VT_VCD_WIRE, false, -1, 63, 0);
    trace->declBus(code + 2, "op_id", -1, FST_VD_IMPLICIT, FST_VT_VCD_WIRE, false, -1, 31, 0);
    trace->popNamePrefix();
  }
  template <bool kFull>
  static void dump_marks(void* self, VerilatedFst::Buffer* buffer) {
    const auto& array = *static_cast<VerilatedArray*>(self);
    uint32_t* const tile = buffer->oldp(array.marks_code_);
    uint32_t* const op_id = buffer->oldp(array.marks_code_ + 2);
    if constexpr (kFull) {
      buffer->fullQData(tile, array.tile_, 64);
      buffer->fullIData(op_id, array.op_id_, 32);
    } else {
      buffer->chgQData(tile, array.tile_, 64);
      buffer->chgIData(op_id, array.op_id_, 32);
    }
  }

  static constexpr uint64_t kPicosecondsPerSecond = 1'000'000'000'000;

  void clock() {
    rtl::use_context(*context_);
    if (trace_) {
      // Falling edge with the new inputs in the middle of the previous cycle, then the rising edge.
      const uint64_t rise = picoseconds(2 * cycle_ + 2);
      model_->clk_i = 0;
      model_->eval();
      trace_->dump(picoseconds(2 * cycle_ + 1));
      model_->clk_i = 1;
      model_->eval();
      trace_->dump(rise);
      ++cycle_;
      watch_disk();
      return;
    }
    model_->clk_i = 1;
    model_->eval();
    model_->clk_i = 0;
    model_->eval();
  }
  void watch_disk() {
    constexpr uint64_t kEvery = 1024;  // cycles; a full array writes at most a few MiB in these
    std::error_code error;
    if (cycle_ % kEvery == 0 &&
        std::filesystem::space(waves_.path, error).available < waves_.min_free_bytes) {
      wave_error_ = "waves: stopped at cycle " + std::to_string(cycle_) +
                    ", the disk is nearly full; free some space: " + waves_.path;
      close_waves();
    }
  }
  uint64_t picoseconds(uint64_t half_cycles) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(half_cycles) *
                                 kPicosecondsPerSecond / (2 * waves_.clock_hz));
  }

  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<VerilatedFstC> trace_;
  std::optional<FileLock> wave_lock_;
  WaveOptions waves_;
  std::string scope_;
  uint32_t marks_code_ = 0;
  uint64_t tile_ = 0;
  uint32_t op_id_ = 0;
  std::string wave_error_;
  uint64_t cycle_ = 0;
};

}  // namespace tpu::model
