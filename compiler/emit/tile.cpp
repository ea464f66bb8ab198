// One tile of a loop kernel: loads, commands of the vector unit, stores.
#include <algorithm>
#include <set>
#include <utility>

#include "emit/exchange/inflight.hpp"
#include "emit/loop.hpp"
#include "plan/in_place.hpp"
#include "vpu/fixed_indexes.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kCommandLoops = std::tuple_size_v<decltype(spec::VpuKernelCommand::loops)>;

class TileEmitter {
 public:
  TileEmitter(EmitContext& ctx, const TileSite& site, TileState& state, const TileRange& tile)
      : ctx_(ctx),
        k_(site.kernel),
        nest_(site.kernel.loop().nest),
        plan_(site.plan),
        places_(site.places),
        id_(site.op_id),
        state_(state),
        tile_(tile),
        skip_(plan_.order.size() - std::min(plan_.order.size(), kCommandLoops)),
        place_(nest_.loops.size(), -1),
        at_(skip_, 0) {}

  void run() {
    set_loops();
    int64_t commands = 1;
    for (size_t i = 0; i < skip_; ++i) {
      commands *= tile_.count[static_cast<size_t>(plan_.order[i])];
    }
    for (int64_t n = 0; n < commands; ++n) {
      const TileState::Program& program = program_with(fixed_indexes());
      Command command;
      int carries = 0;
      for (const AccessRole& role : program.generated.roles) {
        command.accesses.push_back(role.kind == AccessRole::Kind::kCarry ? carry(role, carries++, n)
                                                                         : access(role));
      }
      if (program.generated.uses_partition) {
        c_.scalar[0] = kPartitionRegister;
      }
      command.program = program.number;
      command.body = c_;
      ctx_.sink.append(std::move(command));
      next_outside();
    }
    store_outputs();
  }

 private:
  struct Out {
    const Stream* stream;
    Piece piece;
    int64_t address;
  };

  // Indexes over short loops outside of the command: a program for each of their few values.
  std::map<int, int64_t> fixed_indexes() const {
    constexpr int64_t kShort = 4;
    std::map<int, int64_t> fixed;
    for (size_t i = 0; i < nest_.indexes.size(); ++i) {
      const View& v = nest_.indexes[i];
      bool is_fixed = true;
      for (size_t l = 0; l < nest_.loops.size(); ++l) {
        const bool outside = place_[l] < 0 && nest_.loops[l].n <= kShort;
        is_fixed = is_fixed && (v.stride[l] == 0 || outside);
      }
      if (is_fixed) {
        fixed[static_cast<int>(i)] = offset_at_start(v);
      }
    }
    return fixed;
  }

  const TileState::Program& program_with(const std::map<int, int64_t>& fixed) {
    TileState::Program& program = state_.programs[{tile_.first, tile_.last, fixed}];
    if (program.number >= 0) {
      return program;
    }
    VpuGenOptions options = plan_.options;
    options.first = tile_.first;
    options.last = tile_.last;
    program.generated = generate_vpu(fixed.empty() ? nest_ : fix_indexes(nest_, fixed), options);
    if (!fixed.empty() && loads_what_it_stored(program.generated)) {
      return program = program_with({});
    }
    program.number = ctx_.sink.listing.add_program(program.generated.program);
    return program;
  }

  // A result may lie over an operand that the program of all indexes loads before it stores there
  // (stores_last()). With less to compute the order may be another one.
  bool loads_what_it_stored(const VpuGenResult& generated) const {
    const auto range = [this](const Value* v) {
      const int64_t first = places_.at(v).vmem;
      return std::pair(first, first + v->type.bytes());
    };
    return compiler::loads_what_it_stored(generated, [&](int node, int access) {
      const auto from = static_cast<size_t>(access);
      if (plan_.out_stream.contains(node) || plan_.in_stream[from] != -1) {
        return false;
      }
      const auto [low, high] = range(nest_.accesses[from].value);
      const auto [first, end] = range(nest_.nodes[static_cast<size_t>(node)].op->result());
      return first < high && low < end;
    });
  }

  // Loops of the command: the innermost four of the order; outer ones have one iteration here.
  void set_loops() {
    const VpuGenOptions& options = plan_.options;
    c_ = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, id_);
    c_.head.flags = options.flat ? c_.kFlat : 0;
    c_.row_loop = c_.col_loop = 255;
    c_.loops.fill(1);
    c_.rows = c_.cols = 1;
    const size_t shift = kCommandLoops - (plan_.order.size() - skip_);
    for (size_t i = skip_; i < plan_.order.size(); ++i) {
      place_[static_cast<size_t>(plan_.order[i])] = static_cast<int>(shift + i - skip_);
    }
    if (nest_.loops.empty()) {
      c_.col_loop = 3;
    }
    for (size_t l = 0; l < nest_.loops.size(); ++l) {
      if (place_[l] < 0) {
        continue;
      }
      const int64_t g = granule(options, static_cast<int>(l)), count = tile_.count[l];
      c_.loops[static_cast<size_t>(place_[l])] = static_cast<uint32_t>((count + g - 1) / g);
      if (static_cast<int>(l) == options.col_loop) {
        c_.col_loop = static_cast<uint8_t>(place_[l]);
        c_.cols = static_cast<uint32_t>(count);
      } else if (static_cast<int>(l) == options.row_loop) {
        c_.row_loop = static_cast<uint8_t>(place_[l]);
        c_.rows = static_cast<uint32_t>(count);
      }
    }
  }

  void set_strides(spec::VpuAccess& a, const Dims& stride, int64_t bytes) const {
    for (size_t l = 0; l < nest_.loops.size(); ++l) {
      const int loop = static_cast<int>(l);
      const auto s = static_cast<int32_t>(stride[l] * bytes);
      if (place_[l] >= 0) {  // of one block only: beyond what the field holds, and not used
        a.loop[static_cast<size_t>(place_[l])] =
            static_cast<int32_t>(stride[l] * bytes * granule(plan_.options, loop));
      }
      if (loop == plan_.options.col_loop) {
        a.lane = s;
      } else if (loop == plan_.options.row_loop) {
        a.sub = s;
      }
    }
  }

  // Of the loops outside of the command, where they are.
  int64_t outside(const Dims& stride) const {
    int64_t offset = 0;
    for (size_t i = 0; i < skip_; ++i) {
      offset += stride[static_cast<size_t>(plan_.order[i])] * at_[i];
    }
    return offset;
  }

  void next_outside() {
    for (size_t i = skip_;
         i > 0 && ++at_[i - 1] == tile_.count[static_cast<size_t>(plan_.order[i - 1])];) {
      at_[--i] = 0;
    }
  }

  int64_t offset_at_start(const View& v) const {
    int64_t offset = v.offset + outside(v.stride);
    for (size_t l = 0; l < nest_.loops.size(); ++l) {
      offset += v.stride[l] * tile_.start[l];
    }
    return offset;
  }

  spec::VpuAccess access(const AccessRole& role) {
    const auto i = static_cast<size_t>(role.index);
    if (role.kind == AccessRole::Kind::kLoad) {
      return operand(nest_.accesses[i].value, nest_.accesses[i].view, plan_.in_stream[i], false);
    }
    if (role.kind == AccessRole::Kind::kIndex) {
      spec::VpuAccess a{};
      a.addr.offset = offset_at_start(nest_.indexes[i]);
      a.type = static_cast<uint8_t>(spec::Elem::kI32);
      set_strides(a, nest_.indexes[i].stride, 1);
      return a;
    }
    const Op* op = nest_.nodes[i].op;
    const View view{k_.loop().first, store_strides(nest_, op->kind == Kind::kReduce)};
    const auto it = plan_.out_stream.find(role.index);
    return operand(op->result(), view, it == plan_.out_stream.end() ? -1 : it->second, true);
  }

  // A block of sums, a value that is whole in VMEM, or a piece of a stream.
  spec::VpuAccess operand(const Value* v, const View& view, int stream, bool write) {
    spec::VpuAccess a{};
    const int64_t bytes = elem_bytes(v->type.elem);
    a.type = static_cast<uint8_t>(isa_elem(v->type.elem));
    if (stream == kFromTile) {
      a.addr = vmem_addr(state_.block + outside(state_.block_stride) * bytes);
      set_strides(a, state_.block_stride, bytes);
      return a;
    }
    if (stream < 0) {
      a.addr = vmem_addr(places_.at(v).vmem + offset_at_start(view) * bytes);
      set_strides(a, view.stride, bytes);
      return a;
    }
    const Stream& s = plan_.streams[static_cast<size_t>(stream)];
    const Piece p = make_piece(s.view, tile_.start, tile_.count, write || s.exact, s.reach,
                               s.slot_bytes / bytes);
    const int64_t slot = s.slots[static_cast<size_t>(tile_.number) % s.slots.size()];
    const int64_t first = p.origin + outside(p.stride) + view.offset - s.view.offset;
    a.addr = vmem_addr(slot + first * bytes);
    set_strides(a, p.stride, bytes);
    if (s.local || s.shared || !moved_.insert(stream).second) {
      return a;
    }
    if (write) {
      outs_.push_back({&s, p, slot});
    } else {
      std::pair piece(p.first, p.dims);
      const auto [held, is_empty] = state_.held.try_emplace({stream, slot});
      if (std::exchange(held->second, piece) != piece || is_empty) {
        load_box(ctx_, places_, v, p.first, p.dims, slot, id_);
      }
    }
    return a;
  }

  // The accumulators of reduction `number` of the kernel, for command `n` of the tile.
  spec::VpuAccess carry(const AccessRole& role, int number, int64_t n) const {
    spec::VpuAccess a{};
    const Op& op = *nest_.nodes[static_cast<size_t>(role.index)].op;
    a.addr = vmem_addr(plan_.carry + number * plan_.carry_bytes);
    a.type = static_cast<uint8_t>(is_float(op.type().elem) ? spec::Elem::kF32 : spec::Elem::kI32);
    int64_t pitch = kBlockBytes;
    for (size_t d = kCommandLoops; d-- > 0;) {
      for (size_t l = 0; l < place_.size(); ++l) {
        if (place_[l] == static_cast<int>(d) && !nest_.loops[l].reduced) {
          a.loop[d] = static_cast<int32_t>(pitch);
          pitch *= c_.loops[d];
        }
      }
    }
    a.addr.offset += n * pitch;
    a.sub = plan_.options.flat ? 0 : static_cast<int32_t>(kLanes * 4);
    a.lane = 4;
    return a;
  }

  void store_outputs() {
    for (const Out& o : outs_) {
      const Value* v = o.stream->value;
      if (nest_.has_reduce && !tile_.last && v->def->kind == Kind::kReduce) {
        continue;
      }
      const int64_t bytes = elem_bytes(v->type.elem);
      std::vector<CopyDim> dims = o.piece.dims;
      for (CopyDim& d : dims) {
        std::swap(d.src, d.dst);
        d.src *= bytes;
        d.dst *= bytes;
      }
      ctx_.sink.copy(vmem_addr(o.address), home_of(places_.at(v), o.piece.first * bytes), bytes,
                     dims, id_);
    }
  }

  EmitContext& ctx_;
  const Kernel& k_;
  const Nest& nest_;
  const LoopPlan& plan_;
  const Places& places_;
  const uint32_t id_;
  TileState& state_;
  const TileRange& tile_;
  const size_t skip_;       // loops of the order that are outside of the command
  std::vector<int> place_;  // of each loop in the command; -1: outside
  Dims at_;                 // of the loops outside
  spec::VpuKernelCommand c_{};
  std::vector<Out> outs_;
  std::set<int> moved_;  // streams whose copies are made
};

}  // namespace

void emit_tile(EmitContext& ctx, const TileSite& site, TileState& state, const TileRange& tile) {
  advance_inflight(ctx);
  TileEmitter(ctx, site, state, tile).run();
}

}  // namespace tpu::compiler
