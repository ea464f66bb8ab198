// indexed_combine: windows of targets in VMEM, updated one after the other in the order of the
// list, so that windows that meet see each other's results. The list goes to SMEM; the sequencer
// reads an entry and issues one vector kernel with the addresses of window and update in registers.
// The loop uses the VPU queue alone, in order, and needs no semaphore.
#include <algorithm>

#include "emit/context.hpp"

namespace tpu::compiler {

namespace {

using spec::ScalarOp;

// Registers of the loop.
constexpr int kEntry = kFirstOffsetRegister;       // SMEM address
constexpr int kEnd = kFirstOffsetRegister + 1;     // of the list in SMEM
constexpr int kValue = kFirstOffsetRegister + 2;   // list value: element of the targets
constexpr int kWindow = kFirstOffsetRegister + 3;  // .. + 2: byte offset for elements of 1, 2, 4
constexpr int kUpdate = kFirstOffsetRegister + 6;  // .. + 2: the same of the updates

int size_class(Elem e) { return __builtin_ctzll(static_cast<uint64_t>(elem_bytes(e))); }

// Records of the list that are combined in one loop.
struct CombinePiece {
  spec::Addr list;
  int64_t records;
  std::vector<int64_t> updates;   // VMEM addresses of the first record
  std::vector<MemRange> windows;  // of targets and updates
};

spec::VpuAccess record_access(Elem elem, int64_t base, int reg) {
  const int64_t bytes = elem_bytes(elem);
  spec::VpuAccess a{};
  a.addr = vmem_addr(base);
  a.addr.reg = static_cast<uint8_t>(reg + size_class(elem));
  a.type = static_cast<uint8_t>(isa_elem(elem));
  a.lane = static_cast<int32_t>(bytes);
  a.loop[3] = static_cast<int32_t>(1024 * bytes);
  return a;
}

// The kernel of one record.
void combine_record(CommandSink& sink, const Op& op, const CombinePlan& p,
                    const CombinePiece& piece, uint32_t id) {
  const CombineBody& body = *p.body;
  Command command;
  for (const AccessRole& role : body.code.roles) {
    const auto i = static_cast<size_t>(role.index);
    if (role.kind == AccessRole::Kind::kLoad) {
      const Value* v = body.nest.accesses[i].value;
      const auto arg = static_cast<size_t>(v->index), n = p.targets.size();
      command.accesses.push_back(
          arg < n ? record_access(v->type.elem, p.targets[arg].address, kWindow)
                  : record_access(v->type.elem, piece.updates[arg - n], kUpdate));
    } else if (role.kind == AccessRole::Kind::kStore) {
      const Value* v = body.nest.nodes[i].op->result();
      const auto at = std::find(body.results.begin(), body.results.end(), v);
      const auto target = static_cast<size_t>(at - body.results.begin());
      command.accesses.push_back(record_access(v->type.elem, p.targets[target].address, kWindow));
    } else {
      throw Error("the body of this scatter has no vector form", "stablehlo.scatter", op.loc);
    }
  }
  command.program = sink.listing.add_program(body.code.program);
  command.body = flat_vpu_kernel(p.width, id);
  command.windows = piece.windows;
  sink.append(std::move(command));
}

// Calls fn(log2 of the bytes) for the sizes of elements that occur.
template <typename Fn>
void for_each_size(const Op& op, const Fn& fn) {
  std::array<bool, 3> sizes{};
  for (const auto& arg : op.regions[0]->args) {
    sizes[static_cast<size_t>(size_class(arg->type.elem))] = true;
  }
  for (int s = 0; s < 3; ++s) {
    if (sizes[static_cast<size_t>(s)]) {
      fn(s);
    }
  }
}

// The list to SMEM, then the loop over its records.
void combine_piece(EmitContext& ctx, const Op& op, const CombinePlan& p, const CombinePiece& piece,
                   uint32_t id) {
  CommandSink& sink = ctx.sink;
  const int64_t smem = ctx.board.core.smem_kib * 1024 / 2;
  sink.copy(piece.list, smem_addr(smem), 4, {{piece.records, 4, 4}}, id);
  sink.control(Control::Kind::kDrain);
  sink.load_immediate(kEntry, smem);
  sink.load_immediate(kEnd, smem + 4 * piece.records);
  for (int s = 0; s < 3; ++s) {
    sink.insn(ScalarOp::kLi, kUpdate + s, 0, 0, 0);
  }
  const int top = sink.new_label(), skip = sink.new_label();
  sink.control(Control::Kind::kLoop, -1, piece.records);
  sink.tight(Control::Kind::kLabel, top);
  sink.insn(ScalarOp::kLds32, kValue, kEntry, 0, 0);
  const auto branch_on = [](ScalarOp kind, int rs1, int rs2) {
    return spec::ScalarInsn{static_cast<uint8_t>(kind), 0, static_cast<uint8_t>(rs1),
                            static_cast<uint8_t>(rs2), 0};
  };
  sink.tight(Control::Kind::kBranch, skip, branch_on(ScalarOp::kBneg, kValue, 0));
  for_each_size(op, [&](int s) { sink.insn(ScalarOp::kShli, kWindow + s, kValue, 0, s); });
  combine_record(sink, op, p, piece, id);
  sink.tight(Control::Kind::kLabel, skip);
  for_each_size(op, [&](int s) {
    sink.insn(ScalarOp::kAddi, kUpdate + s, kUpdate + s, 0, static_cast<int32_t>(p.width << s));
  });
  sink.insn(ScalarOp::kAddi, kEntry, kEntry, 0, 4);
  sink.tight(Control::Kind::kBranch, top, branch_on(ScalarOp::kBlt, kEntry, kEnd));
  sink.control(Control::Kind::kEnd);
  // Signals for what comes later stand behind the loop, not in it.
  Command after;
  after.body = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kVpu, id);
  after.windows = piece.windows;
  sink.append(std::move(after));
}

// Records from `at` on; updates that are not in VMEM are loaded.
CombinePiece load_piece(CommandSink& sink, const CombinePlan& p, int64_t at, uint32_t id) {
  CombinePiece piece;
  piece.list = p.list;
  piece.list.offset += 4 * at;
  piece.records = std::min(p.piece_records, p.records - at);
  for (const CombinePlan::Target& t : p.targets) {
    piece.windows.push_back(vmem_range(t.address, t.bytes, false));
    piece.windows.push_back(vmem_range(t.address, t.bytes, true));
  }
  for (const CombinePlan::Updates& u : p.updates) {
    const int64_t elements = piece.records * p.width;
    spec::Addr from = u.from;
    from.offset += at * p.width * u.unit;
    const int64_t here = u.slot < 0 ? static_cast<int64_t>(from.offset) : u.slot;
    piece.updates.push_back(here);
    piece.windows.push_back(vmem_range(here, elements * u.unit, false));
    if (u.slot >= 0) {
      sink.copy(from, vmem_addr(here), u.unit, {{elements, u.unit, u.unit}}, id);
    }
  }
  return piece;
}

}  // namespace

void emit_combine(EmitContext& ctx, const Step& step, const CombinePlan& p) {
  for (int64_t at = 0; at < p.records; at += p.piece_records) {
    combine_piece(ctx, *step.kernel->ops[0], p, load_piece(ctx.sink, p, at, step.op_id),
                  step.op_id);
  }
}

}  // namespace tpu::compiler
