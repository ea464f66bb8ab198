// Commands of an exchange by halving, round by round: pieces follow each other through the stages
// of the reduce-scatter, then the sums, or what an update makes of them, travel back by the
// all-gather. Everything else is in its plan.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "emit/exchange/channels.hpp"
#include "emit/exchange/sum.hpp"
#include "emit/registers.hpp"
#include "plan/exchange/halving_plan.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

// A command of an update, made once and repeated for every piece.
struct UpdateCommand {
  const UpdateKernel* kernel = nullptr;
  std::vector<AccessRole> roles;
  int program = -1;
};

// An exchange by halving that has begun. The plan outlives it.
struct HalvingRun {
  // Adds the program of the sum; `op`: the all_reduce.
  HalvingRun(CommandSink& to, Channels& over, const HalvingPlan& planned, const Op& op,
             uint32_t op_id);
  void set_registers();  // where the halves lie: before the first round
  void next_round();
  bool done() const { return round >= plan.rounds(); }

  CommandSink& sink;
  Channels& channels;
  const HalvingPlan& plan;
  const SumProgram sum;
  const uint32_t id;
  int64_t round = 0;
  // Items of each piece that grant its landing areas, and the way back of each value.
  struct Grants {
    std::array<int, kMaxStages> landing{};
    std::vector<std::array<int, kMaxStages>> back;
  };
  std::vector<Grants> grants;
  std::vector<std::vector<int64_t>> partners;  // by stage and partition, where they are looked up
  std::map<const Update*, std::vector<UpdateCommand>> commands;  // for look-up only
};

// Area that a piece uses when it travels back, and the size of its elements.
struct BackArea {
  int64_t address, bytes, unit;
};
BackArea back_area(const HalvingPlan& p, int64_t i, size_t way);
// Register with the offset of what the core sends in stage `stage`: for the next command.
int sent_register(HalvingRun& r, int64_t stage);
// Register with the offset of what the core holds after stage `stage`, for elements of `unit`: for
// the next command, since it may be set anew for another stage.
int whole_register(HalvingRun& r, int64_t stage, int64_t unit);

// update.cpp
void load_update(HalvingRun& r, int64_t i);
void emit_update(HalvingRun& r, int64_t i);

// Scalar registers of the running exchange: the first of each kind, which has one for each stage.
// With four stages a bit's register takes what is made of the bit last. With five it takes the half
// sent, and one register has `other` for one command at a time. With more, and where cores cross
// over in other stages than those of eight cores, only `whole` is kept: partners and the half sent
// are made in front of each command.
struct StageRegisters {
  explicit StageRegisters(const Exchange& e)
      : StageRegisters(static_cast<int64_t>(e.stages()),
                       e.crosses_over() && e.of_odd != std::vector<size_t>{0, 2, 1}) {}
  // `crosses_over`: other than eight cores do.
  constexpr StageRegisters(int64_t stages, bool crosses_over)
      : each(stages > 3 ? static_cast<int>(stages) : 3),
        shared(stages > 3 || crosses_over),
        few(stages > 4 || crosses_over),
        made(stages > 5 || crosses_over) {}
  constexpr int end() const { return made ? made_temporary + 1 : other + (few ? 1 : each); }

  int each;
  bool shared, few, made;
  int whole = kFirstOffsetRegister;     // bytes to the half kept
  int sent = whole + each;              // bytes to the half sent
  int peer = sent + (made ? 1 : each);  // partner; made: of two, and a scratch register
  int bit = few ? sent : peer + each;   // 0: keeps the first half
  int temporary = peer + 2 * each;      // and the next; for three stages
  int made_temporary = peer + 4;
  int other = made     ? peer + 3
              : few    ? peer + each  // as whole, for elements of the other size
              : shared ? bit
                       : temporary + 2;
};
static_assert(StageRegisters(3, false).end() <= kAddressRegister);
static_assert(StageRegisters(4, false).end() <= kAddressRegister);
static_assert(StageRegisters(5, false).end() <= kAddressRegister);
static_assert(StageRegisters(kMaxStages, true).end() <= kAddressRegister);

}  // namespace tpu::compiler
