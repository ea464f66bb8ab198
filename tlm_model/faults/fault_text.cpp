// Names of kinds and places, and the draws of an entry.
#include "faults/fault_script.hpp"
#include "random/philox.hpp"

namespace tpu::model {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "hbm",         "tcm",           "core_hang", "hart_trap",    "hart_hang",       "pcie_timeout",
    "pcie_poison", "pcie_lost_msi", "pcie_down", "ring_command", "ring_completion", "link_corrupt",
    "link_down",   "mxu",           "vmem",      "smem",         "board_dies",      "host_dies"};

}  // namespace

std::string_view fault_kind_name(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

FaultHome fault_home(FaultKind kind) {
  switch (kind) {
    case FaultKind::kPcieTimeout:
    case FaultKind::kPciePoison:
    case FaultKind::kPcieLostMsi:
    case FaultKind::kPcieDown:
      return FaultHome::kChip;
    case FaultKind::kLinkCorrupt:
    case FaultKind::kLinkDown:
      return FaultHome::kLink;
    case FaultKind::kBoardDies:
    case FaultKind::kHostDies:
      return FaultHome::kBoard;
    default:
      return FaultHome::kCore;
  }
}

std::string fault_place(FaultKind kind, uint32_t unit) {
  switch (fault_home(kind)) {
    case FaultHome::kCore:
      return "core " + std::to_string(unit);
    case FaultHome::kChip:
      return "chip " + std::to_string(unit);
    case FaultHome::kBoard:
      return "board " + std::to_string(unit);
    case FaultHome::kLink:
      break;
  }
  return "link chip" + std::to_string(unit / kLinksPerChip) + " " +
         std::string(kLinkNames[unit % kLinksPerChip]);
}

std::array<uint32_t, 4> fault_draw(uint64_t seed, const FaultEntry& entry, uint64_t count) {
  return base::philox({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), entry.unit,
                       static_cast<uint32_t>(entry.kind) << 24 | entry.number},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace tpu::model
