// Dependence edges by byte ranges, transitive reduction by vector clocks, semaphores per queue
// pair.
#include "program/semaphores.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "ir/error.hpp"
#include "program/access_history.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kQueues = spec::kQueueCount;
constexpr size_t kSequencer = kQueues;  // as a waiting unit
constexpr size_t kUnits = kQueues + 1;
using Clock = std::array<int, kQueues>;  // latest item of each queue known to be done; -1: none

void join(Clock& a, const Clock& b) {
  for (size_t q = 0; q < kQueues; ++q) {
    a[q] = std::max(a[q], b[q]);
  }
}

class Inserter {
 public:
  Inserter(Listing& listing, int limit) : listing_(listing), limit_(limit) {
    for (Clock& c : known_) {
      c.fill(-1);
    }
    last_.fill(-1);
    pair_.fill(-1);
  }

  SyncResult run(const std::function<void(double done)>& progress) {
    const size_t n = listing_.items.size();
    waits_.resize(n);
    signals_.resize(n);
    clock_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      constexpr size_t kBetween = 4096;
      if (progress && i % kBetween == 0) {
        progress(static_cast<double>(i) / static_cast<double>(n));
      }
      if (const auto* command = std::get_if<Command>(&listing_.items[i])) {
        visit(static_cast<int>(i), *command);
      } else if (const auto* control = std::get_if<Control>(&listing_.items[i])) {
        visit(static_cast<int>(i), *control);
      }
    }
    rewrite();
    result_.semaphores = next_;
    return std::move(result_);
  }

 private:
  int queue_of(int item) const {
    const auto& c = std::get<Command>(listing_.items[static_cast<size_t>(item)]);
    return static_cast<int>(c.queue());
  }

  // Boundaries and waits of the sequencer. What it knows, all later commands know.
  void visit(int item, const Control& control) {
    switch (control.kind) {
      case Control::Kind::kDrain:
        drain(item);
        break;
      case Control::Kind::kWait: {
        const int p = queue_of(control.item);
        if (known_[kSequencer][static_cast<size_t>(p)] < control.item) {
          order(control.item, item, semaphore(p, kSequencer));
          join(known_[kSequencer], clock_[static_cast<size_t>(control.item)]);
        }
        break;
      }
      case Control::Kind::kLabel:
      case Control::Kind::kBranch:
        if (!drained_ && !control.tight) {
          throw Error("internal: a branch or label stands inside a straight-line piece");
        }
        break;
      default:
        break;
    }
  }

  // One wait for the last commands of all queues, without those that another one of them knows.
  void drain(int item) {
    std::array<size_t, kQueues> latest_first{};
    for (size_t q = 0; q < kQueues; ++q) {
      latest_first[q] = q;
    }
    std::sort(latest_first.begin(), latest_first.end(),
              [this](size_t a, size_t b) { return last_[a] > last_[b]; });
    Clock& known = known_[kSequencer];
    for (const size_t q : latest_first) {
      if (last_[q] > known[q]) {
        if (drain_ < 0) {
          drain_ = take_semaphore();
        }
        order(last_[q], item, drain_);
        join(known, clock_[static_cast<size_t>(last_[q])]);
      }
    }
    history_.clear();
    drained_ = true;
  }

  void order(int from, int to, int sem) {
    waits_[static_cast<size_t>(to)].push_back(sem);
    signals_[static_cast<size_t>(from)].push_back(sem);
    result_.edges.push_back({from, to});
  }

  void visit(int item, const Command& command) {
    drained_ = false;
    const auto q = static_cast<size_t>(command.queue());
    Clock& known = known_[q];
    join(known, known_[kSequencer]);
    for (const int answered : command.implies) {
      join(known, clock_[static_cast<size_t>(answered)]);
    }
    const std::vector<MemRange> ranges = memory_ranges(listing_, command);
    std::vector<int> before;
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].conflicts(r, before);
    }
    const auto is_known = [&](int producer) {
      const auto p = static_cast<size_t>(queue_of(producer));
      return p == q || known[p] >= producer;
    };
    std::erase_if(before, is_known);  // most are: what is known stays known
    std::sort(before.begin(), before.end(), std::greater<>());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const int producer : before) {
      if (is_known(producer)) {
        continue;
      }
      order(producer, item, semaphore(queue_of(producer), q));
      join(known, clock_[static_cast<size_t>(producer)]);
    }
    known[q] = item;
    last_[q] = item;
    clock_[static_cast<size_t>(item)] = known;
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].add(r, item, q);
    }
  }

  int take_semaphore() {
    if (next_ >= limit_) {
      throw Error("the program needs more semaphores than the board has (" +
                  std::to_string(limit_) + " left for queue pairs); raise core.semaphores");
    }
    return next_++;
  }

  int semaphore(int from, size_t to) {
    int& sem = pair_[static_cast<size_t>(from) * kUnits + to];
    if (sem < 0) {
      sem = take_semaphore();
    }
    return sem;
  }

  Command nop_like(const Command& c) const {
    Command nop;
    nop.body = make_command<spec::NopCommand>(spec::Opcode::kNop, c.queue(), c.head().op_id);
    return nop;
  }

  // Puts waits and signals into the headers; what does not fit goes to nops of the same queue.
  void rewrite() {
    std::vector<Item> out;
    for (size_t i = 0; i < listing_.items.size(); ++i) {
      Item& item = listing_.items[i];
      if (!std::holds_alternative<Command>(item)) {
        out.push_back(std::move(item));
        if (!waits_[i].empty()) {  // all on one semaphore
          out.emplace_back(spec::ScalarInsn{static_cast<uint8_t>(spec::ScalarOp::kSwait), 0,
                                            static_cast<uint8_t>(waits_[i].front()), 0,
                                            static_cast<int32_t>(waits_[i].size())});
        }
        continue;
      }
      Command& command = std::get<Command>(item);
      std::vector<int> waits = waits_[i], signals = signals_[i];
      put_waits(command, waits);
      while (!waits.empty()) {
        Command nop = nop_like(command);
        put_waits(nop, waits);
        out.emplace_back(std::move(nop));
      }
      put_signals(command, signals);
      const Command like = nop_like(command);
      out.push_back(std::move(item));
      while (!signals.empty()) {
        Command nop = like;
        put_signals(nop, signals);
        out.emplace_back(std::move(nop));
      }
    }
    listing_.items = std::move(out);
  }

  static void put_waits(Command& c, std::vector<int>& sems) {
    for (spec::Wait& w : c.head().wait) {
      if (!w.valid() && !sems.empty()) {
        w = taking_wait(sems.back());
        sems.pop_back();
      }
    }
  }

  static void put_signals(Command& c, std::vector<int>& sems) {
    for (spec::Signal& s : c.head().signal) {
      if (!s.valid() && !sems.empty()) {
        s = own_signal(sems.back());
        sems.pop_back();
      }
    }
  }

  Listing& listing_;
  const int limit_;
  int next_ = 0;
  int drain_ = -1;  // semaphore
  bool drained_ = true;
  std::array<int, kUnits * kUnits> pair_;
  std::array<Clock, kUnits> known_;
  std::array<int, kQueues> last_;  // latest item of each queue
  std::vector<Clock> clock_;
  std::vector<std::vector<int>> waits_, signals_;
  std::map<std::pair<spec::Space, int>, AccessHistory> history_;
  SyncResult result_;
};

}  // namespace

SyncResult insert_semaphores(Listing& listing, int limit,
                             const std::function<void(double done)>& progress) {
  return Inserter(listing, limit).run(progress);
}

}  // namespace tpu::compiler
