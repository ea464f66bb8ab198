// A fault file (SimOptions::faults_path): what fails, where and when. Format: docs/faults.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::model {

enum class FaultKind : uint8_t {
  kHbm,
  kTcm,
  kCoreHang,
  kHartTrap,
  kHartHang,
  kPcieTimeout,
  kPciePoison,
  kPcieLostMsi,
  kPcieDown,
  kRingCommand,
  kRingCompletion,
  kLinkCorrupt,
  kLinkDown,
};
inline constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kLinkDown) + 1;

// As in the file: "hbm".
std::string_view fault_kind_name(FaultKind kind);

enum class FaultHome : uint8_t { kCore, kChip, kLink };
FaultHome fault_home(FaultKind kind);

// When an entry happens. All but rates happen once.
struct FaultTime {
  enum class Kind : uint8_t { kCycle, kStep, kLaunch, kOp, kRatePerStep, kRatePerLaunch };
  Kind kind = Kind::kCycle;
  uint64_t number = 0;  // cycle, step, launch id; of an op: its nth command, from 1
  uint64_t cycles = 0;  // behind that
  std::string op{};
  double rate = 0;
};

// Where in a memory.
struct FaultAddress {
  enum class Kind : uint8_t { kRandom, kOffset, kSlot, kRandomSlot };
  Kind kind = Kind::kRandom;
  uint32_t slot = 0;
  uint64_t offset = 0;
};

struct FaultEntry {
  FaultKind kind = FaultKind::kHbm;
  uint32_t number = 0;  // in the file, from 1
  uint32_t line = 0;
  uint32_t unit = 0;    // core, chip, or kLinksPerChip * chip + link (spec/regs/chip_page.toml)
  uint32_t engine = 0;  // kCoreHang: spec::Queue, or kSequencerUnit
  uint32_t bits = 1;
  uint64_t repeats = 1;       // kLinkCorrupt: windows
  uint64_t microseconds = 0;  // kLinkDown: until it comes back; 0: never
  FaultTime time{};
  FaultAddress address{};
  std::string when{};  // as in the file
};

struct FaultScript {
  uint64_t seed = 0;
  bool ecc = true;  // of HBM
  std::vector<FaultEntry> entries;
};

inline constexpr uint32_t kLinksPerChip = 4;
inline constexpr std::array<std::string_view, kLinksPerChip> kLinkNames = {"+x", "-x", "+y", "-y"};

// The unit of an entry: "core 3", "chip 1", "link chip1 +x".
std::string fault_place(FaultKind kind, uint32_t unit);
inline std::string fault_place(const FaultEntry& entry) {
  return fault_place(entry.kind, entry.unit);
}

// Of a unit that is a chip or leaves one.
inline uint32_t fault_chip(FaultKind kind, uint32_t unit) {
  return fault_home(kind) == FaultHome::kLink ? unit / kLinksPerChip : unit;
}

// Four random words for one draw of an entry; `count` numbers its draws. Depends on nothing else.
std::array<uint32_t, 4> fault_draw(uint64_t seed, const FaultEntry& entry, uint64_t count);

// `seed`: in place of the file's, unless 0. Throws std::runtime_error that names the file, the line
// and what to do, for all that does not fit to the board.
FaultScript load_fault_script(const std::string& path, uint64_t seed,
                              const spec::BoardParams& params);
// The same of a text; `file` names it in errors.
FaultScript parse_fault_script(const std::string& text, const std::string& file, uint64_t seed,
                               const spec::BoardParams& params);

}  // namespace tpu::model
