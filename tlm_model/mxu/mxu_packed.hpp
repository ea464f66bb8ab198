// Operands of matmul commands in the order of the kernels, packed once for all that compute with
// them: the parts of a command, and commands that read the same bytes and are in flight at the same
// time. A packed operand lives as long as a command that uses it is in flight. Until then its bytes
// stay as they are: in VMEM for the one command that reads them, in held pages of HBM for all.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "mxu/mxu_engine.hpp"
#include "sync/mutex.hpp"

namespace tpu::model {

// One operand in one order, in pieces that any thread may pack.
class MxuPackedOrder {
 public:
  // What the packed bytes depend on beside the operand: kernels and how they cut it.
  using Layout = std::array<int64_t, 5>;

  // A multiple of 64.
  uint8_t* data() const { return data_; }

  // Packs pieces with other threads that need them: `count` of them, the i-th with number at(i).
  // Where it would have to wait, packs some of those behind instead. pack(piece) returns whether
  // all of it is known to be finite, as does this of the pieces that it was asked for.
  template <class At, class Pack>
  bool need(int64_t count, const At& at, const Pack& pack) {
    int64_t behind = 0;
    for (int64_t i = 0; i < count; ++i) {
      take(at(i), pack);
      behind = std::max(behind, at(i) + 1);
    }
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      std::atomic<int>& state = states_[static_cast<size_t>(at(i))];
      while (state.load(std::memory_order_acquire) == kTaken) {
        if (behind < pieces_) {
          take(behind++, pack);
        } else {
          state.wait(kTaken, std::memory_order_acquire);
        }
      }
      finite = finite && state.load(std::memory_order_relaxed) == kFinite;
    }
    return finite;
  }

 private:
  friend class MxuPackedOperand;
  friend class MxuPackedOperands;
  enum State : int { kMissing, kTaken, kPacked, kFinite };

  template <class Pack>
  void take(int64_t piece, const Pack& pack) {
    std::atomic<int>& state = states_[static_cast<size_t>(piece)];
    int missing = kMissing;
    if (state.load(std::memory_order_relaxed) == kMissing &&
        state.compare_exchange_strong(missing, kTaken, std::memory_order_acquire)) {
      // notify_all() of libstdc++ 12 reads the number of waiters without a fence. A store that is
      // still on its way then would leave a thread asleep that has just begun to wait.
      state.store(pack(piece) ? kFinite : kPacked, std::memory_order_seq_cst);
      state.notify_all();
    }
  }

  Layout layout_{};
  uint8_t* data_ = nullptr;  // null: nobody has opened it
  int64_t pieces_ = 0;
  std::unique_ptr<std::atomic<int>[]> states_;  // grow, never shrink
  int64_t states_size_ = 0;
};

// An operand of commands in flight.
class MxuPackedOperand {
 public:
  // The operand in an order, of `bytes` in `pieces` pieces. Null if there is no room.
  MxuPackedOrder* open(const MxuPackedOrder::Layout& layout, size_t bytes, int64_t pieces);

  // Whether another has asked before: what is not packed here for all is packed again.
  bool ask() { return asked_.exchange(true, std::memory_order_relaxed); }

 private:
  friend class MxuPackedOperands;
  // Parts of a command may choose other kernels, by the zeros in their rows.
  static constexpr size_t kMostOrders = 2;

  using Key = std::array<int64_t, 20>;
  Key key_{};         // guarded by the lock of all operands
  int64_t uses_ = 0;  // likewise
  std::atomic<bool> asked_ = false;
  base::Mutex mutex_;
  std::array<MxuPackedOrder, kMostOrders> orders_ TPU_GUARDED_BY(mutex_);
};

// What the operands that are packed for one command in flight: kept by the command.
class MxuPackedUse {
 public:
  MxuPackedUse() = default;
  ~MxuPackedUse() { end(); }
  MxuPackedUse(const MxuPackedUse&) = delete;
  MxuPackedUse& operator=(const MxuPackedUse&) = delete;

  // `jobs`: the parts of a command, which get MxuJob::packed_lhs and packed_rhs where others pack
  // the same. `lhs_held`, `rhs_held`: these bytes change in no memory while any command that reads
  // them is in flight.
  void begin(std::span<MxuJob> jobs, bool lhs_held, bool rhs_held);
  // Nobody computes with the jobs any more.
  void end();

 private:
  std::vector<MxuPackedOperand*> held_;
};

}  // namespace tpu::model
