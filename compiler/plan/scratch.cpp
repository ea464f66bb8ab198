// Temporaries in HBM, see scratch.hpp.
#include "plan/scratch.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "ir/error.hpp"

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
  const auto move_range = [&](MemRange& w) {
    if (w.space == spec::Space::kHbm && w.slot == slot) {
      const Temporary& t = at(w.lo);
      w.lo += t.offset - t.address;
      w.hi += t.offset - t.address;
    }
  };
  for (Item& item : listing.items) {
    if (auto* control = std::get_if<Control>(&item);
        control != nullptr && control->kind == Control::Kind::kAwait) {
      move_range(control->range);
    }
    auto* command = std::get_if<Command>(&item);
    if (command == nullptr) {
      continue;
    }
    std::ranges::for_each(command->windows, move_range);
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

struct ReportLine {
  std::string name, place;  // place: that of the op, or which argument it is; or empty
  int64_t bytes = 0;
  std::string family;  // lines of different families are not put together
};

ReportLine line_of(const Value* v, int64_t bytes) {
  if (v == nullptr) {
    return {"values that change places", "", bytes, ""};
  }
  if (v->def == nullptr) {
    return {to_string(v->type) + " of a loop's body", "", bytes, ""};
  }
  return {to_string(v->type) + " of " + std::string(kind_name(v->def->kind)) + " at ",
          to_string(*v->def->loc), bytes, ""};
}

// The name that the same array of other layers has, too.
std::string without_numbers(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c < '0' || c > '9') {
      out += c;
    } else if (out.empty() || out.back() != '*') {
      out += '*';
    }
  }
  return out;
}

ReportLine line_of(const SlotInfo& slot) {
  const std::string index = std::to_string(slot.index);
  const std::string kind = std::string(exe::EnumNameSlotKind(slot.kind)) + " ";
  const auto bytes = static_cast<int64_t>(slot.bytes);
  if (slot.name.empty()) {
    return {kind, index, bytes, index};
  }
  return {kind, index + " (" + slot.name + ")", bytes, without_numbers(slot.name)};
}

struct Group {
  int64_t count = 0;
  std::string first, last;  // places
};

std::string places_of(const Group& group) {
  return group.first + (group.first == group.last ? "" : " .. " + group.last);
}

// Those of one name and size together, such as the arrays of equal layers; largest groups first.
std::string lines_of(const std::vector<ReportLine>& buffers) {
  std::map<std::tuple<std::string, int64_t, std::string>, Group> groups;
  for (const ReportLine& buffer : buffers) {
    Group& group = groups[{buffer.name, buffer.bytes, buffer.family}];
    group.first = group.count == 0 ? buffer.place : group.first;
    group.last = buffer.place;
    ++group.count;
  }
  const auto bytes_of = [](const auto& entry) {
    return std::get<int64_t>(entry.first) * entry.second.count;
  };
  std::vector<std::pair<std::tuple<std::string, int64_t, std::string>, Group>> order(groups.begin(),
                                                                                     groups.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return bytes_of(a) > bytes_of(b); });
  std::string out;
  int64_t rest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [name, bytes, family] = order[i].first;
    const Group& group = order[i].second;
    if (i >= kMostLines) {
      rest += bytes_of(order[i]);
      continue;
    }
    out += "\n    " + (group.count > 1 ? std::to_string(group.count) + " x " : "") +
           std::to_string(bytes) + " bytes: " + name + places_of(group);
  }
  return out + (rest > 0 ? "\n    " + std::to_string(rest) + " bytes: others" : "");
}

std::string slot_lines(const std::vector<SlotInfo>& slots) {
  std::vector<ReportLine> kept;
  int64_t bytes = 0;
  for (const SlotInfo& s : slots) {
    if (s.kind != exe::SlotKind::scratch) {
      kept.push_back(line_of(s));
      bytes += kept.back().bytes;
    }
  }
  return "  arguments, results and constants: " + std::to_string(bytes) + " bytes" + lines_of(kept);
}

std::string kernel_place(const exe::OpInfoT& op) {
  return "(" + op.name + (op.file.empty() ? "" : " at " + op.file + ":" + std::to_string(op.line)) +
         ")";
}

}  // namespace

int64_t usable_hbm(const spec::BoardParams& board, int64_t asked) {
  const int64_t all = board.hbm.gib_per_core << 30;
  if (asked > all) {
    throw Error("the program is to use " + std::to_string(asked) +
                " bytes of HBM: expected at most " + std::to_string(all) +
                ", which a core of board " + board.board.name + " has; ask for less (--hbm-mib)");
  }
  return asked > 0 ? asked : all;
}

std::string has_text(int64_t hbm_bytes) {
  constexpr int64_t kGib = int64_t{1} << 30;
  return hbm_bytes % kGib == 0 ? "a core has " + std::to_string(hbm_bytes / kGib) + " GiB"
                               : "it may use " + std::to_string(hbm_bytes) + " bytes";
}

std::string memory_report(const std::vector<SlotInfo>& slots, const Scratch& scratch,
                          const std::vector<exe::OpInfoT>& ops) {
  std::string out = slot_lines(slots);
  std::vector<ReportLine> temporary;
  const std::vector<Scratch::Temporary> peak = scratch.peak();
  if (peak.empty()) {
    return out;
  }
  uint32_t latest = 0;
  for (const Scratch::Temporary& t : peak) {
    temporary.push_back(line_of(t.value, t.bytes));
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
  std::vector<ReportLine> temporary;
  int64_t bytes = 0;
  for (const Value* v : alive) {
    temporary.push_back(line_of(v, v->type.bytes()));
    bytes += v->type.bytes();
  }
  return out + "\n  temporaries: " + std::to_string(bytes) + " bytes in use at a time, in kernel " +
         kernel_place(op) + lines_of(temporary);
}

}  // namespace tpu::compiler
