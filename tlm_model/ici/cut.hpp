// The links that leave a board: what crosses them are messages with a latency, never bandwidth that
// both boards share. A transfer is a flow in each board on its way; the receiver's board looks at
// it when its first bytes can have come, and it lands when it is through all of them. Messages of
// one cycle are taken in the order of their senders, which nothing else in the kernel can change:
// they are taken a delta cycle after its timed events, when all of them are there.
// Timing: docs/pods.md. Not modelled: a receiver's board that is so busy that it holds back the
// sender.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <systemc>
#include <tuple>
#include <utility>
#include <vector>

#include "command/links.hpp"
#include "ici/cut_inbox.hpp"
#include "ici/cut_message.hpp"
#include "kernel/activity.hpp"
#include "kernel/cycles.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/remote_if.hpp"

namespace tpu::model {

// Where the messages to a board go: its own end, or what stands for it where the board is in
// another process.
class CutEnd {
 public:
  virtual ~CutEnd() = default;
  virtual void take(const CutKey& key, CutBody&& body) = 0;
};

class Cut : public sc_core::sc_module, public CutIf, public CutEnd, private FlowListener {
 public:
  SC_HAS_PROCESS(Cut);

  // Both outlive it. `board`: its number; `ici`: of this board, which has all cores of the pod.
  Cut(sc_core::sc_module_name name, uint32_t board, const spec::Links& links, FluidShare& fluid,
      Activity& activity, IciIf& ici);

  // Before the simulation starts: the ends of all boards of the pod by number, and the bandwidths
  // of this board's HBMs by core of the pod. With a folded pod (spec/command/fold.hpp) this is the
  // end of all boards.
  void connect(std::span<CutEnd* const> boards, std::span<const ResourceId> hbm);

  uint64_t open(const RemoteWrite& write, uint64_t bytes, uint64_t fixed,
                Answered answered) override;
  uint64_t open_copy(uint32_t from_core, uint32_t to_core, uint64_t bytes) override;
  void deliver(CutDelivery delivery, Answered answered) override;
  void ask(uint32_t from_core, uint32_t to_core, Told told) override;
  void tell_link(uint32_t core, const LinkNews& news) override;
  void hear_links(Heard heard) override { heard_ = std::move(heard); }

  // First cycle in which a message may make this end send one; kNever: none is here. 0: while
  // transfers pass it.
  uint64_t silent() const {
    if (!passages_.empty() || !waiting_.empty()) {
      return 0;
    }
    return inbox_.empty() ? kNever : inbox_.first_at();
  }

  // A message that arrives at key.at. Throws PodLost if nobody has asked for it. If it came before,
  // this is thrown when it arrives.
  void take(const CutKey& key, CutBody&& body) override;

 private:
  using Open = CutOpen;
  using Passed = CutPassed;
  using Answer = CutAnswer;
  using Ask = CutAsk;
  using Tell = CutTell;
  using Body = CutBody;
  using Key = CutKey;
  // Of a transfer or question: who began it, and the number there.
  using Id = std::pair<uint32_t, uint64_t>;

  struct Passage : Flow {
    Id id;
    Open open;
    spec::Links::Section section;
    bool lands = false;    // here
    bool taken = false;    // by the receiver
    bool refused = false;  // by it: the sender faults, and what follows is void
    uint32_t missing = 0;  // boards that it is not through
    uint64_t extra = 0;    // cycles that links of this board add
  };

  // By core, board and number, which is dense. A folded pod has many boards.
  struct PassageAt {
    uint32_t core;
    uint32_t board;
    uint64_t number;
    std::unique_ptr<Passage> passage;

    std::tuple<uint32_t, uint32_t, uint64_t> key() const { return {core, board, number}; }
    bool is(const Id& id, uint32_t of_board) const {
      return key() == std::tuple(id.first, of_board, id.second);
    }
  };

  void send(uint32_t from_board, uint32_t to_board, uint64_t at, Id id, Body&& body);
  void wake();
  void wake_method();
  void inbox_method();
  // Returns whether the body is still needed.
  bool handle(const Id& id, uint32_t from_board, CutInbox::Slot slot);
  void begin(const Id& id, const Open& open);
  Passage& enter(const Id& id, uint32_t board);
  // Where it is, or would be.
  std::vector<PassageAt>::iterator place_of(const Id& id, uint32_t board);
  // Null: none is here.
  Passage* find(const Id& id, uint32_t board);
  void leave(const Id& id, uint32_t board);
  void flow_changed(const Flow& flow, bool ended) override;
  void passed(const Id& id, uint32_t board);
  // What lands in the order in which it was sent. Copies of the host wait for no core.
  struct Line {
    uint32_t from_core = 0;
    uint32_t to_core = 0;
    bool copies = false;
    auto operator<=>(const Line&) const = default;
  };
  bool deliver_now_or_later(CutDelivery& delivery, uint64_t number, CutInbox::Slot slot);
  bool has_come(const CutDelivery& delivery);
  void land_due(const Line& line);
  void land(CutDelivery& delivery, uint64_t number);
  void answer(const Id& id, uint32_t core, const RemoteAnswer& answer);
  uint64_t open_flow(const Open& open);
  [[noreturn]] void lose(const Id& id, const char* why) const;

  struct Waiting {
    CutInbox::Slot slot;  // of the delivery
    uint64_t number;
  };

  const uint32_t board_;
  const spec::Links& links_;
  FluidShare& fluid_;
  Activity& activity_;
  IciIf& ici_;
  std::vector<CutEnd*> boards_;
  std::vector<ResourceId> hbm_;

  CutQuestions questions_;
  CutInbox inbox_;
  std::vector<PassageAt> passages_;  // in the order of their keys
  std::vector<std::unique_ptr<Passage>> spare_;
  std::map<Line, std::deque<Waiting>> waiting_;  // lines where something waits
  Heard heard_;                                  // empty without a fault file
  sc_core::sc_event wake_event_{"wake_event"};
  sc_core::sc_event inbox_event_{"inbox_event"};
};

}  // namespace tpu::model
