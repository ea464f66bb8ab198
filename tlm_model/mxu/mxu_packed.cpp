// Packed operands of the process, by what they are made of.
#include "mxu/mxu_packed.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

#include "kernel/host_pages.hpp"

namespace tpu::model {

namespace {

// What is larger is packed in parts, as it is needed. So is what finds no room beside the others.
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostBytesOfAll = size_t{256} << 20;
constexpr size_t kSmall = size_t{1} << 20;

size_t rounded_size(size_t bytes) {
  constexpr size_t kLeast = size_t{64} << 10;
  return bytes <= kSmall ? std::bit_ceil(std::max(bytes, kLeast))
                         : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

// Memory for packed operands, of rounded sizes. What is free is kept for the next ones.
class PackedMemory {
 public:
  ~PackedMemory() { drop(0); }

  // Null if there is no room.
  uint8_t* take(size_t size) {
    const auto fits = [size](const Block& block) {
      return block.size >= size && block.size <= 2 * size;
    };
    // The newest: most of it may be in a cache.
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) {
      uint8_t* const data = found->data;
      sizes_[data] = found->size;
      free_.erase(std::next(found).base());
      return data;
    }
    if (all_ + size > kMostBytesOfAll) {
      drop(kMostBytesOfAll - std::min(size, kMostBytesOfAll));
    }
    if (all_ + size > kMostBytesOfAll) {
      return nullptr;
    }
    auto* const data = size <= kSmall
                           ? static_cast<uint8_t*>(::operator new (size, std::align_val_t{kLine}))
                           : map_host_pages(size);
    all_ += size;
    sizes_[data] = size;
    return data;
  }

  void give_back(uint8_t* data) {
    const auto found = sizes_.find(data);
    free_.push_back({data, found->second});
    sizes_.erase(found);
  }

 private:
  static constexpr size_t kLine = 64;
  struct Block {
    uint8_t* data;
    size_t size;
  };

  // Gives free memory to the host, the oldest first, until all is `most` bytes.
  void drop(size_t most) {
    while (!free_.empty() && all_ > most) {
      const Block block = free_.front();
      free_.erase(free_.begin());
      all_ -= block.size;
      if (block.size <= kSmall) {
        ::operator delete (block.data, std::align_val_t{kLine});
      } else {
        unmap_host_pages(block.data, block.size);
      }
    }
  }

  std::vector<Block> free_;
  std::unordered_map<uint8_t*, size_t> sizes_;  // of what is taken
  size_t all_ = 0;
};

}  // namespace

// All of the process.
class MxuPackedOperands {
 public:
  using Key = MxuPackedOperand::Key;

  static MxuPackedOperands& of_process() {
    static auto* const all = new MxuPackedOperands();  // outlives boards that are static, too
    return *all;
  }

  MxuPackedOperand* take(const Key& key) {
    const base::MutexLock lock(mutex_);
    const auto found = used_.find(key);
    if (found != used_.end()) {
      ++found->second->uses_;
      return found->second.get();
    }
    std::unique_ptr<MxuPackedOperand> operand;
    if (free_.empty()) {
      operand = std::make_unique<MxuPackedOperand>();
    } else {
      operand = std::move(free_.back());
      free_.pop_back();
    }
    operand->key_ = key;
    operand->uses_ = 1;
    operand->asked_.store(false, std::memory_order_relaxed);
    return used_.emplace(key, std::move(operand)).first->second.get();
  }

  void give_back(MxuPackedOperand* operand) {
    const base::MutexLock lock(mutex_);
    if (--operand->uses_ != 0) {
      return;
    }
    auto node = used_.extract(operand->key_);
    {
      const base::MutexLock inside(operand->mutex_);
      for (MxuPackedOrder& order : operand->orders_) {
        if (order.data_ != nullptr) {
          memory_.give_back(order.data_);
          order.data_ = nullptr;
        }
      }
    }
    free_.push_back(std::move(node.mapped()));
  }

  uint8_t* memory(size_t size) {
    const base::MutexLock lock(mutex_);
    return memory_.take(size);
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      for (const int64_t value : key) {
        hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15;
        hash ^= hash >> 29;
      }
      return static_cast<size_t>(hash);
    }
  };

  base::Mutex mutex_;
  PackedMemory memory_ TPU_GUARDED_BY(mutex_);
  std::unordered_map<Key, std::unique_ptr<MxuPackedOperand>, Hash> used_ TPU_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MxuPackedOperand>> free_ TPU_GUARDED_BY(mutex_);
};

namespace {

using Key = std::array<int64_t, 20>;

// Fills a key from its parts.
class KeyOf {
 public:
  KeyOf& add(int64_t value) {
    key_[size_++] = value;
    return *this;
  }
  template <size_t kCount>
  KeyOf& add(const std::array<int64_t, kCount>& values) {
    std::ranges::copy(values, key_.begin() + static_cast<ptrdiff_t>(size_));
    size_ += kCount;
    return *this;
  }
  const Key& key() const { return key_; }

 private:
  Key key_{};
  size_t size_ = 0;
};

// `owner`: whose command it is; null: of any.
Key lhs_key(const MxuJob& job, const void* owner) {
  return KeyOf()
      .add(reinterpret_cast<intptr_t>(owner))
      .add(reinterpret_cast<intptr_t>(job.lhs))
      .add(job.lhs_is_bf16 ? 1 : 0)
      .add(job.row_begin)
      .add(job.rows())
      .add(job.k())
      .add(job.m_count)
      .add(job.m_lhs_stride)
      .add(job.t_count)
      .add(job.t_lhs_stride)
      .key();
}

Key rhs_key(const MxuJob& job, const void* owner) {
  return KeyOf()
      .add(reinterpret_cast<intptr_t>(owner))
      .add(reinterpret_cast<intptr_t>(job.rhs))
      .add(job.rhs_is_bf16 ? 3 : 2)
      .add(job.n_count)
      .add(job.n_rhs_stride)
      .add(job.k_count)
      .add(job.k_rhs_stride)
      .add(job.t_count)
      .add(job.t_rhs_stride)
      .key();
}

}  // namespace

MxuPackedOrder* MxuPackedOperand::open(const MxuPackedOrder::Layout& layout, size_t bytes,
                                       int64_t pieces) {
  if (bytes > kMostBytes) {
    return nullptr;
  }
  const base::MutexLock lock(mutex_);
  for (MxuPackedOrder& order : orders_) {
    if (order.data_ != nullptr && order.layout_ == layout) {
      return &order;
    }
    if (order.data_ != nullptr) {
      continue;
    }
    order.data_ = MxuPackedOperands::of_process().memory(rounded_size(bytes));
    if (order.data_ == nullptr) {
      return nullptr;
    }
    if (pieces > order.states_size_) {
      order.states_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(pieces));
      order.states_size_ = pieces;
    }
    for (int64_t i = 0; i < pieces; ++i) {
      order.states_[static_cast<size_t>(i)].store(MxuPackedOrder::kMissing,
                                                  std::memory_order_relaxed);
    }
    order.pieces_ = pieces;
    order.layout_ = layout;
    return &order;
  }
  return nullptr;
}

void MxuPackedUse::begin(std::span<MxuJob> jobs, bool lhs_held, bool rhs_held) {
  end();
  MxuPackedOperands& all = MxuPackedOperands::of_process();
  const auto same = [&jobs](const Key& key, Key (*key_of)(const MxuJob&, const void*)) {
    return jobs.size() > 1 && key_of(jobs[1], nullptr) == key;
  };
  const bool share_lhs = lhs_held || same(lhs_key(jobs[0], nullptr), lhs_key);
  const bool share_rhs = rhs_held || same(rhs_key(jobs[0], nullptr), rhs_key);
  for (MxuJob& job : jobs) {
    if (share_lhs) {
      held_.push_back(job.packed_lhs = all.take(lhs_key(job, lhs_held ? nullptr : this)));
    }
    if (share_rhs) {
      held_.push_back(job.packed_rhs = all.take(rhs_key(job, rhs_held ? nullptr : this)));
    }
  }
}

void MxuPackedUse::end() {
  for (MxuPackedOperand* operand : held_) {
    MxuPackedOperands::of_process().give_back(operand);
  }
  held_.clear();
}

}  // namespace tpu::model
