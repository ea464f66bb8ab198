// Cost formulas of spec/isa/commands.toml in closed form, and a pass over the listing in order.
#include "program/estimate.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include "arith/mxu_timing.hpp"
#include "board/board_loader.hpp"

namespace tpu::compiler {

namespace {

using spec::BoardParams;

// What transfers of all queues of a core share.
enum class Shared : uint8_t { kNone, kHbm, kPort, kLocal };

struct Cost {
  uint64_t busy = 1;  // of the queue, or of what is shared
  uint64_t done = 1;  // until the result is there, from the start
  Shared shared = Shared::kNone;
};

Cost cost(const BoardParams&, const Command&, const Listing&, const spec::NopCommand&) {
  return {};
}

Cost cost(const BoardParams& b, const Command&, const Listing&, const spec::MatmulCommand& c) {
  spec::MxuShape s;
  s.rows = static_cast<uint32_t>(b.mxu.rows);
  s.cols = static_cast<uint32_t>(b.mxu.cols);
  s.chains = static_cast<uint32_t>(b.mxu.chains);
  s.segment_rows = static_cast<uint32_t>(b.mxu.segment_rows);
  s.skew = static_cast<uint32_t>(b.mxu.skew);
  s.load_rows = static_cast<uint32_t>(b.mxu.weight_rows_per_cycle);
  spec::MxuExtent e;
  e.rows = uint64_t{c.m[0]} * c.m[1] * c.m[2] * c.m[3];
  e.taps = uint64_t{c.t[0]} * c.t[1] * c.t[2];
  e.k = uint64_t{c.k[0]} * c.k[1] * c.k[2];
  e.n_outer = c.n[0];
  e.n_inner = c.n[1];
  const spec::MxuCommandTiming t = spec::mxu_command_timing(s, e);
  return {t.free_at, t.done_at};
}

Cost cost(const BoardParams& b, const Command& cmd, const Listing& l,
          const spec::VpuKernelCommand& c) {
  const VpuProgram& p = l.programs[static_cast<size_t>(cmd.program)];
  static constexpr std::array<int, 9> kDepth = {0, 1, 2, 3, 4, 3, 2, 1, 0};
  uint64_t total = static_cast<uint64_t>(b.vpu.kernel_start_cycles);
  size_t at = 0;
  for (size_t s = 0; s < 9; ++s) {
    int64_t alu = 0, load = 0, store = 0, trans = 0, reduce = 0;
    for (int i = 0; i < p.header.section[s]; ++i) {
      const spec::VpuOpInfo& op = spec::kVpuOps[static_cast<size_t>(p.code[at++].op) - 1];
      alu += op.alu;
      load += op.load;
      store += op.store;
      trans += op.trans;
      reduce += op.reduce;
    }
    uint64_t runs = 1;
    for (size_t d = 0; d < static_cast<size_t>(kDepth[s]); ++d) {
      runs *= c.loops[d];
    }
    const int64_t busiest = std::max(
        {(alu + b.vpu.alus - 1) / b.vpu.alus, (load + b.vpu.load_slots - 1) / b.vpu.load_slots,
         (store + b.vpu.store_slots - 1) / b.vpu.store_slots, trans * b.vpu.transcendental_interval,
         reduce * b.vpu.reduce_interval});
    total += runs * static_cast<uint64_t>(busiest);
  }
  return {total, total + static_cast<uint64_t>(b.vpu.pipeline_latency)};
}

Cost cost(const BoardParams& b, const Command&, const Listing&, const spec::TransposeCommand& c) {
  const int64_t rows = c.rows, cols = c.cols;
  uint64_t total = 0;
  for (int64_t r = 0; r < rows; r += b.mxu.rows) {
    for (int64_t k = 0; k < cols; k += b.mxu.cols) {
      total += static_cast<uint64_t>(
          std::max(std::min(b.mxu.rows, rows - r), std::min(b.mxu.cols, cols - k)));
    }
  }
  total *= c.batch;
  return {total, total + static_cast<uint64_t>(b.xlu.latency)};
}

uint64_t stream_cycles(const BoardParams& b, int64_t bytes, int64_t gbps, int64_t percent) {
  const int64_t per_us = gbps * percent * 10;  // bytes per microsecond
  return static_cast<uint64_t>((bytes * b.core.clock_mhz + per_us - 1) /
                               std::max<int64_t>(per_us, 1));
}

Cost dma_cost(const BoardParams& b, const spec::CommandHeader& head, int64_t bytes, bool uses_hbm) {
  if (head.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    const uint64_t wire = stream_cycles(b, bytes, b.ici.link_gbps, b.ici.efficiency_percent);
    return {port_cycles(b, bytes), wire + spec::cycles_from_ns(b, b.ici.hop_ns), Shared::kPort};
  }
  if (!uses_hbm) {
    const auto move = static_cast<uint64_t>(bytes / b.dma.local_bytes_per_cycle + 1);
    return {move, move + spec::cycles_from_ns(b, b.dma.local_fixed_ns), Shared::kLocal};
  }
  const uint64_t wire = hbm_cycles(b, bytes);
  const bool in = head.queue == static_cast<uint8_t>(spec::Queue::kDmaIn);
  return {wire, wire + spec::cycles_from_ns(b, in ? b.dma.in_fixed_ns : b.dma.out_fixed_ns),
          Shared::kHbm};
}

int64_t box_bytes(const std::array<uint32_t, 5>& counts, uint32_t elem) {
  int64_t n = elem;
  for (const uint32_t c : counts) {
    n *= c;
  }
  return n;
}

Cost cost(const BoardParams& b, const Command&, const Listing&, const spec::DmaCommand& c) {
  constexpr auto kHbm = static_cast<uint8_t>(spec::Space::kHbm);
  return dma_cost(b, c.head, box_bytes(c.counts, c.elem_bytes),
                  c.src.space == kHbm || c.dst.space == kHbm);
}

// Every record costs its windows' runs in whole granules.
Cost cost(const BoardParams& b, const Command&, const Listing&, const spec::DmaIndexedCommand& c) {
  constexpr auto kHbm = static_cast<uint8_t>(spec::Space::kHbm);
  const auto& strides = c.scatter() ? c.dst_strides : c.src_strides;
  int64_t run = c.elem_bytes, runs = c.records;
  size_t i = c.counts.size();
  while (i > 0 && (strides[i - 1] == run || c.counts[i - 1] == 1)) {
    run *= c.counts[--i];
  }
  while (i > 0) {
    runs *= c.counts[--i];
  }
  const int64_t granule = b.dma.granule_bytes;
  return dma_cost(b, c.head, runs * ((run + granule - 1) / granule * granule),
                  c.src.space == kHbm || c.dst.space == kHbm);
}

Cost cost(const BoardParams& b, const Command&, const Listing&, const spec::FillCommand& c) {
  return dma_cost(b, c.head, box_bytes(c.counts, c.elem_bytes),
                  c.dst.space == static_cast<uint8_t>(spec::Space::kHbm));
}

}  // namespace

namespace {

Cost cost_of(const Command& c, const Listing& listing, const BoardParams& board) {
  return std::visit([&](const auto& body) { return cost(board, c, listing, body); }, c.body);
}

// Times of one core, item by item in the order of issue.
class Estimator {
 public:
  Estimator(const Listing& listing, const BoardParams& board) : listing_(listing), board_(board) {}

  uint64_t run() {
    for (const Item& item : listing_.items) {
      std::visit([this](const auto& i) { step(i); }, item);
    }
    return std::max(end_, issue_);
  }

 private:
  struct Scope {
    int64_t trips;  // of a loop; alternatives: 1
    bool choice;
    uint64_t start, longest;
  };

  void step(const spec::ScalarInsn& insn) {
    ++issue_;
    if (insn.op != static_cast<uint8_t>(spec::ScalarOp::kSwait)) {
      return;
    }
    std::deque<uint64_t>& queue = signals_[insn.rs1];
    for (int32_t i = 0; i < insn.imm && !queue.empty(); ++i) {
      issue_ = std::max(issue_, queue.front());
      queue.pop_front();
    }
  }

  // Pieces are drained at their ends, so a scope is over when its last instruction is.
  void step(const Control& control) {
    switch (control.kind) {
      case Control::Kind::kBranch:
        issue_ += static_cast<uint64_t>(board_.core.branch_cycles);
        break;
      case Control::Kind::kLoop:
        scopes_.push_back({std::max<int64_t>(control.trips, 1), false, issue_, 0});
        break;
      case Control::Kind::kChoice:
        scopes_.push_back({1, true, issue_, 0});
        break;
      case Control::Kind::kArm:
        scopes_.back().longest = std::max(scopes_.back().longest, issue_);
        issue_ = scopes_.back().start;
        all_idle();
        break;
      case Control::Kind::kEnd: {
        const Scope s = scopes_.back();
        scopes_.pop_back();
        issue_ = s.choice ? std::max(s.longest, issue_)
                          : issue_ + (issue_ - s.start) * static_cast<uint64_t>(s.trips - 1);
        break;
      }
      default:
        break;
    }
  }

  void step(const Command& c) {
    issue_ += static_cast<uint64_t>(board_.core.issue_cycles);
    const auto q = static_cast<size_t>(c.queue());
    uint64_t start = std::max(issue_, free_[q]);
    for (const spec::Wait& w : c.head().wait) {
      if (w.valid() && !signals_[w.sem].empty()) {
        start = std::max(start, signals_[w.sem].front());
        signals_[w.sem].pop_front();
      }
    }
    const Cost k = cost_of(c, listing_, board_);
    uint64_t done = start + k.done;
    if (k.shared == Shared::kNone) {
      free_[q] = start + k.busy;
    } else {
      start = std::max(start, in_flight(q));
      uint64_t& busy = shared_[static_cast<size_t>(k.shared)];
      busy = std::max(busy, start) + k.busy;
      done = std::max(start + k.done, busy + k.done - k.busy);
      free_[q] = start + 1;
    }
    done_[q] = std::max(done_[q], done);
    if (k.shared != Shared::kNone) {
      flights_[q].push_back(done_[q]);
    }
    end_ = std::max(end_, done_[q]);
    for (const spec::Signal& s : c.head().signal) {
      if (s.valid()) {
        signals_[s.sem].push_back(done_[q] + static_cast<uint64_t>(board_.core.semaphore_cycles));
      }
    }
  }

  // When the queue has room for one more transfer.
  uint64_t in_flight(size_t q) {
    std::deque<uint64_t>& flights = flights_[q];
    uint64_t at = 0;
    while (flights.size() >= static_cast<size_t>(board_.dma.in_flight)) {
      at = flights.front();
      flights.pop_front();
    }
    return at;
  }

  // The next alternative begins when the first one did.
  void all_idle() {
    free_.fill(issue_);
    done_.fill(issue_);
    shared_.fill(issue_);
    for (std::deque<uint64_t>& flights : flights_) {
      flights.clear();
    }
  }

  const Listing& listing_;
  const BoardParams& board_;
  std::array<uint64_t, spec::kQueueCount> free_{}, done_{};
  std::array<uint64_t, 4> shared_{};
  std::array<std::deque<uint64_t>, spec::kQueueCount> flights_;
  std::array<std::deque<uint64_t>, 256> signals_;
  std::vector<Scope> scopes_;
  uint64_t issue_ = 0, end_ = 0;
};

const char* control_name(Control::Kind kind) {
  static constexpr std::array kNames = {"drain", "wait for", "label", "branch",
                                        "loop",  "choice",   "arm",   "end"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const spec::ScalarInsn& insn) {
  std::string out(spec::kScalarInsns[static_cast<size_t>(insn.op) - 32].name);
  out += " rd=" + std::to_string(insn.rd) + " rs1=" + std::to_string(insn.rs1) +
         " rs2=" + std::to_string(insn.rs2) + " imm=" + std::to_string(insn.imm);
  return out;
}

std::string text_of(const Control& c) {
  std::string out = control_name(c.kind);
  switch (c.kind) {
    case Control::Kind::kLabel:
      return out + " L" + std::to_string(c.label);
    case Control::Kind::kBranch:
      return text_of(c.insn) + " -> L" + std::to_string(c.label);
    case Control::Kind::kLoop:
      return out + (c.trips < 0 ? "" : " " + std::to_string(c.trips) + " times");
    default:
      return out;
  }
}

}  // namespace

uint64_t busy_cycles(const Command& command, const Listing& listing, const BoardParams& board) {
  return cost_of(command, listing, board).busy;
}

uint64_t hbm_cycles(const BoardParams& board, int64_t bytes) {
  return stream_cycles(board, bytes, board.hbm.gbps_per_chip / board.board.cores_per_chip,
                       board.hbm.efficiency_percent);
}

uint64_t port_cycles(const BoardParams& board, int64_t bytes) {
  return stream_cycles(board, bytes, board.ici.core_port_gbps, 100);
}

uint64_t estimate_cycles(const Listing& listing, const BoardParams& board) {
  return Estimator(listing, board).run();
}

std::string print(const Listing& listing) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < listing.items.size(); ++i) {
    const auto* control = std::get_if<Control>(&listing.items[i]);
    using Kind = Control::Kind;
    const bool outdents =
        control != nullptr && (control->kind == Kind::kEnd || control->kind == Kind::kArm);
    out += std::to_string(i) + ": " +
           std::string(2 * static_cast<size_t>(depth - (outdents ? 1 : 0)), ' ');
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&listing.items[i])) {
      out += text_of(*insn) + '\n';
      continue;
    }
    if (control != nullptr) {
      depth += control->kind == Kind::kLoop || control->kind == Kind::kChoice ? 1 : 0;
      depth -= control->kind == Kind::kEnd ? 1 : 0;
      out += text_of(*control) + '\n';
      continue;
    }
    const auto& c = std::get<Command>(listing.items[i]);
    out += std::string(spec::kQueueNames[c.head().queue]) + ' ' +
           std::string(spec::kCommands[c.body.index()].name) + " op " +
           std::to_string(c.head().op_id);
    for (const spec::Wait& w : c.head().wait) {
      out += w.valid() ? " wait " + std::to_string(w.sem) : "";
    }
    for (const spec::Signal& s : c.head().signal) {
      out += s.valid() ? " signal " + std::to_string(s.sem) + (s.remote() ? "@" : "") : "";
    }
    for (const MemRange& r : memory_ranges(listing, c)) {
      out += (r.write ? " W" : " R") +
             std::string(spec::kSpaceNames[static_cast<size_t>(r.space)]) +
             (r.space == spec::Space::kHbm ? std::to_string(r.slot) : "") + "[" +
             std::to_string(r.lo) + "," + std::to_string(r.hi) + ")";
    }
    out += '\n';
  }
  return out;
}

}  // namespace tpu::compiler
