// Emitter: kernels to commands. Holds what all kernel classes share: buffers and where they lie
// (HBM home, VMEM copy), VMEM and scratch allocation, DMA helpers, the op table. Kernels are
// emitted one after the other into one listing; overlap comes from the queues alone.
// VMEM works as a compiler-managed cache: buffers that will be read again stay while there is room;
// when there is none, the one with the farthest next read goes (stored first if HBM lacks it).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel/kernels.hpp"
#include "plan/scratch.hpp"
#include "program/listing.hpp"
#include "tpu/spec/board_params.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

// First-fit allocator of byte ranges; the search starts behind the last allocation, so that freed
// bytes rest and later loads need not wait for their last readers.
class RangeAllocator {
 public:
  explicit RangeAllocator(int64_t size);
  int64_t take(int64_t bytes);  // -1: no hole is large enough
  void give(int64_t address);
  int64_t used() const { return used_; }
  int64_t peak_end() const { return peak_end_; }

 private:
  std::map<int64_t, int64_t> free_;  // address -> bytes
  std::map<int64_t, int64_t> taken_;
  int64_t cursor_ = 0, used_ = 0, peak_end_ = 0;
};

struct Buffer {
  const Value* value = nullptr;
  int number = 0;  // in order of creation
  int64_t bytes = 0;
  int slot = -1;  // HBM home; -1: none yet
  int64_t offset = 0;
  bool in_hbm = false;      // the home holds the value
  bool scratch = false;     // the home is an allocation of the scratch slot
  bool must_store = false;  // the home is a result
  int64_t vmem = -1;        // address of the whole value, -1: not in VMEM
  std::vector<int> reads;   // kernels that read it, ascending
  bool locked = false;      // stays where it is until the region around it ends
  int64_t target = -1;      // VMEM home of the carried value that it will be
};

struct Block;    // contraction_plan.hpp
struct BoxLoop;  // tile_box.hpp
struct Exchange;
struct ExchangeRun;  // exchange_run.hpp
struct Share;
struct Update;
struct UpdateCommand;

// A bucket in VMEM that is exchanged by doubling.
struct ReducePiece {
  const Exchange* exchange = nullptr;
  int64_t bytes = 0, elem_bytes = 4;
  uint8_t type = 0;
  int program = -1;
  uint32_t id = 0;
  std::vector<int64_t> landing;  // per stage
  std::vector<int> granted;      // items that grant the landing areas
  int64_t own = 0;               // where the running sum lies
};

struct VmemFull {};  // thrown by Emitter::take

// The operands of a kernel do not fit into VMEM even in the smallest tiles.
struct KernelTooLarge : Error {
  KernelTooLarge(const Error& error, int kernel) : Error(error), order(kernel) {}
  int order;
};

// One counted stride pair of a copy.
struct CopyDim {
  int64_t n = 1, src = 0, dst = 0;  // bytes
};

// Neighbours that continue each other become one, innermost last; counts of 1 go.
std::vector<CopyDim> merged(std::vector<CopyDim> dims);

// Where the operand's elements of one dimension go in a padded result.
struct PadRange {
  int64_t first = 0;  // element of the operand that lands first
  int64_t n = 0;      // elements that land; the others are cropped
  int64_t at = 0;     // position of the first in the result
  int64_t step = 1;   // between positions
};

// Where the operand of a pad lies in its result; the constant that is around it.
std::vector<PadRange> pad_ranges(const Op& op);
uint64_t pattern_of(const Dense& constant);

// A padded or concatenated value without a buffer (emit_halo.cpp).
struct Halo {
  struct Part {
    const Value* base = nullptr;
    View source;                   // strides of the base along the dims
    std::vector<PadRange> ranges;  // where its elements are
  };
  Dims dims, pitch;
  std::vector<Part> parts;
  std::optional<uint64_t> pattern;  // of what is in no part; none: nothing is
};

class Emitter {
 public:
  // `lock_limit`: bytes of VMEM that may keep values over the iterations of loops.
  Emitter(const Module& module, const KernelProgram& kernels, const spec::BoardParams& board,
          int64_t lock_limit);
  ~Emitter();

  void run();

  // False: every exchange ends before the next kernel begins.
  bool overlap_runs = true;
  Listing listing;
  std::vector<exe::OpInfoT> ops;
  std::vector<std::vector<std::byte>> constants;
  uint64_t matmul_flops = 0;
  int64_t vmem_peak() const { return vmem_.peak_end(); }
  bool locks_values() const { return locked_bytes_ > 0; }  // at the end, or where it failed
  int first_remote_semaphore() const { return remote_semaphores_; }
  // What HBM holds, for readers and for the message of a program that does not fit.
  std::string memory() const { return memory_report(listing, scratch_, ops); }

 private:
  void emit_kernel(const Kernel& k);

  // memory.cpp
  void make_slots();
  void find_reads();
  void plan_results();
  bool result_may_overwrite(const Value* result, int slot) const;
  // True if `made` may be written where `old` lies: nobody of the program reads `old` afterwards.
  bool may_replace(const KernelProgram& program, const Value* made, const Value* old) const;
  static bool reads_in_place(const Kernel& k, const Value* old, const Value* made);
  Buffer& new_buffer(const Value* v);
  Buffer& buffer(const Value* v) { return buffers_.at(v); }
  int next_read(const Buffer& b) const;  // kernel behind the current one, INT_MAX: none
  int64_t take(int64_t bytes);           // VMEM; evicts; throws VmemFull
  int64_t place(Buffer& b);              // VMEM for a result: its target, or what take() finds
  void give(int64_t address);
  // Buffers at several addresses of one allocation: it goes back with the last of them.
  void share(int64_t allocation, const std::vector<Buffer*>& inside);
  bool evict_one();
  void give_home(Buffer& b);
  void store(Buffer& b, uint32_t op_id);  // VMEM copy to HBM home
  void load(Buffer& b, uint32_t op_id);   // HBM home to a VMEM copy of its own
  void drop_dead();
  int64_t resident_limit() const;  // buffers up to this size may stay in VMEM as a whole

  // dma.cpp
  void copy(const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
            std::vector<CopyDim> dims, uint32_t op_id);
  void copy_bytes(const spec::Addr& src, const spec::Addr& dst, int64_t bytes, int64_t elem_bytes,
                  uint32_t op_id);
  void fill(const spec::Addr& dst, int64_t elem_bytes, int64_t count, uint64_t pattern,
            uint32_t op_id);
  // `dims`: n and dst.
  void fill_box(const spec::Addr& dst, int64_t elem_bytes, std::vector<CopyDim> dims,
                uint64_t pattern, uint32_t op_id);
  spec::Addr hbm(const Buffer& b, int64_t byte = 0) const;
  spec::Addr where(const Buffer& b,
                   int64_t byte = 0) const;  // in VMEM if it is there, else its home

  uint32_t op_id(const Kernel& k);
  static std::string arrays_of(const Kernel& k);
  [[noreturn]] void too_large(const Kernel& k) const;
  [[noreturn]] void too_long(const Kernel& k) const;

  // emit_loop.cpp
  struct Stream;
  struct LoopPlan;
  void emit_loop(const Kernel& k);
  void emit_empty(const Kernel& k, uint32_t id);
  bool plan_loop(const Kernel& k, LoopPlan& plan);
  static void join_stream(const Nest& nest, size_t first, LoopPlan& plan);
  bool cut_tiles(const Kernel& k, LoopPlan& plan, int64_t piece_limit) const;
  bool tile_fits(const LoopPlan& plan, int64_t piece_limit) const;
  void place_loop_buffers(const Kernel& k, LoopPlan& plan, uint32_t id);
  void emit_tile(const Kernel& k, LoopPlan& plan, const Dims& start, const Dims& count, bool first,
                 bool last, int64_t number, uint32_t id);
  void release_loop(LoopPlan& plan);
  static bool stores_last(const Kernel& k, const Value* made, const Value* old);

  // emit_contraction.cpp
  struct DotPlan;
  struct Tile;
  void emit_dot(const Kernel& k);
  void emit_sums(const Kernel& k);
  void all_batches(const Kernel& k, DotPlan& p, uint32_t id);
  void fill_result(Buffer& out, uint32_t id);
  void place_dot(const Kernel& k, DotPlan& p, uint32_t id);
  void drop_copy(Buffer& b, bool stays, uint32_t id);
  void place_tiles(const Kernel& k, DotPlan& p, uint32_t id);
  static std::vector<BoxLoop> box_loops(const std::vector<Contraction::Dim>& free, const Block& a,
                                        const std::vector<Contraction::Dim>& k, const Block& b,
                                        int64_t Contraction::Dim::*stride);
  Tile operand_tile(const Buffer& b, int64_t base, bool whole, int64_t slot,
                    const std::vector<BoxLoop>& loops, size_t free, uint32_t id);
  Tile left_tile(const DotPlan& p, const Buffer& lhs, int64_t base, size_t slot, const Block& m,
                 const Block& k, uint32_t id);
  Tile turned_box(const Buffer& b, int64_t base, std::array<int64_t, 2> slot,
                  const std::vector<BoxLoop>& loops, size_t free, uint32_t id);
  Tile gather_tile(const Tile& from, const Block& m, const Block& k, bool k_inside, int64_t bytes,
                   int64_t slot, uint32_t id);
  void transpose(int64_t src, int64_t dst, int64_t bytes, int64_t rows, int64_t cols,
                 int64_t src_pitch, int64_t dst_pitch, uint32_t id);
  Tile turn_tile(const Tile& from, const Block& m, const Block& k, int64_t bytes, int64_t slot,
                 uint32_t id);
  void dot_batch(const Kernel& k, DotPlan& p, const Block& batch, uint32_t id);
  static void final_strides(const DotPlan& p, const Tile& sums, const Block& m, const Block& n,
                            Dims& m_at, Dims& n_at);
  Tile sum_tile(const Kernel& k, const DotPlan& p, const Block& m, const Block& n, int64_t base);
  void finish_block(const Kernel& k, DotPlan& p, const Tile& sums, const Block& m, const Block& n,
                    int64_t base, uint32_t id);
  void matmul(const DotPlan& p, const Tile& left, const Tile& right, const Tile& out,
              const Block& m, const Block& n, const Block& k, bool accumulate, uint32_t id);
  void convert_tile(int64_t from, int64_t to, int64_t count, uint32_t id);

  // emit_epilogue.cpp
  bool emit_fused(const Kernel& k);
  bool place_fused(const Kernel& k, DotPlan& p, uint32_t id);
  bool fused_boxes(const Kernel& k, DotPlan& p);
  void finish_fused(const Kernel& k, DotPlan& p, int64_t tile, uint32_t id);

  // emit_pad.cpp
  void emit_pad(const Kernel& k);
  void fill_around(const Op& op, const spec::Addr& out, const std::vector<PadRange>& ranges,
                   uint64_t pattern, uint32_t id);
  void fill_outside(spec::Addr corner, int64_t bytes, std::vector<CopyDim> box,
                    const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id);
  void fill_from_memory(const Buffer& value, const Buffer& out, uint32_t id);

  // emit_halo.cpp
  void plan_halos();
  std::optional<Halo> halo_of(const Kernel& k) const;
  bool is_read_in_boxes(const Value* v) const;
  void read_halo_at(const Value* v, int order);
  bool is_donated(const Value* argument) const;
  void load_box(const Buffer& b, int64_t first, std::vector<CopyDim> dims, int64_t address,
                uint32_t id);
  void load_from(const Value* v, int64_t first, std::vector<CopyDim> dims, int64_t address,
                 uint32_t id);
  void load_padded(const Halo& h, int64_t first, std::vector<CopyDim> dims, int64_t address,
                   uint32_t id);
  void load_part(const Halo& h, const Halo::Part& part, int64_t first,
                 const std::vector<CopyDim>& dims, const std::vector<size_t>& walker,
                 int64_t address, uint32_t id);

  // emit_move.cpp
  void place_result(Buffer& out);  // whole in VMEM if there is room, else at its home
  void finish_result(Buffer& out,
                     uint32_t id);  // made where place_result put it: stored if it must
  void emit_concatenate(const Kernel& k);
  void emit_copy_out(const Kernel& k);
  void save_overwritten_arguments(uint32_t id);

  // scalar_code.cpp
  void insn(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm) {
    listing.append(op, rd, rs1, rs2, imm);
  }
  void load_immediate(int reg, int64_t value);
  void wrap(int reg, Elem elem);
  void scalar(const Value* v, int reg);  // computed by the sequencer
  void scalar_binary(const Op& op, int reg);
  // Scalars that lie in buffers: to SMEM, then the sequencer waits for them.
  void fetch_scalars(const std::vector<NestAccess>& from, uint32_t id);
  void read_scalar(size_t index, Elem elem, int reg);
  void control(Control::Kind kind, int label = -1, int64_t trips = -1);
  void branch(spec::ScalarOp op, int rs1, int rs2, int label);
  int new_label() { return listing.labels++; }

  // emit_dynamic.cpp
  void emit_dynamic_slice(const Kernel& k);
  void emit_dynamic_update(const Kernel& k);
  bool update_in_place(const Kernel& k);
  int64_t start_address(const Kernel& k, const Dims& strides, size_t first, const Dims& sizes,
                        uint32_t id);
  void copy_window(const spec::Addr& src, const spec::Addr& dst, int64_t unit,
                   std::vector<CopyDim> dims, const MemRange& window, uint32_t id);

  // emit_regions.cpp
  struct Place {  // of a buffer's bytes
    bool vmem = true;
    int slot = -1;
    int64_t at = -1;
    bool operator==(const Place&) const = default;
  };
  struct Move {
    Place src, dst;
    int64_t bytes = 0, unit = 1;
  };
  Place place_of(const Buffer& b) const;
  spec::Addr address(const Place& p) const;
  bool overlap(const Place& a, int64_t a_bytes, const Place& b, int64_t b_bytes) const;
  void move_all(std::vector<Move> moves, uint32_t id);
  bool is_carried_here(const Buffer& b) const;  // argument of a loop's body, in its VMEM home
  void take_vmem(Buffer& from, Buffer& to);     // `to` lies where `from` has been
  bool lock(Buffer& b);                         // false: over the limit
  void unlock(Buffer& b);
  std::vector<Buffer*> settle(const Kernel& k, bool preload, uint32_t id);
  void give_region_home(Buffer& out);
  void end_region_home(Buffer& out, uint32_t id);
  void aim_at_home(const KernelProgram& region, const Value* made, const Value* old,
                   const Buffer& home);
  const Kernel& emit_region(const KernelProgram& region);
  void yield(const Kernel& yield, const Op& owner, uint32_t id);
  void clean_region(const KernelProgram& region);

  // emit_control.cpp
  void emit_while(const Kernel& k);
  void place_carried(const Kernel& k, uint32_t id);
  void enter_body(const Kernel& k, const Region& args);
  void leave_body(const Kernel& k, const Region& args);
  void counter_value(const Value* counter, int64_t smem, uint32_t id);
  void emit_body(const Kernel& k, uint32_t id);
  void emit_counted(const Kernel& k, uint32_t id);
  void emit_conditional(const Kernel& k, uint32_t id);
  void emit_branch(const Kernel& k);

  // emit_indexed.cpp
  void emit_indexed(const Kernel& k);
  struct IndexedMove;
  void emit_indexed_read(const Kernel& k, uint32_t id);
  void emit_indexed_write(const Kernel& k, uint32_t id);
  void indexed_moves(const IndexedMove& m, const Kernel& k, uint32_t id);
  void indexed_command(const IndexedMove& m, int64_t list, int64_t first, int64_t records,
                       uint32_t id);
  IndexedMove indexed_move(const Op& op, const Buffer& table, const Buffer& dense,
                           const Buffer& list) const;
  bool may_take(const Kernel& k, const Buffer& from) const;
  void copy_of(Buffer& from, Buffer& to, bool may_take, uint32_t id);

  // emit_combine.cpp
  struct CombineBody;
  void emit_indexed_combine(const Kernel& k, uint32_t id);
  void vmem_copy_of(const Kernel& k, size_t i, uint32_t id);
  static void make_body(const Op& op, CombineBody& body);
  void combine_record(const Op& op, const CombineBody& body, const std::vector<int64_t>& targets,
                      const std::vector<int64_t>& updates, const std::vector<MemRange>& windows,
                      uint32_t id);
  void combine_piece(const Op& op, const CombineBody& body, const spec::Addr& list, int64_t records,
                     const std::vector<int64_t>& targets, const std::vector<int64_t>& updates,
                     const std::vector<MemRange>& windows, uint32_t id);
  void tight(Control::Kind kind, int label, spec::ScalarInsn insn = {});

  // emit_exchange.cpp
  struct Link {       // to a partner
    int64_t channel;  // names its semaphores
    int peer;         // register with its core id
  };
  void emit_exchange(const Kernel& k);
  void look_up(int reg, const std::vector<int64_t>& values);
  int64_t permutation_channel(const std::vector<int64_t>& to);
  Link permutation_link(const std::vector<int64_t>& to, bool back);
  MemRange whole_range(const Buffer& b, bool write) const;
  void move_box(const Link* link, const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
                const std::vector<CopyDim>& dims, const std::vector<MemRange>& windows,
                uint32_t id);
  struct PieceLayout;
  static PieceLayout piece_layout(const Op& op, size_t i);
  void exchange_pieces(const Op& op, size_t i, const Buffer& in, const Buffer& out, uint32_t id);
  void permute(const Op& op, const Buffer& in, const Buffer& out, uint32_t id);

  // emit_collective.cpp
  void emit_all_reduce(const Kernel& k);
  int peer_register(int64_t mask);
  int channel_semaphores(int64_t channel);
  int grant(const Link& link, const MemRange& range, uint32_t id);
  void send(const Link& link, const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
            int64_t unit, const MemRange& reads, uint32_t id);
  void receive(const Link& link, const MemRange& range, int granted, uint32_t id);
  void combine(const ReducePiece& p, const spec::Addr& a, const spec::Addr& b,
               const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows);
  void exchange_doubling(ReducePiece& p);
  int reduce_program(const Op& op);
  void emit_packed(const Kernel& k, const Exchange& exchange, const std::vector<Share>& shares);
  std::vector<Buffer*> place_packed(const Kernel& k, const std::vector<Share>& shares,
                                    int64_t result, const ExchangeRun& run);

  // emit_halving.cpp
  struct GrantRequest {
    Link link;
    MemRange range;
    int* item;
  };
  struct BackArea {
    int64_t address, bytes, unit;
  };
  Link step_link(const ExchangeRun& r, int64_t s);
  static int whole_register(const ExchangeRun& r, int64_t stage, int64_t unit);
  void stage_registers(const Exchange& e);
  void half_registers(const ExchangeRun& r);
  void take_run_memory(ExchangeRun& r);
  void load_piece(ExchangeRun& r, int64_t i);
  BackArea back_area(const ExchangeRun& r, int64_t i, size_t way) const;
  void grant_step(ExchangeRun& r, int64_t i, int64_t s, std::vector<GrantRequest>& out);
  void emit_grants(const std::vector<GrantRequest>& requests, uint32_t id);
  void await_arrival(const Link& link, const MemRange& range, int granted);
  void send_step(ExchangeRun& r, int64_t i, int64_t s);
  void arrive_step(ExchangeRun& r, int64_t i, int64_t s);
  void finish_piece(ExchangeRun& r, int64_t i);
  void run_round(ExchangeRun& r);

  // exchange_run.cpp
  void start_run(const Kernel& k);
  void load_scalars(ExchangeRun& r);
  // Lets the exchange on its way go on by as many rounds as the commands since the last call take.
  void pace();
  void prepare_run_buffers(ExchangeRun& r);
  void finish_run();
  bool needs_run(const Kernel& k) const;  // the exchange on its way must be over first
  void release_run(ExchangeRun& r);
  void hold(const Value* v);

  // emit_update.cpp
  static size_t update_slots(const Update& u);
  static int64_t update_slot(const ExchangeRun& r, int64_t i, size_t number);
  spec::Addr home_part(const ExchangeRun& r, int64_t i, const Value* v, bool write,
                       MemRange& window);
  void load_update(ExchangeRun& r, int64_t i);
  const std::vector<UpdateCommand>& update_commands(ExchangeRun& r, const Update& u);
  void emit_update(ExchangeRun& r, int64_t i);

  const Module& module_;
  const KernelProgram& kernels_;
  const spec::BoardParams& board_;
  std::map<const Value*, Buffer> buffers_;      // for look-up only: pointers have no stable order
  std::vector<Buffer*> ordered_;                // by number, for everything that walks over buffers
  std::vector<std::pair<int, Buffer*>> dying_;  // with the kernel that reads it last, ascending
  bool reads_known_ = false;
  size_t died_ = 0;                        // of dying_: their last reader has run
  std::map<int, Buffer*> dead_;            // of those, by number: what may still hold memory
  std::map<const Value*, Halo> halos_;     // looked up only
  std::vector<const Value*> result_home_;  // value whose home is result slot i, or null
  RangeAllocator vmem_;
  Scratch scratch_;
  int scratch_slot_ = -1;
  int first_result_slot_ = 0;
  int now_ = 0;  // order of the running kernel
  std::set<const Buffer*> pinned_;
  std::map<int64_t, int64_t> shared_;  // address of a buffer -> allocation that it lies in
  bool arguments_saved_ = false;
  uint32_t running_op_ = 0;
  std::map<int64_t, int> remote_;  // channel -> semaphore of credits; +1: of arrivals
  int remote_semaphores_;
  std::map<int64_t, int> peers_;                          // mask -> register
  std::map<std::vector<int64_t>, int64_t> permutations_;  // target by core -> number of its channel
  using StepKey = std::pair<std::vector<int64_t>, spec::Queue>;  // partner by core, waiting queue
  std::map<StepKey, int64_t> steps_;  // of halving: number of its channel
  std::map<int, uint32_t> op_ids_;    // by order of the kernel
  const int64_t lock_limit_;
  int64_t locked_bytes_ = 0;
  std::set<int64_t> homes_;                   // VMEM addresses of carried values
  std::map<const Value*, int64_t> counters_;  // body argument -> address in SMEM
  int64_t times_ = 1;                         // iterations of the counted loops around
  int regions_ = 0;                           // around the running kernel
  std::unique_ptr<ExchangeRun> run_;          // the exchange that is on its way
  std::set<const Buffer*> held_;              // used by it: alive until its end
  size_t paced_items_ = 0;                    // of the listing, that pace() has seen
  std::array<uint64_t, spec::kQueueCount> paced_busy_{};
};

inline constexpr int kPartitionRegister = 1;    // replica id of the core
inline constexpr int kFirstPeerRegister = 2;    // .. 8: replica id xor mask
inline constexpr int kFirstOffsetRegister = 9;  // addresses that differ between cores
inline constexpr int kAddressRegister = 26;     // of a dynamic slice
inline constexpr int kScalarRegister = 27;      // .. 30: integer expressions
inline constexpr int kLimitRegister = 31;
inline constexpr int64_t kAlign = 512;

inline int64_t round_up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }

}  // namespace tpu::compiler
