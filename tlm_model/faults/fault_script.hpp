// A fault file (SimOptions::faults_path): what fails, where and when. Format: docs/faults.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::model {

// A new kind is the last one: draws depend on the number.
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
  kMxu,
  kVmem,
  kSmem,
  kBoardDies,
  kHostDies,
};
inline constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kHostDies) + 1;

// As in the file: "hbm".
std::string_view fault_kind_name(FaultKind kind);

enum class FaultHome : uint8_t { kCore, kChip, kLink, kBoard };
FaultHome fault_home(FaultKind kind);

// When an entry happens. All but rates happen once.
struct FaultTime {
  // "5", or "2..9": one of them, which the seed chooses.
  struct Number {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  enum class Kind : uint8_t { kCycle, kStep, kLaunch, kOp, kRatePerStep, kRatePerLaunch };
  Kind kind = Kind::kCycle;
  uint64_t number = 0;  // cycle, step, launch id; of an op: its nth command, from 1
  uint64_t cycles = 0;  // behind that
  Number number_range{};
  Number cycles_range{};
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
  uint32_t unit = 0;    // core, chip, kLinksPerChip * chip + link (spec/regs/chip_page.toml), board
  uint32_t chip = 0;    // that has it; of a board the first
  uint32_t engine = 0;  // kCoreHang: spec::Queue, or kSequencerUnit; kMxu: spec::Queue
  uint32_t bits = 1;
  std::optional<uint32_t> bit{};  // which one; none: any
  uint64_t commands = 1;          // kMxu: that have a wrong result
  uint64_t repeats = 1;           // kLinkCorrupt: windows
  uint64_t microseconds = 0;      // kLinkDown: until it comes back; 0: never
  FaultTime time{};
  FaultAddress address{};
  std::string when{};  // as in the file
};

struct FaultScript {
  uint64_t seed = 0;
  bool ecc = true;      // of HBM, VMEM and SMEM
  uint32_t digest = 0;  // of the text and the seed: equal for equal faults; not 0
  std::vector<FaultEntry> entries;
  std::vector<uint32_t> boards;  // by chip
};

inline constexpr uint32_t kLinksPerChip = 4;
inline constexpr std::array<std::string_view, kLinksPerChip> kLinkNames = {"+x", "-x", "+y", "-y"};

// The unit of an entry: "core 3", "chip 1", "link chip1 +x", "board 0".
std::string fault_place(FaultKind kind, uint32_t unit);
inline std::string fault_place(const FaultEntry& entry) {
  return fault_place(entry.kind, entry.unit);
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
