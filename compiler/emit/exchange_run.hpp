// One exchange by halving on its way: pieces follow each other through the stages, and the way back
// of the sums, or of what an update makes of them. Private to emit_halving.cpp, emit_update.cpp
// and emit_collective.cpp.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "emit/emitter.hpp"
#include "kernel/exchange.hpp"

namespace tpu::compiler {

// The part of one value that lies in a piece.
struct Share {
  size_t value = 0;  // index into reads and writes of the kernel
  int64_t from = 0, bytes = 0;
  int64_t at = 0;  // in the piece
};

// A command of an update, made once and repeated for every piece.
struct UpdateCommand {
  const UpdateKernel* kernel = nullptr;
  std::vector<AccessRole> roles;
  int program = -1;
};

struct ExchangeRun {
  struct Part {
    std::vector<Share> shares;
    int64_t used = 0;     // bytes; the rest of the piece is zero
    int64_t element = 0;  // of the value, with an update
    const Update* update = nullptr;
    std::array<int, 3> granted{};                // items that grant the landing areas
    std::vector<std::array<int, 3>> back_grant;  // and the way back of each gathered value
  };

  const Kernel* kernel = nullptr;
  Exchange exchange;
  int64_t bytes = 0;  // of a piece
  int64_t unit = 4;   // of an element
  uint8_t type = 0;
  int program = -1;  // own + arrived
  uint32_t id = 0;
  int64_t lag = 1;        // rounds from a send to its arrival
  bool in_place = false;  // results stay in the buckets
  std::vector<Part> parts;

  std::vector<int64_t> buckets;                 // ring of pieces
  std::array<std::vector<int64_t>, 3> landing;  // ring of each stage
  std::vector<std::vector<int64_t>> back;       // ring of each gathered value of an update
  std::vector<std::vector<int64_t>> slots;      // ring of parts of each operand of an update
  std::map<const Update*, std::vector<UpdateCommand>> commands;  // for look-up only
  std::map<const Value*, int64_t> scalars;                       // VMEM address; look-up only
  std::vector<int64_t> memory;                                   // VMEM to give back
  int64_t round = 0;

  int64_t stages() const { return static_cast<int64_t>(exchange.stages()); }
  int64_t part_bytes() const { return bytes >> stages(); }
  int64_t rounds() const { return static_cast<int64_t>(parts.size()) + 1 + 2 * stages() * lag; }
  int64_t bucket(int64_t i) const { return buckets[static_cast<size_t>(i) % buckets.size()]; }
  // Bytes that travel back: of the sum, or of the gathered values of the update.
  size_t ways_back(int64_t i) const {
    const Part& p = parts[static_cast<size_t>(i)];
    return p.update == nullptr ? 1 : p.update->gathered.size();
  }
};

MemRange vmem_range(int64_t address, int64_t bytes, bool write);
spec::Addr offset_by(spec::Addr a, int reg);

// Scalar registers of the running exchange, one for each stage.
inline constexpr int kWholeRegister = kFirstOffsetRegister;            // bytes to the half kept
inline constexpr int kSentRegister = kFirstOffsetRegister + 3;         // bytes to the half sent
inline constexpr int kStagePeerRegister = kFirstOffsetRegister + 6;    // partner
inline constexpr int kStageBitRegister = kFirstOffsetRegister + 9;     // 0: keeps the first half
inline constexpr int kTemporaryRegister = kFirstOffsetRegister + 12;   // and the next
inline constexpr int kOtherWholeRegister = kFirstOffsetRegister + 14;  // as kWholeRegister, for
                                                                       // elements of the other size

}  // namespace tpu::compiler
