// Loads, stores and the other instructions that know of positions and masks. For the vpu_ops_*.cpp
// files only. Loops are plain: the compiler vectorises those over adjacent lanes.
#pragma once

#include "command/vpu_footprint.hpp"
#include "tpu/spec/isa.hpp"
#include "vpu/vpu_lane_ops.hpp"
#include "vpu/vpu_ops.hpp"

namespace tpu::model {
namespace {

constexpr int kRowWords = spec::kVpuLanes;

using spec::Elem;
typedef uint32_t Word __attribute__((may_alias));
typedef uint16_t Half __attribute__((may_alias));
typedef int16_t SignedHalf __attribute__((may_alias));
typedef int8_t SignedByte __attribute__((may_alias));

inline uint32_t canonical_word(uint32_t x) {
  const uint32_t flushed = (x & kExponent) == 0 ? x & kSign : x;
  return (x & kMagnitude) > kExponent ? kNanBits : flushed;
}
inline uint32_t round_bf16_word(uint32_t x) {
  const uint32_t c = canonical_word(x);
  const uint32_t rounded = c == kNanBits ? c : c + 0x7fffu + ((c >> 16) & 1u);
  return ((x & 0xffffu) == 0 ? x : rounded) >> 16;
}

// Element types: how a word leaves and enters memory.
struct WordElem {
  using Memory = Word;
  static uint32_t widen(Memory x) { return x; }
  static Memory narrow(uint32_t x) { return x; }
};
struct Bf16Elem {  // exact where a word is a bf16: moves keep all bits
  using Memory = Half;
  static uint32_t widen(Memory x) { return static_cast<uint32_t>(x) << 16; }
  static Memory narrow(uint32_t x) { return static_cast<Memory>(round_bf16_word(x)); }
};
struct HalfElem {
  using Memory = Half;
  static uint32_t widen(Memory x) { return x; }
  static Memory narrow(uint32_t x) { return static_cast<Memory>(x); }
};
struct SignedHalfElem {
  using Memory = SignedHalf;
  static uint32_t widen(Memory x) { return static_cast<uint32_t>(static_cast<int32_t>(x)); }
  static Memory narrow(uint32_t x) { return static_cast<Memory>(x); }
};
struct ByteElem {
  using Memory = uint8_t;
  static uint32_t widen(Memory x) { return x; }
  static Memory narrow(uint32_t x) { return static_cast<Memory>(x); }
};
struct SignedByteElem {
  using Memory = SignedByte;
  static uint32_t widen(Memory x) { return static_cast<uint32_t>(static_cast<int32_t>(x)); }
  static Memory narrow(uint32_t x) { return static_cast<Memory>(x); }
};
struct BitElem {
  using Memory = uint8_t;
  static uint32_t widen(Memory x) { return x; }
  static Memory narrow(uint32_t x) { return x != 0 ? 1 : 0; }
};

template <class E>
void load_run(uint32_t* __restrict rd, const uint8_t* address, int64_t lane, int count) {
  using Memory = typename E::Memory;
  if (lane == static_cast<int64_t>(sizeof(Memory))) {
    const Memory* __restrict source = reinterpret_cast<const Memory*>(address);
    for (int i = 0; i < count; ++i) {
      rd[i] = E::widen(source[i]);
    }
  } else if (lane == 0) {
    const uint32_t value = E::widen(*reinterpret_cast<const Memory*>(address));
    for (int i = 0; i < count; ++i) {
      rd[i] = value;
    }
  } else {
    for (int i = 0; i < count; ++i) {
      rd[i] = E::widen(*reinterpret_cast<const Memory*>(address + i * lane));
    }
  }
}

template <class E>
void load_block(const VpuOpArgs& args) {
  for (int s = 0; s < args.rows; ++s) {
    uint32_t* rd = args.rd + s * kRowWords;
    const int count = s < args.valid_rows ? args.valid_lanes : 0;
    if (count > 0) {
      load_run<E>(rd, args.address + s * args.sub, args.lane, count);
    }
    for (int i = count; i < args.lanes; ++i) {
      rd[i] = 0;
    }
  }
}

// Ascending lanes: where lanes share an address, the last one stands.
template <class E>
void store_run(uint8_t* address, const uint32_t* __restrict rs, int64_t lane, int count, int step) {
  using Memory = typename E::Memory;
  if (lane == static_cast<int64_t>(sizeof(Memory)) && step == 1) {
    Memory* __restrict target = reinterpret_cast<Memory*>(address);
    for (int i = 0; i < count; ++i) {
      target[i] = E::narrow(rs[i]);
    }
  } else {
    for (int i = 0; i < count; i += step) {
      *reinterpret_cast<Memory*>(address + i * lane) = E::narrow(rs[i]);
    }
  }
}

template <class E>
void store_block(const VpuOpArgs& args) {
  const auto mode = static_cast<spec::VpuStoreMode>(args.mode);
  const bool sublane0 =
      mode == spec::VpuStoreMode::kSublane0 || mode == spec::VpuStoreMode::kElement0;
  const bool lane0 = mode == spec::VpuStoreMode::kLane0 || mode == spec::VpuStoreMode::kElement0;
  int rows = args.valid_rows;
  int lanes = args.valid_lanes;
  int step = 1;
  if (args.flat) {  // sublane 0 is the first 128 lanes, lane 0 every 128th
    if (sublane0 && lanes > kRowWords) {
      lanes = kRowWords;
    }
    step = lane0 ? kRowWords : 1;
  } else {
    if (sublane0 && rows > 1) {
      rows = 1;
    }
    if (lane0 && lanes > 1) {
      lanes = 1;
    }
  }
  for (int s = 0; s < rows; ++s) {
    store_run<E>(args.address + s * args.sub, args.rs1 + s * kRowWords, args.lane, lanes, step);
  }
}

template <template <class> class Run>
void with_elem(const VpuOpArgs& args) {
  switch (static_cast<Elem>(args.type)) {
    case Elem::kF32:
    case Elem::kI32:
    case Elem::kUi32:
      return Run<WordElem>::run(args);
    case Elem::kBf16:
      return Run<Bf16Elem>::run(args);
    case Elem::kI16:
      return Run<SignedHalfElem>::run(args);
    case Elem::kUi16:
      return Run<HalfElem>::run(args);
    case Elem::kI8:
      return Run<SignedByteElem>::run(args);
    case Elem::kUi8:
      return Run<ByteElem>::run(args);
    case Elem::kI1:
      return Run<BitElem>::run(args);
    case Elem::kI64:
    case Elem::kUi64:
      return;  // refused by VpuKernel::check
  }
}

template <class E>
struct LoadBlock {
  static void run(const VpuOpArgs& args) { load_block<E>(args); }
};
template <class E>
struct StoreBlock {
  static void run(const VpuOpArgs& args) { store_block<E>(args); }
};

void op_load(const VpuOpArgs& args) { with_elem<LoadBlock>(args); }
void op_store(const VpuOpArgs& args) { with_elem<StoreBlock>(args); }

void op_index(const VpuOpArgs& args) {
  for (int s = 0; s < args.rows; ++s) {
    uint32_t* rd = args.rd + s * kRowWords;
    const uint32_t start = args.imm + static_cast<uint32_t>(s * args.sub);
    const auto lane = static_cast<uint32_t>(args.lane);
    for (uint32_t i = 0; i < static_cast<uint32_t>(args.lanes); ++i) {
      rd[i] = start + i * lane;
    }
  }
}

void op_maskid(const VpuOpArgs& args) {
  for (int s = 0; s < args.rows; ++s) {
    uint32_t* rd = args.rd + s * kRowWords;
    const uint32_t* rs = args.rs1 + s * kRowWords;
    const int count = s < args.valid_rows ? args.valid_lanes : 0;
    for (int i = 0; i < count; ++i) {
      rd[i] = rs[i];
    }
    for (int i = count; i < args.lanes; ++i) {
      rd[i] = args.imm;
    }
  }
}

}  // namespace
}  // namespace tpu::model
