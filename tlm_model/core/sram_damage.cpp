// Damage of VMEM and SMEM.
#include "core/sram_damage.hpp"

#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

void SramDamage::watch(const Read& read) {
  for (const ProbeMemory memory : {ProbeMemory::kVmem, ProbeMemory::kSmem}) {
    memories_[static_cast<size_t>(memory)] =
        std::make_unique<BitDamage>([read, memory](uint64_t address, bool corrected) {
          read({memory, address}, corrected);
        });
  }
}

SramDamage::Bad SramDamage::touch(const AccessRange& run) {
  if (run.memory == ProbeMemory::kHbm) {
    return std::nullopt;
  }
  BitDamage& damage = of(run.memory);
  if (run.write) {
    damage.written(run.low, run.bytes);
    return std::nullopt;
  }
  const std::optional<uint64_t> bad = damage.read(run.low, run.bytes);
  return bad ? Bad({run.memory, *bad}) : std::nullopt;
}

SramDamage::Bad SramDamage::touch(uint32_t core,
                                  const std::function<void(const RangeVisitor&)>& walk) {
  Bad bad;
  walk([&](const AccessRange& run) {
    if (run.owner == core && !bad) {
      bad = touch(run);
    }
  });
  return bad;
}

FaultInfo sram_fault(FaultInfo info, const SramDamage::Word& word) {
  info.code = TPU_FAULT_SRAM_ECC;
  info.detail =
      word.memory == ProbeMemory::kVmem ? spec::fault::kDetailVmem : spec::fault::kDetailSmem;
  info.address = word.address;
  info.length = BitDamage::kWordBytes;
  return info;
}

std::string sram_fault_text(const SramDamage::Word& word) {
  return "ECC cannot correct the word at " + std::to_string(word.address) + " of " +
         (word.memory == ProbeMemory::kVmem ? "VMEM" : "SMEM") + ", which is read";
}

}  // namespace tpu::model
