// Temporaries in HBM: none shares bytes with another one in use, the slot is as small as what is
// in use at a time where sizes allow it, and every address of a listing moves with its temporary.
#include "plan/scratch.hpp"

#include <gtest/gtest.h>

#include <random>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "entry/codegen.hpp"

namespace tpu::compiler {
namespace {

constexpr int kSlot = 3;

// One DMA from the start of each temporary to its last byte.
Listing listing_of(const std::vector<std::pair<int64_t, int64_t>>& temporaries) {
  Listing l;
  for (const auto& [address, bytes] : temporaries) {
    auto dma = make_command<spec::DmaCommand>(spec::Opcode::kDma, spec::Queue::kDmaOut, 0);
    dma.src = hbm_addr(kSlot, address);
    dma.dst = hbm_addr(kSlot, address + bytes - 1);
    Command c;
    c.body = dma;
    c.windows.push_back({spec::Space::kHbm, kSlot, address, address + bytes, 0, 0, true});
    l.append(std::move(c));
  }
  return l;
}

struct Range {
  int64_t lo, hi;
};

std::vector<Range> placed(const Listing& l, const std::vector<std::pair<int64_t, int64_t>>& all) {
  std::vector<Range> out;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& c = std::get<Command>(l.items[i]);
    const auto& dma = std::get<spec::DmaCommand>(c.body);
    const Range r{dma.src.offset, dma.src.offset + all[i].second};
    EXPECT_EQ(dma.dst.offset, r.hi - 1);
    EXPECT_EQ(c.windows[0].lo, r.lo);
    EXPECT_EQ(c.windows[0].hi, r.hi);
    EXPECT_EQ(r.lo % 512, 0);
    out.push_back(r);
  }
  return out;
}

TEST(Scratch, NeverSharesBytesOfTemporariesInUse) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Scratch s;
    std::vector<std::pair<int64_t, int64_t>> all;
    std::vector<std::pair<int, int>> life;
    std::vector<size_t> alive;
    for (int t = 0; t < 200; ++t) {
      if (!alive.empty() && random() % 2 == 0) {
        const size_t i = random() % alive.size();
        s.give(all[alive[i]].first);
        life[alive[i]].second = t;
        alive.erase(alive.begin() + static_cast<ptrdiff_t>(i));
      } else {
        const int64_t bytes = 1 + static_cast<int64_t>(random() % 100'000);
        alive.push_back(all.size());
        all.emplace_back(s.take(bytes, nullptr, 0), bytes);
        life.emplace_back(t, 1000);
      }
    }
    s.place();
    Listing l = listing_of(all);
    s.relocate(l, kSlot);
    const std::vector<Range> at = placed(l, all);
    for (size_t a = 0; a < all.size(); ++a) {
      EXPECT_LE(at[a].hi, s.bytes());
      for (size_t b = 0; b < a; ++b) {
        const bool meet = life[a].first < life[b].second && life[b].first < life[a].second;
        EXPECT_FALSE(meet && at[a].lo < at[b].hi && at[b].lo < at[a].hi)
            << "seed " << seed << ", temporaries " << b << " and " << a;
      }
    }
    EXPECT_GE(s.bytes(), s.peak_bytes());
    EXPECT_LE(s.bytes(), s.peak_bytes() * 5 / 4);
  }
}

// In the order of time, the third would go behind the second: the hole of the first is too small.
TEST(Scratch, LaysLargeOnesFirst) {
  Scratch s;
  const int64_t small = s.take(1024, nullptr, 0), kept = s.take(512, nullptr, 0);
  s.give(small);
  const int64_t large = s.take(4096, nullptr, 0);
  s.place();
  EXPECT_EQ(s.peak_bytes(), 4096 + 512);
  EXPECT_EQ(s.bytes(), 4096 + 512);
  Listing l = listing_of({{large, 4096}, {kept, 512}});
  s.relocate(l, kSlot);
  EXPECT_EQ(placed(l, {{large, 4096}, {kept, 512}})[0].lo, 0);
}

TEST(Scratch, LeavesOtherSlotsAlone) {
  Scratch s;
  s.take(1024, nullptr, 0);
  const int64_t second = s.take(512, nullptr, 0);
  s.place();
  Listing l = listing_of({{second, 512}});
  s.relocate(l, kSlot + 1);
  EXPECT_EQ(std::get<spec::DmaCommand>(std::get<Command>(l.items[0]).body).src.offset, second);
  EXPECT_THROW(
      {
        Listing wrong = listing_of({{second + 4096, 512}});
        s.relocate(wrong, kSlot);
      },
      Error);
}

using test::f32;
using test::GraphBuilder;

// x and one temporary after the other, each the exponential of the one before without its sum; all
// are added up in the end.
Module& chain(GraphBuilder& b, int length) {
  const Type large = f32({int64_t{1} << 25});  // 128 MiB
  Value *v = b.arg(large), *all = nullptr;
  for (int i = 0; i < length; ++i) {
    Value* sum = b.reduce(v, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
    Value* each = b.op(Kind::kBroadcastInDim, {sum}, large, DimsAttrs{{}});
    v = b.op(Kind::kExp, {b.op(Kind::kSubtract, {v, each}, large)}, large);
    all = all == nullptr ? v : b.op(Kind::kMultiply, {v, all}, large);
  }
  return b.done({all});
}

TEST(Memory, NamesWhatFillsItWhereAProgramDoesNotFit) {
  const spec::BoardParams board = spec::load_board("v3_8", {"hbm.gib_per_core=1"});
  GraphBuilder fits, large;
  EXPECT_LE(generate(chain(fits, 3), board).hbm_bytes, uint64_t{1} << 30);
  const Type half = f32({int64_t{1} << 27});
  Value* x = large.arg(half);
  Value* sum = large.reduce(x, large.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  Value* e = large.op(Kind::kExp, {x}, half);
  Value* each = large.op(Kind::kBroadcastInDim, {sum}, half, DimsAttrs{{}});
  Value* total = large.reduce(e, large.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  Value* both = large.op(Kind::kAdd,
                         {large.op(Kind::kMultiply, {e, each}, half),
                          large.op(Kind::kBroadcastInDim, {total}, half, DimsAttrs{{}})},
                         half);
  Value* last = large.reduce(both, large.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  try {
    generate(large.done({last}), board);
    ADD_FAILURE() << "a temporary as large as the argument fits nowhere";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("a core has 1 GiB"), std::string::npos) << text;
    EXPECT_NE(text.find("536870912 bytes: argument 0"), std::string::npos) << text;
    EXPECT_NE(text.find("536870912 bytes: f32[134217728] of exponential at"), std::string::npos)
        << text;
    EXPECT_NE(text.find("are in use at a time, in kernel"), std::string::npos) << text;
  }
}

TEST(Memory, PutsTheArraysOfEqualLayersTogether) {
  std::vector<SlotInfo> slots;
  for (uint32_t i = 0; i < 12; ++i) {
    const std::string layer = "p['layer_" + std::to_string(i) + "']['";
    slots.push_back({exe::SlotKind::argument, 8192, 2 * i, layer + "kernel']"});
    slots.push_back({exe::SlotKind::argument, 128, 2 * i + 1, layer + "bias']"});
  }
  slots.push_back({exe::SlotKind::argument, 8192, 24, "x"});
  slots.push_back({exe::SlotKind::argument, 8192, 25, ""});
  slots.push_back({exe::SlotKind::argument, 8192, 26, ""});
  EXPECT_EQ(
      memory_report(slots, {}, exe::OpInfoT{}),
      "  arguments, results and constants: 124416 bytes"
      "\n    12 x 8192 bytes: argument 0 (p['layer_0']['kernel']) .. "
      "22 (p['layer_11']['kernel'])"
      "\n    8192 bytes: argument 25"
      "\n    8192 bytes: argument 26"
      "\n    8192 bytes: argument 24 (x)"
      "\n    12 x 128 bytes: argument 1 (p['layer_0']['bias']) .. 23 (p['layer_11']['bias'])");
}

}  // namespace
}  // namespace tpu::compiler
