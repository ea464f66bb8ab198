// Binding slots of a core: two banks of slot entries (written by the host DMA through the memory
// socket) and the rule that makes an address of an entry. Layout and modes:
// spec/formats/rings.toml.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/ports.hpp"
#include "kernel/local_memory.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {

class Slots : public LocalMemory {
 public:
  struct Range {
    bool ok = false;
    uint64_t base = 0;
    uint64_t size = 0;
  };

  Slots(sc_core::sc_module_name name, uint64_t hbm_bytes)
      : LocalMemory(name, uint64_t{spec::seq::kSlotBanks} * spec::seq::kSlotBankBytes),
        hbm_bytes_(hbm_bytes) {}

  // Where slot `index` lies in this step; not ok when it is unbound.
  Range resolve(const LaunchState& launch, int64_t index) const {
    if (index < 0 || index >= int64_t{launch.slot_count}) {
      return {};
    }
    const tpu_slot_entry_t e = entry(launch.slot_bank, static_cast<uint32_t>(index));
    switch (e.mode) {
      case TPU_SLOT_FIXED:
        return {true, e.base, e.size};
      case TPU_SLOT_INFEED:
      case TPU_SLOT_OUTFEED:
        return {true, e.base + uint64_t{launch.step % e.depth} * e.stride, e.size};
      case TPU_SLOT_PINGPONG:
        return {true, launch.step % 2 == 0 ? e.base : e.alt_base, e.size};
      default:
        return {};
    }
  }

  // HBM of core `owner` whose contents are undefined when the launch starts.
  std::vector<AccessRange> fresh(const LaunchState& launch, uint32_t owner) const {
    std::vector<AccessRange> ranges;
    for (uint32_t i = 0; i < launch.slot_count; ++i) {
      const tpu_slot_entry_t e = entry(launch.slot_bank, i);
      if (e.flags == TPU_SLOT_FLAG_FRESH && entry_ok(e)) {
        ranges.push_back(
            {.owner = owner, .memory = ProbeMemory::kHbm, .low = e.base, .bytes = e.size});
      }
    }
    return ranges;
  }

  // The gang whose rows begin at entry `row`; nothing beyond the bank.
  spec::CoreSet gang(uint32_t bank, uint32_t row, uint32_t rows) const {
    std::vector<uint32_t> words(size_t{std::min(rows, TPU_GANG_ROWS)} * TPU_GANG_ROW_BYTES /
                                sizeof(uint32_t));
    if (row + uint64_t{rows} > spec::seq::kSlotEntries) {
      return {};
    }
    std::memcpy(words.data(),
                data() + uint64_t{bank} * spec::seq::kSlotBankBytes +
                    uint64_t{row} * spec::seq::kSlotEntryBytes,
                words.size() * sizeof(uint32_t));
    return spec::CoreSet(words);
  }

  // First bad entry of [0, count), or count.
  uint32_t check(uint32_t bank, uint32_t count) const {
    for (uint32_t i = 0; i < count; ++i) {
      if (!entry_ok(entry(bank, i))) {
        return i;
      }
    }
    return count;
  }

 private:
  tpu_slot_entry_t entry(uint32_t bank, uint32_t index) const {
    tpu_slot_entry_t e;
    std::memcpy(&e,
                data() + uint64_t{bank} * spec::seq::kSlotBankBytes + uint64_t{index} * sizeof e,
                sizeof e);
    return e;
  }
  bool range_ok(uint64_t base, uint64_t size) const {
    return base % TPU_SLOT_ALIGN == 0 && base <= hbm_bytes_ && size <= hbm_bytes_ - base;
  }
  bool entry_ok(const tpu_slot_entry_t& e) const {
    if (e.flags != 0 && (e.flags != TPU_SLOT_FLAG_FRESH || e.mode != TPU_SLOT_FIXED)) {
      return false;
    }
    if (e.mode == TPU_SLOT_NULL) {
      return true;
    }
    if (!range_ok(e.base, e.size)) {
      return false;
    }
    switch (e.mode) {
      case TPU_SLOT_FIXED:
        return true;
      case TPU_SLOT_INFEED:
      case TPU_SLOT_OUTFEED:
        return e.depth > 0 && range_ok(e.base, e.size + uint64_t{e.depth - 1u} * e.stride);
      case TPU_SLOT_PINGPONG:
        return range_ok(e.alt_base, e.size);
      default:
        return false;
    }
  }

  const uint64_t hbm_bytes_;
};

static_assert(sizeof(tpu_slot_entry_t) == spec::seq::kSlotEntryBytes);

}  // namespace tpu::model
