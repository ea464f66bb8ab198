// Which loops can do without drains, and the places of their fences.
#include "program/loop_fences.hpp"

#include <algorithm>
#include <utility>

#include "program/item_places.hpp"

namespace tpu::compiler {

namespace {

struct Span {  // of a loop's items, as found
  int first = -1, last = -1, end = -1;
  uint32_t op = 0;
  std::array<bool, spec::kQueueCount> used{};
};

const Control* control_at(const Listing& listing, size_t i) {
  return i < listing.items.size() ? std::get_if<Control>(&listing.items[i]) : nullptr;
}

bool is_control(const Listing& listing, size_t i, Control::Kind kind) {
  const Control* control = control_at(listing, i);
  return control != nullptr && control->kind == kind;
}

// It knows something of commands in front of the loop that is true in one iteration only.
bool reaches_out(const Command& command, int first) {
  return std::ranges::any_of(command.implies, [&](int item) { return item <= first; });
}

// Words of SMEM that the sequencer writes in a body. A command that reads them reads them later
// than the sequencer goes on.
class SequencerWrites {
 public:
  void add(const spec::ScalarInsn& insn) {
    if (static_cast<spec::ScalarOp>(insn.op) != spec::ScalarOp::kSts32) {
      return;
    }
    if (insn.rs1 != 0) {
      anywhere_ = true;
    }
    words_.push_back({spec::Space::kSmem, 0, insn.imm, insn.imm + 4, 0, 0, true});
  }
  bool meet(const std::vector<MemRange>& ranges) const {
    return std::ranges::any_of(ranges, [&](const MemRange& r) {
      return r.space == spec::Space::kSmem && !r.write &&
             (anywhere_ || std::ranges::any_of(words_, [&](const MemRange& word) {
                return ranges_overlap(word, r);
              }));
    });
  }

 private:
  bool anywhere_ = false;
  std::vector<MemRange> words_;
};

bool is_scalar(const Listing& listing, size_t i) {
  return i < listing.items.size() && std::holds_alternative<spec::ScalarInsn>(listing.items[i]);
}

// Signals and waits of the sequencer, and calls of the host, are at home in drained code.
bool is_plain(const spec::ScalarInsn& insn) {
  const auto op = static_cast<spec::ScalarOp>(insn.op);
  return op != spec::ScalarOp::kSwait && op != spec::ScalarOp::kSsignal &&
         op != spec::ScalarOp::kHcall;
}

// The body from item `i` on, up to the drain at its end; false if it needs drains.
bool find_body(const Listing& listing, size_t i, Span& span) {
  SequencerWrites writes;
  std::vector<MemRange> ranges;
  for (; i < listing.items.size(); ++i) {
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&listing.items[i])) {
      if (!is_plain(*insn)) {
        return false;
      }
      if (static_cast<spec::ScalarOp>(insn->op) == spec::ScalarOp::kMarkb) {
        span.op = static_cast<uint32_t>(insn->imm);
      }
      writes.add(*insn);
    } else if (const auto* command = std::get_if<Command>(&listing.items[i])) {
      if (reaches_out(*command, span.first)) {
        return false;
      }
      span.used[static_cast<size_t>(command->queue())] = true;
      std::ranges::move(memory_ranges(listing, *command), std::back_inserter(ranges));
    } else if (const Control* control = control_at(listing, i);
               control->kind == Control::Kind::kDrain) {
      break;
    } else if (control->kind != Control::Kind::kWait || control->item <= span.first) {
      return false;
    }
  }
  span.last = static_cast<int>(i);
  for (++i; is_scalar(listing, i); ++i) {
    const auto& insn = std::get<spec::ScalarInsn>(listing.items[i]);
    if (!is_plain(insn)) {
      return false;
    }
    writes.add(insn);
  }
  const Control* branch = control_at(listing, i);
  const Control* label = control_at(listing, static_cast<size_t>(span.first) + 1);
  span.end = static_cast<int>(i) + 1;
  return branch != nullptr && branch->kind == Control::Kind::kBranch &&
         branch->label == label->label && is_control(listing, i + 1, Control::Kind::kEnd) &&
         std::ranges::any_of(span.used, std::identity{}) && !writes.meet(ranges);
}

std::vector<Span> find_loops(const Listing& listing) {
  std::vector<Span> found;
  for (size_t i = 2; i < listing.items.size(); ++i) {
    const Control* loop = control_at(listing, i);
    if (loop == nullptr || loop->kind != Control::Kind::kLoop || !loop->flows || loop->trips < 2 ||
        !is_control(listing, i - 1, Control::Kind::kLabel) ||
        !is_control(listing, i - 2, Control::Kind::kDrain)) {
      continue;
    }
    Span span;
    span.first = static_cast<int>(i) - 2;
    if (find_body(listing, i + 1, span)) {
      found.push_back(span);
    }
  }
  return found;
}

// Rewrites a listing with the fences of its loops in it.
class FenceWriter {
 public:
  FenceWriter(Listing& listing, const std::vector<Span>& spans)
      : listing_(listing), spans_(spans), place_(listing.items.size()) {
    items_.reserve(listing.items.size() + spans.size() * 4 * spec::kQueueCount);
  }

  std::vector<FlowingLoop> run() {
    auto span = spans_.begin();
    std::vector<FlowingLoop> loops;
    for (size_t i = 0; i < listing_.items.size(); ++i) {
      const auto item = static_cast<int>(i);
      if (span != spans_.end() && item == span->first) {
        FlowingLoop& loop = loops.emplace_back();
        loop.credit = fences(*span, Fence::kCredit);
        loop.enter = fences(*span, Fence::kEnter);
        loop.first = next();
      }
      if (span != spans_.end() && item == span->last) {
        loops.back().last = next();
      }
      place_[i] = next();
      items_.push_back(std::move(listing_.items[i]));
      if (span != spans_.end() && item == span->end) {
        FlowingLoop& loop = loops.back();
        loop.leave = fences(*span, Fence::kLeave);
        loop.settle = fences(*span, Fence::kSettle);
        ++span;
      }
    }
    refer_to_places(items_, place_);
    for (const FlowingLoop& loop : loops) {
      std::get<Control>(items_[static_cast<size_t>(loop.first)]).flows = true;
      std::get<Control>(items_[static_cast<size_t>(loop.last)]).flows = true;
    }
    listing_.items = std::move(items_);
    return loops;
  }

 private:
  int next() const { return static_cast<int>(items_.size()); }

  std::array<int, spec::kQueueCount> fences(const Span& span, Fence fence) {
    std::array<int, spec::kQueueCount> at;
    at.fill(-1);
    for (size_t q = 0; q < spec::kQueueCount; ++q) {
      if (span.used[q]) {
        Command nop;
        nop.body = make_command<spec::NopCommand>(spec::Opcode::kNop, static_cast<spec::Queue>(q),
                                                  span.op);
        nop.fence = fence;
        at[q] = next();
        items_.emplace_back(std::move(nop));
      }
    }
    return at;
  }

  Listing& listing_;
  const std::vector<Span>& spans_;
  std::vector<int> place_;  // of the items of before
  std::vector<Item> items_;
};

}  // namespace

std::vector<FlowingLoop> add_loop_fences(Listing& listing) {
  const std::vector<Span> spans = find_loops(listing);
  return spans.empty() ? std::vector<FlowingLoop>{} : FenceWriter(listing, spans).run();
}

void drop_loop_fences(Listing& listing, const FlowingLoop& loop) {
  const auto item = [&](int at) -> Item& { return listing.items[static_cast<size_t>(at)]; };
  for (const int drain : {loop.first, loop.last}) {
    std::get<Control>(item(drain)).flows = false;
  }
  Control nothing;
  nothing.kind = Control::Kind::kNone;
  for (const auto* fences : {&loop.credit, &loop.enter, &loop.leave, &loop.settle}) {
    for (const int fence : *fences) {
      if (fence >= 0) {
        item(fence) = nothing;
      }
    }
  }
}

}  // namespace tpu::compiler
