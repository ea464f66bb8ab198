// Bodies of messages as bytes, and the checks of those that come from another process.
#include "ici/cut_message.hpp"

#include <array>
#include <string>
#include <utility>

#include "board/board_loader.hpp"
#include "wire/body_archive.hpp"

namespace tpu::model {
namespace {

constexpr std::array<uint16_t, std::variant_size_v<CutBody>> kKinds = {
    TPU_POD_WIRE_OPEN,   TPU_POD_WIRE_PASSED, TPU_POD_WIRE_DELIVERY,
    TPU_POD_WIRE_ANSWER, TPU_POD_WIRE_ASK,    TPU_POD_WIRE_TELL};

constexpr uint64_t kMostBytes = TPU_POD_WIRE_MOST_DATA;

class Bodies {
 public:
  Bodies(spec::Archive& archive, uint32_t cores) : a_(archive), cores_(cores) {}

  void visit(CutOpen& open) {
    visit(open.write);
    a_(open.bytes, open.fixed, open.copy);
    uint64_t section = open.section;
    a_(section);
    open.section = section;
    a_.need(section < spec::kMostLinks, "a way has too many sections");
  }
  void visit(CutPassed& /*passed*/) {}
  void visit(CutDelivery& delivery) {
    core(delivery.from_core);
    core(delivery.to_core);
    bool has_flow = delivery.flow.has_value();
    uint64_t flow = delivery.flow.value_or(0);
    a_(delivery.at, has_flow, flow);
    delivery.flow = has_flow ? std::optional(flow) : std::nullopt;
    visit(delivery.write);
    CutCopy& range = delivery.range;
    bool copies = range.is_there;
    a_(copies, range.from, range.to, range.bytes);
    range.is_there = copies;
    a_.need(range.bytes <= kMostBytes, "a copy is too long");
    delivery.signals.resize(a_.size(delivery.signals.size(), sizeof(uint32_t)));
    for (RemoteSignal& signal : delivery.signals) {
      a_(signal.from, signal.to_core, signal.semaphore, signal.value, signal.at);
      a_.need(signal.to_core == delivery.to_core, "a signal is for another core");
    }
  }
  void visit(CutAnswer& answer) {
    RemoteAnswer& said = answer.answer;
    a_.choice(said.status, RemoteAnswer::Status::kBadSlot);
    a_(said.base, said.size);
    said.bandwidth = -1;  // a resource of the board that answers
  }
  void visit(CutAsk& ask) { core(ask.core); }
  void visit(CutTell& tell) { a_(tell.work.done, tell.work.in_flight); }

 private:
  void core(uint32_t& number) {
    a_(number);
    a_.need(number < cores_, "a core is not there");
  }
  void visit(RemoteWrite& write) {
    a_(write.from);
    core(write.from_core);
    core(write.to_core);
    a_(write.levels, write.address, write.low, write.high, write.count, write.stride,
       write.run_bytes, write.bytes, write.at);
    a_.need(write.levels <= RemoteWrite::kMaxLevels && write.bytes <= kMostBytes,
            "a write has too many levels or bytes");
  }

  spec::Archive& a_;
  const uint32_t cores_;
};

}  // namespace

PodFrame cut_frame(const CutKey& key, CutBody& body) {
  PodFrame frame;
  frame.kind = kKinds[body.index()];
  frame.at = key.at;
  frame.board = key.board;
  frame.core = key.core;
  frame.number = key.number;
  BodyWriter writer;
  std::visit([&](auto& fields) { Bodies(writer, UINT32_MAX).visit(fields); }, body);
  frame.body = writer.take();
  return frame;
}

CutMessage cut_message(const PodFrame& frame, uint32_t boards, uint32_t cores) {
  CutMessage message;
  message.key = {frame.at, frame.board, frame.core, frame.number, 0};
  while (message.key.kind < kKinds.size() && kKinds[message.key.kind] != frame.kind) {
    ++message.key.kind;
  }
  const std::string where = "a message of board " + std::to_string(frame.board) + ": ";
  if (message.key.kind == kKinds.size() || frame.board >= boards || frame.core >= cores) {
    throw PodLost(where + "its kind, board or core is not there");
  }
  switch (message.key.kind) {
    case 0:
      message.body = CutOpen();
      break;
    case 1:
      message.body = CutPassed();
      break;
    case 2:
      message.body = CutDelivery();
      break;
    case 3:
      message.body = CutAnswer();
      break;
    case 4:
      message.body = CutAsk();
      break;
    default:
      message.body = CutTell();
      break;
  }
  try {
    BodyReader reader(frame.body);
    std::visit([&](auto& fields) { Bodies(reader, cores).visit(fields); }, message.body);
    reader.need(reader.left() == 0, "bytes are left behind its fields");
  } catch (const spec::ArchiveError& error) {
    throw PodLost(where + error.what());
  }
  return message;
}

}  // namespace tpu::model
