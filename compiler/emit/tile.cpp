// One tile of a loop kernel: loads, commands of the vector unit, stores.
#include <algorithm>
#include <set>

#include "emit/exchange/inflight.hpp"
#include "emit/loop.hpp"

namespace tpu::compiler {

void emit_tile(EmitContext& ctx, const Kernel& k, const LoopPlan& plan, const Places& places,
               TileState& state, const Dims& start, const Dims& count, bool first, bool last,
               int64_t number, uint32_t id) {
  advance_inflight(ctx);
  const Nest& nest = k.loop().nest;
  const VpuGenOptions& options = plan.options;
  TileState::Program& program = state.programs[(first ? 1u : 0u) | (last ? 2u : 0u)];
  if (program.number < 0) {
    VpuGenOptions of_tile = options;
    of_tile.first = first;
    of_tile.last = last;
    program.generated = generate_vpu(nest, of_tile);
    program.number = ctx.sink.listing.add_program(program.generated.program);
  }
  const VpuGenResult& gen = program.generated;

  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, id);
  c.head.flags = options.flat ? c.kFlat : 0;
  c.row_loop = c.col_loop = 255;
  c.loops.fill(1);
  c.rows = c.cols = 1;
  // Loops of the command: the innermost four of the order; outer ones have one iteration here.
  const size_t skip = plan.order.size() > 4 ? plan.order.size() - 4 : 0;
  const size_t shift = 4 - (plan.order.size() - skip);
  std::vector<int> place(nest.loops.size(), -1);
  for (size_t i = skip; i < plan.order.size(); ++i) {
    place[static_cast<size_t>(plan.order[i])] = static_cast<int>(shift + i - skip);
  }
  if (nest.loops.empty()) {
    c.col_loop = 3;
  }
  for (size_t l = 0; l < nest.loops.size(); ++l) {
    const int64_t g = granule(options, static_cast<int>(l));
    if (place[l] < 0) {
      continue;
    }
    c.loops[static_cast<size_t>(place[l])] = static_cast<uint32_t>((count[l] + g - 1) / g);
    if (static_cast<int>(l) == options.col_loop) {
      c.col_loop = static_cast<uint8_t>(place[l]);
      c.cols = static_cast<uint32_t>(count[l]);
    } else if (static_cast<int>(l) == options.row_loop) {
      c.row_loop = static_cast<uint8_t>(place[l]);
      c.rows = static_cast<uint32_t>(count[l]);
    }
  }
  const auto strides = [&](spec::VpuAccess& a, const Dims& stride, int64_t bytes) {
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      const auto s = static_cast<int32_t>(stride[l] * bytes);
      if (place[l] >= 0) {  // of one block only: beyond what the field holds, and not used
        a.loop[static_cast<size_t>(place[l])] =
            static_cast<int32_t>(stride[l] * bytes * granule(options, static_cast<int>(l)));
      }
      if (static_cast<int>(l) == options.col_loop) {
        a.lane = s;
      } else if (static_cast<int>(l) == options.row_loop) {
        a.sub = s;
      }
    }
  };
  Dims at(skip, 0);  // of the loops outside of the command
  const auto outside = [&](const Dims& stride) {
    int64_t offset = 0;
    for (size_t i = 0; i < skip; ++i) {
      offset += stride[static_cast<size_t>(plan.order[i])] * at[i];
    }
    return offset;
  };
  const auto offset_at_start = [&](const View& v) {
    int64_t offset = v.offset + outside(v.stride);
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      offset += v.stride[l] * start[l];
    }
    return offset;
  };
  struct Out {
    const Stream* stream;
    Piece piece;
    int64_t address;
  };
  std::vector<Out> outs;
  std::set<int> moved;  // streams whose copies are made
  const auto operand = [&](const Value* v, const View& view, int stream, bool write) {
    spec::VpuAccess a{};
    const int64_t bytes = elem_bytes(v->type.elem);
    a.type = static_cast<uint8_t>(isa_elem(v->type.elem));
    if (stream == kFromTile) {
      a.addr = vmem_addr(state.block + outside(state.block_stride) * bytes);
      strides(a, state.block_stride, bytes);
      return a;
    }
    if (stream < 0) {
      a.addr = vmem_addr(places.at(v).vmem + offset_at_start(view) * bytes);
      strides(a, view.stride, bytes);
      return a;
    }
    const Stream& s = plan.streams[static_cast<size_t>(stream)];
    const Piece p = make_piece(s.view, start, count, write, s.reach);
    const int64_t slot = s.slots[static_cast<size_t>(number) % s.slots.size()];
    const int64_t first_element = p.origin + outside(p.stride) + view.offset - s.view.offset;
    a.addr = vmem_addr(slot + first_element * bytes);
    strides(a, p.stride, bytes);
    if (!moved.insert(stream).second) {
      return a;
    }
    if (write) {
      outs.push_back({&s, p, slot});
      return a;
    }
    load_box(ctx, places, v, p.first, p.dims, slot, id);
    return a;
  };
  int64_t commands = 1;
  for (size_t i = 0; i < skip; ++i) {
    commands *= count[static_cast<size_t>(plan.order[i])];
  }
  for (int64_t n = 0; n < commands; ++n) {
    Command command;
    int carries = 0;
    for (const AccessRole& role : gen.roles) {
      spec::VpuAccess a{};
      const auto i = static_cast<size_t>(role.index);
      switch (role.kind) {
        case AccessRole::Kind::kLoad:
          a = operand(nest.accesses[i].value, nest.accesses[i].view, plan.in_stream[i], false);
          break;
        case AccessRole::Kind::kIndex:
          a.addr.offset = offset_at_start(nest.indexes[i]);
          a.type = static_cast<uint8_t>(spec::Elem::kI32);
          strides(a, nest.indexes[i].stride, 1);
          break;
        case AccessRole::Kind::kStore:
        case AccessRole::Kind::kReduceStore: {
          const Op* op = nest.nodes[i].op;
          const View view{k.loop().first, store_strides(nest, op->kind == Kind::kReduce)};
          const auto it = plan.out_stream.find(role.index);
          a = operand(op->result(), view, it == plan.out_stream.end() ? -1 : it->second, true);
          break;
        }
        case AccessRole::Kind::kCarry: {
          a.addr = vmem_addr(plan.carry + carries++ * plan.carry_bytes);
          a.type = static_cast<uint8_t>(is_float(nest.nodes[i].op->type().elem) ? spec::Elem::kF32
                                                                                : spec::Elem::kI32);
          int64_t pitch = kBlockBytes;
          for (int d = 3; d >= 0; --d) {
            for (size_t l = 0; l < place.size(); ++l) {
              if (place[l] == d && !nest.loops[l].reduced) {
                a.loop[static_cast<size_t>(d)] = static_cast<int32_t>(pitch);
                pitch *= c.loops[static_cast<size_t>(d)];
              }
            }
          }
          a.addr.offset += n * pitch;
          a.sub = options.flat ? 0 : static_cast<int32_t>(kLanes * 4);
          a.lane = 4;
          break;
        }
      }
      command.accesses.push_back(a);
    }
    if (gen.uses_partition) {
      c.scalar[0] = kPartitionRegister;
    }
    command.program = program.number;
    command.body = c;
    ctx.sink.append(std::move(command));
    for (size_t i = skip; i > 0 && ++at[i - 1] == count[static_cast<size_t>(plan.order[i - 1])];) {
      at[--i] = 0;
    }
  }
  if (nest.has_reduce && !last) {
    outs.erase(
        std::remove_if(outs.begin(), outs.end(),
                       [](const Out& o) { return o.stream->value->def->kind == Kind::kReduce; }),
        outs.end());
  }
  for (const Out& o : outs) {
    const int64_t bytes = elem_bytes(o.stream->value->type.elem);
    std::vector<CopyDim> dims = o.piece.dims;
    for (CopyDim& d : dims) {
      std::swap(d.src, d.dst);
      d.src *= bytes;
      d.dst *= bytes;
    }
    ctx.sink.copy(vmem_addr(o.address), home_of(places.at(o.stream->value), o.piece.first * bytes),
                  bytes, dims, id);
  }
}

}  // namespace tpu::compiler
