// Listing container and the byte ranges of commands.
#include "program/listing.hpp"

#include <algorithm>
#include <array>

namespace tpu::compiler {

using spec::Space;

bool ranges_overlap(const MemRange& a, const MemRange& b) {
  if (a.space != b.space || a.slot != b.slot || a.lo >= b.hi || b.lo >= a.hi) {
    return false;
  }
  if (a.pitch > 0 && a.pitch == b.pitch) {
    const int64_t p = a.pitch;
    const int64_t shift = ((b.lo - a.lo) % p + p) % p;  // start of b's window, seen from a's
    return shift < a.width || shift + b.width > p;
  }
  return true;
}

spec::CommandHeader& Command::head() {
  return std::visit([](auto& c) -> spec::CommandHeader& { return c.head; }, body);
}
const spec::CommandHeader& Command::head() const {
  return std::visit([](const auto& c) -> const spec::CommandHeader& { return c.head; }, body);
}

int root_slot(const std::vector<SlotInfo>& slots, int slot) {
  while (slots[static_cast<size_t>(slot)].alias_of >= 0) {
    slot = slots[static_cast<size_t>(slot)].alias_of;
  }
  return slot;
}

int Listing::add_program(VpuProgram program) {
  const auto it = std::find(programs.begin(), programs.end(), program);
  if (it != programs.end()) {
    return static_cast<int>(it - programs.begin());
  }
  programs.push_back(std::move(program));
  return static_cast<int>(programs.size()) - 1;
}

void Listing::check_room() const {
  if (items.size() >= kMaxItems) {
    throw ListingFull{};
  }
}

int Listing::append(Command command) {
  check_room();
  items.emplace_back(std::move(command));
  return static_cast<int>(items.size()) - 1;
}

void Listing::append(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm) {
  check_room();
  items.emplace_back(spec::ScalarInsn{static_cast<uint8_t>(op), static_cast<uint8_t>(rd),
                                      static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
}

void Listing::append(Control control) {
  check_room();
  items.emplace_back(control);
}

static spec::Addr addr_of(Space space, int64_t offset) {
  spec::Addr a{};
  a.space = static_cast<uint8_t>(space);
  a.offset = offset;
  return a;
}

spec::Addr smem_addr(int64_t offset) { return addr_of(Space::kSmem, offset); }
spec::Addr vmem_addr(int64_t offset) { return addr_of(Space::kVmem, offset); }

spec::Wait taking_wait(int semaphore) {
  return {static_cast<uint8_t>(semaphore), spec::Wait::kValid | spec::Wait::kTake, 1};
}
spec::Signal own_signal(int semaphore) {
  return {static_cast<uint8_t>(semaphore), spec::Signal::kValid, 1, 0};
}
spec::Signal remote_signal(int semaphore, int peer_reg) {
  return {static_cast<uint8_t>(semaphore), spec::Signal::kValid | spec::Signal::kRemote, 1,
          static_cast<uint8_t>(peer_reg)};
}

spec::VpuKernelCommand flat_vpu_kernel(int64_t count, uint32_t op_id) {
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, op_id);
  c.head.flags = c.kFlat;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops = {1, 1, 1, static_cast<uint32_t>((count + 1023) / 1024)};
  c.rows = 1;
  c.cols = static_cast<uint32_t>(count);
  return c;
}

spec::Addr hbm_addr(int slot, int64_t offset) {
  spec::Addr a = addr_of(Space::kHbm, offset);
  a.slot = static_cast<uint16_t>(slot);
  return a;
}

namespace {

// Collects counted strides of one operand and makes the tightest range that MemRange can say.
class Box {
 public:
  Box(const Listing& listing, const spec::Addr& addr, int64_t element_bytes)
      : width_(element_bytes) {
    range_.space = static_cast<Space>(addr.space);
    range_.slot = range_.space == Space::kHbm ? listing.root_slot(addr.slot) : 0;
    range_.lo = addr.offset;
    dynamic_ = addr.reg != 0;
  }

  void dim(int64_t count, int64_t stride) {
    if (count == 0) {
      empty_ = true;
    } else if (count > 1 && stride != 0) {
      dims_.push_back({count, stride});
    }
  }

  void finish(bool write, std::vector<MemRange>& out) {
    if (empty_ || dynamic_ || range_.space == Space::kNone) {
      return;  // windows stand in for dynamic addresses
    }
    for (auto& [count, stride] : dims_) {
      if (stride < 0) {
        range_.lo += (count - 1) * stride;
        stride = -stride;
      }
    }
    std::sort(dims_.begin(), dims_.end(),
              [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
    size_t i = 0;
    while (i < dims_.size() && dims_[i].stride <= width_) {
      width_ += (dims_[i].count - 1) * dims_[i].stride;
      ++i;
    }
    if (i < dims_.size() &&
        std::all_of(dims_.begin() + static_cast<ptrdiff_t>(i), dims_.end(),
                    [&](const Dim& d) { return d.stride % dims_[i].stride == 0; })) {
      range_.pitch = dims_[i].stride;  // all outer strides are multiples of this one
      range_.width = width_;
    }
    range_.hi = range_.lo + width_;
    for (; i < dims_.size(); ++i) {
      range_.hi += (dims_[i].count - 1) * dims_[i].stride;
    }
    range_.write = write;
    out.push_back(range_);
  }

 private:
  struct Dim {
    int64_t count, stride;
  };
  MemRange range_;
  int64_t width_;
  std::vector<Dim> dims_;
  bool dynamic_ = false;
  bool empty_ = false;
};

int64_t elem_size(uint8_t type) {
  return static_cast<int64_t>(exe::elem_bytes(static_cast<exe::Elem>(type)));
}

void add(const Listing&, const Command&, const spec::NopCommand&, std::vector<MemRange>&) {}

void add(const Listing& l, const Command&, const spec::MatmulCommand& c,
         std::vector<MemRange>& out) {
  Box o(l, c.out, 4), a(l, c.lhs, elem_size(c.lhs_type)), b(l, c.rhs, elem_size(c.rhs_type));
  int64_t k = 1;
  for (size_t i = 0; i < 4; ++i) {
    o.dim(c.m[i], c.m_out[i]);
    a.dim(c.m[i], c.m_lhs[i]);
  }
  for (size_t i = 0; i < 3; ++i) {
    a.dim(c.t[i], c.t_lhs[i]);
    b.dim(c.t[i], c.t_rhs[i]);
    b.dim(c.k[i], c.k_rhs[i]);
    k *= c.k[i];
  }
  a.dim(k, elem_size(c.lhs_type));
  for (size_t i = 0; i < 2; ++i) {
    o.dim(c.n[i], c.n_out[i]);
    b.dim(c.n[i], c.n_rhs[i]);
  }
  a.finish(false, out);
  b.finish(false, out);
  o.finish(true, out);
}

void add_access(const Listing& l, const spec::VpuKernelCommand& c, const spec::VpuAccess& a,
                spec::VpuStoreMode mode, bool write, std::vector<MemRange>& out) {
  Box box(l, a.addr, elem_size(a.type));
  const bool flat = c.flat();
  const bool one_row =
      mode == spec::VpuStoreMode::kSublane0 || mode == spec::VpuStoreMode::kElement0;
  const bool one_lane = mode == spec::VpuStoreMode::kLane0 || mode == spec::VpuStoreMode::kElement0;
  const int64_t block_cols = flat ? 1024 : 128;
  for (int d = 0; d < 4; ++d) {
    const int64_t stride = a.loop[static_cast<size_t>(d)];
    const int64_t trips = c.loops[static_cast<size_t>(d)];
    if (d == c.col_loop && !one_lane && stride == block_cols * a.lane) {
      continue;  // counted below, lane by lane
    }
    if (d == c.row_loop && !one_row && stride == int64_t{8} * a.sub) {
      continue;
    }
    box.dim(trips, stride);
  }
  if (!one_lane) {
    const bool linear =
        c.col_loop < 4 && a.loop[static_cast<size_t>(c.col_loop)] == block_cols * a.lane;
    box.dim(linear ? int64_t{c.cols} : std::min<int64_t>(c.cols, block_cols), a.lane);
  }
  if (!one_row && !flat) {
    const bool linear = c.row_loop < 4 && a.loop[static_cast<size_t>(c.row_loop)] == 8 * a.sub;
    box.dim(linear ? int64_t{c.rows} : std::min<int64_t>(c.rows, 8), a.sub);
  }
  box.finish(write, out);
}

void add(const Listing& l, const Command& cmd, const spec::VpuKernelCommand& c,
         std::vector<MemRange>& out) {
  for (const spec::VpuInsn& insn : l.programs[static_cast<size_t>(cmd.program)].code) {
    const auto op = static_cast<spec::VpuOp>(insn.op);
    if (op == spec::VpuOp::kLoad || op == spec::VpuOp::kStore) {
      const bool store = op == spec::VpuOp::kStore;
      const auto mode =
          store ? static_cast<spec::VpuStoreMode>(insn.rs2) : spec::VpuStoreMode::kAll;
      add_access(l, c, cmd.accesses[insn.imm], mode, store, out);
    }
  }
}

void add(const Listing& l, const Command&, const spec::TransposeCommand& c,
         std::vector<MemRange>& out) {
  Box s(l, c.src, c.elem_bytes), d(l, c.dst, c.elem_bytes);
  s.dim(c.batch, c.src_batch);
  s.dim(c.rows, c.src_pitch);
  s.dim(c.cols, c.elem_bytes);
  d.dim(c.batch, c.dst_batch);
  d.dim(c.cols, c.dst_pitch);
  d.dim(c.rows, c.elem_bytes);
  s.finish(false, out);
  d.finish(true, out);
}

void add(const Listing& l, const Command&, const spec::DmaCommand& c, std::vector<MemRange>& out) {
  Box s(l, c.src, c.elem_bytes), d(l, c.dst, c.elem_bytes);
  for (size_t i = 0; i < 5; ++i) {
    s.dim(c.counts[i], c.src_strides[i]);
    d.dim(c.counts[i], c.dst_strides[i]);
  }
  s.finish(false, out);
  if (c.head.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    d.finish(true, out);
  }
}

// The indexed side may be touched anywhere in its span.
void add(const Listing& l, const Command&, const spec::DmaIndexedCommand& c,
         std::vector<MemRange>& out) {
  const bool scatter = c.scatter();
  Box list(l, c.list, 4), span(l, scatter ? c.dst : c.src, c.span);
  Box other(l, scatter ? c.src : c.dst, c.elem_bytes);
  for (size_t i = 0; i < 4; ++i) {
    other.dim(c.counts[i], scatter ? c.src_strides[i] : c.dst_strides[i]);
  }
  other.dim(c.records, c.record_stride);
  list.dim(c.records, 4);
  list.finish(false, out);
  (scatter ? other : span).finish(false, out);
  (scatter ? span : other).finish(true, out);
}

void add(const Listing& l, const Command&, const spec::FillCommand& c, std::vector<MemRange>& out) {
  Box d(l, c.dst, c.elem_bytes);
  for (size_t i = 0; i < 5; ++i) {
    d.dim(c.counts[i], c.dst_strides[i]);
  }
  d.finish(true, out);
}

}  // namespace

std::vector<MemRange> memory_ranges(const Listing& listing, const Command& command) {
  std::vector<MemRange> out = command.windows;
  std::visit([&](const auto& c) { add(listing, command, c, out); }, command.body);
  return out;
}

}  // namespace tpu::compiler
