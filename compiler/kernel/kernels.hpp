// Kernels (level K): the graph cut into loop kernels (fused elementwise and reduce), contractions,
// concatenations and collectives, in the order in which they run, and the buffers between them.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ir/control.hpp"
#include "ir/graph.hpp"
#include "kernel/buckets.hpp"
#include "kernel/shard_update.hpp"
#include "vpu/nest.hpp"

namespace tpu::compiler {

// Loops: kLoop. Contractions: kContract. Exchanges: kAllReduce, kExchange. Control flow: kWhile,
// kBranch, kYield. A transfer with the host: kHost. All others move data.
enum class KernelClass : uint8_t {
  kLoop,
  kContract,
  kConcatenate,
  kPad,
  kAllReduce,
  kCopyOut,
  kIndexed,
  kExchange,
  kDynamicSlice,
  kDynamicUpdate,
  kHost,
  kWhile,
  kBranch,
  kYield
};

// out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]; strides in elements of the operand's
// buffer. Loops are merged; k in the order of the contracting dims.
struct Contraction {
  const Value* lhs = nullptr;
  const Value* rhs = nullptr;
  int64_t lhs_offset = 0, rhs_offset = 0;
  struct Dim {
    int64_t n = 1, lhs = 0, rhs = 0, out = 0;
  };
  std::vector<Dim> batch, m, n, k;
  bool span_taps = false;  // K tiles may span taps where that leaves the sum as it is

  static int64_t count(const std::vector<Dim>& dims);
  int64_t results() const { return count(batch) * count(m) * count(n); }
};

// Bytes of operand `value` of a collective that travel in it.
struct Span {
  size_t value = 0;  // index into reads and writes of the kernel
  int64_t from = 0, bytes = 0;
};

struct Kernel;
struct KernelProgram;

// Limits of one loop kernel: more ops would run out of registers; stores, indices and the
// accumulators of sums share the limit of a command with its loads. Taps of one array, which come
// through one stream, count as one load of the first limit.
//
// Ops on 32-bit words weigh less than others: the rounds of a counter-based generator are a chain
// of 110 of them on two words and a key, which a kernel keeps in eight registers. In two kernels
// the words between them would pass HBM. A kernel has room for one such chain.
inline constexpr size_t kMaxLoopWeight = 192, kMaxLoopAccesses = 14, kMaxLoopTaps = 20;
size_t loop_weight(const std::vector<const Op*>& ops);

struct LoopPart {
  Dims domain;
  Nest nest;
  std::set<const Op*>
      recomputed;     // of `ops`, those that another kernel computes too; never written
                      // from here
  int64_t first = 0;  // element of the outputs that the nest starts at
};

// An array that is exchanged in pieces: which of them an element is in. Rows of the array that are
// `stride` elements apart are in pieces by their place among `period` of them, as each member of a
// group has them.
struct PieceOrder {
  const Value* array = nullptr;
  int64_t stride = 1, period = 1, pieces = 1;
  double worth = 0;  // cycles that the order may cost

  int64_t piece_of(int64_t element) const { return element / stride % period * pieces / period; }
  // The first row of a piece, of a member.
  int64_t begin_of(int64_t piece) const { return (piece * period + pieces - 1) / pieces; }
};

struct ContractPart {
  Contraction dot;
  // Loop kernels that work on its blocks, one behind the other (epilogue.hpp).
  std::vector<std::shared_ptr<Kernel>> after;
  // Its blocks go in the order in which pieces of an operand arrive, or those of the result leave
  // (pieced_exchanges.hpp).
  std::optional<PieceOrder> arriving, leaving;
  const Value* exchanged = nullptr;  // what the exchange makes of the result that leaves
};

struct ExchangePart {
  std::vector<Span> spans;      // all_reduce: what it exchanges; other bytes are another kernel's
  bool streamed = false;        // all_reduce: of whole pieces, else packed
  std::vector<Update> updates;  // all_reduce: fused behind the sum (shard_update.hpp)
  // all_reduce: what it reads is made of complete sums, all of it has updates; spans are of sums.
  bool summed = false;
  bool overlaps = false;  // others: kernels run beside it (early_exchanges.hpp)
  // Others: a product begins with the first pieces that arrive, or sends those that it has made
  // while it makes others. 1: it does not.
  int64_t pieces = 1;
  bool leaves_early = false;
};

struct MovePart {
  View source;        // pad: strides of reads[0] along the operand's dims
  size_t result = 0;  // copy_out: result number
  // copy_out in a loop: numbers of the results, one in each iteration.
  std::vector<size_t> results = {};
  NestAccess view;                 // dynamic_slice: operand; dynamic_update: update
  std::vector<NestAccess> starts;  // of dynamic slices; no value: the sequencer computes it
  // dynamic_slice of a stack of arguments: the one that each iteration reads; no view and starts.
  std::vector<const Value*> arguments = {};
};

// How far the call of a kernel goes with its transfer.
enum class HostStage : uint8_t {
  kWhole,  // the core waits for it
  kStart,  // the kernels behind it run beside it
  kFinish  // waits for it. Of a transfer to the host: reads what travels, which stays until then
};

struct HostPart {
  HostStage stage = HostStage::kWhole;
};

struct ControlPart {
  // while: initial values; yield: results of the region; null: the sequencer counts it
  std::vector<const Value*> carried;
  std::vector<bool> overwritten;  // while, by carried value: the initial one has no buffer
  std::vector<std::shared_ptr<KernelProgram>> regions;  // condition: null if the loop is counted
  std::vector<const Value*> captures;  // buffers from outside that the regions read; also in reads
  std::set<const Value*> passing;      // of these: read in some iterations only
  std::optional<CountedLoop> counted;  // while
  NestAccess predicate;                // branch; no value: the sequencer computes it
};

struct Kernel {
  explicit Kernel(KernelClass k);  // with the part of its class

  KernelClass kind;
  std::vector<const Op*> ops;  // loop: in program order; all_reduce: the bucket; others: one op
  const Value* out = nullptr;  // of one result: the value written; contract: a transpose may be
                               // folded in
  std::vector<const Value*> reads, writes;  // buffers
  int order = 0, end = 0;  // place in the program, regions included; end: behind the regions
  std::variant<LoopPart, ContractPart, ExchangePart, MovePart, ControlPart, HostPart> part;

  // The part of one kind; of a kernel that has another: an empty one.
  const LoopPart& loop() const { return part_or_empty<LoopPart>(); }
  const ContractPart& contract() const { return part_or_empty<ContractPart>(); }
  const ExchangePart& exchange() const { return part_or_empty<ExchangePart>(); }
  const MovePart& move() const { return part_or_empty<MovePart>(); }
  const ControlPart& control() const { return part_or_empty<ControlPart>(); }
  const HostPart& host() const { return part_or_empty<HostPart>(); }
  // To change it; the kernel must have it.
  template <typename Part>
  Part& as() {
    return std::get<Part>(part);
  }

 private:
  template <typename Part>
  const Part& part_or_empty() const {
    static const Part empty;
    const Part* own = std::get_if<Part>(&part);
    return own == nullptr ? empty : *own;
  }
};

struct KernelProgram {
  std::list<Kernel> kernels;
  std::vector<Bucket> buckets;        // of all_reduce ops
  int64_t piece = 0;                  // bytes of a streamed piece
  std::vector<ShardedState> sharded;  // results that no core holds whole
  std::set<const Value*> copied;      // views and constants with a buffer of their own
  std::unique_ptr<Region> made_ops;   // transposes that the fusion added
};

// Fills `reads` and `writes` of the loop kernels: what crosses kernels needs a buffer.
void find_buffers(KernelProgram& program);
// Leaves out the elements before `first` of a loop kernel of one dimension.
void start_at(Kernel& kernel, int64_t first);
// True if a kernel of the program (not of its regions) in front of `order` makes the value.
bool made_before(const KernelProgram& program, int order, const Value* v);
// Orders of all kernels, those of regions between their owner's `order` and `end`; of those from
// `first` on, where the ones in front of it are right.
void renumber(KernelProgram& program);
void renumber(KernelProgram& program, std::list<Kernel>::iterator first);

// Calls fn(kernel) in order, kernels of regions behind their owner.
template <typename Fn>
void for_each_kernel(const KernelProgram& program, Fn&& fn) {
  for (const Kernel& k : program.kernels) {
    fn(k);
    for (const auto& region : k.control().regions) {
      if (region) {
        for_each_kernel(*region, fn);
      }
    }
  }
}

// True if the loads and sums of a loop kernel are within the limits above.
bool has_few_accesses(const Nest& nest, size_t more = 0);  // `more`: loads to come
// True if one command can hold the loop kernel (operands, registers). Others are always true.
bool fits_command(const Kernel& kernel);

// Cuts loop kernel `order` (of any region) into two halves, the second behind the first. False for
// other kernels and for those of one op.
bool split_kernel(KernelProgram& program, int order);

std::string print(const KernelProgram& program);  // for --dump-after=kernels

}  // namespace tpu::compiler
