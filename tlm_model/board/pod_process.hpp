// One of several processes that share the boards of a pod: what stands here for the boards of the
// others, and runs that all processes begin and end in the same cycle (wire/pod_clock.hpp). Bits
// and cycles are those of a pod in one process. Kernel thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <systemc>
#include <vector>

#include "board/pod_part.hpp"
#include "command/links.hpp"
#include "ici/cut.hpp"
#include "ici/cut_message.hpp"
#include "kernel/activity.hpp"
#include "kernel/hbm_if.hpp"
#include "mgmt/fabric.hpp"
#include "tpu/spec/board_params.hpp"
#include "wire/pod_clock.hpp"
#include "wire/pod_stream.hpp"

namespace tpu::model {

using PodHello = tpu_pod_wire_hello_t;

class PodProcess {
 public:
  // `hello`: what must be equal in all processes; the numbers of this one are filled in. Throws
  // std::runtime_error for more processes than boards, and for a latency of 0, with the number of
  // the board file.
  PodProcess(std::shared_ptr<PodStream> stream, std::shared_ptr<const spec::Links> links,
             const spec::BoardParams& params, const PodHello& hello, Activity& activity);
  ~PodProcess();

  bool has(uint32_t board) const { return rank_of(board) == stream_->rank(); }

  // What stands for a board of another process.
  CutEnd& far_cut(uint32_t board);
  ControlIf& far_control(uint32_t core);
  RemoteIf& far_core();
  // What is here, by number; null for what is not.
  // `silent`: first cycle in which something may leave the boards that are here, to other boards
  // or to the host, unless something arrives; at the end of a cycle.
  void connect(std::vector<CutEnd*> cuts, std::vector<ControlIf*> controls, std::vector<HbmIf*> hbm,
               std::function<uint64_t()> silent);

  struct Run {
    uint64_t until = kPodQuiet;      // or kPodRead, or a cycle
    std::function<uint64_t()> halt;  // first cycle at whose end `stop` may be true; kNever
    std::function<bool()> stop;      // an interrupt is there, or the register has been read
    std::function<bool()> asked;     // to end early
    const sc_core::sc_event_or_list* wake = nullptr;  // for all of these
  };
  // In the gate process: lets time pass. Throws PodLost.
  PodClock::Step run(const Run& run);

  // Windows that this process has run.
  uint64_t windows() const { return windows_; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  class FarCut;
  class FarControl;
  class FarCore;

  uint32_t rank_of(uint32_t board) const {
    return spec::rank_of_board(board, links_->boards(), stream_->ranks());
  }
  PodClock::Step run_all(const Run& run);
  std::string last_words(const std::exception& error) const;
  [[noreturn]] void lose(const std::string& why);
  PodStatus status(const Run& run, bool frozen);
  void publish(const PodStatus& status);
  RankSet held_ranks() const;
  bool receive();
  void handle(uint32_t from, PodFrame frame);
  void greet();
  void check_hello(uint32_t from, const PodFrame& frame);
  void take_delivery(uint32_t from, CutMessage& message);
  void post(uint32_t board, const PodFrame& frame);
  void post_data(uint32_t board, const CutKey& key, std::span<const uint8_t> data);
  void note_sent(uint64_t at);
  uint64_t silent();

  const std::shared_ptr<PodStream> stream_;
  const std::shared_ptr<const spec::Links> links_;
  PodHello hello_;
  const uint32_t semaphores_;  // of a core
  const uint64_t lookahead_;
  Activity& activity_;
  PodClock clock_;
  std::vector<std::unique_ptr<FarCut>> far_cuts_;
  std::vector<std::unique_ptr<FarControl>> far_controls_;
  std::unique_ptr<FarCore> far_core_;
  std::vector<CutEnd*> cuts_;
  std::vector<ControlIf*> controls_;
  std::vector<HbmIf*> hbm_;
  std::function<uint64_t()> silent_here_;

  std::vector<std::optional<PodFrame>> held_;  // by rank: of a run or window that has not begun
  std::vector<std::vector<uint8_t>> pieces_;   // by rank: of a delivery that follows
  std::vector<bool> greeted_;                  // by rank
  bool hello_sent_ = false;
  uint64_t sent_until_ = 0;  // a message to another process is on its way before this cycle
  // Arrivals of what this process has sent to others, the earliest on top.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> on_the_way_;
  // What it has said of a cycle is said once.
  struct Silence {
    uint64_t done = 0;
    uint64_t before = 0;
  };
  std::optional<Silence> silence_;
  uint64_t windows_ = 0;
  std::chrono::nanoseconds waited_{0};
  std::string lost_;
};

}  // namespace tpu::model
