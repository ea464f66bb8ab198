// Before: ((a, b), token) = infeed(token)
// After:  (a, token)      = recv-done(recv(token)), channel 1
//         (b, token)      = recv-done(recv(token)), channel 2
#include "lowering/feed_transfers.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape_util.h"

namespace tpu::tensorflow {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Those of a computation. TensorFlow gives each a token of its own: the order in which it has made
// them is what the host expects, so that each follows the one in front of it.
class Feeds {
 public:
  Feeds(HloComputation& computation, std::vector<HostTransfer>& transfers)
      : computation_(computation), transfers_(transfers) {}

  absl::Status move(HloInstruction& feed);

 private:
  struct Array {
    HloInstruction* data;
    HloInstruction* token;
  };

  HloInstruction* add(std::unique_ptr<HloInstruction> made) {
    return computation_.AddInstruction(std::move(made));
  }
  HloInstruction* member(HloInstruction* tuple, int64_t number) {
    return add(
        HloInstruction::CreateGetTupleElement(tuple->shape().tuple_shapes(number), tuple, number));
  }
  absl::StatusOr<int64_t> new_channel(const xla::Shape& shape, bool to_host, size_t part,
                                      size_t parts);
  absl::StatusOr<Array> receive(const xla::Shape& shape, HloInstruction* token, size_t part,
                                size_t parts);
  absl::StatusOr<HloInstruction*> send(HloInstruction* data, HloInstruction* token, size_t part,
                                       size_t parts);
  absl::StatusOr<HloInstruction*> infeed(const HloInstruction& feed, HloInstruction* token);
  absl::StatusOr<HloInstruction*> outfeed(HloInstruction& feed, HloInstruction* token);

  HloComputation& computation_;
  std::vector<HostTransfer>& transfers_;
  HloInstruction* last_ = nullptr;  // token
};

absl::StatusOr<int64_t> Feeds::new_channel(const xla::Shape& shape, bool to_host, size_t part,
                                           size_t parts) {
  if (!shape.IsArray()) {
    return absl::UnimplementedError(absl::StrCat(to_host ? "an outfeed" : "an infeed", " of ",
                                                 xla::ShapeUtil::HumanString(shape),
                                                 ": expected an array or a list of arrays"));
  }
  if (shape.is_dynamic()) {
    return absl::UnimplementedError(absl::StrCat(
        to_host ? "an outfeed" : "an infeed", " of ", xla::ShapeUtil::HumanString(shape),
        ": expected an array whose size is known when the step is compiled"));
  }
  TF_ASSIGN_OR_RETURN(const ::tensorflow::DataType type,
                      ::tensorflow::EncodePrimitiveTypeAsDataType(shape.element_type()));
  int64_t channel = 1;
  for (const HostTransfer& transfer : transfers_) {
    channel = std::max(channel, transfer.channel + 1);
  }
  HostTransfer transfer;
  transfer.channel = channel;
  transfer.name = to_host ? "outfeed" : "infeed";
  transfer.to_host = to_host;
  transfer.type = type;
  transfer.dims = {shape.dimensions().begin(), shape.dimensions().end()};
  transfer.feed = true;
  transfer.part = part;
  transfer.parts = parts;
  transfers_.push_back(std::move(transfer));
  return channel;
}

absl::StatusOr<Feeds::Array> Feeds::receive(const xla::Shape& shape, HloInstruction* token,
                                            size_t part, size_t parts) {
  TF_ASSIGN_OR_RETURN(const int64_t channel, new_channel(shape, false, part, parts));
  HloInstruction* const begun = add(HloInstruction::CreateRecv(shape, token, channel, true));
  HloInstruction* const done = add(HloInstruction::CreateRecvDone(begun, channel, true));
  return Array{member(done, 0), member(done, 1)};
}

absl::StatusOr<HloInstruction*> Feeds::send(HloInstruction* data, HloInstruction* token,
                                            size_t part, size_t parts) {
  TF_ASSIGN_OR_RETURN(const int64_t channel, new_channel(data->shape(), true, part, parts));
  HloInstruction* const begun = add(HloInstruction::CreateSend(data, token, channel, true));
  return add(HloInstruction::CreateSendDone(begun, channel, true));
}

// What has the place of the infeed: data and token.
absl::StatusOr<HloInstruction*> Feeds::infeed(const HloInstruction& feed, HloInstruction* token) {
  const xla::Shape& given = feed.shape().tuple_shapes(0);
  if (!given.IsTuple()) {
    TF_ASSIGN_OR_RETURN(const Array array, receive(given, token, 0, 1));
    last_ = array.token;
    return add(HloInstruction::CreateTuple({array.data, array.token}));
  }
  std::vector<HloInstruction*> data;
  for (const xla::Shape& shape : given.tuple_shapes()) {
    TF_ASSIGN_OR_RETURN(const Array array,
                        receive(shape, token, data.size(), given.tuple_shapes().size()));
    data.push_back(array.data);
    token = array.token;
  }
  last_ = token;
  return add(HloInstruction::CreateTuple({add(HloInstruction::CreateTuple(data)), token}));
}

absl::StatusOr<HloInstruction*> Feeds::outfeed(HloInstruction& feed, HloInstruction* token) {
  HloInstruction* const data = feed.mutable_operand(0);
  const size_t parts = data->shape().IsTuple() ? data->shape().tuple_shapes().size() : 1;
  for (size_t part = 0; part < parts; ++part) {
    HloInstruction* const array =
        data->shape().IsTuple() ? member(data, static_cast<int64_t>(part)) : data;
    TF_ASSIGN_OR_RETURN(token, send(array, token, part, parts));
  }
  last_ = token;
  return token;
}

absl::Status Feeds::move(HloInstruction& feed) {
  const bool in = feed.opcode() == xla::HloOpcode::kInfeed;
  HloInstruction* token = feed.mutable_operand(feed.operand_count() - 1);
  if (last_ != nullptr) {
    token = add(HloInstruction::CreateAfterAll({token, last_}));
  }
  TF_ASSIGN_OR_RETURN(HloInstruction* const moved, in ? infeed(feed, token) : outfeed(feed, token));
  TF_RETURN_IF_ERROR(feed.ReplaceAllUsesWith(moved));
  return computation_.RemoveInstruction(&feed);
}

}  // namespace

absl::Status move_feeds(xla::HloModule& module, std::vector<HostTransfer>& transfers) {
  for (HloComputation* const computation : module.computations()) {
    std::vector<HloInstruction*> found;
    for (HloInstruction* const instruction : computation->instructions()) {
      if (instruction->opcode() == xla::HloOpcode::kInfeed ||
          instruction->opcode() == xla::HloOpcode::kOutfeed) {
        found.push_back(instruction);
      }
    }
    Feeds feeds(*computation, transfers);
    for (HloInstruction* const feed : found) {
      TF_RETURN_IF_ERROR(feeds.move(*feed));
    }
  }
  return absl::OkStatus();
}

}  // namespace tpu::tensorflow
