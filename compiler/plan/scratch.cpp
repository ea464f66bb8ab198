// Temporaries in HBM, see scratch.hpp.
#include "plan/scratch.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace tpu::compiler {

namespace {

constexpr int64_t kAlignment = 512;
constexpr size_t kMostLines = 12;  // of a report

int64_t aligned(int64_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

bool meet(const Scratch::Temporary& a, const Scratch::Temporary& b) {
  return a.from < b.to && b.from < a.to;
}

}  // namespace

int64_t Scratch::take(int64_t bytes, const Value* value, uint32_t op_id) {
  Temporary t;
  t.address = next_;
  t.bytes = aligned(bytes);
  t.from = time_++;
  t.value = value;
  t.op_id = op_id;
  next_ += t.bytes + kAlignment;  // the end of one is not the start of the next
  all_.push_back(t);
  return t.address;
}

const Scratch::Temporary& Scratch::at(int64_t address) const {
  const auto it = std::upper_bound(all_.begin(), all_.end(), address,
                                   [](int64_t a, const Temporary& t) { return a < t.address; });
  if (it == all_.begin() || address > std::prev(it)->address + std::prev(it)->bytes) {
    throw Error("internal: an address in HBM is outside of all temporaries");
  }
  return *std::prev(it);
}

void Scratch::give(int64_t address) {
  given_.push_back(static_cast<size_t>(&at(address) - all_.data()));
  all_[given_.back()].to = time_++;
}

void Scratch::undo(const Mark& mark) {
  for (; given_.size() > mark.given; given_.pop_back()) {
    all_[given_.back()].to = INT_MAX;
  }
  all_.resize(mark.temporaries);
  time_ = mark.time;
  next_ = mark.next;
}

void Scratch::place() {
  std::vector<size_t> order(all_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return all_[a].bytes > all_[b].bytes; });
  std::vector<const Temporary*> placed;  // by offset
  bytes_ = 0;
  for (const size_t i : order) {
    Temporary& t = all_[i];
    t.offset = 0;
    for (const Temporary* p : placed) {
      if (!meet(*p, t)) {
        continue;
      }
      if (t.offset + t.bytes <= p->offset) {
        break;
      }
      t.offset = std::max(t.offset, p->offset + p->bytes);
    }
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), &t,
                      [](const Temporary* a, const Temporary* b) { return a->offset < b->offset; }),
                  &t);
    bytes_ = std::max(bytes_, t.offset + t.bytes);
  }
}

void Scratch::relocate(Listing& listing, int slot) const {
  const auto move = [&](spec::Addr& a) {
    if (static_cast<spec::Space>(a.space) == spec::Space::kHbm && a.slot == slot) {
      const Temporary& t = at(a.offset);
      a.offset += t.offset - t.address;
    }
  };
  for (HostCall& call : listing.host_calls) {
    move(call.place);
  }
  for (Item& item : listing.items) {
    auto* command = std::get_if<Command>(&item);
    if (command == nullptr) {
      continue;
    }
    for (MemRange& w : command->windows) {
      if (w.space == spec::Space::kHbm && w.slot == slot) {
        const Temporary& t = at(w.lo);
        w.lo += t.offset - t.address;
        w.hi += t.offset - t.address;
      }
    }
    if (auto* dma = std::get_if<spec::DmaCommand>(&command->body)) {
      move(dma->src);
      move(dma->dst);
    } else if (auto* fill = std::get_if<spec::FillCommand>(&command->body)) {
      move(fill->dst);
    } else if (auto* indexed = std::get_if<spec::DmaIndexedCommand>(&command->body)) {
      move(indexed->src);
      move(indexed->dst);
      move(indexed->list);
    }
  }
}

int Scratch::busiest() const {
  std::vector<int64_t> change(static_cast<size_t>(time_) + 1, 0);
  for (const Temporary& t : all_) {
    change[static_cast<size_t>(t.from)] += t.bytes;
    if (t.to != INT_MAX) {
      change[static_cast<size_t>(t.to)] -= t.bytes;
    }
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return static_cast<int>(std::max_element(change.begin(), change.end()) - change.begin());
}

std::vector<Scratch::Temporary> Scratch::peak() const {
  const int time = busiest();
  std::vector<Temporary> out;
  std::copy_if(all_.begin(), all_.end(), std::back_inserter(out),
               [&](const Temporary& t) { return t.from <= time && time < t.to; });
  std::stable_sort(out.begin(), out.end(),
                   [](const Temporary& a, const Temporary& b) { return a.bytes > b.bytes; });
  return out;
}

int64_t Scratch::peak_bytes() const {
  const std::vector<Temporary> list = peak();
  return std::accumulate(list.begin(), list.end(), int64_t{0},
                         [](int64_t sum, const Temporary& t) { return sum + t.bytes; });
}

namespace {

std::string name_of(const Value* v) {
  if (v == nullptr) {
    return "values that change places";
  }
  return to_string(v->type) + (v->def == nullptr ? " of a loop's body"
                                                 : " of " + std::string(kind_name(v->def->kind)) +
                                                       " at " + to_string(*v->def->loc));
}

struct Group {
  int64_t bytes = 0;
  int count = 0;
};

// Those of one name together, the largest groups first.
std::string lines_of(const std::vector<std::pair<std::string, int64_t>>& buffers) {
  std::map<std::string, Group> groups;
  for (const auto& [name, bytes] : buffers) {
    groups[name].bytes += bytes;
    ++groups[name].count;
  }
  std::vector<std::pair<std::string, Group>> order(groups.begin(), groups.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string out;
  int64_t rest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [name, group] = order[i];
    if (i >= kMostLines) {
      rest += group.bytes;
      continue;
    }
    out += "\n    " + std::to_string(group.bytes) +
           " bytes: " + (group.count > 1 ? std::to_string(group.count) + " x " : "") + name;
  }
  return out + (rest > 0 ? "\n    " + std::to_string(rest) + " bytes: others" : "");
}

std::string slot_lines(const std::vector<SlotInfo>& slots) {
  std::vector<std::pair<std::string, int64_t>> kept;
  int64_t bytes = 0;
  for (const SlotInfo& s : slots) {
    if (s.kind != exe::SlotKind::scratch) {
      kept.emplace_back(std::string(exe::EnumNameSlotKind(s.kind)) + " " + std::to_string(s.index) +
                            (s.name.empty() ? "" : " (" + s.name + ")"),
                        static_cast<int64_t>(s.bytes));
      bytes += kept.back().second;
    }
  }
  return "  arguments, results and constants: " + std::to_string(bytes) + " bytes" + lines_of(kept);
}

std::string kernel_place(const exe::OpInfoT& op) {
  return "(" + op.name + (op.file.empty() ? "" : " at " + op.file + ":" + std::to_string(op.line)) +
         ")";
}

}  // namespace

std::string memory_report(const std::vector<SlotInfo>& slots, const Scratch& scratch,
                          const std::vector<exe::OpInfoT>& ops) {
  std::string out = slot_lines(slots);
  std::vector<std::pair<std::string, int64_t>> temporary;
  const std::vector<Scratch::Temporary> peak = scratch.peak();
  if (peak.empty()) {
    return out;
  }
  uint32_t latest = 0;
  for (const Scratch::Temporary& t : peak) {
    temporary.emplace_back(name_of(t.value), t.bytes);
    latest = std::max(latest, t.op_id);
  }
  out += "\n  temporaries: " + std::to_string(scratch.bytes()) + " bytes, of which " +
         std::to_string(scratch.peak_bytes()) + " are in use at a time";
  if (latest < ops.size()) {
    out += ", in kernel " + std::to_string(latest) + " " + kernel_place(ops[latest]);
  }
  return out + lines_of(temporary);
}

std::string memory_report(const std::vector<SlotInfo>& slots,
                          const std::vector<const Value*>& alive, const exe::OpInfoT& op) {
  std::string out = slot_lines(slots);
  if (alive.empty()) {
    return out;
  }
  std::vector<std::pair<std::string, int64_t>> temporary;
  int64_t bytes = 0;
  for (const Value* v : alive) {
    temporary.emplace_back(name_of(v), v->type.bytes());
    bytes += v->type.bytes();
  }
  return out + "\n  temporaries: " + std::to_string(bytes) + " bytes in use at a time, in kernel " +
         kernel_place(op) + lines_of(temporary);
}

}  // namespace tpu::compiler
