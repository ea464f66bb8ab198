// Memory of an exchange by recursive halving, a reduce-scatter, and back by doubling, an
// all-gather: pieces follow each other through the stages, each in areas of VMEM that rotate. Of an
// update between the two: the areas and homes of its operands.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "kernel/exchange.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

// Of groups that halve as one; registers have no room for more.
inline constexpr int kMaxStages = 11;

// An array that an update reads or writes part by part; the sum itself is in the bucket.
struct UpdateOperand {
  const Value* value = nullptr;
  bool input = false;
  spec::Addr home{};
  int root = -1;  // slot of the home
};

struct UpdatePlan {
  const Update* update = nullptr;
  std::vector<UpdateOperand> operands;  // what is read, then what is written; each once
  std::vector<spec::Addr> gathered;     // homes of what travels back, as in `update`
};

struct HalvingPlan {
  // Bytes of a piece that lie apart from others of it.
  struct Segment {
    spec::Addr src{}, dst{};
    int64_t bytes = 0;
  };
  // Bytes of one value, and where they come from and go to.
  struct Piece {
    size_t value = 0;     // index into reads and writes of the kernel
    int64_t from = 0;     // byte of the value
    int64_t element = 0;  // of the value
    int update = -1;      // of `updates`
    spec::Addr src{}, dst{};
    std::vector<Segment> segments;  // in place of src and dst; behind them the piece is anything
  };

  Exchange exchange;
  int64_t bytes = 0;      // of a piece
  int64_t unit = 4;       // of an element
  int64_t lag = 1;        // rounds from a send to its arrival
  bool in_place = false;  // pieces lie in the buckets before and afterwards
  bool summed = false;    // pieces are sums at home: updates run, results travel back
  // One way of an exchange in phases (stream_plan.hpp). Down: the part of the core goes to `dst`.
  // Back: it comes from `src`.
  bool only_down = false, only_back = false;
  std::vector<Piece> pieces;
  std::vector<UpdatePlan> updates;

  std::vector<int64_t> buckets;                          // ring of pieces
  std::array<std::vector<int64_t>, kMaxStages> landing;  // ring of each stage
  std::vector<std::vector<int64_t>> back;                // ring of each gathered value of an update
  std::vector<std::vector<int64_t>> slots;  // ring of parts of each operand of an update
  std::map<const Value*, int64_t> scalars;  // VMEM address; for look-up only
  std::vector<int64_t> memory;              // VMEM to give back

  int64_t stages() const { return static_cast<int64_t>(exchange.stages()); }
  int64_t part_bytes() const { return bytes >> stages(); }
  int64_t steps() const { return only_down ? stages() : 2 * stages(); }
  int64_t rounds() const {
    return static_cast<int64_t>(pieces.size()) + 1 + steps() * lag - first_age();
  }
  // Of a piece when it begins.
  int64_t first_age() const { return summed || only_back ? stages() * lag : 0; }
  int64_t bucket(int64_t i) const { return buckets[static_cast<size_t>(i) % buckets.size()]; }
  const Piece& piece(int64_t i) const { return pieces[static_cast<size_t>(i)]; }
  const UpdatePlan* update_of(int64_t i) const;  // null: the sum itself travels back
  // Bytes that travel back: of the sum, or of the gathered values of the update.
  size_t ways_back(int64_t i) const;
};

// Areas for all pieces in flight; buckets only if there are none yet. False: too little VMEM.
[[nodiscard]] bool take_rings(Residency& memory, HalvingPlan& plan);
using TakeVmem = std::function<std::optional<int64_t>(int64_t bytes)>;
[[nodiscard]] bool take_rings(const TakeVmem& take, HalvingPlan& plan);

// Operands of an update. Homes are filled in by plan_streamed.
std::vector<UpdateOperand> update_operands(const Update& u);

}  // namespace tpu::compiler
