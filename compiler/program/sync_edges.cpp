// Waits and signals of edges in the headers of commands and in nops.
#include "program/sync_edges.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace tpu::compiler {

namespace {

Command nop_like(const Command& c) {
  Command nop;
  nop.body = make_command<spec::NopCommand>(spec::Opcode::kNop, c.queue(), c.head().op_id);
  return nop;
}

struct Token {  // of an edge at one of its ends
  int semaphore = -1, count = 1;
};

// Tokens of the edges at one of their ends, by item and in the order of the edges.
class ByItem {
 public:
  ByItem(const std::vector<SyncEdge>& edges, const std::vector<int>& semaphores, int SyncEdge::*end,
         int most, size_t items)
      : first_(items + 1) {
    for (const SyncEdge& edge : edges) {
      first_[static_cast<size_t>(edge.*end) + 1] += tokens(edge, most);
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    tokens_.resize(first_.back());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for (size_t e = 0; e < semaphores.size(); ++e) {
      const SyncEdge& edge = edges[e];
      for (int left = edge.count; left > 0; left -= most) {
        tokens_[next[static_cast<size_t>(edge.*end)]++] = {semaphores[e], std::min(left, most)};
      }
    }
  }
  std::span<const Token> operator[](size_t item) const {
    return std::span(tokens_).subspan(first_[item], first_[item + 1] - first_[item]);
  }

 private:
  static uint32_t tokens(const SyncEdge& edge, int most) {
    return static_cast<uint32_t>((edge.count + most - 1) / most);
  }

  std::vector<uint32_t> first_;
  std::vector<Token> tokens_;
};

// As many as the header has room for, the last ones first.
void put_waits(Command& c, std::span<const Token>& tokens) {
  for (spec::Wait& w : c.head().wait) {
    if (!w.valid() && !tokens.empty()) {
      w = taking_wait(tokens.back().semaphore);
      w.value = static_cast<uint16_t>(tokens.back().count);
      tokens = tokens.first(tokens.size() - 1);
    }
  }
}

void put_signals(Command& c, std::span<const Token>& tokens) {
  for (spec::Signal& s : c.head().signal) {
    if (!s.valid() && !tokens.empty()) {
      s = own_signal(tokens.back().semaphore);
      s.value = static_cast<uint8_t>(tokens.back().count);
      tokens = tokens.first(tokens.size() - 1);
    }
  }
}

// What the sequencer takes of each semaphore.
std::map<int, int32_t> sequencer_waits(std::span<const Token> waits) {
  std::map<int, int32_t> by_semaphore;
  for (const Token& token : waits) {
    ++by_semaphore[token.semaphore];
  }
  return by_semaphore;
}

size_t added_items(const Item& item, std::span<const Token> waits, std::span<const Token> signals) {
  const auto* command = std::get_if<Command>(&item);
  if (command == nullptr) {
    return sequencer_waits(waits).size();
  }
  const auto nops = [](const auto& slots, size_t wanted) {
    const auto room = static_cast<size_t>(
        std::ranges::count_if(slots, [](const auto& slot) { return !slot.valid(); }));
    return wanted > room ? (wanted - room + slots.size() - 1) / slots.size() : 0;
  };
  return nops(command->head().wait, waits.size()) + nops(command->head().signal, signals.size());
}

void rewrite(Item item, std::span<const Token> waits, std::span<const Token> signals,
             std::vector<Item>& out) {
  if (!std::holds_alternative<Command>(item)) {
    out.push_back(std::move(item));
    for (const auto& [semaphore, count] : sequencer_waits(waits)) {
      out.emplace_back(spec::ScalarInsn{static_cast<uint8_t>(spec::ScalarOp::kSwait), 0,
                                        static_cast<uint8_t>(semaphore), 0, count});
    }
    return;
  }
  Command& command = std::get<Command>(item);
  if (command.fence != Fence::kNone && waits.empty() && signals.empty()) {
    Control nothing;
    nothing.kind = Control::Kind::kNone;
    out.emplace_back(nothing);
    return;
  }
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

}  // namespace

// Puts waits and signals into the headers; what does not fit goes to nops of the same queue. From
// the last item on, each to its new place, so that there is one list only.
void write_edges(Listing& listing, const std::vector<SyncEdge>& edges,
                 const std::vector<int>& semaphores) {
  const size_t n = listing.items.size();
  const ByItem waits(edges, semaphores, &SyncEdge::to, kMostAwaited, n);
  const ByItem signals(edges, semaphores, &SyncEdge::from, kMostSignalled, n);
  size_t end = n;
  for (size_t i = 0; i < n; ++i) {
    end += added_items(listing.items[i], waits[i], signals[i]);
  }
  listing.items.reserve(end);
  listing.items.resize(end);
  std::vector<Item> around;  // what comes of one item
  for (size_t i = n; i-- > 0;) {
    around.clear();
    rewrite(std::move(listing.items[i]), waits[i], signals[i], around);
    end -= around.size();
    std::ranges::move(around, listing.items.begin() + static_cast<ptrdiff_t>(end));
  }
}

}  // namespace tpu::compiler
