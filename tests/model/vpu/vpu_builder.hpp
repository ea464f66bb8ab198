// Builds VPU programs and commands for tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "vpu/vpu_kernel.hpp"
#include "vpu_reference.hpp"

namespace tpu::model {

using spec::Elem;
using spec::VpuOp;
using Section = VpuSection;

struct KernelBuilder {
  std::array<std::vector<spec::VpuInsn>, kVpuSections> sections;
  spec::VpuKernelCommand command;
  std::vector<spec::VpuAccess> accesses;
  std::vector<int64_t> bases;
  std::array<uint32_t, 4> scalars{};
  uint16_t registers = kVpuRegisters;

  KernelBuilder() {
    command.loops = {1, 1, 1, 1};
    command.row_loop = 255;
    command.col_loop = 255;
    command.rows = 1;
    command.cols = 1;
  }

  KernelBuilder& flat(uint32_t elements) {
    command.head.flags = command.kFlat;
    command.cols = elements;
    command.col_loop = 3;
    command.loops[3] = (elements + 1023) / 1024;
    return *this;
  }
  /// Rows walked by loop `row_loop`, columns by loop `col_loop`.
  KernelBuilder& shape(uint32_t rows, uint32_t cols, uint8_t row_loop, uint8_t col_loop) {
    command.rows = rows;
    command.cols = cols;
    command.row_loop = row_loop;
    command.col_loop = col_loop;
    command.loops[row_loop] = (rows + 7) / 8;
    command.loops[col_loop] = (cols + 127) / 128;
    return *this;
  }
  uint32_t access(int64_t base, Elem type, std::array<int32_t, 4> loop, int32_t sub, int32_t lane,
                  spec::Space space = spec::Space::kVmem) {
    spec::VpuAccess a;
    a.addr.space = static_cast<uint8_t>(space);
    a.addr.offset = base;
    a.loop = loop;
    a.sub = sub;
    a.lane = lane;
    a.type = static_cast<uint8_t>(type);
    accesses.push_back(a);
    bases.push_back(base);
    return static_cast<uint32_t>(accesses.size() - 1);
  }
  /// Row-major matrix of the command's shape.
  uint32_t matrix(int64_t base, Elem type) {
    const int bytes = vpu_element_bytes(static_cast<uint8_t>(type));
    const auto pitch = static_cast<int32_t>(command.cols) * bytes;
    std::array<int32_t, 4> loop{};
    if (command.row_loop < 4) {
      loop[command.row_loop] = 8 * pitch;
    }
    if (command.col_loop < 4) {
      loop[command.col_loop] = 128 * bytes;
    }
    return access(base, type, loop, pitch, bytes);
  }
  uint32_t vector(int64_t base, Elem type) {  // of a flat kernel
    const int bytes = vpu_element_bytes(static_cast<uint8_t>(type));
    return access(base, type, {0, 0, 0, 1024 * bytes}, 0, bytes);
  }
  void add(Section section, VpuOp op, int rd = 0, int rs1 = 0, int rs2 = 0, uint32_t imm = 0) {
    sections[static_cast<size_t>(section)].push_back(
        {static_cast<uint8_t>(op), static_cast<uint8_t>(rd), static_cast<uint8_t>(rs1),
         static_cast<uint8_t>(rs2), imm});
  }

  std::vector<std::byte> code() const {
    spec::VpuProgramHeader header;
    std::vector<spec::VpuInsn> all;
    for (size_t s = 0; s < kVpuSections; ++s) {
      header.section[s] = static_cast<uint16_t>(sections[s].size());
      all.insert(all.end(), sections[s].begin(), sections[s].end());
    }
    header.registers = registers;
    std::vector<std::byte> bytes(sizeof header + all.size() * sizeof(spec::VpuInsn));
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!all.empty()) {
      std::memcpy(bytes.data() + sizeof header, all.data(), all.size() * sizeof(spec::VpuInsn));
    }
    return bytes;
  }
  VpuProgram program() const { return VpuProgram::decode(code(), 0); }
  VpuKernel kernel(const VpuProgram& decoded) const {
    spec::VpuKernelCommand whole = command;
    whole.accesses = static_cast<uint8_t>(accesses.size());
    return VpuKernel(decoded, whole, accesses, bases, scalars);
  }
  reference::Machine machine(const VpuProgram& decoded, uint8_t* vmem) const {
    return reference::Machine(decoded, command, accesses, bases, scalars, vmem);
  }
};

/// xorshift64*: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
  }
  uint32_t below(uint32_t limit) { return next() % limit; }
  /// Any bit pattern, with small numbers, integers and special values made frequent.
  uint32_t word() {
    static constexpr std::array<uint32_t, 24> kSpecial = {
        0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
        0x7fc00000, 0x7f812345, 0xffc00001, 0x00000001, 0x807fffff, 0x00800000,
        0x80800000, 0x7f7fffff, 0xff7fffff, 0x3f000000, 0xbf000000, 0x4b000000,
        0x4effffff, 0x4f000000, 0xcf000000, 0x4f7fffff, 0x4f800000, 0xffffffff};
    switch (below(4)) {
      case 0:
        return kSpecial[below(kSpecial.size())];
      case 1:
        return next();
      case 2:
        return spec::f32_bits(static_cast<float>(static_cast<int32_t>(next())) / 16777216.0f);
      default:
        return below(40) - 8u;
    }
  }

 private:
  uint64_t state_;
};

}  // namespace tpu::model
