// Branches of the timed machine, and loops without walking through all their turns: when the
// machine comes to the head of a loop in the state in which it was one turn before, relative to the
// clock, then every further turn that takes the same way takes the same time. The way is found by
// running the scalar instructions alone.
#include <algorithm>

#include "program/timed_core.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

constexpr size_t kMostWay = size_t{1} << 22;  // then known loops are forgotten

}  // namespace

// A branch on data that the estimate does not have: the end of a list's entry is never met, any
// other branch falls through at first and is taken the next time, so that a loop runs once.
bool TimedCore::choose(const spec::ScalarInsn& insn) {
  return static_cast<ScalarOp>(insn.op) != ScalarOp::kBneg && choices_[pc_]++ % 2 != 0;
}

void TimedCore::branch(const spec::ScalarInsn& insn) {
  ++steps_;
  if (scalars_.varies(insn)) {
    differs_ = true;
    return;
  }
  const bool taken = scalars_.unknown(insn) ? choose(insn) : scalars_.taken(insn);
  time_ += static_cast<uint64_t>(taken ? board_.core.branch_cycles : 1);
  const size_t target = taken ? static_cast<size_t>(insn.imm) : pc_ + 1;
  const bool back = target <= pc_;
  pc_ = target;
  if (setup_.alone) {
    way_.push_back(taken ? 1 : 0);
    if (back) {
      loop_head(target, now_);
    }
  }
}

void TimedCore::loop_head(size_t word, uint64_t now) {
  if (way_.size() > kMostWay) {
    way_.clear();
    heads_.clear();
  }
  std::vector<uint64_t> state = snapshot(now);
  LoopHead& head = heads_[word];
  if (head.at != kNever && head.state == state) {
    looped_ = true;
    loop_word_ = word;
    loop_way_ = head.way;
    period_ = time_ - head.at;
  }
  head = {std::move(state), time_, way_.size()};
}

// Everything that decides what comes next, but for registers. All transfers are this core's, so
// their bytes left and their rates are the state of the bandwidth too.
std::vector<uint64_t> TimedCore::snapshot(uint64_t now) const {
  std::vector<uint64_t> state;
  const auto command = [&](const TimedCommand* c, int64_t out) {
    state.push_back(reinterpret_cast<uintptr_t>(c));
    state.push_back(c->matmul ? static_cast<uint64_t>(out) : 0);
  };
  state = {time_ - now, charged_ ? 1u : 0u, static_cast<uint64_t>(inbound_)};
  for (const Queue& q : queues_) {
    state.push_back(q.count << 32 | q.flying);
    state.push_back(std::max(q.next_start, now) - now);
    for (size_t i = 0; i < q.count; ++i) {
      const Queued& queued = q.waiting_at(i);
      command(queued.command, queued.out);
      state.push_back(queued.peers[0]);
    }
    for (size_t i = 0; i < q.flying; ++i) {
      const Flight& flight = q.flight_at(i);
      command(flight.command, flight.out);
      state.push_back(flight.active() ? kNever - flight.rate()
                                      : std::max(done_of(flight), now) - now);
      state.push_back(flight.active() ? flight.left_at(now) : 0);
      state.push_back(flight.peer);
    }
  }
  for (size_t i = 0; i < semaphore_.size(); ++i) {
    if (semaphore_[i] != 0) {
      state.push_back(i << 32 | semaphore_[i]);
    }
  }
  for (const Pending& p : pending_) {
    state.push_back(p.at - now);
    state.push_back(uint64_t{p.semaphore} << 32 | p.amount);
  }
  return state;
}

void TimedCore::skip_periods(uint64_t most_steps) {
  const size_t way_end = way_.size();
  looped_ = false;
  while (steps_ < most_steps && repeat_way(loop_way_, way_end)) {
    skipped_ += period_;
  }
  LoopHead& head = heads_[loop_word_];
  head.at = time_;
  head.way = way_.size();
}

// One more turn of the loop, scalar instructions alone; false, and nothing done, if it goes another
// way than way_[way, way_end).
bool TimedCore::repeat_way(size_t way, size_t way_end) {
  const size_t before = way_.size();
  const Work work_before = work_;
  scalars_.begin_trial();
  for (size_t pc = loop_word_; pc < program_.words() && way_.size() <= kMostWay;) {
    ++steps_;
    if (program_.is_command(pc)) {
      if (!repeat_command(program_.command(pc), way, way_end)) {
        break;
      }
      pc += program_.command_words(pc);
      continue;
    }
    const spec::ScalarInsn insn = program_.scalar(pc);
    const auto op = static_cast<ScalarOp>(insn.op);
    if (spec::scalar_class(op) == spec::ScalarClass::kBranch) {
      const bool unknown = scalars_.unknown(insn);
      const bool taken = !unknown && scalars_.taken(insn);
      if ((unknown && op != ScalarOp::kBneg) || scalars_.varies(insn) || way == way_end ||
          way_[way] != (taken ? 1u : 0u)) {
        break;
      }
      way_.push_back(way_[way++]);
      pc = taken ? static_cast<size_t>(insn.imm) : pc + 1;
      if (pc == loop_word_ && way == way_end) {
        scalars_.end_trial(true);
        return true;
      }
      continue;
    }
    const bool timed = op == ScalarOp::kSwait || op == ScalarOp::kSsignal ||
                       op == ScalarOp::kHcall || op == ScalarOp::kMarkb || op == ScalarOp::kMarke;
    if (op == ScalarOp::kHalt || (!timed && !scalars_.execute(insn))) {
      break;
    }
    ++pc;
  }
  scalars_.end_trial(false);
  way_.resize(before);
  work_ = work_before;
  return false;
}

bool TimedCore::repeat_command(const TimedCommand& command, size_t& way, size_t way_end) {
  if (command.matmul && command.out.reg != 0) {
    return false;  // its place decides when the next one may start
  }
  work_ += command.work;
  if (command.writes_smem()) {
    const int64_t at = command.out.offset + static_cast<int64_t>(scalars_.value(command.out.reg));
    scalars_.forget(at + command.out_extent.low, at + command.out_extent.high);
  }
  if (command.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    return true;
  }
  if (way == way_end || way_[way] != static_cast<uint32_t>(scalars_.value(command.peer_reg, 0))) {
    return false;
  }
  way_.push_back(way_[way++]);
  return true;
}

}  // namespace tpu::compiler
