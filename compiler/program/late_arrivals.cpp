// One walk over the listing: arrivals that are not needed yet are held back.
#include "program/late_arrivals.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "program/item_places.hpp"

namespace tpu::compiler {

namespace {

// Semaphores that stay free for the pairs of queues: a program whose loops have fences may need
// two for each pair.
constexpr int kKeptForPairs = 96;

class LateArrivals {
 public:
  LateArrivals(Listing& listing, int first_remote)
      : listing_(listing),
        channels_from_(first_remote),
        first_remote_(first_remote),
        place_(listing.items.size(), -1) {}

  int run() {
    if (std::ranges::none_of(listing_.items, [this](const Item& item) {
          const auto* command = std::get_if<Command>(&item);
          return command != nullptr && arrival_of(*command);
        })) {
      return first_remote_;
    }
    order_.reserve(listing_.items.size());
    for (int i = 0; i < static_cast<int>(listing_.items.size()); ++i) {
      visit(i);
    }
    put_all();
    reorder();
    return first_remote_;
  }

 private:
  struct Arrival {
    int item = -1;
    int semaphore = -1;
    std::optional<int> send;  // item that signals it on the partner, which runs the same code
  };

  // The semaphore that a nop waits for, if it does nothing else but to await an arrival.
  std::optional<int> arrival_of(const Command& command) const {
    const spec::CommandHeader& head = command.head();
    const bool waits = std::holds_alternative<spec::NopCommand>(command.body) &&
                       command.queue() == spec::Queue::kVpu && command.fence == Fence::kNone &&
                       !command.windows.empty() && head.wait[0].valid() && !head.wait[1].valid() &&
                       !head.signal[0].valid() && !head.signal[1].valid() &&
                       head.wait[0].sem >= channels_from_;
    return waits ? std::optional<int>(head.wait[0].sem) : std::nullopt;
  }

  const Command& command_at(int item) const {
    return std::get<Command>(listing_.items[static_cast<size_t>(item)]);
  }
  Command& command_at(int item) {
    return std::get<Command>(listing_.items[static_cast<size_t>(item)]);
  }

  void visit(int i) {
    const Item& item = listing_.items[static_cast<size_t>(i)];
    if (const auto* command = std::get_if<Command>(&item)) {
      visit(i, *command);
      return;
    }
    const auto* insn = std::get_if<spec::ScalarInsn>(&item);
    const auto* control = std::get_if<Control>(&item);
    if (control != nullptr && control->kind == Control::Kind::kAwait) {
      put_before({control->range}, spec::Queue::kVpu);
    }
    const bool ends = insn != nullptr ? ends_piece(*insn)
                                      : control->kind != Control::Kind::kWait &&
                                            control->kind != Control::Kind::kAwait &&
                                            control->kind != Control::Kind::kNone;
    if (ends) {
      put_all();
      sends_.clear();
    }
    order_.push_back(i);
  }

  static bool ends_piece(const spec::ScalarInsn& insn) {
    const auto op = static_cast<spec::ScalarOp>(insn.op);
    return op == spec::ScalarOp::kHalt || op == spec::ScalarOp::kSwait ||
           op == spec::ScalarOp::kSsignal;
  }

  void visit(int i, const Command& command) {
    if (const std::optional<int> semaphore = arrival_of(command)) {
      std::deque<int>& sends = sends_[*semaphore];
      Arrival& arrival = held_.emplace_back(Arrival{i, *semaphore, std::nullopt});
      if (!sends.empty()) {
        arrival.send = sends.front();
        sends.pop_front();
      }
      reach(i);
      return;
    }
    if (!held_.empty()) {
      put_before(memory_ranges(listing_, command), command.queue());
    }
    for (const spec::Signal& signal : command.head().signal) {
      if (signal.valid() && signal.sem >= channels_from_) {
        sends_[signal.sem].push_back(i);
      }
    }
    order_.push_back(i);
  }

  // Arrivals in bytes that are needed there, in the queue that needs them.
  void put_before(const std::vector<MemRange>& ranges, spec::Queue queue) {
    if (!touches_any(ranges)) {
      return;
    }
    std::vector<bool> due(held_.size());
    for (size_t h = 0; h < held_.size(); ++h) {
      due[h] = touches(held_[h], ranges);
    }
    if (std::ranges::find(due, true) == due.end()) {
      return;
    }
    // Those in front of it in its channel come with it.
    for (size_t h = held_.size(); h-- > 0;) {
      for (size_t earlier = 0; due[h] && earlier < h; ++earlier) {
        due[earlier] = due[earlier] || held_[earlier].semaphore == held_[h].semaphore;
      }
    }
    std::vector<Arrival> left;
    for (size_t h = 0; h < held_.size(); ++h) {
      if (due[h]) {
        put(held_[h], queue);
      } else {
        left.push_back(held_[h]);
      }
    }
    held_ = std::move(left);
    reaches_.clear();
    for (const Arrival& arrival : held_) {
      reach(arrival.item);
    }
  }

  // One range around those of all arrivals in a memory: most commands touch none of them.
  void reach(int item) {
    for (const MemRange& window : command_at(item).windows) {
      const auto [at, fresh] = reaches_.try_emplace({window.space, window.slot}, window);
      if (!fresh) {
        at->second.lo = std::min(at->second.lo, window.lo);
        at->second.hi = std::max(at->second.hi, window.hi);
      }
    }
  }

  bool touches_any(const std::vector<MemRange>& ranges) const {
    return std::ranges::any_of(ranges, [this](const MemRange& range) {
      const auto at = reaches_.find({range.space, range.slot});
      return at != reaches_.end() && range.lo < at->second.hi && at->second.lo < range.hi;
    });
  }

  bool touches(const Arrival& arrival, const std::vector<MemRange>& ranges) const {
    return std::ranges::any_of(command_at(arrival.item).windows, [&](const MemRange& window) {
      return std::ranges::any_of(ranges, [&](const MemRange& range) {
        return (window.write || range.write) && ranges_overlap(window, range);
      });
    });
  }

  void put_all() {
    for (const Arrival& arrival : held_) {
      put(arrival, spec::Queue::kVpu);
    }
    held_.clear();
    reaches_.clear();
  }

  void put(const Arrival& arrival, spec::Queue queue) {
    order_.push_back(arrival.item);
    const std::optional<int> semaphore =
        arrival.send ? semaphore_of(arrival.semaphore, queue) : std::nullopt;
    if (!semaphore || queue == spec::Queue::kVpu) {
      return;
    }
    spec::CommandHeader& head = command_at(arrival.item).head();
    head.queue = static_cast<uint8_t>(queue);
    head.wait[0].sem = static_cast<uint8_t>(*semaphore);
    for (spec::Signal& signal : command_at(*arrival.send).head().signal) {
      if (signal.valid() && signal.sem == arrival.semaphore) {
        signal.sem = static_cast<uint8_t>(*semaphore);
      }
    }
  }

  // Nothing: there is none left.
  std::optional<int> semaphore_of(int channel, spec::Queue queue) {
    if (queue == spec::Queue::kVpu) {
      return channel;
    }
    const auto found = semaphores_.find({channel, queue});
    if (found != semaphores_.end()) {
      return found->second;
    }
    if (first_remote_ <= kKeptForPairs) {
      return std::nullopt;
    }
    return semaphores_.emplace(std::pair(channel, queue), --first_remote_).first->second;
  }

  void reorder() {
    for (size_t at = 0; at < order_.size(); ++at) {
      place_[static_cast<size_t>(order_[at])] = static_cast<int>(at);
    }
    std::vector<Item> items;
    items.reserve(order_.size());
    for (const int i : order_) {
      items.push_back(std::move(listing_.items[static_cast<size_t>(i)]));
    }
    refer_to_places(items, place_);
    listing_.items = std::move(items);
  }

  Listing& listing_;
  const int channels_from_;
  int first_remote_;
  std::vector<int> place_;                                   // of the items of before
  std::vector<int> order_;                                   // of the items
  std::vector<Arrival> held_;                                // in their order
  std::map<std::pair<spec::Space, int>, MemRange> reaches_;  // of them, by memory
  std::map<int, std::deque<int>> sends_;                     // not yet awaited, by semaphore
  std::map<std::pair<int, spec::Queue>, int> semaphores_;    // of arrivals outside the vector queue
};

}  // namespace

int await_late(Listing& listing, int first_remote) {
  return LateArrivals(listing, first_remote).run();
}

}  // namespace tpu::compiler
