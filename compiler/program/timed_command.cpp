// Decoding of commands into what they cost.
#include "program/timed_command.hpp"

#include <algorithm>
#include <cstring>

#include "command/operands.hpp"

namespace tpu::compiler {
namespace {

void transfer(const spec::BoardParams& board, bool src_hbm, const spec::Addr& dst,
              spec::TransferBytes bytes, TimedCommand& out) {
  out.transfer = true;
  out.remote = out.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote);
  out.out = dst;
  out.src_hbm = src_hbm;
  out.dst_hbm = spec::is_hbm(dst);
  out.bytes = bytes.carried();
  out.fixed_cycles = spec::transfer_fixed_cycles(board, out.src_hbm, out.dst_hbm, out.remote);
  out.work.hbm_read_bytes = out.src_hbm ? bytes.src : 0;
  out.work.hbm_written_bytes = out.dst_hbm ? bytes.dst : 0;
}

// All but loads, stores and immediates.
uint64_t computing(std::span<const spec::VpuInsn> section) {
  return static_cast<uint64_t>(std::ranges::count_if(section, [](const spec::VpuInsn& insn) {
    const spec::VpuOpInfo& info = spec::kVpuOps[insn.op - 1u];
    return info.alu != 0 || info.trans != 0 || info.reduce != 0;
  }));
}

}  // namespace

TimedProgram::TimedProgram(std::span<const std::byte> code, const spec::BoardParams& board)
    : code_(code), board_(board), shape_(spec::mxu_shape(board)), of_word_(code.size() / 8, -1) {}

template <typename T>
T TimedProgram::read(size_t at) const {
  T value{};
  std::memcpy(&value, code_.data() + at, std::min(sizeof value, code_.size() - at));
  return value;
}

spec::ScalarInsn TimedProgram::scalar(size_t word) const {
  return read<spec::ScalarInsn>(word * 8);
}

const TimedCommand& TimedProgram::command(size_t word) {
  if (of_word_[word] < 0) {
    of_word_[word] = static_cast<int32_t>(commands_.size());
    commands_.push_back(decode(word * 8));
  }
  return commands_[static_cast<size_t>(of_word_[word])];
}

TimedCommand TimedProgram::decode(size_t at) const {
  const auto head = read<spec::CommandHeader>(at);
  TimedCommand out;
  out.queue = head.queue;
  out.wait = head.wait;
  out.signal = head.signal;
  const auto of = [&](const auto& c, auto fill) {
    out.nop = spec::is_empty(c);
    if (!out.nop) {
      fill(c);
    }
  };
  switch (static_cast<spec::Opcode>(head.opcode)) {
    case spec::Opcode::kMatmul:
      of(read<spec::MatmulCommand>(at), [&](const spec::MatmulCommand& c) {
        const spec::MxuCommandTiming timing = spec::matmul_timing(shape_, c);
        out.cycles = {timing.free_at, timing.done_at};
        out.load = timing.load;
        out.matmul = true;
        out.accumulate = c.accumulate();
        out.out = c.out;
        out.out_extent = spec::operands(c)[0].bytes.extent();
      });
      break;
    case spec::Opcode::kVpuKernel:
      out.nop = false;  // an empty kernel has the cost of its start
      vpu(at, out);
      break;
    case spec::Opcode::kTranspose:
      of(read<spec::TransposeCommand>(at),
         [&](const spec::TransposeCommand& c) { out.cycles = spec::transpose_cycles(board_, c); });
      break;
    case spec::Opcode::kDma:
      of(read<spec::DmaCommand>(at), [&](const spec::DmaCommand& c) {
        transfer(board_, spec::is_hbm(c.src), c.dst, spec::transfer_bytes(board_, c), out);
        out.out_extent = spec::operands(c)[1].bytes.extent();
        out.peer_reg = c.peer_reg;
        out.work.link_bytes = out.remote ? spec::transfer_box(c).total_bytes : 0;
      });
      break;
    case spec::Opcode::kFill:
      of(read<spec::FillCommand>(at), [&](const spec::FillCommand& c) {
        transfer(board_, false, c.dst, spec::transfer_bytes(board_, c), out);
        out.out_extent = spec::operands(c)[0].bytes.extent();
      });
      break;
    case spec::Opcode::kDmaIndexed:
      of(read<spec::DmaIndexedCommand>(at), [&](const spec::DmaIndexedCommand& c) {
        transfer(board_, spec::is_hbm(c.src), c.dst, spec::transfer_bytes(board_, c), out);
        out.out_extent = spec::operands(c)[1].bytes.extent();
      });
      break;
    default:
      break;
  }
  return out;
}

void TimedProgram::vpu(size_t at, TimedCommand& out) const {
  const auto c = read<spec::VpuKernelCommand>(at);
  std::array<spec::VpuAccess, 256> accesses;
  for (size_t i = 0; i < c.accesses; ++i) {
    accesses[i] = read<spec::VpuAccess>(at + sizeof c + i * sizeof(spec::VpuAccess));
  }
  const auto header = read<spec::VpuProgramHeader>(c.program);
  size_t count = 0;
  for (const uint16_t section : header.section) {
    count += section;
  }
  std::vector<spec::VpuInsn> insns(count);
  for (size_t i = 0; i < count; ++i) {
    insns[i] = read<spec::VpuInsn>(c.program + sizeof header + i * sizeof(spec::VpuInsn));
  }
  const spec::VpuSectionSpans sections = spec::vpu_sections(header, insns);
  out.cycles = spec::vpu_cycles(board_, c, std::span(accesses).first(c.accesses), sections);
  const auto block = static_cast<uint64_t>(board_.vpu.sublanes * board_.vpu.lanes);
  for (int s = 0; s < spec::kVpuSections; ++s) {
    out.work.vector_ops +=
        block * computing(sections[static_cast<size_t>(s)]) * spec::vpu_executions(c, s);
  }
}

}  // namespace tpu::compiler
