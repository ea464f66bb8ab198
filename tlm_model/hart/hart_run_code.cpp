// Control hart: which runs of instructions have host code.
#include <algorithm>

#include "hart/hart_map.hpp"

namespace tpu::model {

void HartMap::use_code(HartCode& code) {
  code_ = &code;
  for (Region& region : regions_) {
    if (!region.code.empty()) {
      region.entries.assign(region.code.size(), code.miss());
      region.visits.assign(region.code.size(), 0);
    }
  }
}

// Of runs that have an instruction in one of these halfwords.
void HartMap::drop_code(Region& region, uint32_t first, uint32_t last) {
  if (region.entries.empty()) {
    return;
  }
  const auto before = static_cast<uint32_t>(kMostRunHalfwords);
  const uint32_t begin = first - std::min(first, before);
  std::fill(region.entries.begin() + begin, region.entries.begin() + last + 1, code_->miss());
  std::fill(region.visits.begin() + begin, region.visits.begin() + last + 1, uint8_t{0});
}

// Null: the interpreter does it. A run has code once it has been looked for often.
const void* HartMap::find_code(Region& region, uint32_t index) {
  const void* const entry = region.entries[index];
  if (entry != code_->miss()) {
    return entry;
  }
  uint8_t& visits = region.visits[index];
  if (visits == kNoCode || ++visits < code_->threshold()) {
    return nullptr;
  }
  visits = kNoCode;
  return make_code(region, index);
}

const void* HartMap::make_code(Region& region, uint32_t index) {
  std::array<DecodedInsn, kMostRunInsns> run;
  size_t count = 0;
  for (uint32_t at = index; count < run.size() && at + 1 < region.code.size();) {
    DecodedInsn& insn = region.code[at];
    if (insn.op == HartOp::kUndecoded) {
      insn = decode_at(region, region.memory.base + 2 * at);
    }
    if (!code_has(insn.op)) {
      break;
    }
    run[count++] = insn;
    at += insn.halfwords;
    if (code_ends_with(insn.op)) {
      break;
    }
  }
  if (count == 0) {
    return nullptr;
  }
  const HartPlace place{region.memory.base, region.memory.size_bytes, data_.base, data_.size_bytes,
                        timing_.taken_branch_cycles};
  const void* const made =
      code_->run_at(place, region.memory.base + 2 * index, std::span(run).first(count));
  if (made != nullptr) {
    region.entries[index] = made;
  }
  return made;
}

}  // namespace tpu::model
