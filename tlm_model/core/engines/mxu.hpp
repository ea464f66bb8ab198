// Matrix unit of a core as a SystemC block: queue, cycle formulas (spec/arith/mxu_timing.hpp), and
// the data work of whatever MxuEngine it was given. Long commands are split by rows or columns over
// the host threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine.hpp"
#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_packed.hpp"

namespace tpu::model {

// What computes one MXU's commands: `engine` in steps [first_step, last_step] while `window` (if
// any) is set, `outside` (if any) for all that start at other times. Steps are those of the board
// (kernel/step_counter.hpp).
struct MxuUnit {
  std::unique_ptr<MxuEngine> engine;
  std::unique_ptr<MxuEngine> outside;
  uint64_t first_step = 0;
  uint64_t last_step = UINT64_MAX;
  const bool* window = nullptr;
};

class Mxu : public Engine {
 public:
  Mxu(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context, uint8_t* vmem,
      uint64_t vmem_bytes, MxuUnit unit);

  MxuEngine& engine() { return *unit_.engine; }
  // Other engines for the commands to come; none may be under way.
  void change_unit(MxuUnit unit) {
    settle_data();
    unit_ = std::move(unit);
  }

  // Faults on purpose: of so many commands, from number `sequence` of the core on or, if that is 0,
  // from the next one on, one result each is wrong. `told` when such a command starts. One whose
  // first command is given up before it starts is none.
  struct Upset {
    uint64_t sequence = 0;
    uint64_t commands = 1;
    MxuUpset of;
    std::function<void(const DecodedCommand& command, const MxuUpset& upset)> told;
  };
  void upset(Upset upset) { upsets_.push_back(std::move(upset)); }
  void stop() override;

 protected:
  bool start_command(Flight& flight) override;
  void finish_command(Flight& flight) override;
  void settle_data() override;
  uint64_t earliest_start(const QueuedCommand& queued) const override;

 private:
  class Work : public LateWork {
   public:
    // `held`: lhs and rhs are in pages of HBM that are held until give_back().
    void prepare(MxuEngine& engine, const MxuJob& job, MxuCut cut, std::array<bool, 2> held);
    // Nobody writes to the operands yet.
    void give_back() { packed_.end(); }
    // Looks at the results, bytes `out` from `vmem` on, when they are there. In one part.
    void look_at(const uint8_t* vmem, const spec::StridePattern& out) {
      vmem_ = vmem;
      out_ = out;
      set_group(0);
    }
    // Wrong results. In one part.
    void upset(std::vector<MxuUpset> upsets) {
      upsets_ = std::move(upsets);
      set_group(0);
    }
    void run_part(int part) override;
    void run_together(std::span<Job* const> works) override;

    const NonFiniteScan& scan() const { return scan_; }
    bool mismatch() const { return mismatch_; }
    const std::string& mismatch_text() const { return mismatch_text_; }

   protected:
    int split(int parts) override;
    bool like(const Job& other) const override;

   private:
    void end_part();

    MxuEngine* engine_ = nullptr;
    MxuCut cut_;
    std::vector<MxuJob> jobs_;
    MxuPackedUse packed_;
    std::array<bool, 2> held_{};
    std::atomic<size_t> parts_left_ = 0;
    bool packs_ = false;             // with others
    const uint8_t* vmem_ = nullptr;  // null: nobody wants to know
    spec::StridePattern out_;
    std::vector<MxuUpset> upsets_;
    NonFiniteScan scan_;
    bool mismatch_ = false;  // the Verilog differed in this command
    std::string mismatch_text_;
  };

  MxuEngine& engine_for_step();
  std::vector<MxuUpset> take_upsets(const QueuedCommand& queued);
  void find_operands(Work& work, const MatmulPlan& plan, const std::array<uint64_t, 3>& base,
                     MxuJob& job, std::array<bool, 2>& held);
  bool tell_accesses(const Flight& flight, const MatmulPlan& plan,
                     const std::array<uint64_t, 3>& base);

  uint8_t* const vmem_;
  const uint64_t vmem_bytes_;
  MxuUnit unit_;
  std::vector<Upset> upsets_;  // empty without a fault file
  JobStrand strand_;           // of engines that count what they do
  LateWorks<Work> works_;
};

}  // namespace tpu::model
