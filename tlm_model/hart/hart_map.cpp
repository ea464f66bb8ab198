// Memory map of a control hart: memories, decoded instructions, breakpoints.
#include "hart/hart_map.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace tpu::model {

void HartMap::add_memory(const HartMemory& memory) {
  if (memory.data == nullptr || memory.size_bytes == 0 || memory.size_bytes % 4 != 0 ||
      memory.base % 4 != 0 || memory.size_bytes - 1 > UINT32_MAX - memory.base) {
    throw std::invalid_argument(
        "memory of a hart: expected a word-aligned range below 4 GiB that is not empty");
  }
  for (const Region& region : regions_) {
    if (memory.base - region.memory.base < region.memory.size_bytes ||
        region.memory.base - memory.base < memory.size_bytes) {
      throw std::invalid_argument("memory of a hart: the range overlaps another memory");
    }
  }
  Region region;
  region.memory = memory;
  if (memory.executable) {
    region.code.resize(memory.size_bytes / 2 + 1);
    region.code.back().op = HartOp::kRegionEnd;
  }
  regions_.push_back(std::move(region));
  if (memory.writable && !memory.executable && data_.data == nullptr) {
    data_ = memory;
  }
}

HartMap::Region* HartMap::find(uint32_t addr, uint32_t size_bytes) {
  return const_cast<Region*>(std::as_const(*this).find(addr, size_bytes));
}

const HartMap::Region* HartMap::find(uint32_t addr, uint32_t size_bytes) const {
  for (const Region& region : regions_) {
    const uint32_t offset = addr - region.memory.base;
    if (offset < region.memory.size_bytes && region.memory.size_bytes - offset >= size_bytes) {
      return &region;
    }
  }
  return nullptr;
}

bool HartMap::in_window(uint32_t addr, uint32_t size_bytes) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    const uint32_t offset = addr - window.base;
    return offset < window.size_bytes && window.size_bytes - offset >= size_bytes;
  });
}

DecodedInsn HartMap::decode_at(const Region& region, uint32_t addr) const {
  const uint32_t offset = addr - region.memory.base;
  uint16_t low = 0;
  std::memcpy(&low, region.memory.data + offset, sizeof low);
  DecodedInsn insn;
  uint32_t raw = low;
  if ((low & 3U) == 3U) {
    if (region.memory.size_bytes - offset < 4) {  // the second half is outside of the memory
      insn.op = HartOp::kFetchFault;
      insn.imm = 2;
      return insn;
    }
    std::memcpy(&raw, region.memory.data + offset, sizeof raw);
    insn = decode_rv32(raw, addr);
    insn.halfwords = 2;
  } else {
    insn = decode_rv32(expand_rvc(low), addr);
    insn.halfwords = 1;
  }
  insn.raw = raw;
  switch (insn.op) {
    case HartOp::kLb:
    case HartOp::kLh:
    case HartOp::kLw:
    case HartOp::kLbu:
    case HartOp::kLhu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.load_cycles);
      break;
    case HartOp::kMul:
    case HartOp::kMulh:
    case HartOp::kMulhsu:
    case HartOp::kMulhu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.mul_cycles);
      break;
    case HartOp::kDiv:
    case HartOp::kDivu:
    case HartOp::kRem:
    case HartOp::kRemu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.div_cycles);
      break;
    case HartOp::kJalFar:
    case HartOp::kJalr:
      insn.cycles = static_cast<uint16_t>(1 + timing_.taken_branch_cycles);
      break;
    default:
      break;
  }
  const uint32_t target = offset + static_cast<uint32_t>(insn.imm);
  if (insn.op == HartOp::kJalFar && target < region.memory.size_bytes) {
    insn.op = HartOp::kJal;
    insn.imm /= 2;
  } else if (insn.op == HartOp::kBranchFar && target < region.memory.size_bytes) {
    constexpr HartOp kBranches[8] = {HartOp::kBeq, HartOp::kBne, HartOp::kIllegal, HartOp::kIllegal,
                                     HartOp::kBlt, HartOp::kBge, HartOp::kBltu,    HartOp::kBgeu};
    const uint32_t word = insn.halfwords == 2 ? raw : expand_rvc(low);
    insn.op = kBranches[(word >> 12) & 7U];
    insn.imm /= 2;
  }
  if (std::find(breakpoints_.begin(), breakpoints_.end(), addr) != breakpoints_.end()) {
    insn.real_op = insn.op;
    insn.op = HartOp::kBreakpoint;
  }
  return insn;
}

void HartMap::drop_decoded(Region& region, uint32_t addr, uint32_t size_bytes) {
  if (region.code.empty() || size_bytes == 0) {
    return;
  }
  const uint32_t offset = addr - region.memory.base;
  const uint32_t first = offset / 2;
  const uint32_t last = (offset + size_bytes - 1) / 2;
  // One halfword earlier too: a long instruction may begin there.
  for (uint32_t i = first == 0 ? 0 : first - 1; i <= last; ++i) {
    if (region.code[i].op != HartOp::kUndecoded) {  // else memory that may never have been touched
      region.code[i].op = HartOp::kUndecoded;
    }
  }
  drop_code(region, first, last);
}

void HartMap::changed(uint32_t addr, uint32_t size_bytes) {
  for (Region& region : regions_) {
    const uint64_t begin = std::max<uint64_t>(addr, region.memory.base);
    const uint64_t end = std::min(uint64_t{addr} + size_bytes,
                                  uint64_t{region.memory.base} + region.memory.size_bytes);
    if (begin < end) {
      drop_decoded(region, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin));
    }
  }
}

HartMap::Access HartMap::load(uint32_t addr, uint32_t size_bytes, uint32_t& value) const {
  if (const Region* region = find(addr, size_bytes)) {
    value = 0;
    std::memcpy(&value, region->memory.data + (addr - region->memory.base), size_bytes);
    return Access::kDone;
  }
  return in_window(addr, size_bytes) ? Access::kMmio : Access::kFault;
}

HartMap::Access HartMap::store(uint32_t addr, uint32_t size_bytes, uint32_t value) {
  if (Region* region = find(addr, size_bytes)) {
    if (!region->memory.writable) {
      return Access::kFault;
    }
    std::memcpy(region->memory.data + (addr - region->memory.base), &value, size_bytes);
    drop_decoded(*region, addr, size_bytes);
    return Access::kDone;
  }
  return in_window(addr, size_bytes) ? Access::kMmio : Access::kFault;
}

void HartMap::set_breakpoint(uint32_t addr) {
  if (std::find(breakpoints_.begin(), breakpoints_.end(), addr) == breakpoints_.end()) {
    breakpoints_.push_back(addr);
    changed(addr, 2);
  }
}

void HartMap::clear_breakpoint(uint32_t addr) {
  std::erase(breakpoints_, addr);
  changed(addr, 2);
}

bool HartMap::read(uint32_t addr, std::span<uint8_t> data) const {
  const Region* region = find(addr, static_cast<uint32_t>(data.size()));
  if (region != nullptr) {
    std::copy_n(region->memory.data + (addr - region->memory.base), data.size(), data.begin());
  }
  return region != nullptr;
}

bool HartMap::write(uint32_t addr, std::span<const uint8_t> data) {
  Region* region = find(addr, static_cast<uint32_t>(data.size()));
  if (region != nullptr) {
    std::ranges::copy(data, region->memory.data + (addr - region->memory.base));
    drop_decoded(*region, addr, static_cast<uint32_t>(data.size()));
  }
  return region != nullptr;
}

}  // namespace tpu::model
