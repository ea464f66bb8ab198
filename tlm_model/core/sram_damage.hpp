// Damaged words of a core's VMEM and SMEM (kernel/bit_damage.hpp), and the fault of who reads what
// ECC cannot correct. Empty without a fault file. Kernel thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/ports.hpp"
#include "kernel/bit_damage.hpp"
#include "probe/events.hpp"

namespace tpu::model {

class SramDamage {
 public:
  struct Word {
    ProbeMemory memory = ProbeMemory::kVmem;
    uint64_t address = 0;
  };
  using Bad = std::optional<Word>;
  // A word was read, and whether ECC could correct it.
  using Read = std::function<void(const Word& word, bool corrected)>;

  // Bits can flip from here on.
  void watch(const Read& read);
  // Some word is damaged.
  bool any() const {
    return memories_[0] != nullptr && !(memories_[0]->empty() && memories_[1]->empty());
  }
  // Of a core that is watched.
  BitDamage& of(ProbeMemory memory) { return *memories_[static_cast<size_t>(memory)]; }

  // Bytes of VMEM, SMEM or (no matter) HBM of this core are read or written: a word that they read
  // and that ECC cannot correct.
  Bad touch(const AccessRange& run);
  // The same of all that a command of core `core` touches; what follows a bad word is not reached.
  Bad touch(uint32_t core, const std::function<void(const RangeVisitor&)>& walk);
  void written(ProbeMemory memory, uint64_t address, uint64_t bytes) {
    if (any()) {
      of(memory).written(address, bytes);
    }
  }

 private:
  std::array<std::unique_ptr<BitDamage>, 2> memories_;  // VMEM, SMEM; null without a fault file
};

// The fault of a read; `info`: of the command or instruction that reads.
FaultInfo sram_fault(FaultInfo info, const SramDamage::Word& word);
std::string sram_fault_text(const SramDamage::Word& word);

}  // namespace tpu::model
