// Control hart: which runs of instructions have host code.
#include <algorithm>

#include "hart/hart_map.hpp"

namespace tpu::model {
namespace {

// That have entries from the beginning: more than a firmware's instructions. Others come with the
// first run that begins behind them.
constexpr uint32_t kFirstCodedBytes = 16384;

}  // namespace

void HartMap::use_code(HartCode& code) {
  code_ = &code;
  for (Region& region : regions_) {
    if (!region.code.empty()) {
      make_entries(region, std::min(region.memory.size_bytes, kFirstCodedBytes));
    }
  }
}

void HartMap::make_entries(Region& region, uint32_t bytes) {
  region.entries.resize(bytes / 2, code_->miss());
  region.visits.resize(bytes / 2, 0);
}

// Of runs that have an instruction in one of these halfwords.
void HartMap::drop_code(Region& region, uint32_t first, uint32_t last) {
  const auto before = static_cast<uint32_t>(kMostRunHalfwords);
  const uint32_t begin = first - std::min(first, before);
  const uint32_t end = std::min(last + 1, static_cast<uint32_t>(region.entries.size()));
  if (begin < end) {
    std::fill(region.entries.begin() + begin, region.entries.begin() + end, code_->miss());
    std::fill(region.visits.begin() + begin, region.visits.begin() + end, uint8_t{0});
  }
}

// Null: the interpreter does it. A run has code once it has been looked for often.
const void* HartMap::find_code(Region& region, uint32_t index) {
  if (index >= region.entries.size()) {
    make_entries(region, region.memory.size_bytes);
  }
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
  const HartPlace place{region.memory.base, region.memory.size_bytes, coded_bytes(region),
                        data_.base,         data_.size_bytes,         timing_.taken_branch_cycles};
  const void* const made =
      code_->run_at(place, region.memory.base + 2 * index, std::span(run).first(count));
  if (made != nullptr) {
    region.entries[index] = made;
  }
  return made;
}

}  // namespace tpu::model
