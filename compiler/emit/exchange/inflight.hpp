// The exchange in flight, by halving: pieces follow each other through the stages, and the way back
// of the sums, or of what an update makes of them.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "emit/context.hpp"
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

// own + arrived: the program of a reduction and its element type.
struct SumProgram {
  int program = -1;
  uint8_t type = 0;
  int64_t elem_bytes = 4;
};

inline constexpr int kMaxStages = 4;  // of the cores of a board

struct InflightExchange {
  struct Part {
    std::vector<Share> shares;
    int64_t used = 0;     // bytes; the rest of the piece is zero
    int64_t element = 0;  // of the value, with an update
    const Update* update = nullptr;
    std::array<int, kMaxStages> granted{};                // items that grant the landing areas
    std::vector<std::array<int, kMaxStages>> back_grant;  // and the way back of each gathered value
  };

  const Kernel* kernel = nullptr;
  Exchange exchange;
  int64_t bytes = 0;  // of a piece
  int64_t unit = 4;   // of an element
  SumProgram sum;
  uint32_t id = 0;
  int64_t lag = 1;        // rounds from a send to its arrival
  bool in_place = false;  // results stay in the buckets
  std::vector<Part> parts;

  std::vector<int64_t> buckets;                          // ring of pieces
  std::array<std::vector<int64_t>, kMaxStages> landing;  // ring of each stage
  std::vector<std::vector<int64_t>> back;                // ring of each gathered value of an update
  std::vector<std::vector<int64_t>> slots;  // ring of parts of each operand of an update
  std::map<const Update*, std::vector<UpdateCommand>> commands;  // for look-up only
  std::map<const Value*, int64_t> scalars;                       // VMEM address; look-up only
  std::vector<int64_t> memory;                                   // VMEM to give back
  int64_t round = 0;
  // Of the listing, what pace() has seen: items, busy cycles of the queues.
  size_t paced_items = 0;
  std::array<uint64_t, spec::kQueueCount> paced_busy{};

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

// Area that a piece uses on its way back, and the size of its elements.
struct BackArea {
  int64_t address, bytes, unit;
};

// inflight.cpp. False: too little VMEM.
[[nodiscard]] bool start_inflight(EmitContext& ctx, const Kernel& k);
// Lets the exchange in flight go on by as many rounds as the commands since the last call take.
void pace(EmitContext& ctx);
void finish_inflight(EmitContext& ctx);
// True if the kernel reads what the exchange makes, or writes memory that it uses.
bool needs_inflight(EmitContext& ctx, const Kernel& k);

// all_reduce.cpp
SumProgram sum_program(CommandSink& sink, const Op& op);
// out = a (op) b, dense. Windows stand in for addresses with a register.
void combine(CommandSink& sink, const SumProgram& p, const spec::Addr& a, const spec::Addr& b,
             const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows, uint32_t id);

// halving.cpp
bool take_memory(Residency& memory, InflightExchange& r);  // for all pieces in flight
// Partner and half of every stage; where the halves lie in a piece.
void stage_registers(CommandSink& sink, const Exchange& e);
void half_registers(CommandSink& sink, const InflightExchange& r);
// Register with the offset of what the core holds after stage `stage`, for elements of `unit`.
int whole_register(const InflightExchange& r, int64_t stage, int64_t unit);
BackArea back_area(const InflightExchange& r, int64_t i, size_t way);
void run_round(EmitContext& ctx, InflightExchange& r);

// update.cpp
size_t update_slots(const Update& u);
void load_update(EmitContext& ctx, InflightExchange& r, int64_t i);
void emit_update(EmitContext& ctx, InflightExchange& r, int64_t i);

// Scalar registers of the running exchange: the first of each kind, which has one for each stage.
// With four stages a bit's register takes what is made of the bit last; no cores cross over then.
struct StageRegisters {
  explicit constexpr StageRegisters(int64_t stages)
      : each(stages > 3 ? kMaxStages : 3), shared(stages > 3) {}

  int each;
  bool shared;
  int whole = kFirstOffsetRegister;          // bytes to the half kept
  int sent = whole + each;                   // bytes to the half sent
  int peer = sent + each;                    // partner
  int bit = peer + each;                     // 0: keeps the first half
  int temporary = bit + each;                // and the next
  int other = shared ? bit : temporary + 2;  // as whole, for elements of the other size
};
static_assert(StageRegisters(3).other + 3 <= kAddressRegister);
static_assert(StageRegisters(kMaxStages).other + kMaxStages <= kAddressRegister);

}  // namespace tpu::compiler
