// Dependence edges by byte ranges, transitive reduction by vector clocks, semaphores per queue
// pair.
#include "program/semaphores.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "ir/error.hpp"
#include "program/access_history.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kQueues = spec::kQueueCount;
constexpr size_t kSequencer = kQueues;  // as a waiting unit
constexpr size_t kUnits = kQueues + 1;

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
    final_.fill(-1);
    pair_.fill(-1);
    for (size_t i = 0; i < listing.items.size(); ++i) {
      if (const auto* command = std::get_if<Command>(&listing.items[i])) {
        final_[static_cast<size_t>(command->queue())] = static_cast<int>(i);
      }
    }
  }

  SyncResult run(const std::function<void(double done)>& progress) {
    const size_t n = listing_.items.size();
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
          throw Error("internal: a branch or label inside a straight-line piece");
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
    result_.edges.push_back({from, to});
    semaphore_of_.push_back(sem);
  }

  // What `queue` knows before item `item`.
  Knowledge knowledge_of(size_t queue) const {
    Knowledge knowledge{known_[queue], std::numeric_limits<int>::max()};
    for (size_t p = 0; p < kQueues; ++p) {
      if (knowledge.known[p] < last_[p]) {
        knowledge.all = std::min(knowledge.all, knowledge.known[p]);
      }
    }
    return knowledge;
  }

  // What all queues know that have commands behind `item`.
  Clock settled_behind(int item) const {
    Clock settled;
    settled.fill(std::numeric_limits<int>::max());
    for (size_t q = 0; q < kQueues; ++q) {
      if (final_[q] <= item) {
        continue;
      }
      for (size_t p = 0; p < kQueues; ++p) {
        settled[p] = std::min(settled[p], known_[q][p]);
      }
    }
    return settled;
  }

  // Commands in front of `item` for which it must wait, from the last one on; perhaps some that
  // others of them know.
  void find_before(const std::vector<MemRange>& ranges, const Knowledge& knowledge) {
    before_.clear();
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].conflicts(r, knowledge, before_);
    }
    std::ranges::sort(before_, std::greater<>(), &PastItem::item);
    const auto again = std::ranges::unique(before_, {}, &PastItem::item);
    before_.erase(again.begin(), again.end());
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
    find_before(ranges, knowledge_of(q));
    for (const PastItem& producer : before_) {
      if (known[producer.queue] < producer.item) {
        order(producer.item, item, semaphore(static_cast<int>(producer.queue), q));
        join(known, clock_[static_cast<size_t>(producer.item)]);
      }
    }
    known[q] = item;
    last_[q] = item;
    clock_[static_cast<size_t>(item)] = known;
    const Clock settled = settled_behind(item);
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].add(r, {item, static_cast<uint32_t>(q)}, settled);
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

  // Semaphores of the edges at one of their ends, by item and in the order of the edges.
  class ByItem {
   public:
    ByItem(const SyncResult& sync, const std::vector<int>& semaphores, int SyncEdge::*end,
           size_t items)
        : first_(items + 1), semaphores_(semaphores.size()) {
      for (const SyncEdge& edge : sync.edges) {
        ++first_[static_cast<size_t>(edge.*end) + 1];
      }
      std::partial_sum(first_.begin(), first_.end(), first_.begin());
      std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
      for (size_t e = 0; e < semaphores.size(); ++e) {
        semaphores_[next[static_cast<size_t>(sync.edges[e].*end)]++] = semaphores[e];
      }
    }
    std::span<const int> operator[](size_t item) const {
      return std::span(semaphores_).subspan(first_[item], first_[item + 1] - first_[item]);
    }

   private:
    std::vector<uint32_t> first_;
    std::vector<int> semaphores_;
  };

  // Puts waits and signals into the headers; what does not fit goes to nops of the same queue. From
  // the last item on, each to its new place, so that there is one list only.
  void rewrite() {
    const size_t n = listing_.items.size();
    const ByItem waits(result_, semaphore_of_, &SyncEdge::to, n);
    const ByItem signals(result_, semaphore_of_, &SyncEdge::from, n);
    size_t end = n;
    for (size_t i = 0; i < n; ++i) {
      end += added_items(listing_.items[i], waits[i], signals[i]);
    }
    listing_.items.reserve(end);
    listing_.items.resize(end);
    std::vector<Item> around;  // what comes of one item
    for (size_t i = n; i-- > 0;) {
      around.clear();
      rewrite(std::move(listing_.items[i]), waits[i], signals[i], around);
      end -= around.size();
      std::ranges::move(around, listing_.items.begin() + static_cast<ptrdiff_t>(end));
    }
  }

  static size_t added_items(const Item& item, std::span<const int> waits,
                            std::span<const int> signals) {
    const auto* command = std::get_if<Command>(&item);
    if (command == nullptr) {
      return waits.empty() ? 0 : 1;
    }
    const auto nops = [](const auto& slots, size_t wanted) {
      const auto room = static_cast<size_t>(
          std::ranges::count_if(slots, [](const auto& slot) { return !slot.valid(); }));
      return wanted > room ? (wanted - room + slots.size() - 1) / slots.size() : 0;
    };
    return nops(command->head().wait, waits.size()) + nops(command->head().signal, signals.size());
  }

  void rewrite(Item item, std::span<const int> waits, std::span<const int> signals,
               std::vector<Item>& out) const {
    if (!std::holds_alternative<Command>(item)) {
      out.push_back(std::move(item));
      if (!waits.empty()) {  // all on one semaphore
        out.emplace_back(spec::ScalarInsn{static_cast<uint8_t>(spec::ScalarOp::kSwait), 0,
                                          static_cast<uint8_t>(waits.front()), 0,
                                          static_cast<int32_t>(waits.size())});
      }
      return;
    }
    Command& command = std::get<Command>(item);
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

  // As many as the header has room for, the last ones first.
  static void put_waits(Command& c, std::span<const int>& sems) {
    for (spec::Wait& w : c.head().wait) {
      if (!w.valid() && !sems.empty()) {
        w = taking_wait(sems.back());
        sems = sems.first(sems.size() - 1);
      }
    }
  }

  static void put_signals(Command& c, std::span<const int>& sems) {
    for (spec::Signal& s : c.head().signal) {
      if (!s.valid() && !sems.empty()) {
        s = own_signal(sems.back());
        sems = sems.first(sems.size() - 1);
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
  std::array<int, kQueues> last_;   // latest item of each queue
  std::array<int, kQueues> final_;  // the last one of all
  std::vector<Clock> clock_;
  std::map<std::pair<spec::Space, int>, AccessHistory> history_;
  std::vector<PastItem> before_;
  SyncResult result_;
  std::vector<int> semaphore_of_;  // of each edge
};

}  // namespace

SyncResult insert_semaphores(Listing& listing, int limit,
                             const std::function<void(double done)>& progress) {
  return Inserter(listing, limit).run(progress);
}

}  // namespace tpu::compiler
