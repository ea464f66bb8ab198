// Where buffers lie: their homes in HBM, their copies in VMEM. VMEM works as a compiler-managed
// cache: buffers that will be read again stay while there is room; when there is none, the one with
// the farthest next read goes (stored first if HBM lacks it). Nothing is emitted here: the loads
// and stores that a decision needs are noted as moves, in order, for whoever asks for them.
#pragma once

#include <climits>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel/kernels.hpp"
#include "plan/range_allocator.hpp"
#include "plan/scratch.hpp"
#include "plan/shared_vmem.hpp"
#include "plan/slots.hpp"
#include "plan/virtual_pad.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Of an exchange beside other kernels: VMEM that these do not miss.
inline constexpr int64_t kKeptBytes = int64_t{64} * 1024;

// Where a buffer lies.
struct Placement {
  int slot = -1;  // HBM home; -1: none yet
  int64_t offset = 0;
  uint8_t moving = 0, table = 0;  // of the home: see plan/moving_address.hpp
  const Value* part = nullptr;    // result of the update whose part the home is
  bool in_hbm = false;            // the home holds the value
  bool scratch = false;           // the home is an allocation of the scratch slot
  bool must_store = false;        // the home is a result
  int64_t vmem = -1;              // address of the whole value, -1: not in VMEM
  bool locked = false;            // stays where it is until the region around it ends
  int64_t target = -1;            // VMEM home of the carried value that it will be
  bool over_operand = false;      // the contraction that makes it reads what lies in its target
};

struct Buffer : Placement {
  const Value* value = nullptr;
  int number = 0;  // in order of creation
  int64_t bytes = 0;
  std::vector<int> reads;  // kernels that read it, ascending
};

spec::Addr home_of(const Placement& b, int64_t byte = 0);   // in HBM
spec::Addr place_of(const Placement& b, int64_t byte = 0);  // in VMEM if it is there, else its home

// A dense copy that residency needs.
struct Move {
  spec::Addr src, dst;
  int64_t bytes = 0, elem_bytes = 1;
  uint32_t op_id = 0;
};

// Buffers that stay where they are.
struct Pins {
  std::set<const Buffer*> pinned;  // not evicted
  std::set<const Buffer*> held;    // neither moved nor dead: the exchange in flight uses them

  void pin(const std::vector<const Buffer*>& buffers) { pinned = {buffers.begin(), buffers.end()}; }
  void add(const Buffer& b) { pinned.insert(&b); }
  void clear() { pinned.clear(); }
};

// VMEM that keeps its values over the regions of ops with control flow.
struct RegionLocks {
  int64_t limit = 0, bytes = 0;  // that may be locked, that are
  std::set<int64_t> homes;       // addresses of carried values

  bool fits(int64_t more) const { return bytes + round_up(more, kAlign) <= limit; }
  bool any() const { return bytes > 0; }
};

class Residency {
 public:
  // `lock_limit`: bytes of VMEM that may keep values over the iterations of loops.
  Residency(const KernelProgram& kernels, const Slots& slots, const VirtualPads& pads,
            const spec::BoardParams& board, int64_t lock_limit);

  Buffer& add(const Value* v);
  Buffer& at(const Value* v) { return buffers_.at(v); }
  Buffer* find(const Value* v);  // null: it has no buffer
  // Right before its placement changes, with no take() in between: so that it can be put back, and
  // is found in VMEM.
  void touch(Buffer& b);
  const std::vector<Buffer*>& all() const { return ordered_; }

  // After kernels have been cut: their orders, and values that cross the halves.
  void find_reads(const KernelProgram& kernels, const VirtualPads& pads);

  // What is planned next: the order of a kernel, its op.
  void enter(int order, uint32_t op_id);
  int next_read(const Buffer& b) const;  // kernel behind the current one, INT_MAX: none
  int64_t whole_limit() const { return vmem_bytes_ / 4; }  // larger ones never stay as a whole

  // Largest value that stays in VMEM for readers in later kernels. With keep_nothing() no value
  // does: kernels write their results home, and flush() stores what has come to lie there whole.
  int64_t kept_limit() const { return keeps_ ? whole_limit() : 0; }
  // Largest operand of a contraction that is brought in as a whole: one that nobody finds there
  // later had better come in blocks, beside the matmuls.
  int64_t operand_limit() const { return keeps_ ? whole_limit() : whole_limit() / 4; }
  void keep_nothing() { keeps_ = false; }
  void flush();

  // VMEM. What does not fit even after evictions is answered with nothing or false, and evicts
  // nothing then.
  std::optional<int64_t> take(int64_t bytes);
  std::optional<int64_t> take_free(int64_t bytes) { return vmem_.take(bytes); }  // no evictions
  bool place(Buffer& b);  // for a result: its target, or what take() finds
  void give(int64_t address);
  void drop(Buffer& b);  // its copy in VMEM, if there is one
  SharedVmem& shared() { return shared_; }
  // What no kernel reads any more, and copies of results that lie where they must.
  void drop_dead();
  int64_t vmem_peak() const { return vmem_.peak_end(); }

  Pins& pins() { return pins_; }
  RegionLocks& locks() { return locks_; }

  // HBM.
  void give_home(Buffer& b);
  void store(Buffer& b, uint32_t op_id);  // VMEM copy to HBM home
  Scratch& scratch() { return scratch_; }

  void move(const Move& m) { moves_.push_back(m); }
  std::vector<Move> take_moves() { return std::exchange(moves_, {}); }

 private:
  friend class Reservation;
  bool evict_one();
  void read_until_arrival(const Kernel& exchange);

  const int64_t vmem_bytes_;
  const int scratch_slot_;
  std::map<const Value*, Buffer> buffers_;      // for look-up only: pointers have no stable order
  std::vector<Buffer*> ordered_;                // by number, for everything that walks over buffers
  std::map<int, Buffer*> resident_;             // by number: those in VMEM, and more
  std::vector<std::pair<int, Buffer*>> dying_;  // with the kernel that reads it last, ascending
  bool reads_known_ = false, keeps_ = true;
  int copies_out_ = INT_MAX;     // first kernel that only moves results
  size_t died_ = 0;              // of dying_: their last reader has run
  std::map<int, Buffer*> dead_;  // of those, by number: what may still hold memory
  RangeAllocator vmem_;
  Scratch scratch_;
  int now_ = 0;
  uint32_t op_id_ = 0;
  SharedVmem shared_;
  Pins pins_;
  RegionLocks locks_;
  std::vector<Move> moves_;
  int reservations_ = 0;
  std::vector<std::pair<Buffer*, Placement>> touched_;  // since the outermost reservation
  std::vector<Buffer*> buried_;                         // that have gone from dead_
};

// Planning that may be given up: unless it is kept, its end puts buffers, VMEM, homes, moves, pins
// and locks back to where they were at its beginning. Reservations may be nested. Moves that were
// noted before it must not be taken inside of it.
class Reservation {
 public:
  explicit Reservation(Residency& memory);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  void keep() { kept_ = true; }

 private:
  Residency& memory_;
  const RangeAllocator::Mark vmem_;
  const Scratch::Mark scratch_;
  const size_t shared_, moves_, touched_, died_, buried_;
  const Pins pins_;
  const RegionLocks locks_;
  bool kept_ = false;
};

// From its HBM home to a VMEM copy of its own. False: too little VMEM.
bool load(Residency& memory, Buffer& b, uint32_t op_id);
// What is made for it at its home is complete.
void mark_home(Residency& memory, Buffer& b);
// `to` lies in the home of the temporary `from`, with what is in it.
void take_home(Residency& memory, Buffer& from, Buffer& to);
bool lock(Residency& memory, Buffer& b);  // false: over the limit
void unlock(Residency& memory, Buffer& b);

// An operand that will come in pieces from HBM leaves VMEM.
void leave_vmem(Residency& memory, Buffer& b, uint32_t op_id);

// A result is made whole in VMEM if there is room, else at its home.
void place_result(Residency& memory, Buffer& out);
// It is made where place_result put it: stored if it must.
void finish_result(Residency& memory, Buffer& out, uint32_t op_id);
// `to` lies in VMEM where `from` has been.
void take_vmem(Residency& memory, Buffer& from, Buffer& to);

}  // namespace tpu::compiler
