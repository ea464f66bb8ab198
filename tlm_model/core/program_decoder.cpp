// What a command's descriptor means: plans, extents, costs; and every rule whose breach is a
// DESCRIPTOR fault.
#include "core/program_decoder.hpp"

#include <algorithm>
#include <cstring>

#include "core/overlap.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model {
namespace {

using Wide = __int128;
constexpr int64_t kOffsetLimit = int64_t{1} << 60;

void mark_bad(DecodedCommand& command, uint32_t detail, std::string text) {
  if (command.bad == 0) {
    command.bad = detail;
    command.bad_text = std::move(text);
  }
}

// Accumulates the reach of counted strides without overflow.
class ExtentSum {
 public:
  void add(uint64_t count, int64_t stride) {
    if (count == 0) {
      return;
    }
    const Wide reach = static_cast<Wide>(count - 1) * stride;
    (reach < 0 ? low_ : high_) += reach;
  }
  void add_bytes(Wide bytes) { high_ += bytes; }
  ByteExtent get() const { return {clamp(low_), clamp(high_)}; }

 private:
  static int64_t clamp(Wide v) {
    return static_cast<int64_t>(std::clamp<Wide>(v, -kOffsetLimit, kOffsetLimit));
  }
  Wide low_ = 0;
  Wide high_ = 0;
};

template <typename T>
T load_struct(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_vmem(const spec::Addr& a) { return a.space == static_cast<uint8_t>(spec::Space::kVmem); }
bool is_hbm(const spec::Addr& a) { return a.space == static_cast<uint8_t>(spec::Space::kHbm); }
bool is_local(const spec::Addr& a) {
  return is_vmem(a) || a.space == static_cast<uint8_t>(spec::Space::kSmem);
}

const spec::CommandInfo* command_info(uint8_t opcode) {
  for (const spec::CommandInfo& info : spec::kCommands) {
    if (static_cast<uint8_t>(info.opcode) == opcode) {
      return &info;
    }
  }
  return nullptr;
}

bool is_scalar_op(uint8_t op) {
  return std::ranges::any_of(spec::kScalarInsns, [op](const spec::ScalarInfo& info) {
    return static_cast<uint8_t>(info.op) == op;
  });
}

template <size_t kCount>
std::array<int64_t, kCount> widen(const std::array<uint32_t, kCount>& in) {
  std::array<int64_t, kCount> out{};
  std::ranges::copy(in, out.begin());
  return out;
}
template <size_t kCount>
std::array<int64_t, kCount> widen(const std::array<int32_t, kCount>& in) {
  std::array<int64_t, kCount> out{};
  std::ranges::copy(in, out.begin());
  return out;
}

// Product of counts, 0 if any is 0, limited so that later arithmetic cannot overflow.
template <typename Counts>
Wide product(const Counts& counts) {
  Wide total = 1;
  for (const auto count : counts) {
    total = std::min<Wide>(total * count, Wide{1} << 80);
  }
  return total;
}

constexpr Wide kMaxElements = Wide{1} << 44;

}  // namespace

ProgramDecoder::ProgramDecoder(Program& program, const spec::BoardParams& params)
    : program_(program), params_(params), shape_(spec::mxu_shape(params)) {}

ProgramItem ProgramDecoder::decode_item(uint32_t word) {
  ProgramItem item;
  const std::byte* bytes = program_.code_.data() + size_t{word} * 8;
  const size_t left = program_.code_.size() - size_t{word} * 8;
  const auto op = std::to_integer<uint8_t>(*bytes);
  if (op >= 32) {
    item.insn = load_struct<spec::ScalarInsn>(bytes);
    item.next = word + 1;
    const bool registers_ok = item.insn.rd < 32 && item.insn.rs2 < 32;  // rs1 may name a semaphore
    const bool named_sem = item.insn.op == static_cast<uint8_t>(spec::ScalarOp::kSwait) ||
                           item.insn.op == static_cast<uint8_t>(spec::ScalarOp::kSsignal);
    const bool rs1_ok = named_sem ? item.insn.rs1 < params_.core.semaphores : item.insn.rs1 < 32;
    if (is_scalar_op(op) && registers_ok && rs1_ok) {
      item.kind = ProgramItem::Kind::kScalar;
    }
    return item;
  }
  const spec::CommandInfo* info = command_info(op);
  if (info == nullptr || left < sizeof(spec::CommandHeader)) {
    return item;
  }
  const auto head = load_struct<spec::CommandHeader>(bytes);
  if (head.words < sizeof head / 8 || size_t{head.words} * 8 > left) {
    return item;
  }
  item.kind = ProgramItem::Kind::kCommand;
  item.next = word + head.words;
  item.command = static_cast<uint32_t>(program_.commands_.size());
  decode_command(word, program_.commands_.emplace_back());
  return item;
}

void ProgramDecoder::decode_command(uint32_t word, DecodedCommand& command) {
  const std::byte* bytes = program_.code_.data() + size_t{word} * 8;
  const auto head = load_struct<spec::CommandHeader>(bytes);
  command.pc = word;
  command.op_id = head.op_id;
  command.opcode = static_cast<spec::Opcode>(head.opcode);
  command.queue = head.queue;
  command.wait = head.wait;
  command.signal = head.signal;
  check_header(head, command);
  const spec::CommandInfo& info = *command_info(head.opcode);
  uint32_t expected = static_cast<uint32_t>(info.bytes) / 8;
  if (command.opcode == spec::Opcode::kVpuKernel &&
      size_t{head.words} * 8 >= sizeof(spec::VpuKernelCommand)) {
    expected += load_struct<spec::VpuKernelCommand>(bytes).accesses *
                static_cast<uint32_t>(sizeof(spec::VpuAccess) / 8);
  }
  if (head.words != expected) {
    mark_bad(command, spec::fault::kDetailLength,
             "command of " + std::to_string(head.words) + " words, " + std::to_string(expected) +
                 " expected");
    return;
  }
  decode_body(head, bytes, command);
}

void ProgramDecoder::decode_body(const spec::CommandHeader& head, const std::byte* bytes,
                                 DecodedCommand& command) {
  switch (static_cast<spec::Opcode>(head.opcode)) {
    case spec::Opcode::kNop:
      break;
    case spec::Opcode::kMatmul:
      decode_matmul(load_struct<spec::MatmulCommand>(bytes), command);
      break;
    case spec::Opcode::kVpuKernel:
      decode_vpu(bytes, command);
      break;
    case spec::Opcode::kTranspose:
      decode_transpose(load_struct<spec::TransposeCommand>(bytes), command);
      break;
    case spec::Opcode::kDma:
      decode_dma(load_struct<spec::DmaCommand>(bytes), command);
      break;
    case spec::Opcode::kFill:
      decode_fill(load_struct<spec::FillCommand>(bytes), command);
      break;
    case spec::Opcode::kDmaIndexed:
      decode_indexed(load_struct<spec::DmaIndexedCommand>(bytes), command);
      break;
  }
}

void ProgramDecoder::check_header(const spec::CommandHeader& head, DecodedCommand& command) const {
  const spec::CommandInfo& info = *command_info(head.opcode);
  const bool missing =
      head.queue == static_cast<uint8_t>(spec::Queue::kMxu1) && params_.core.mxus < 2;
  if (head.queue >= spec::kQueueCount || (info.queue_mask >> head.queue & 1) == 0 || missing) {
    mark_bad(command, spec::fault::kDetailOpcodeQueue,
             std::string(info.name) + " on queue " + std::to_string(head.queue));
  }
  const auto semaphores = static_cast<uint32_t>(params_.core.semaphores);
  for (const spec::Wait& wait : head.wait) {
    if (wait.valid() && wait.sem >= semaphores) {
      mark_bad(command, spec::fault::kDetailSemaphore,
               "waits for semaphore " + std::to_string(wait.sem));
    }
  }
  for (const spec::Signal& signal : head.signal) {
    const bool remote = signal.remote();
    if (signal.valid() &&
        (signal.sem >= semaphores ||
         (remote && head.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote)))) {
      mark_bad(
          command, spec::fault::kDetailSemaphore,
          "signals semaphore " + std::to_string(signal.sem) + (remote ? " of another core" : ""));
    }
    if (signal.valid() && remote && signal.peer_reg >= 32) {
      mark_bad(command, spec::fault::kDetailRegister, "peer register above 31");
    }
  }
}

void ProgramDecoder::add_operand(DecodedCommand& command, const spec::Addr& address) const {
  command.operand_reg[static_cast<size_t>(command.operands++)] = address.reg;
  if (address.reg >= 32) {
    mark_bad(command, spec::fault::kDetailRegister, "address register above 31");
  }
  if (address.offset > kOffsetLimit || address.offset < -kOffsetLimit) {
    mark_bad(command, spec::fault::kDetailType, "operand offset out of any range");
  }
}

void ProgramDecoder::check_cycles(DecodedCommand& command, Wide cycles) const {
  const Wide limit = static_cast<Wide>(params_.mgmt.watchdog_us) * params_.core.clock_mhz;
  if (cycles > limit) {
    mark_bad(command, spec::fault::kDetailType,
             "the counts make a command of " + std::to_string(static_cast<double>(cycles)) +
                 " cycles, longer than the watchdog (" +
                 std::to_string(static_cast<int64_t>(limit)) + ")");
  }
}

void ProgramDecoder::check_repeats(DecodedCommand& command, const StridePattern& written) const {
  if (command.bad == 0 && repeats_bytes(written)) {
    mark_bad(command, spec::fault::kDetailOverlap,
             "the strides of the destination write some bytes twice");
  }
}

// A transfer writes every byte at most once, so that memories bound its work. How long it takes is
// no error: time with a command in flight counts as progress.
void ProgramDecoder::check_box(DecodedCommand& command, const std::array<uint32_t, 5>& counts,
                               const std::array<int64_t, 5>& dst_strides,
                               uint32_t elem_bytes) const {
  StridePattern written(0, elem_bytes);
  for (size_t i = 0; i < counts.size(); ++i) {
    written.add(counts[i], dst_strides[i]);
    if (counts[i] > 1 && dst_strides[i] == 0) {
      mark_bad(command, spec::fault::kDetailType, "a destination stride of 0 repeats writes");
    }
  }
  check_repeats(command, written);
}

void ProgramDecoder::decode_matmul(const spec::MatmulCommand& c, DecodedCommand& command) {
  for (const spec::Addr* address : {&c.out, &c.lhs, &c.rhs}) {
    add_operand(command, *address);
    if (!is_vmem(*address)) {
      mark_bad(command, spec::fault::kDetailSpace, "matmul operands lie in VMEM");
    }
  }
  const auto type_ok = [](uint8_t t) {
    return t == static_cast<uint8_t>(spec::Elem::kF32) ||
           t == static_cast<uint8_t>(spec::Elem::kBf16);
  };
  if (!type_ok(c.lhs_type) || !type_ok(c.rhs_type)) {
    mark_bad(command, spec::fault::kDetailType, "matmul operands are f32 or bf16");
  }
  const Wide rows = product(c.m), taps = product(c.t), k = product(c.k), n = product(c.n);
  if (rows > kMaxElements || taps > kMaxElements || k > kMaxElements || n > kMaxElements ||
      rows * n > kMaxElements || taps * k > kMaxElements) {
    mark_bad(command, spec::fault::kDetailType, "matmul larger than any memory");
  }
  command.empty = rows == 0 || taps == 0 || k == 0 || n == 0;
  if (command.bad == 0 && !command.empty) {
    const Wide tiles = taps * ((k + shape_.rows - 1) / shape_.rows) * c.n[0] *
                       ((c.n[1] + shape_.cols - 1) / shape_.cols);
    check_cycles(command, std::min(tiles, kMaxElements) *
                              spec::mxu_interval(shape_, static_cast<uint64_t>(rows)));
  }
  if (command.bad != 0 || command.empty) {
    return;
  }
  MatmulPlan plan;
  MxuJob& job = plan.job;
  job.lhs_is_bf16 = c.lhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
  job.rhs_is_bf16 = c.rhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
  job.accumulate = c.accumulate();
  job.rhs_transposed = c.rhs_transposed();
  job.m_count = widen(c.m), job.m_lhs_stride = widen(c.m_lhs), job.m_out_stride = widen(c.m_out);
  job.t_count = widen(c.t), job.t_lhs_stride = widen(c.t_lhs), job.t_rhs_stride = widen(c.t_rhs);
  job.k_count = widen(c.k), job.k_rhs_stride = widen(c.k_rhs);
  job.n_count = widen(c.n), job.n_rhs_stride = widen(c.n_rhs), job.n_out_stride = widen(c.n_out);
  ExtentSum out, lhs, rhs;
  for (size_t i = 0; i < 4; ++i) {
    out.add(c.m[i], c.m_out[i]);
    lhs.add(c.m[i], c.m_lhs[i]);
  }
  for (size_t i = 0; i < 3; ++i) {
    lhs.add(c.t[i], c.t_lhs[i]);
    rhs.add(c.t[i], c.t_rhs[i]);
    rhs.add(c.k[i], c.k_rhs[i]);
  }
  for (size_t i = 0; i < 2; ++i) {
    rhs.add(c.n[i], c.n_rhs[i]);
    out.add(c.n[i], c.n_out[i]);
  }
  out.add_bytes(4);
  lhs.add_bytes(k * job.lhs_element());
  rhs.add_bytes(job.rhs_element());
  plan.out = {c.out, out.get()};
  plan.lhs = {c.lhs, lhs.get()};
  plan.rhs = {c.rhs, rhs.get()};
  plan.timing = spec::matmul_timing(shape_, c);
  plan.flops = static_cast<uint64_t>(2 * rows * n * taps * k);
  check_repeats(command, matmul_out_pattern(job, 0));
  command.plan = std::move(plan);
}

const VpuProgram* ProgramDecoder::vpu_program(uint32_t offset) {
  auto it = program_.vpu_programs_.find(offset);
  if (it == program_.vpu_programs_.end()) {
    it = program_.vpu_programs_.emplace(offset, VpuProgram::decode(program_.code_, offset)).first;
  }
  return &it->second;
}

void ProgramDecoder::decode_vpu(const std::byte* bytes, DecodedCommand& command) {
  VpuPlan plan;
  plan.command = load_struct<spec::VpuKernelCommand>(bytes);
  if (plan.command.accesses > kVpuMaxAccesses) {
    return mark_bad(command, spec::fault::kDetailVpuProgram,
                    "more accesses than a kernel may have");
  }
  std::vector<int64_t> bases;
  for (size_t i = 0; i < plan.command.accesses; ++i) {
    plan.accesses.push_back(load_struct<spec::VpuAccess>(bytes + sizeof(spec::VpuKernelCommand) +
                                                         i * sizeof(spec::VpuAccess)));
    const spec::Addr& address = plan.accesses.back().addr;
    add_operand(command, address);
    bases.push_back(address.offset);
    plan.dynamic = plan.dynamic || address.reg != 0;
    if (address.space != static_cast<uint8_t>(spec::Space::kNone) && !is_vmem(address)) {
      mark_bad(command, spec::fault::kDetailSpace, "VPU operands lie in VMEM");
    }
  }
  for (size_t i = 0; i < command.scalar_reg.size(); ++i) {
    command.scalar_reg[i] = plan.command.scalar[i];
    plan.dynamic = plan.dynamic || command.scalar_reg[i] != 0;
    if (command.scalar_reg[i] >= 32) {
      mark_bad(command, spec::fault::kDetailRegister, "scalar register above 31");
    }
  }
  if (command.bad != 0) {
    return;
  }
  try {
    plan.program = vpu_program(plan.command.program);
    VpuKernel kernel(*plan.program, plan.command, plan.accesses, bases, {});
    const std::string loops = kernel.check_loops();
    if (!loops.empty()) {
      return mark_bad(command, spec::fault::kDetailVpuProgram, loops);
    }
    plan.cycles = spec::vpu_cycles(params_, plan.command, plan.accesses, plan.program->sections());
    // Instructions without a slot cost no cycle, but a loop's turn is never free of work.
    check_cycles(command, std::max(plan.cycles.free_at,
                                   kernel.executions(static_cast<int>(VpuSection::kBody))));
    if (command.bad != 0) {
      return;
    }
    if (!plan.dynamic) {
      const std::string error = kernel.check(static_cast<uint64_t>(params_.core.vmem_kib) * 1024);
      if (!error.empty()) {
        return mark_bad(command, spec::fault::kDetailVpuProgram, error);
      }
      plan.fixed.emplace(std::move(kernel));
    }
  } catch (const VpuError& error) {
    return mark_bad(command, spec::fault::kDetailVpuProgram, error.what());
  }
  command.plan = std::move(plan);
}

void ProgramDecoder::decode_transpose(const spec::TransposeCommand& c, DecodedCommand& command) {
  for (const spec::Addr* address : {&c.src, &c.dst}) {
    add_operand(command, *address);
    if (!is_vmem(*address)) {
      mark_bad(command, spec::fault::kDetailSpace, "transpose operands lie in VMEM");
    }
  }
  if (c.elem_bytes != 1 && c.elem_bytes != 2 && c.elem_bytes != 4 && c.elem_bytes != 8) {
    mark_bad(command, spec::fault::kDetailType,
             "element of " + std::to_string(c.elem_bytes) + " bytes");
  }
  const Wide elements = product(std::array{c.batch, c.rows, c.cols});
  if (elements > kMaxElements) {
    mark_bad(command, spec::fault::kDetailType, "transpose larger than any memory");
  }
  command.empty = elements == 0;
  if (command.bad != 0 || command.empty) {
    return;
  }
  TransposePlan plan;
  plan.shape = {.elem_bytes = c.elem_bytes,
                .batch = c.batch,
                .rows = c.rows,
                .cols = c.cols,
                .src_pitch = c.src_pitch,
                .dst_pitch = c.dst_pitch,
                .src_batch = c.src_batch,
                .dst_batch = c.dst_batch};
  ExtentSum src, dst;
  src.add(c.batch, c.src_batch);
  src.add(c.rows, c.src_pitch);
  src.add_bytes(static_cast<Wide>(c.cols) * c.elem_bytes);
  dst.add(c.batch, c.dst_batch);
  dst.add(c.cols, c.dst_pitch);
  dst.add_bytes(static_cast<Wide>(c.rows) * c.elem_bytes);
  plan.src = {c.src, src.get()};
  plan.dst = {c.dst, dst.get()};
  plan.cycles = spec::transpose_cycles(params_, c);
  check_cycles(command, plan.cycles.free_at);
  check_repeats(command, transpose_dst_pattern(plan.shape, 0));
  command.plan = plan;
}

void ProgramDecoder::check_dma_spaces(DecodedCommand& command, const DmaPlan& plan) const {
  const spec::Addr& src = plan.src.address;
  const spec::Addr& dst = plan.dst.address;
  const auto queue = static_cast<spec::Queue>(command.queue);
  const bool src_ok = plan.is_fill || is_hbm(src) || is_local(src);
  bool ok = src_ok && (is_hbm(dst) || is_local(dst));
  if (queue == spec::Queue::kDmaIn) {
    ok = ok && is_local(dst);
  } else if (queue == spec::Queue::kDmaOut) {
    ok = ok && is_hbm(dst);
  }
  if (!ok) {
    mark_bad(command, spec::fault::kDetailSpace, "this DMA queue does not reach these memories");
  }
}

void ProgramDecoder::decode_dma(const spec::DmaCommand& c, DecodedCommand& command) {
  add_operand(command, c.src);
  add_operand(command, c.dst);
  DmaPlan plan;
  plan.remote = command.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote);
  plan.src.address = c.src;
  plan.dst.address = c.dst;
  command.peer_reg = c.peer_reg;
  if (plan.remote && c.peer_reg >= 32) {
    mark_bad(command, spec::fault::kDetailRegister, "peer register above 31");
  }
  check_dma_spaces(command, plan);
  const Wide elements = product(c.counts);
  const auto stride_ok = [](int64_t s) { return s < kOffsetLimit && s > -kOffsetLimit; };
  if ((c.elem_bytes != 1 && c.elem_bytes != 2 && c.elem_bytes != 4 && c.elem_bytes != 8) ||
      elements > kMaxElements || !std::ranges::all_of(c.src_strides, stride_ok) ||
      !std::ranges::all_of(c.dst_strides, stride_ok)) {
    mark_bad(command, spec::fault::kDetailType, "element size, counts or strides");
  }
  command.empty = elements == 0;
  if (command.bad != 0 || command.empty) {
    return;
  }
  ExtentSum src, dst;
  for (size_t i = 0; i < c.counts.size(); ++i) {
    src.add(c.counts[i], c.src_strides[i]);
    dst.add(c.counts[i], c.dst_strides[i]);
  }
  src.add_bytes(c.elem_bytes);
  dst.add_bytes(c.elem_bytes);
  plan.src.extent = src.get();
  plan.dst.extent = dst.get();
  plan.box = spec::transfer_box(c);
  plan.bytes = spec::transfer_bytes(params_, c);
  plan.fixed_cycles =
      spec::transfer_fixed_cycles(params_, is_hbm(c.src), is_hbm(c.dst), plan.remote);
  check_box(command, c.counts, c.dst_strides, c.elem_bytes);
  command.plan = plan;
}

void ProgramDecoder::decode_fill(const spec::FillCommand& c, DecodedCommand& command) {
  add_operand(command, c.dst);
  DmaPlan plan;
  plan.is_fill = true;
  plan.pattern = c.pattern;
  plan.dst.address = c.dst;
  check_dma_spaces(command, plan);
  const Wide elements = product(c.counts);
  const auto stride_ok = [](int64_t s) { return s < kOffsetLimit && s > -kOffsetLimit; };
  if ((c.elem_bytes != 1 && c.elem_bytes != 2 && c.elem_bytes != 4 && c.elem_bytes != 8) ||
      elements > kMaxElements || !std::ranges::all_of(c.dst_strides, stride_ok)) {
    mark_bad(command, spec::fault::kDetailType, "element size, counts or strides");
  }
  command.empty = elements == 0;
  if (command.bad != 0 || command.empty) {
    return;
  }
  ExtentSum dst;
  for (size_t i = 0; i < c.counts.size(); ++i) {
    dst.add(c.counts[i], c.dst_strides[i]);
  }
  dst.add_bytes(c.elem_bytes);
  plan.dst.extent = dst.get();
  plan.box = spec::transfer_box(c);
  plan.bytes = spec::transfer_bytes(params_, c);
  plan.fixed_cycles = spec::transfer_fixed_cycles(params_, false, is_hbm(c.dst), plan.remote);
  check_box(command, c.counts, c.dst_strides, c.elem_bytes);
  command.plan = plan;
}

// The indexed side is bounded by its span, whatever the list says; every record is checked at
// start.
void ProgramDecoder::decode_indexed(const spec::DmaIndexedCommand& c, DecodedCommand& command) {
  IndexedPlan plan;
  DmaPlan& transfer = plan.transfer;
  for (const spec::Addr* address : {&c.src, &c.dst, &c.list}) {
    add_operand(command, *address);
  }
  transfer.src.address = c.src;
  transfer.dst.address = c.dst;
  plan.list.address = c.list;
  check_dma_spaces(command, transfer);
  if (!is_vmem(c.list)) {
    mark_bad(command, spec::fault::kDetailSpace, "the list of an indexed transfer lies in VMEM");
  }
  plan.scatter = c.scatter();
  plan.records = c.records;
  plan.unit = c.unit;
  plan.record_stride = c.record_stride;
  plan.span = c.span;
  const auto stride_ok = [](int64_t s) { return s < kOffsetLimit && s > -kOffsetLimit; };
  const Wide elements = product(c.counts);
  if ((c.elem_bytes != 1 && c.elem_bytes != 2 && c.elem_bytes != 4 && c.elem_bytes != 8) ||
      elements * c.records > kMaxElements || !std::ranges::all_of(c.src_strides, stride_ok) ||
      !std::ranges::all_of(c.dst_strides, stride_ok) || !stride_ok(c.record_stride) || c.span < 0 ||
      c.span >= kOffsetLimit) {
    mark_bad(command, spec::fault::kDetailType, "element size, counts, strides or span");
  }
  command.empty = elements == 0 || c.records == 0;
  if (command.bad != 0 || command.empty) {
    return;
  }
  const auto& indexed_strides = plan.scatter ? c.dst_strides : c.src_strides;
  const auto& other_strides = plan.scatter ? c.src_strides : c.dst_strides;
  ExtentSum indexed, other;
  std::array<uint32_t, 5> counts{1, 1, 1, 1, 1};
  std::array<int64_t, 5> dst{};
  for (size_t i = 0; i < c.counts.size(); ++i) {
    indexed.add(c.counts[i], indexed_strides[i]);
    other.add(c.counts[i], other_strides[i]);
    counts[i + 1] = c.counts[i];
    dst[i + 1] = c.dst_strides[i];
  }
  other.add(c.records, c.record_stride);
  indexed.add_bytes(c.elem_bytes);
  other.add_bytes(c.elem_bytes);
  plan.window = indexed.get();
  plan.list.extent = {0, int64_t{4} * c.records};
  (plan.scatter ? transfer.dst : transfer.src).extent = {0, c.span};
  (plan.scatter ? transfer.src : transfer.dst).extent = other.get();
  transfer.box = spec::transfer_box(c);
  transfer.bytes = spec::transfer_bytes(params_, c);
  transfer.fixed_cycles =
      spec::transfer_fixed_cycles(params_, is_hbm(c.src), is_hbm(c.dst), transfer.remote);
  if (!plan.scatter) {
    dst[0] = c.record_stride;
    counts[0] = c.records;
  }
  check_box(command, counts, dst, c.elem_bytes);
  if (elements * c.records * c.elem_bytes > static_cast<Wide>(params_.hbm.gib_per_core) << 30) {
    mark_bad(command, spec::fault::kDetailType, "the records are more than HBM holds");
  }
  command.plan = plan;
}

}  // namespace tpu::model
