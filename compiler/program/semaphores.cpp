// Dependence edges by byte ranges, transitive reduction by vector clocks, semaphores per queue
// pair.
#include "program/semaphores.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "ir/error.hpp"
#include "program/access_history.hpp"
#include "program/loop_fences.hpp"

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

struct TooFewSemaphores {};
struct TooManyEdges {
  const FlowingLoop* loop;  // from one iteration to the next
};

// A place of the walk over the items; what is known and remembered has these numbers. Without loops
// they are the items; the body of a loop with fences is walked twice.
class Walk {
 public:
  Walk(size_t items, const std::vector<FlowingLoop>& loops) {
    auto loop = loops.begin();
    for (int i = 0; i < static_cast<int>(items); ++i) {
      if (loop != loops.end() && i == loop->last) {
        const int body = loop->last - loop->first - 1;
        turns_.push_back({size() - body, size(), size() + body, &*loop});
        for (int again = loop->first + 1; again < loop->last; ++again) {
          item_.push_back(again);
        }
        ++loop;
      }
      item_.push_back(i);
    }
  }

  struct Turns {
    int first, second, end;  // places of the first and the second iteration, and behind them
    const FlowingLoop* loop;
  };

  int size() const { return static_cast<int>(item_.size()); }
  int item(int place) const { return item_[static_cast<size_t>(place)]; }
  // Of the loop whose body the place is in, or null.
  const Turns* turns(int place) const {
    const auto next = std::ranges::upper_bound(turns_, place, {}, &Turns::first);
    return next == turns_.begin() || place >= std::prev(next)->end ? nullptr : &*std::prev(next);
  }

 private:
  std::vector<int> item_;
  std::vector<Turns> turns_;
};

class Inserter {
 public:
  Inserter(Listing& listing, int limit, const std::vector<FlowingLoop>& loops)
      : listing_(listing),
        limit_(limit),
        loops_(loops),
        walk_(listing.items.size(), loops),
        place_(listing.items.size(), -1) {
    for (Clock& c : known_) {
      c.fill(-1);
    }
    last_.fill(-1);
    final_.fill(-1);
    pair_.fill(-1);
    carried_pair_.fill(-1);
    for (int place = 0; place < walk_.size(); ++place) {
      if (const auto* command = std::get_if<Command>(&item_at(place))) {
        final_[static_cast<size_t>(command->queue())] = place;
      }
    }
  }

  SyncResult run(const std::function<void(double done)>& progress) {
    clock_.resize(static_cast<size_t>(walk_.size()));
    for (int place = 0; place < walk_.size(); ++place) {
      constexpr int kBetween = 4096;
      if (progress && place % kBetween == 0) {
        progress(static_cast<double>(place) / static_cast<double>(walk_.size()));
      }
      turns_ = walk_.turns(place);
      place_[static_cast<size_t>(walk_.item(place))] = place;
      if (const auto* command = std::get_if<Command>(&item_at(place))) {
        visit(place, *command);
      } else if (const auto* control = std::get_if<Control>(&item_at(place))) {
        visit(place, *control);
      }
    }
    write_edges(listing_, result_.edges, semaphore_of_);
    result_.semaphores = next_;
    return std::move(result_);
  }

 private:
  const Item& item_at(int place) const {
    return listing_.items[static_cast<size_t>(walk_.item(place))];
  }
  int queue_at(int place) const {
    return static_cast<int>(std::get<Command>(item_at(place)).queue());
  }

  // Behind a loop, the fence that stands for a command of its body.
  int seen(int place) const {
    const Walk::Turns* turns = walk_.turns(place);
    if (turns == nullptr || turns == turns_) {
      return place;
    }
    const int leave = turns->loop->leave[static_cast<size_t>(queue_at(place))];
    return place_[static_cast<size_t>(leave)];
  }

  // Boundaries and waits of the sequencer. What it knows, all later commands know.
  void visit(int place, const Control& control) {
    switch (control.kind) {
      case Control::Kind::kDrain:
        if (control.flows) {
          drained_ = true;
        } else {
          drain(place);
        }
        break;
      case Control::Kind::kWait: {
        const int from = seen(place_[static_cast<size_t>(control.item)]);
        const int p = queue_at(from);
        if (known_[kSequencer][static_cast<size_t>(p)] < from) {
          order(from, place, semaphore(p, kSequencer));
          join(known_[kSequencer], clock_[static_cast<size_t>(from)]);
        }
        break;
      }
      case Control::Kind::kAwait:
        find_before({control.range}, knowledge_of(kSequencer));
        for (const PastItem& producer : before_) {
          if (known_[kSequencer][producer.queue] < producer.item) {
            order(producer.item, place, semaphore(static_cast<int>(producer.queue), kSequencer));
            join(known_[kSequencer], clock_[static_cast<size_t>(producer.item)]);
          }
        }
        break;
      case Control::Kind::kLabel:
      case Control::Kind::kBranch:
        if (!drained_ && !control.tight && turns_ == nullptr) {
          throw Error("internal: a branch or label inside a straight-line piece");
        }
        break;
      default:
        break;
    }
  }

  // One wait for the last commands of all queues, without those that another one of them knows.
  void drain(int place) {
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
        order(last_[q], place, drain_);
        join(known, clock_[static_cast<size_t>(last_[q])]);
      }
    }
    history_.clear();
    drained_ = true;
  }

  // Edges of the second iteration of a loop are those of the first one.
  void order(int from, int to, int sem) {
    if (turns_ == nullptr || to < turns_->second) {
      add_edge({walk_.item(from), walk_.item(to)}, sem);
    }
  }

  void add_edge(const SyncEdge& edge, int sem) {
    result_.edges.push_back(edge);
    semaphore_of_.push_back(sem);
  }

  // What `queue` knows by now.
  Knowledge knowledge_of(size_t queue) const {
    Knowledge knowledge{known_[queue], std::numeric_limits<int>::max()};
    for (size_t p = 0; p < kQueues; ++p) {
      if (knowledge.known[p] < last_[p]) {
        knowledge.all = std::min(knowledge.all, knowledge.known[p]);
      }
    }
    return knowledge;
  }

  // What all queues know that have commands behind `place`.
  Clock settled_behind(int place) const {
    Clock settled;
    settled.fill(std::numeric_limits<int>::max());
    for (size_t q = 0; q < kQueues; ++q) {
      if (final_[q] <= place) {
        continue;
      }
      for (size_t p = 0; p < kQueues; ++p) {
        settled[p] = std::min(settled[p], known_[q][p]);
      }
    }
    return settled;
  }

  // Commands for which an access of `ranges` must wait, from the last one on; perhaps some that
  // others of them know.
  void find_before(const std::vector<MemRange>& ranges, const Knowledge& knowledge) {
    before_.clear();
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].conflicts(r, knowledge, before_);
    }
    for (PastItem& past : before_) {
      past.item = seen(past.item);
    }
    std::ranges::sort(before_, std::greater<>(), &PastItem::item);
    const auto again = std::ranges::unique(before_, {}, &PastItem::item);
    before_.erase(again.begin(), again.end());
  }

  void visit(int place, const Command& command) {
    drained_ = false;
    const auto q = static_cast<size_t>(command.queue());
    join(known_[q], known_[kSequencer]);
    for (const int answered : command.implies) {
      join(known_[q], clock_[static_cast<size_t>(place_[static_cast<size_t>(answered)])]);
    }
    if (command.fence == Fence::kEnter) {
      wait_for_conflicts(place, q, ranges_of_body(place, q));
    } else if (command.fence == Fence::kSettle) {
      settle(place, q);
    }
    const std::vector<MemRange> ranges = memory_ranges(listing_, command);
    wait_for_conflicts(place, q, ranges);
    known_[q][q] = place;
    last_[q] = place;
    clock_[static_cast<size_t>(place)] = known_[q];
    const Clock settled = settled_behind(place);
    for (const MemRange& r : ranges) {
      history_[{r.space, r.slot}].add(r, {place, static_cast<uint32_t>(q)}, settled);
    }
  }

  void wait_for_conflicts(int place, size_t q, const std::vector<MemRange>& ranges) {
    find_before(ranges, knowledge_of(q));
    for (const PastItem& producer : before_) {
      if (known_[q][producer.queue] >= producer.item) {
        continue;
      }
      if (turns_ != nullptr && producer.item < turns_->first) {
        throw Error("internal: a command of a loop waits for one in front of it");
      }
      if (turns_ != nullptr && producer.item < turns_->second && place >= turns_->second) {
        carry(producer.item, place, producer.queue, q);
      } else {
        order(producer.item, place, semaphore(static_cast<int>(producer.queue), q));
      }
      join(known_[q], clock_[static_cast<size_t>(producer.item)]);
    }
  }

  // All that the queue touches in the body of the loop behind an entry fence.
  std::vector<MemRange> ranges_of_body(int place, size_t q) const {
    const FlowingLoop& loop =
        *std::ranges::upper_bound(loops_, walk_.item(place), {}, &FlowingLoop::first);
    std::vector<MemRange> all;
    for (int i = loop.first + 1; i < loop.last; ++i) {
      const auto* command = std::get_if<Command>(&listing_.items[static_cast<size_t>(i)]);
      if (command != nullptr && static_cast<size_t>(command->queue()) == q) {
        std::ranges::move(memory_ranges(listing_, *command), std::back_inserter(all));
      }
    }
    return all;
  }

  // An edge from one iteration to the next.
  void carry(int from, int to, size_t from_queue, size_t q) {
    Carried& carried = carried_[{from_queue, q}];
    if (++carried.count > kMostAwaited) {
      throw TooManyEdges{turns_->loop};
    }
    carried.last = from + (turns_->second - turns_->first);
    add_edge({walk_.item(from), walk_.item(to), true},
             semaphore_in(carried_pair_, static_cast<int>(from_queue), q));
  }

  // Takes what the last iteration has signalled to this queue.
  void settle(int place, size_t q) {
    const FlowingLoop& loop =
        *std::prev(std::ranges::upper_bound(loops_, walk_.item(place), {}, &FlowingLoop::last));
    for (auto carried = carried_.begin(); carried != carried_.end();) {
      const auto [from, to] = carried->first;
      if (to != q) {
        ++carried;
        continue;
      }
      add_edge({loop.credit[from], walk_.item(place), false, carried->second.count},
               semaphore_in(carried_pair_, static_cast<int>(from), q));
      join(known_[q], clock_[static_cast<size_t>(carried->second.last)]);
      carried = carried_.erase(carried);
    }
  }

  int take_semaphore() {
    if (next_ >= limit_) {
      throw TooFewSemaphores{};
    }
    return next_++;
  }

  using Pairs = std::array<int, kUnits * kUnits>;

  int semaphore_in(Pairs& pairs, int from, size_t to) {
    int& sem = pairs[static_cast<size_t>(from) * kUnits + to];
    if (sem < 0) {
      sem = take_semaphore();
    }
    return sem;
  }

  int semaphore(int from, size_t to) { return semaphore_in(pair_, from, to); }

  Listing& listing_;
  const int limit_;
  const std::vector<FlowingLoop>& loops_;
  const Walk walk_;
  const Walk::Turns* turns_ = nullptr;  // of the loop at whose body the walk is
  std::vector<int> place_;              // of each item, the latest one; -1: not reached yet
  struct Carried {
    int count = 0, last = -1;  // edges of an iteration; place of the last one's producer
  };
  std::map<std::pair<size_t, size_t>, Carried> carried_;  // of this loop, by pair of queues
  int next_ = 0;
  int drain_ = -1;  // semaphore
  bool drained_ = true;
  Pairs pair_, carried_pair_;
  std::array<Clock, kUnits> known_;
  std::array<int, kQueues> last_;   // latest place of each queue
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
  std::vector<FlowingLoop> loops = add_loop_fences(listing);
  for (;;) {
    try {
      return Inserter(listing, limit, loops).run(progress);
    } catch (const TooManyEdges& e) {
      drop_loop_fences(listing, *e.loop);
      loops.erase(loops.begin() + (e.loop - loops.data()));
    } catch (const TooFewSemaphores&) {
      if (loops.empty()) {
        throw Error("the program needs more semaphores than the board has (" +
                    std::to_string(limit) + " left for queue pairs); raise core.semaphores");
      }
      for (const FlowingLoop& loop : loops) {
        drop_loop_fences(listing, loop);
      }
      loops.clear();
    }
  }
}

}  // namespace tpu::compiler
