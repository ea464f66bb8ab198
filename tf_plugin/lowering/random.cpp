// The state of the generator is two words: how many numbers have been drawn, and the seed. It goes
// through the program as a value: into the branches of a conditional and the body of a loop, and
// out of them.
//   while (x) cond, body      =>   while (x, state) cond, body' with the state that it leaves
//   conditional(i, a, b)      =>   conditional(i, (a, state), (b, state)), gives (result, state)
#include "lowering/random.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/transforms/expanders/rng_expander.h"
#include "xla/literal_util.h"
#include "xla/service/call_inliner.h"
#include "xla/service/while_util.h"
#include "xla/shape_util.h"

namespace tpu::tensorflow {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

const xla::Shape& state_shape() {
  static const xla::Shape shape = xla::ShapeUtil::MakeShape(xla::U64, {2});
  return shape;
}

// The state at a place of a computation: `drawn` numbers behind `base`, or behind the start of the
// program, where the seed is all that there is.
struct Place {
  HloInstruction* base = nullptr;
  uint64_t drawn = 0;
  HloInstruction* seed = nullptr;
};

class RandomState {
 public:
  explicit RandomState(xla::HloModule& module) : module_(module) {}

  // The state behind the computation, which has `place` at its start.
  absl::StatusOr<Place> pass_through(HloComputation& computation, Place place) {
    for (HloInstruction* const instruction : computation.MakeInstructionPostOrder()) {
      if (instruction->opcode() == HloOpcode::kRngGetAndUpdateState) {
        TF_RETURN_IF_ERROR(draw(*instruction, place));
      } else if (instruction->opcode() == HloOpcode::kWhile && draws(*instruction)) {
        TF_RETURN_IF_ERROR(pass_loop(*instruction, place));
      } else if (instruction->opcode() == HloOpcode::kConditional && draws(*instruction)) {
        TF_RETURN_IF_ERROR(pass_conditional(*instruction, place));
      }
    }
    return place;
  }

 private:
  bool draws(const HloInstruction& caller) {
    const auto& called = caller.called_computations();
    return std::any_of(called.begin(), called.end(),
                       [this](const HloComputation* computation) { return draws(*computation); });
  }
  bool draws(const HloComputation& computation) {
    const auto known = draws_.find(&computation);
    if (known != draws_.end()) {
      return known->second;
    }
    bool any = false;
    for (const HloInstruction* const instruction : computation.instructions()) {
      any = any || instruction->opcode() == HloOpcode::kRngGetAndUpdateState || draws(*instruction);
    }
    return draws_[&computation] = any;
  }

  static HloInstruction* state_at(HloComputation& computation, const Place& place) {
    if (place.base == nullptr) {
      HloInstruction* const drawn = computation.AddInstruction(
          HloInstruction::CreateConstant(xla::LiteralUtil::CreateR1<uint64_t>({place.drawn})));
      return computation.AddInstruction(
          HloInstruction::CreateConcatenate(state_shape(), {drawn, place.seed}, 0));
    }
    if (place.drawn == 0) {
      return place.base;
    }
    HloInstruction* const drawn = computation.AddInstruction(
        HloInstruction::CreateConstant(xla::LiteralUtil::CreateR1<uint64_t>({place.drawn, 0})));
    return computation.AddInstruction(
        HloInstruction::CreateBinary(state_shape(), HloOpcode::kAdd, place.base, drawn));
  }

  static absl::Status draw(HloInstruction& state, Place& place) {
    HloComputation& computation = *state.parent();
    TF_RETURN_IF_ERROR(state.ReplaceAllUsesWith(state_at(computation, place)));
    place.drawn +=
        static_cast<uint64_t>(xla::Cast<xla::HloRngGetAndUpdateStateInstruction>(&state)->delta());
    return computation.RemoveInstruction(&state);
  }

  absl::Status pass_loop(HloInstruction& loop, Place& place) {
    HloComputation& computation = *loop.parent();
    const xla::OpMetadata metadata = loop.metadata();
    TF_ASSIGN_OR_RETURN(const auto made, xla::WhileUtil::MakeInstructionsLiveIn(
                                             &loop, {state_at(computation, place)}));
    HloInstruction& carried = *made.new_while_instr;
    carried.set_metadata(metadata);
    const int64_t member = static_cast<int64_t>(carried.shape().tuple_shapes().size()) - 1;
    const auto entered = [&](HloComputation& part) {
      return Place{part.AddInstruction(HloInstruction::CreateGetTupleElement(
          state_shape(), part.parameter_instruction(0), member))};
    };
    // What the condition draws is known in front of each iteration: the body goes on behind it.
    HloComputation& condition = *carried.while_condition();
    Place behind_condition = entered(condition);
    const HloInstruction* const at_condition = behind_condition.base;
    TF_ASSIGN_OR_RETURN(behind_condition, pass_through(condition, behind_condition));
    if (behind_condition.base != at_condition) {
      return absl::UnimplementedError(
          "random numbers in a loop or a branch of the condition of a loop: expected them in its "
          "body, or in the condition itself");
    }
    HloComputation& body = *carried.while_body();
    Place in_body = entered(body);
    in_body.drawn = behind_condition.drawn;
    TF_ASSIGN_OR_RETURN(in_body, pass_through(body, in_body));
    TF_RETURN_IF_ERROR(
        body.root_instruction()->ReplaceOperandWith(member, state_at(body, in_body)));
    // The last condition has drawn, too.
    place = {computation.AddInstruction(
                 HloInstruction::CreateGetTupleElement(state_shape(), &carried, member)),
             behind_condition.drawn};
    return absl::OkStatus();
  }

  absl::StatusOr<HloComputation*> with_state(HloComputation& branch) {
    HloComputation& made = *module_.AddEmbeddedComputation(branch.Clone("random"));
    HloInstruction* const old = made.parameter_instruction(0);
    const xla::Shape shape = old->shape();
    const std::vector<HloInstruction*> users(old->users().begin(), old->users().end());
    const bool is_root = made.root_instruction() == old;
    HloInstruction* const both = made.ReplaceParameter(
        0, HloInstruction::CreateParameter(
               0, xla::ShapeUtil::MakeTupleShape({shape, state_shape()}), "with_state"));
    HloInstruction* const own =
        made.AddInstruction(HloInstruction::CreateGetTupleElement(shape, both, 0));
    for (HloInstruction* const user : users) {
      for (int64_t i = 0; i < user->operand_count(); ++i) {
        if (user->operand(i) == both) {
          TF_RETURN_IF_ERROR(user->ReplaceOperandWithDifferentShape(i, own));
        }
      }
    }
    TF_ASSIGN_OR_RETURN(
        const Place behind,
        pass_through(made, {made.AddInstruction(
                               HloInstruction::CreateGetTupleElement(state_shape(), both, 1))}));
    HloInstruction* const result = is_root ? own : made.root_instruction();
    made.set_root_instruction(
        made.AddInstruction(HloInstruction::CreateTuple({result, state_at(made, behind)})),
        /*accept_different_shape=*/true);
    return &made;
  }

  absl::Status pass_conditional(HloInstruction& choice, Place& place) {
    HloComputation& computation = *choice.parent();
    HloInstruction* const state = state_at(computation, place);
    std::vector<HloComputation*> branches;
    std::vector<HloInstruction*> arguments;
    for (int64_t i = 0; i < choice.branch_count(); ++i) {
      TF_ASSIGN_OR_RETURN(branches.emplace_back(), with_state(*choice.branch_computation(i)));
      arguments.push_back(computation.AddInstruction(
          HloInstruction::CreateTuple({choice.mutable_operand(i + 1), state})));
    }
    const xla::Shape shape = xla::ShapeUtil::MakeTupleShape({choice.shape(), state_shape()});
    HloInstruction* const index = choice.mutable_operand(0);
    HloInstruction* const made = computation.AddInstruction(
        index->shape().element_type() == xla::PRED
            ? HloInstruction::CreateConditional(shape, index, arguments[0], branches[0],
                                                arguments[1], branches[1])
            : HloInstruction::CreateConditional(shape, index, branches, arguments));
    made->set_metadata(choice.metadata());
    HloInstruction* const result =
        computation.AddInstruction(HloInstruction::CreateGetTupleElement(choice.shape(), made, 0));
    TF_RETURN_IF_ERROR(choice.ReplaceAllUsesWith(result));
    place = {
        computation.AddInstruction(HloInstruction::CreateGetTupleElement(state_shape(), made, 1))};
    return computation.RemoveInstruction(&choice);
  }

  xla::HloModule& module_;
  std::map<const HloComputation*, bool> draws_;  // of those before the changes
};

// The second word of the state.
HloInstruction* seed_word(HloComputation& entry, int cores) {
  const xla::Shape of_all = cores == 1 ? xla::ShapeUtil::MakeShape(xla::U32, {})
                                       : xla::ShapeUtil::MakeShape(xla::U32, {cores});
  HloInstruction* seed = entry.AddEntryComputationParameter(
      HloInstruction::CreateParameter(entry.num_parameters(), of_all, "seed"));
  const xla::Shape word = xla::ShapeUtil::MakeShape(xla::U32, {1});
  if (cores > 1) {
    seed->set_sharding(xla::HloSharding::Tile1D(of_all, cores));
    seed = entry.AddInstruction(HloInstruction::CreateSlice(word, seed, {0}, {1}, {1}));
  } else {
    seed = entry.AddInstruction(HloInstruction::CreateReshape(word, seed));
  }
  return entry.AddInstruction(
      HloInstruction::CreateConvert(xla::ShapeUtil::MakeShape(xla::U64, {1}), seed));
}

bool draws_here(const HloComputation& computation) {
  const auto& instructions = computation.instructions();
  return std::any_of(instructions.begin(), instructions.end(), [](const HloInstruction* one) {
    return one->opcode() == HloOpcode::kRngGetAndUpdateState;
  });
}

absl::Status check_all_drawn(const xla::HloModule& module) {
  for (const HloComputation* const computation : module.computations()) {
    if (draws_here(*computation)) {
      return absl::UnimplementedError(
          "random numbers in the function of a reduction, a sort or a scatter: draw them in front "
          "of it");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status seed_random_numbers(xla::HloModule& module, bool& seeded, int cores) {
  constexpr uint64_t kKey = 1;
  module.mutable_config().set_seed(kKey);
  TF_ASSIGN_OR_RETURN(seeded, xla::RngExpander().Run(&module, {}));
  if (!seeded) {
    return absl::OkStatus();
  }
  const auto& computations = module.computations();
  if (std::any_of(computations.begin(), computations.end(), [&](const HloComputation* one) {
        return one != module.entry_computation() && draws_here(*one);
      })) {
    TF_RETURN_IF_ERROR(xla::CallInliner().Run(&module, {}).status());
  }
  HloComputation& entry = *module.entry_computation();
  TF_RETURN_IF_ERROR(
      RandomState(module).pass_through(entry, {nullptr, 0, seed_word(entry, cores)}).status());
  TF_RETURN_IF_ERROR(module.RemoveUnusedComputations());
  return check_all_drawn(module);
}

}  // namespace tpu::tensorflow
