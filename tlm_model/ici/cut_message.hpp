// What crosses the links between boards: messages of plain data, and their order. Between processes
// they are frames (wire/pod_stream.hpp) with these bodies.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "command/links.hpp"
#include "kernel/remote_if.hpp"
#include "wire/pod_stream.hpp"

namespace tpu::model {

// A transfer comes to a board: `section` of its way.
struct CutOpen {
  RemoteWrite write{};
  uint64_t bytes = 0;
  uint64_t fixed = 0;
  bool copy = false;
  size_t section = 0;
};
// All bytes of a transfer are through a board: that of the passage, or one in front of it.
struct CutPassed {
  uint32_t board = 0;  // of the passage, in a folded pod; else it is that of the receiver
};
struct CutAnswer {
  RemoteAnswer answer;
};
struct CutAsk {
  uint32_t core = 0;  // that is asked
};
struct CutTell {
  GangWork work;
};
// A link of the sender's board goes down.
struct CutLinkDown {
  LinkNews news;
};
using CutBody =
    std::variant<CutOpen, CutPassed, CutDelivery, CutAnswer, CutAsk, CutTell, CutLinkDown>;

// The order of messages. A question and its answers have the number of the core that asked.
struct CutKey {
  uint64_t at = 0;      // cycle of arrival
  uint32_t board = 0;   // that has sent it
  uint32_t core = 0;    // that began
  uint64_t number = 0;  // of what it has begun
  size_t kind = 0;
  auto operator<=>(const CutKey&) const = default;
};

// The frame of a message. Of a delivery its data are left: they go in pieces.
PodFrame cut_frame(const CutKey& key, CutBody& body);
// And back. Throws PodLost for what no board of the pod sends to board `frame.to`: ways, boxes and
// numbers that do not fit `links`, or cores with `semaphores`.
struct CutMessage {
  CutKey key;
  CutBody body;
};
CutMessage cut_message(const PodFrame& frame, const spec::Links& links, uint32_t semaphores);

}  // namespace tpu::model
