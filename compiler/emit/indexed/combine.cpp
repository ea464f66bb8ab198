// indexed_combine: windows of targets in VMEM, updated one after the other in the order of the
// list, so that windows that meet see each other's results. The list goes to SMEM; the sequencer
// reads an entry and issues one vector kernel with the addresses of window and update in registers.
// The loop uses the VPU queue alone, in order, and needs no semaphore.
#include <algorithm>
#include <unordered_map>

#include "emit/context.hpp"

namespace tpu::compiler {

namespace {

using spec::ScalarOp;

constexpr int64_t kUpdatePieceBytes = 512 * 1024;  // of updates in VMEM
// Registers of the loop.
constexpr int kEntry = kFirstOffsetRegister;       // SMEM address
constexpr int kEnd = kFirstOffsetRegister + 1;     // of the list in SMEM
constexpr int kValue = kFirstOffsetRegister + 2;   // list value: element of the targets
constexpr int kWindow = kFirstOffsetRegister + 3;  // .. + 2: byte offset for elements of 1, 2, 4
constexpr int kUpdate = kFirstOffsetRegister + 6;  // .. + 2: the same of the updates

int size_class(Elem e) { return __builtin_ctzll(static_cast<uint64_t>(elem_bytes(e))); }

}  // namespace

// The body on vectors of one window: values for old windows and updates, and the kernel.
struct CombineBody {
  Region region;  // arguments: windows, then updates
  std::vector<const Value*> results;
  Nest nest;
  VpuGenResult code;
  bool flat = true;
};

static void make_body(const Op& op, CombineBody& body) {
  const int64_t width = op.as<IndexedAttrs>().window[0];
  const Dims dims{width};
  ValueMap map;
  for (const auto& arg : op.regions[0]->args) {
    if (elem_bytes(arg->type.elem) == 8) {
      throw Error(
          "64-bit updates of windows that may meet are not supported; use 32-bit values or "
          "unique indices",
          "stablehlo.scatter", op.loc);
    }
    map[arg.get()] = body.region.add_arg({arg->type.elem, dims});
  }
  std::vector<const Op*> ops;
  for (const auto& inner : op.regions[0]->ops) {
    std::vector<Value*> operands;
    for (Value* v : inner->operands) {
      const auto it = map.find(v);
      if (it == map.end()) {
        throw Error("the body of a scatter uses a value from outside", "stablehlo.scatter", op.loc);
      }
      operands.push_back(it->second);
    }
    if (inner->kind == Kind::kReturn) {
      for (Value* v : operands) {  // an argument given back is a copy
        Op* copy = body.region.append(Kind::kReshape, {v}, {v->type}, NoAttrs{}, op.loc);
        const bool made =
            v->def != nullptr && !is_cheap(v->def->kind) &&
            std::find(body.results.begin(), body.results.end(), v) == body.results.end();
        body.results.push_back(made ? v : copy->result());
        if (!made) {
          ops.push_back(copy);
        }
      }
      break;
    }
    Attrs attrs = inner->attrs;
    if (inner->kind == Kind::kConstant) {
      Dense value = inner->as<ConstantAttrs>().value;
      value.type.dims = dims;
      value.splat = true;
      attrs = ConstantAttrs{std::move(value)};
    } else if (!is_elementwise(inner->kind) && inner->kind != Kind::kReshape &&
               inner->kind != Kind::kBroadcastInDim) {
      throw Error("only elementwise ops can stand in the body of a scatter",
                  source_name(inner->kind), inner->loc);
    }
    const bool view = inner->kind == Kind::kReshape || inner->kind == Kind::kBroadcastInDim;
    Op* made = body.region.append(view ? Kind::kReshape : inner->kind, operands,
                                  {Type{inner->type().elem, dims}},
                                  view ? Attrs{NoAttrs{}} : std::move(attrs), inner->loc);
    map[inner->result()] = made->result();
    if (!is_cheap(made->kind)) {
      ops.push_back(made);
    }
  }
  NestContext context;
  context.is_copied = [](const Value*) { return false; };
  auto nest = build_nest(ops, dims, context);
  if (!nest) {
    throw Error("the body of this scatter does not fit one loop", "stablehlo.scatter", op.loc);
  }
  body.nest = std::move(*nest);
  VpuGenOptions options;
  options.flat = true;
  options.col_loop = static_cast<int>(body.nest.loops.size()) - 1;
  for (size_t n = 0; n < body.nest.nodes.size(); ++n) {
    if (std::find(body.results.begin(), body.results.end(), body.nest.nodes[n].op->result()) !=
        body.results.end()) {
      options.stores.push_back(static_cast<int>(n));
    }
  }
  body.code = generate_vpu(body.nest, options);
}

// The kernel of one record; `updates`: where the first record of the piece lies.
static void combine_record(EmitContext& ctx, const Op& op, const CombineBody& body,
                           const std::vector<int64_t>& targets, const std::vector<int64_t>& updates,
                           const std::vector<MemRange>& windows, uint32_t id) {
  const int64_t width = op.as<IndexedAttrs>().window[0];
  auto c = flat_vpu_kernel(width, id);
  Command command;
  const auto access = [&](Elem elem, int64_t base, int reg) {
    const int64_t bytes = elem_bytes(elem);
    spec::VpuAccess a{};
    a.addr = vmem_addr(base);
    a.addr.reg = static_cast<uint8_t>(reg + size_class(elem));
    a.type = static_cast<uint8_t>(isa_elem(elem));
    a.lane = static_cast<int32_t>(bytes);
    a.loop[3] = static_cast<int32_t>(1024 * bytes);
    return a;
  };
  for (const AccessRole& role : body.code.roles) {
    const auto i = static_cast<size_t>(role.index);
    if (role.kind == AccessRole::Kind::kLoad) {
      const Value* v = body.nest.accesses[i].value;
      const auto arg = static_cast<size_t>(v->index), n = targets.size();
      command.accesses.push_back(arg < n ? access(v->type.elem, targets[arg], kWindow)
                                         : access(v->type.elem, updates[arg - n], kUpdate));
    } else if (role.kind == AccessRole::Kind::kStore) {
      const Value* v = body.nest.nodes[i].op->result();
      const auto at = std::find(body.results.begin(), body.results.end(), v);
      command.accesses.push_back(
          access(v->type.elem, targets[static_cast<size_t>(at - body.results.begin())], kWindow));
    } else {
      throw Error("the body of this scatter has no vector form", "stablehlo.scatter", op.loc);
    }
  }
  command.program = ctx.sink.listing.add_program(body.code.program);
  command.body = c;
  command.windows = windows;
  ctx.sink.append(std::move(command));
}

// One piece of the list: to SMEM, then the loop over its records.
static void combine_piece(EmitContext& ctx, const Op& op, const CombineBody& body,
                          const spec::Addr& list, int64_t records,
                          const std::vector<int64_t>& targets, const std::vector<int64_t>& updates,
                          const std::vector<MemRange>& windows, uint32_t id) {
  const int64_t width = op.as<IndexedAttrs>().window[0];
  const int64_t smem = ctx.board.core.smem_kib * 1024 / 2;
  std::array<bool, 3> sizes{};
  for (const auto& arg : op.regions[0]->args) {
    sizes[static_cast<size_t>(size_class(arg->type.elem))] = true;
  }
  ctx.sink.copy(list, smem_addr(smem), 4, {{records, 4, 4}}, id);
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.load_immediate(kEntry, smem);
  ctx.sink.load_immediate(kEnd, smem + 4 * records);
  for (int s = 0; s < 3; ++s) {
    ctx.sink.insn(ScalarOp::kLi, kUpdate + s, 0, 0, 0);
  }
  const int top = ctx.sink.new_label(), skip = ctx.sink.new_label();
  ctx.sink.control(Control::Kind::kLoop, -1, records);
  ctx.sink.tight(Control::Kind::kLabel, top);
  ctx.sink.insn(ScalarOp::kLds32, kValue, kEntry, 0, 0);
  const auto branch_on = [](ScalarOp kind, int rs1, int rs2) {
    return spec::ScalarInsn{static_cast<uint8_t>(kind), 0, static_cast<uint8_t>(rs1),
                            static_cast<uint8_t>(rs2), 0};
  };
  ctx.sink.tight(Control::Kind::kBranch, skip, branch_on(ScalarOp::kBneg, kValue, 0));
  for (int s = 0; s < 3; ++s) {
    if (sizes[static_cast<size_t>(s)]) {
      ctx.sink.insn(ScalarOp::kShli, kWindow + s, kValue, 0, s);
    }
  }
  combine_record(ctx, op, body, targets, updates, windows, id);
  ctx.sink.tight(Control::Kind::kLabel, skip);
  for (int s = 0; s < 3; ++s) {
    if (sizes[static_cast<size_t>(s)]) {
      ctx.sink.insn(ScalarOp::kAddi, kUpdate + s, kUpdate + s, 0, static_cast<int32_t>(width << s));
    }
  }
  ctx.sink.insn(ScalarOp::kAddi, kEntry, kEntry, 0, 4);
  ctx.sink.tight(Control::Kind::kBranch, top, branch_on(ScalarOp::kBlt, kEntry, kEnd));
  ctx.sink.control(Control::Kind::kEnd);
  // Signals for what comes later stand behind the loop, not in it.
  Command after;
  after.body = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kVpu, id);
  after.windows = windows;
  ctx.sink.append(std::move(after));
}

// Result i in VMEM with the contents of operand i, in its place where that is possible.
static bool vmem_copy_of(EmitContext& ctx, const Kernel& k, size_t i, uint32_t id) {
  Buffer &from = ctx.memory.at(k.reads[i]), &to = ctx.memory.at(k.ops[0]->result(i));
  const bool home_needed = from.must_store && !from.in_hbm;
  if (from.vmem >= 0 && may_take(ctx, k, from) && !ctx.memory.shares(from) && !home_needed) {
    take_vmem(ctx.memory, from, to);
    return true;
  }
  to.vmem = take(ctx, to.bytes).value_or(-1);
  if (to.vmem < 0) {
    return false;
  }
  const spec::Addr src = place_of(from);
  ctx.sink.copy_bytes(src, vmem_addr(to.vmem), to.bytes, elem_bytes(to.value->type.elem), id);
  return true;
}

bool emit_indexed_combine(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  const size_t n = op.results.size();
  const int64_t records = op.operand_type(n).count();
  const int64_t width = op.as<IndexedAttrs>().window[0];
  CombineBody body;
  make_body(op, body);
  ctx.memory.unpin();
  for (const Value* v : k.reads) {
    ctx.memory.pin_too(ctx.memory.at(v));
  }
  std::vector<int64_t> targets;
  std::vector<MemRange> windows;
  const auto note = [&](int64_t address, int64_t bytes, bool write) {
    MemRange r;
    r.lo = address;
    r.hi = address + bytes;
    r.write = write;
    windows.push_back(r);
  };
  int64_t record_bytes = 1;
  for (size_t i = 0; i < n; ++i) {
    Buffer& out = ctx.memory.at(op.result(i));
    ctx.memory.pin_too(out);
    if (!vmem_copy_of(ctx, k, i, id)) {
      return false;
    }
    targets.push_back(out.vmem);
    note(out.vmem, out.bytes, false);
    note(out.vmem, out.bytes, true);
    record_bytes += width * elem_bytes(op.type(i).elem);
  }
  const std::vector<MemRange> target_windows = windows;
  const int64_t piece = std::max<int64_t>(
      1,
      std::min({records, ctx.board.core.smem_kib * 1024 / 8,
                std::min(kUpdatePieceBytes, ctx.board.core.vmem_kib * 1024 / 16) / record_bytes}));
  const Buffer& list = ctx.memory.at(k.reads[n]);
  std::vector<int64_t> slots(n, -1);
  for (size_t i = 0; i < n; ++i) {
    const Buffer& u = ctx.memory.at(k.reads[n + 1 + i]);
    if (u.vmem < 0) {
      slots[i] = take(ctx, piece * width * elem_bytes(u.value->type.elem)).value_or(-1);
      if (slots[i] < 0) {
        return false;
      }
    }
  }
  for (int64_t at = 0; at < records; at += piece) {
    const int64_t now = std::min(piece, records - at);
    std::vector<int64_t> updates;
    windows = target_windows;
    for (size_t i = 0; i < n; ++i) {
      const Buffer& u = ctx.memory.at(k.reads[n + 1 + i]);
      const int64_t bytes = elem_bytes(u.value->type.elem);
      const int64_t from = at * width * bytes, size = now * width * bytes;
      updates.push_back(slots[i] < 0 ? u.vmem + from : slots[i]);
      note(updates.back(), size, false);
      if (slots[i] >= 0) {
        ctx.sink.copy(home_of(u, from), vmem_addr(slots[i]), bytes, {{now * width, bytes, bytes}},
                      id);
      }
    }
    combine_piece(ctx, op, body, place_of(list, 4 * at), now, targets, updates, windows, id);
  }
  for (const int64_t s : slots) {
    if (s >= 0) {
      ctx.memory.give(s);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    Buffer& out = ctx.memory.at(op.result(i));
    if (out.must_store) {
      store(ctx, out, id);
    }
  }
  ctx.memory.unpin();
  return true;
}

}  // namespace tpu::compiler
