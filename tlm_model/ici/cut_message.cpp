// Bodies of messages as bytes, and the checks of those that come from another process.
#include "ici/cut_message.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "wire/body_archive.hpp"

namespace tpu::model {
namespace {

constexpr std::array<uint16_t, std::variant_size_v<CutBody>> kKinds = {
    TPU_POD_WIRE_OPEN, TPU_POD_WIRE_PASSED, TPU_POD_WIRE_DELIVERY, TPU_POD_WIRE_ANSWER,
    TPU_POD_WIRE_ASK,  TPU_POD_WIRE_TELL,   TPU_POD_WIRE_LINK};

constexpr uint64_t kMostBytes = TPU_POD_WIRE_MOST_DATA;

// Whether the runs of the box are its bytes, and lie in [low, high).
bool fits(const RemoteWrite& write) {
  if (write.levels > RemoteWrite::kMaxLevels || write.run_bytes > kMostBytes ||
      write.bytes > kMostBytes || write.low > write.high) {
    return false;
  }
  auto total = static_cast<unsigned __int128>(write.run_bytes);
  __int128 low = 0;
  __int128 high = write.run_bytes;
  for (size_t level = 0; level < write.levels; ++level) {
    if (write.count[level] == 0 || write.count[level] > kMostBytes) {
      return false;
    }
    total *= write.count[level];
    if (total > kMostBytes) {
      return false;
    }
    const __int128 way = static_cast<__int128>(write.count[level] - 1) * write.stride[level];
    (way < 0 ? low : high) += way;
  }
  return total == write.bytes && low >= write.low && high <= write.high;
}

// `links` and `semaphores`: of the pod that a body is checked for; null and 0 when it is written.
class Bodies {
 public:
  Bodies(spec::Archive& archive, const PodFrame& frame, const spec::Links* links,
         uint32_t semaphores)
      : a_(archive), frame_(frame), links_(links), semaphores_(semaphores) {}

  void visit(CutOpen& open) {
    visit(open.write);
    a_(open.bytes, open.fixed, open.copy);
    uint64_t section = open.section;
    a_(section);
    open.section = section;
    a_.need(open.write.from_core == frame_.core, "a transfer is of another core");
    a_.need(open.copy || fits(open.write), "a box has other bytes or limits than its runs");
    if (links_ != nullptr) {
      const std::vector<spec::Links::Section> way =
          links_->sections(open.write.from_core, open.write.to_core);
      a_.need(section < way.size() && way[section].board == frame_.to,
              "a way does not lead through the board");
    }
  }
  void visit(CutPassed& /*passed*/) {}
  void visit(CutDelivery& delivery) {
    core(delivery.from_core);
    core(delivery.to_core);
    a_.need(delivery.from_core == frame_.core, "a delivery is of another core");
    a_.need(links_ == nullptr || links_->board_of(delivery.to_core) == frame_.to,
            "a transfer is for another board");
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
    a_.need(!has_flow || copies ||
                (delivery.write.from_core == delivery.from_core &&
                 delivery.write.to_core == delivery.to_core && fits(delivery.write)),
            "a write is not that of its delivery");
    delivery.signals.resize(a_.size(delivery.signals.size(), sizeof(uint32_t)));
    for (RemoteSignal& signal : delivery.signals) {
      a_(signal.from, signal.to_core, signal.semaphore, signal.value, signal.at);
      a_.need(signal.to_core == delivery.to_core, "a signal is for another core");
      a_.need(signal.semaphore < semaphores_, "a semaphore is not there");
    }
  }
  void visit(CutAnswer& answer) {
    RemoteAnswer& said = answer.answer;
    a_.choice(said.status, RemoteAnswer::Status::kBadSlot);
    a_(said.base, said.size);
    said.bandwidth = -1;  // a resource of the board that answers
  }
  void visit(CutAsk& ask) {
    core(ask.core);
    a_.need(links_ == nullptr || links_->board_of(ask.core) == frame_.to,
            "a question is for another board");
  }
  void visit(CutTell& tell) { a_(tell.work.done, tell.work.in_flight); }
  void visit(CutLinkDown& down) { a_(down.news.fault, down.news.until); }

 private:
  void core(uint32_t& number) {
    a_(number);
    a_.need(links_ == nullptr || number < links_->cores(), "a core is not there");
  }
  void visit(RemoteWrite& write) {
    a_(write.from);
    core(write.from_core);
    core(write.to_core);
    a_(write.levels, write.address, write.low, write.high, write.count, write.stride,
       write.run_bytes, write.bytes, write.at);
  }

  spec::Archive& a_;
  const PodFrame& frame_;
  const spec::Links* const links_;
  const uint32_t semaphores_;
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
  std::visit([&](auto& fields) { Bodies(writer, frame, nullptr, 0).visit(fields); }, body);
  frame.body = writer.take();
  return frame;
}

CutMessage cut_message(const PodFrame& frame, const spec::Links& links, uint32_t semaphores) {
  CutMessage message;
  message.key = {frame.at, frame.board, frame.core, frame.number, 0};
  while (message.key.kind < kKinds.size() && kKinds[message.key.kind] != frame.kind) {
    ++message.key.kind;
  }
  const std::string where = "a message of board " + std::to_string(frame.board) + ": ";
  if (message.key.kind == kKinds.size() || frame.board >= links.boards() ||
      frame.core >= links.cores()) {
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
    case 5:
      message.body = CutTell();
      break;
    default:
      message.body = CutLinkDown();
      break;
  }
  try {
    BodyReader reader(frame.body);
    std::visit([&](auto& fields) { Bodies(reader, frame, &links, semaphores).visit(fields); },
               message.body);
    reader.need(reader.left() == 0, "bytes are left behind its fields");
  } catch (const spec::ArchiveError& error) {
    throw PodLost(where + error.what());
  }
  return message;
}

}  // namespace tpu::model
