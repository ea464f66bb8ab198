// Before: (vectors) = custom-call "tpuboard.embeddings_received"
// After:  (vectors) = tuple(parameter 1, parameter 2, ...)
#include "lowering/embedding_calls.hpp"

#include "absl/strings/str_cat.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/service/call_inliner.h"

namespace tpu::tensorflow {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

struct Calls {
  std::vector<HloInstruction*> received, sent;
  bool empty() const { return received.empty() && sent.empty(); }
};

Calls calls_of(const xla::HloModule& module) {
  Calls calls;
  for (HloComputation* const computation : module.computations()) {
    for (HloInstruction* const instruction : computation->instructions()) {
      if (instruction->IsCustomCall(kEmbeddingsReceived)) {
        calls.received.push_back(instruction);
      } else if (instruction->IsCustomCall(kEmbeddingsSent)) {
        calls.sent.push_back(instruction);
      }
    }
  }
  return calls;
}

absl::Status check(const std::vector<HloInstruction*>& calls, absl::string_view method) {
  if (calls.size() > 1 || (!calls.empty() && !calls[0]->parent()->IsEntryComputation())) {
    return absl::UnimplementedError(
        absl::StrCat("TPUEmbedding.", method, " in a loop or a branch of a step, or ", calls.size(),
                     " times in it: expected one call in the function that strategy.run is given"));
  }
  return absl::OkStatus();
}

absl::Status receive(HloComputation& entry, HloInstruction& call, Lowered& lowered) {
  std::vector<HloInstruction*> vectors;
  for (const xla::Shape& shape : call.shape().tuple_shapes()) {
    vectors.push_back(entry.AddEntryComputationParameter(
        HloInstruction::CreateParameter(entry.num_parameters(), shape, "embeddings")));
  }
  lowered.embedding_arguments = vectors.size();
  TF_RETURN_IF_ERROR(
      call.ReplaceAllUsesWith(entry.AddInstruction(HloInstruction::CreateTuple(vectors))));
  return entry.RemoveInstruction(&call);
}

absl::Status send(xla::HloModule& module, HloInstruction& call, Lowered& lowered) {
  HloComputation& entry = *module.entry_computation();
  HloInstruction* const root = entry.root_instruction();
  if (root->opcode() != xla::HloOpcode::kTuple) {
    return absl::InternalError("the results of a step with TPUEmbedding: expected a tuple");
  }
  std::vector<HloInstruction*> results(root->operands().begin(), root->operands().end());
  results.insert(results.end(), call.operands().begin(), call.operands().end());
  lowered.embedding_results = static_cast<size_t>(call.operand_count());
  entry.set_root_instruction(entry.AddInstruction(HloInstruction::CreateTuple(results)), true);
  if (call.user_count() > 0) {
    TF_RETURN_IF_ERROR(
        call.ReplaceAllUsesWith(entry.AddInstruction(HloInstruction::CreateTuple({}))));
  }
  TF_RETURN_IF_ERROR(entry.RemoveInstruction(&call));
  if (root->user_count() == 0) {
    TF_RETURN_IF_ERROR(entry.RemoveInstruction(root));
  }
  *module.mutable_entry_computation_layout() = xla::ComputationLayout(entry.ComputeProgramShape());
  return absl::OkStatus();
}

}  // namespace

absl::Status move_embeddings(xla::HloModule& module, Lowered& lowered) {
  if (calls_of(module).empty()) {
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(xla::CallInliner().Run(&module, {}).status());
  TF_RETURN_IF_ERROR(module.RemoveUnusedComputations());
  const Calls calls = calls_of(module);
  TF_RETURN_IF_ERROR(check(calls.received, "dequeue"));
  TF_RETURN_IF_ERROR(check(calls.sent, "apply_gradients"));
  if (calls.received.empty()) {
    return absl::InvalidArgumentError(
        "TPUEmbedding.apply_gradients in a step without dequeue: expected both in the function "
        "that strategy.run is given");
  }
  TF_RETURN_IF_ERROR(receive(*module.entry_computation(), *calls.received[0], lowered));
  return calls.sent.empty() ? absl::OkStatus() : send(module, *calls.sent[0], lowered);
}

}  // namespace tpu::tensorflow
