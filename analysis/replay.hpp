// The cores of a replay with their bandwidth and links, and the order of events. One that is not
// traced can be left at a moment, and another one go on from there; it replays cores that do the
// same as one, until they meet others (core_groups.hpp).
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "analysis/core_groups.hpp"
#include "analysis/replay_core.hpp"
#include "analysis/replay_routes.hpp"
#include "board/board_loader.hpp"
#include "command/transfer_clock.hpp"

namespace tpu::driver {

template <bool kTraced>
class Replay final : private ReplayFabric {
 public:
  using Core = ReplayCore<kTraced>;
  static constexpr uint64_t kNever = Core::kNever;

  /// All that changes in a replay.
  struct Moment {
    uint64_t now = 0;
    uint64_t next_join = 0;
    ReplayPulse pulse{};
    CoreGroups groups{0};
    std::vector<ReplayState> cores{};  // that are replayed
    std::vector<ReplayFlow> flows{};
    const ReplayFlow* flows_were_at = nullptr;
    spec::TransferClock transfers{};
  };

  /// The program and the change outlive it.
  Replay(const ReplayProgram& program, const CostChange& change)
      : program_(program),
        board_(change.board),
        routes_(program, change.board, transfers_.share()),
        pulse_{.wake = std::vector<uint64_t>(program.cores.size())},
        at_(static_cast<size_t>(spec::core_count(change.board)), nullptr),
        groups_(program.cores.size()) {
    spec::BandwidthShare unused;
    const spec::Links before(program.board, unused);
    const uint32_t first =
        std::ranges::min_element(program.cores, {}, &ReplayProgram::Core::begin)->core;
    for (uint32_t i = 0; i < program.cores.size(); ++i) {
      const uint32_t core = program.cores[i].core;
      // The barrier of the gang lets its first core go first.
      const auto way = [&](const spec::Links& links) {
        return core == first ? 0 : static_cast<int64_t>(links.control_latency(first, core));
      };
      const typename Core::Offsets offsets{
          .issue = board_.core.issue_cycles - program.board.core.issue_cycles,
          .begin = way(routes_.links()) - way(before)};
      cores_.emplace_back(program, i, change, offsets, static_cast<ReplayFabric&>(*this), pulse_);
      at_[core] = &cores_.back();
      now_ = std::min(now_, pulse_.wake[i]);
    }
    use_groups(groups_);
    place_flows();
    capacities_ = transfers_.share().capacities();
  }

  /// Continues until all cores have ended or wait forever, or until `stop(*this)`, asked whenever
  /// everything of a cycle is done, says true. False: it was stopped.
  template <typename Stop>
  bool run(const Stop& stop) {
    for (;;) {
      settle();
      while (!kTraced && pulse_.progress >= next_join_) {
        next_join_ = pulse_.progress + kJoinEvery;
        if (join()) {
          settle();
        }
      }
      const uint64_t next = std::min(next_wake(), transfers_.next_end());
      if (next == kNever) {
        stuck_ = !std::ranges::all_of(groups_.firsts(), [&](uint32_t i) { return ended(i); });
        return true;
      }
      if (stop(*this)) {
        return false;
      }
      now_ = next;
    }
  }

  uint64_t now() const { return now_; }
  bool stuck() const { return stuck_; }
  size_t size() const { return cores_.size(); }
  uint64_t begin(size_t core) const { return cores_[core].begin(); }
  bool ended(size_t core) const { return cores_[groups_.first_of(core)].ended(); }
  uint64_t end(size_t core) const { return cores_[groups_.first_of(core)].end(); }
  CoreTiming take(size_t core) { return cores_[core].take(); }
  uint64_t progress() const { return pulse_.progress; }
  const CoreGroups& groups() const { return groups_; }

  /// Where it was stopped.
  Moment moment() const {
    Moment here{.now = now_, .next_join = next_join_, .pulse = pulse_, .groups = groups_};
    for (const uint32_t i : groups_.firsts()) {
      here.cores.push_back(cores_[i].state());
    }
    here.flows = flows_;
    here.flows_were_at = flows_.data();
    here.transfers = transfers_;
    return here;
  }
  /// Goes on from a moment of a replay of the same program, on a board that differs only in the
  /// bandwidth of what no transfer under way uses.
  void go_on_from(const Moment& from) {
    if (groups_ != from.groups) {
      use_groups(from.groups);
    }
    for (size_t i = 0; i < from.cores.size(); ++i) {
      cores_[groups_.firsts()[i]].set_state(from.cores[i]);
    }
    std::ranges::copy(from.flows, flows_.begin());
    transfers_ = from.transfers;
    transfers_.share().move_transfers(from.flows_were_at, flows_.data());
    transfers_.share().take_capacities(capacities_);
    now_ = from.now;
    next_join_ = from.next_join;
    std::ranges::copy(from.pulse.wake, pulse_.wake.begin());  // which the cores refer to
    pulse_.progress = from.pulse.progress;
    count_remote();
  }
  /// Whether all that is to come is the same as from `other` on, that much later. It may be where
  /// it says that it is not.
  bool same(const Moment& other) const {
    if (groups_ != other.groups) {
      return false;
    }
    for (size_t i = 0; i < other.cores.size(); ++i) {
      const uint32_t core = groups_.firsts()[i];
      if (!cores_[core].same(now_, other.cores[i], other.now, &other.flows[first_flow_[core]])) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr uint64_t kJoinEvery = 1000;  // of progress

  void place_flows() {
    size_t count = 0;
    for (const Core& core : cores_) {
      first_flow_.push_back(count);
      count += core.flow_count();
    }
    flows_.resize(count);
    for (size_t i = 0; i < cores_.size(); ++i) {
      cores_[i].use_flows(&flows_[first_flow_[i]]);
    }
  }

  uint64_t route(const ReplayCommand& command, ReplayFlow& flow) override {
    routes_.add(flow.core, command, flow);
    return routes_.fixed_cycles(flow.core, command);
  }

  void start(ReplayFlow& flow) override {
    transfers_.start(flow, now_);
    remote_ += flow.active() && is_remote(flow) ? 1 : 0;
  }
  bool is_remote(const ReplayFlow& flow) const {
    return flow.queue == static_cast<uint32_t>(spec::Queue::kDmaRemote);
  }

  uint64_t control_cycles(uint32_t core, const ReplayCommand& command) override {
    uint64_t cycles = 1;
    for (const spec::SemaphoreUse& use : command.signal) {
      if (use.amount != 0 && command.remote) {
        const ReplayProgram::Core& me = program_.cores[core];
        cycles = std::max(cycles, routes_.links().control_latency(me.core, me.reached(use.core)));
      }
    }
    return cycles;
  }

  // What the first core of all does to another one, another one does to it.
  void signal(uint64_t now, uint32_t board_core, const spec::SemaphoreUse& use,
              const Cause& from) override {
    Core& to = groups_.one() ? cores_.front() : *at_[board_core];
    to.signal(now, use.semaphore, use.amount, from);
  }
  void landing(uint64_t now, uint32_t board_core, int count, const Cause& from) override {
    Core& to = groups_.one() ? cores_.front() : *at_[board_core];
    to.landing(now, count, from);
  }

  bool may_issue(uint32_t queue, uint32_t index) override {
    split_ |= !may_be_under_way(groups_, queue, index);
    return !split_;
  }
  // One that is apart.
  bool may_be_under_way(const CoreGroups& groups, uint32_t queue, uint32_t index) const {
    return groups.split_up() ||
           (groups.one() && program_.way_of(queue, index) != ReplayProgram::kNoWay);
  }

  uint64_t next_wake() const {
    uint64_t next = kNever;
    for (const uint32_t i : groups_.firsts()) {
      next = std::min(next, pulse_.wake[i]);
    }
    return next;
  }

  // Everything that is due at `now_`.
  void settle() {
    do {
      do {
        for (const uint32_t i : groups_.firsts()) {
          if (pulse_.wake[i] <= now_) {
            cores_[i].step(now_);
          }
        }
        if (split_) {
          split();
        }
      } while (next_wake() <= now_);
    } while (step_transfers());
  }

  bool step_transfers() {
    if (!transfers_.due(now_)) {
      return false;
    }
    const bool any = transfers_.step(now_, [this](const spec::Transfer& transfer) {
      const auto& flow = static_cast<const ReplayFlow&>(transfer);
      cores_[flow.core].flow_ended(now_, flow.queue);
      remote_ -= is_remote(flow) ? 1 : 0;
    });
    if (remote_ == 0 || !groups_.one() || groups_.split_up() || fair()) {
      return any;
    }
    split();
    return true;
  }

  bool fair() {
    std::vector<const ReplayFlow*>& flows = under_way_;
    flows.clear();
    cores_.front().for_each_active(
        [&](const ReplayCommand&, const ReplayFlow& flow) { flows.push_back(&flow); });
    return routes_.fair(flows);
  }

  void use_groups(const CoreGroups& groups) {
    groups_ = groups;
    for (const uint32_t i : groups_.firsts()) {
      cores_[i].set_weight(groups_.size_of(i));
    }
    routes_.use_groups(groups_);
  }
  void count_remote() {
    remote_ = 0;
    for (const uint32_t i : groups_.firsts()) {
      cores_[i].for_each_active([&](const ReplayCommand&, const ReplayFlow& flow) {
        remote_ += is_remote(flow) ? 1 : 0;
      });
    }
  }

  // Transfers under way go on with the resources of the groups.
  void resume_transfers() {
    transfers_.forget();
    for (const uint32_t i : groups_.firsts()) {
      cores_[i].for_each_active([&](const ReplayCommand& command, ReplayFlow& flow) {
        flow.clear();
        routes_.add(i, command, flow);
        transfers_.resume(flow);
      });
    }
    count_remote();
  }

  void split() {
    split_ = false;
    for (uint32_t i = 0; i < cores_.size(); ++i) {
      if (groups_.first_of(i) != i) {
        cores_[i].copy(cores_[groups_.first_of(i)]);
      }
      pulse_.wake[i] = now_;  // the one that wanted it, too
    }
    CoreGroups each = groups_;
    each.split();
    use_groups(each);
    resume_transfers();
  }

  // Cores that have come to be in the same state, once everything of a cycle is done.
  bool join() {
    CoreGroups wider = groups_;
    const bool other = wider.join(
        [&](uint32_t a, uint32_t b) {
          return program_.cores[a].like == program_.cores[b].like && !cores_[a].ended() &&
                 cores_[a].same(now_, cores_[b].state(), now_, &flows_[first_flow_[b]]);
        },
        [&](uint32_t i) { return routes_.chip_of(i); });
    if (!other || !routes_.can_use(wider)) {
      return false;
    }
    const auto parts = [&](uint32_t core) {
      return cores_[core].any_under_way([&](uint32_t q, uint32_t i) {
        return program_.cores[core].command(q, i).apart && !may_be_under_way(wider, q, i);
      });
    };
    if (std::ranges::any_of(groups_.firsts(), parts)) {
      return false;
    }
    use_groups(wider);
    resume_transfers();
    return true;
  }

  const ReplayProgram& program_;
  const spec::BoardParams& board_;
  spec::TransferClock transfers_;
  ReplayRoutes routes_;
  std::vector<uint64_t> capacities_;
  ReplayPulse pulse_;
  std::deque<Core> cores_;
  std::vector<Core*> at_;  // by core of the board
  std::vector<ReplayFlow> flows_;
  std::vector<size_t> first_flow_;  // by core of the record
  CoreGroups groups_;
  bool split_ = false;   // a core asks for it
  uint32_t remote_ = 0;  // transfers under way
  std::vector<const ReplayFlow*> under_way_;
  uint64_t next_join_ = 0;
  uint64_t now_ = UINT64_MAX;
  bool stuck_ = false;
};

}  // namespace tpu::driver
