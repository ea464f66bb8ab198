// Hand encoding of core programs for tests: commands and scalar instructions appended word by word,
// VPU programs placed behind the code, and the image header in front.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tpu/spec/isa.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::model::test {

inline spec::Addr vmem(int64_t offset, uint8_t reg = 0) {
  return {.space = static_cast<uint8_t>(spec::Space::kVmem), .reg = reg, .offset = offset};
}
inline spec::Addr smem(int64_t offset, uint8_t reg = 0) {
  return {.space = static_cast<uint8_t>(spec::Space::kSmem), .reg = reg, .offset = offset};
}
inline spec::Addr hbm(uint16_t slot, int64_t offset, uint8_t reg = 0, uint8_t slot_reg = 0) {
  return {.space = static_cast<uint8_t>(spec::Space::kHbm),
          .reg = reg,
          .slot = slot,
          .slot_reg = slot_reg,
          .offset = offset};
}

inline spec::VpuInsn vpu_insn(spec::VpuOp op, uint8_t rd, uint8_t rs1, uint8_t rs2, uint32_t imm) {
  return {static_cast<uint8_t>(op), rd, rs1, rs2, imm};
}

// Waits and signals of a command.
struct Sync {
  std::vector<spec::Wait> waits;
  std::vector<spec::Signal> signals;

  Sync& wait(uint8_t sem, uint16_t value = 1) {
    waits.push_back({.sem = sem, .flags = spec::Wait::kValid | spec::Wait::kTake, .value = value});
    return *this;
  }
  Sync& signal(uint8_t sem, uint8_t value = 1) {
    signals.push_back({.sem = sem, .flags = spec::Signal::kValid, .value = value});
    return *this;
  }
  Sync& remote(uint8_t sem, uint8_t peer_reg, uint8_t value = 1) {
    signals.push_back({.sem = sem,
                       .flags = spec::Signal::kValid | spec::Signal::kRemote,
                       .value = value,
                       .peer_reg = peer_reg});
    return *this;
  }
};

class ProgramBuilder {
 public:
  uint32_t here() const { return static_cast<uint32_t>(words_.size()); }

  void scalar(spec::ScalarOp op, uint8_t rd = 0, uint8_t rs1 = 0, uint8_t rs2 = 0,
              int32_t imm = 0) {
    append(spec::ScalarInsn{static_cast<uint8_t>(op), rd, rs1, rs2, imm});
  }
  void li(uint8_t rd, int32_t imm) { scalar(spec::ScalarOp::kLi, rd, 0, 0, imm); }
  void halt() { scalar(spec::ScalarOp::kHalt); }
  // Patches the target of the branch at `word`.
  void set_target(uint32_t word, uint32_t target) {
    auto insn = std::bit_cast<spec::ScalarInsn>(words_[word]);
    insn.imm = static_cast<int32_t>(target);
    words_[word] = std::bit_cast<uint64_t>(insn);
  }

  template <typename Command>
  void command(Command c, spec::Opcode opcode, spec::Queue queue, const Sync& sync,
               uint8_t flags = 0) {
    head(c.head, opcode, queue, sync, sizeof c / 8, flags);
    append(c);
  }
  void nop(spec::Queue queue, const Sync& sync) {
    command(spec::NopCommand{}, spec::Opcode::kNop, queue, sync);
  }

  // Dense box of `bytes` contiguous bytes.
  void copy(spec::Queue queue, spec::Addr src, spec::Addr dst, uint32_t bytes, const Sync& sync,
            uint8_t peer_reg = 0) {
    spec::DmaCommand c;
    c.src = src, c.dst = dst, c.elem_bytes = 1, c.peer_reg = peer_reg;
    c.counts = {1, 1, 1, 1, bytes};
    c.src_strides = c.dst_strides = {0, 0, 0, 0, 1};
    command(c, spec::Opcode::kDma, queue, sync);
  }
  // Dense f32 matmul out[m, n] = lhs[m, k] * rhs[k, n].
  void matmul(spec::Queue queue, int64_t out, int64_t lhs, int64_t rhs, uint32_t m, uint32_t k,
              uint32_t n, const Sync& sync, bool accumulate = false) {
    spec::MatmulCommand c;
    c.out = vmem(out), c.lhs = vmem(lhs), c.rhs = vmem(rhs);
    c.m = {1, 1, 1, m};
    c.m_lhs = {0, 0, 0, static_cast<int32_t>(4 * k)};
    c.m_out = {0, 0, 0, static_cast<int32_t>(4 * n)};
    c.t = {1, 1, 1};
    c.k = {1, 1, k};
    c.k_rhs = {0, 0, static_cast<int32_t>(4 * n)};
    c.n = {1, n};
    c.n_rhs = c.n_out = {0, 4};
    command(c, spec::Opcode::kMatmul, queue, sync, accumulate ? c.kAccumulate : 0);
  }
  void transpose(int64_t src, int64_t dst, uint32_t rows, uint32_t cols, const Sync& sync) {
    spec::TransposeCommand c;
    c.src = vmem(src), c.dst = vmem(dst);
    c.elem_bytes = 4, c.rows = rows, c.cols = cols, c.batch = 1;
    c.src_pitch = static_cast<int32_t>(4 * cols);
    c.dst_pitch = static_cast<int32_t>(4 * rows);
    command(c, spec::Opcode::kTranspose, spec::Queue::kXlu, sync);
  }
  // A kernel by hand: `program` is placed behind the code, with `header`.
  void kernel(spec::VpuKernelCommand c, const std::vector<spec::VpuAccess>& accesses,
              const spec::VpuProgramHeader& header, std::vector<spec::VpuInsn> program,
              const Sync& sync, uint8_t flags = 0) {
    c.accesses = static_cast<uint8_t>(accesses.size());
    head(c.head, spec::Opcode::kVpuKernel, spec::Queue::kVpu, sync,
         (sizeof c + accesses.size() * sizeof(spec::VpuAccess)) / 8, flags);
    vpu_fixups_.push_back({here(), header, std::move(program)});
    append(c);
    for (const spec::VpuAccess& access : accesses) {
      append(access);
    }
  }
  // Flat kernel over `elements` f32: out = op(in), one unary operation.
  void unary_kernel(spec::VpuOp op, int64_t in, int64_t out, uint32_t elements, const Sync& sync,
                    uint8_t in_reg = 0) {
    using spec::VpuOp;
    spec::VpuKernelCommand c;
    c.row_loop = 255, c.col_loop = 3;
    c.loops = {1, 1, 1, (elements + 1023) / 1024};
    c.rows = 1, c.cols = elements;
    std::vector<spec::VpuAccess> access(2);
    access[0].addr = vmem(in, in_reg);
    access[1].addr = vmem(out);
    for (spec::VpuAccess& a : access) {
      a.loop = {0, 0, 0, 4096};
      a.lane = 4;
      a.type = static_cast<uint8_t>(spec::Elem::kF32);
    }
    spec::VpuProgramHeader header;
    header.section[4] = 3;
    header.registers = 2;
    kernel(c, access, header,
           {vpu_insn(VpuOp::kLoad, 0, 0, 0, 0), vpu_insn(op, 1, 0, 0, 0),
            vpu_insn(VpuOp::kStore, 0, 1, 0, 1)},
           sync, 1);
  }

  // Code with VPU programs appended, header in front.
  std::vector<uint8_t> image(uint32_t slots = 0) {
    std::vector<uint64_t> code = words_;
    for (const auto& [word, header, program] : vpu_fixups_) {
      const auto offset = static_cast<uint32_t>(code.size() * 8);
      std::memcpy(
          reinterpret_cast<uint8_t*>(&code[word]) + offsetof(spec::VpuKernelCommand, program),
          &offset, sizeof offset);
      append_to(code, header);
      for (const spec::VpuInsn& insn : program) {
        append_to(code, insn);
      }
    }
    tpu_program_image_header_t h{};
    h.magic = TPU_PROGRAM_MAGIC;
    h.isa_version = spec::kIsaVersion;
    h.header_bytes = sizeof h;
    h.code_bytes = static_cast<uint32_t>(code.size() * 8);
    h.slots = slots;
    std::vector<uint8_t> bytes(sizeof h + h.code_bytes);
    std::memcpy(bytes.data(), &h, sizeof h);
    std::memcpy(bytes.data() + sizeof h, code.data(), h.code_bytes);
    return bytes;
  }

 private:
  template <typename T>
  static void append_to(std::vector<uint64_t>& words, const T& item) {
    static_assert(sizeof item % 8 == 0);
    const size_t at = words.size();
    words.resize(at + sizeof item / 8);
    std::memcpy(&words[at], &item, sizeof item);
  }
  template <typename T>
  void append(const T& item) {
    append_to(words_, item);
  }
  static void head(spec::CommandHeader& h, spec::Opcode opcode, spec::Queue queue, const Sync& sync,
                   size_t words, uint8_t flags) {
    h.opcode = static_cast<uint8_t>(opcode);
    h.queue = static_cast<uint8_t>(queue);
    h.words = static_cast<uint8_t>(words);
    h.flags = flags;
    h.op_id = next_op_id()++;
    std::copy(sync.waits.begin(), sync.waits.end(), h.wait.begin());
    std::copy(sync.signals.begin(), sync.signals.end(), h.signal.begin());
  }
  static uint32_t& next_op_id() {
    static uint32_t id = 100;
    return id;
  }

  std::vector<uint64_t> words_;
  struct VpuProgram {
    uint32_t word;  // of its command
    spec::VpuProgramHeader header;
    std::vector<spec::VpuInsn> code;
  };
  std::vector<VpuProgram> vpu_fixups_;
};

}  // namespace tpu::model::test
