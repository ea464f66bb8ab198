// What a control hart sees at addresses: its memories, with their decoded instructions and host
// code, and the windows of its devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hart/hart_code.hpp"
#include "hart/hart_insn.hpp"
#include "types/zeroed_vector.hpp"

namespace tpu::model {

// Hart cycles that an instruction costs beyond its one base cycle.
struct HartTiming {
  uint32_t taken_branch_cycles;
  uint32_t load_cycles;
  uint32_t mul_cycles;
  uint32_t div_cycles;
};

// Memory that the hart reaches without the bus. `data` must outlive the hart and hold `size_bytes`.
struct HartMemory {
  uint32_t base;
  uint32_t size_bytes;  // multiple of 4
  uint8_t* data;
  bool writable;
  bool executable;
};

class HartMap {
 public:
  struct Region {
    HartMemory memory;
    // One entry a halfword and one end mark; empty if not executable.
    ZeroedVector<DecodedInsn> code;
    // By halfword as well, of the first coded_bytes(); empty without host code.
    std::vector<const void*> entries;
    std::vector<uint8_t> visits;  // from outside of code; kNoCode: none can begin here
  };
  enum class Access : uint8_t { kDone, kMmio, kFault };

  explicit HartMap(const HartTiming& timing) : timing_(timing) {}

  // Wrong sizes and overlaps throw std::invalid_argument.
  void add_memory(const HartMemory& memory);
  void add_window(uint32_t base, uint32_t size_bytes) { windows_.push_back({base, size_bytes}); }
  void use_code(HartCode& code);
  const HartCode* code() const { return code_; }
  // The writable data memory: checked first by loads and stores.
  const HartMemory& data() const { return data_; }

  const Region* find(uint32_t addr, uint32_t size_bytes) const;
  Region* find(uint32_t addr, uint32_t size_bytes);
  DecodedInsn decode_at(const Region& region, uint32_t addr) const;
  // Code of the run that begins at a halfword, or null: the interpreter does it.
  const void* find_code(Region& region, uint32_t index);

  Access load(uint32_t addr, uint32_t size_bytes, uint32_t& value) const;
  Access store(uint32_t addr, uint32_t size_bytes, uint32_t value);
  // Bytes of the memories; false: not inside of one. Read-only memory is written too.
  bool read(uint32_t addr, std::span<uint8_t> data) const;
  bool write(uint32_t addr, std::span<const uint8_t> data);
  // Somebody else wrote memory: decoded instructions of the range are dropped.
  void changed(uint32_t addr, uint32_t size_bytes);
  void set_breakpoint(uint32_t addr);
  void clear_breakpoint(uint32_t addr);

 private:
  static constexpr uint8_t kNoCode = UINT8_MAX;
  struct Window {
    uint32_t base;
    uint32_t size_bytes;
  };

  bool in_window(uint32_t addr, uint32_t size_bytes) const;
  void drop_decoded(Region& region, uint32_t addr, uint32_t size_bytes);
  // Makes entries for this many bytes of the memory.
  void make_entries(Region& region, uint32_t bytes);
  static uint32_t coded_bytes(const Region& region) {
    return static_cast<uint32_t>(2 * region.entries.size());
  }
  void drop_code(Region& region, uint32_t first, uint32_t last);
  const void* make_code(Region& region, uint32_t index);

  const HartTiming timing_;
  std::vector<Region> regions_;
  std::vector<Window> windows_;
  std::vector<uint32_t> breakpoints_;
  HartCode* code_ = nullptr;
  HartMemory data_{};
};

}  // namespace tpu::model
