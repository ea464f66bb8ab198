// Arrays that a loop carries and updates: in place, or with a note about the copies.
#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "control_builder.hpp"
#include "entry/compile.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int kTrips = 16;

// A loop over `cache` and `rows`; `body` gives what follows of both, from the counter and these.
exe::ExecutableT compiled(int64_t length, const RegionBuilder::Body& body) {
  GraphBuilder b;
  RegionBuilder r(b.region());
  const Values out = r.times(kTrips, {b.arg(f32({length, 256})), b.arg(f32({kTrips, 256}))}, body);
  return compile(std::move(b.done(out)), spec::load_board("v3_8")).executable;
}

Values zero_behind(RegionBuilder& r, Value* counter) { return {counter, r.number(i32({}), 0)}; }

// As a scan whose output is a row of its carried value before the update.
Values read_then_update(RegionBuilder& r, const Values& a) {
  Value* row = r.op(Kind::kSlice, {a[1]}, f32({1, 256}), SliceAttrs{{0, 0}, {1, 256}, {1, 1}});
  Value* made = r.add(r.slice(a[2], zero_behind(r, a[0]), {1, 256}), r.number(f32({1, 256}), 1));
  Value* cache = r.update(a[1], made, zero_behind(r, a[0]));
  return {cache, r.update(a[2], row, zero_behind(r, a[0]))};
}

// Reads the whole old array with the new one.
Values needs_both(RegionBuilder& r, const Values& a) {
  Value* row = r.slice(a[2], zero_behind(r, a[0]), {1, 256});
  Value* cache = r.update(a[1], row, zero_behind(r, a[0]));
  return {r.add(cache, r.op(Kind::kReverse, {a[1]}, a[1]->type, DimsAttrs{{0}})), a[2]};
}

// Rows of several layers, as a decoder updates its cache, with a read of each version.
Values update_thrice(RegionBuilder& r, const Values& a) {
  Values state = {a[1], a[2]};
  for (const double layer : {0, 1, 2}) {
    const Values at = {r.add(a[0], r.number(i32({}), 32 * layer)), r.number(i32({}), 0)};
    Value* made =
        r.add(r.slice(state[1], zero_behind(r, a[0]), {1, 256}), r.number(f32({1, 256}), layer));
    state[0] = r.update(state[0], made, at);
    state[1] = r.update(state[1], r.slice(state[0], at, {1, 256}), zero_behind(r, a[0]));
  }
  return state;
}

// The first version is read behind the second update.
Values keeps_a_version(RegionBuilder& r, const Values& a) {
  Value* row = r.slice(a[2], zero_behind(r, a[0]), {1, 256});
  Value* first = r.update(a[1], row, zero_behind(r, a[0]));
  const Values at = {r.add(a[0], r.number(i32({}), 1)), r.number(i32({}), 0)};
  Value* second = r.update(first, r.add(row, row), at);
  Value* read = r.add(r.slice(first, at, {1, 256}), r.slice(second, at, {1, 256}));
  return {second, r.update(a[2], read, zero_behind(r, a[0]))};
}

// The array is copied into the loop once, since the argument stays: read and written.
void expect_no_copies(const RegionBuilder::Body& body) {
  const exe::ExecutableT small = compiled(1024, body);
  const exe::ExecutableT large = compiled(32768, body);
  EXPECT_TRUE(large.notes.empty()) << large.notes[0];
  constexpr uint64_t kOnce = 2 * (32768 - 1024) * 256 * 4;
  EXPECT_LE(large.hbm_read_bytes + large.hbm_written_bytes,
            small.hbm_read_bytes + small.hbm_written_bytes + 2 * kOnce);
}

TEST(LoopCopies, NoneOfSeveralUpdatesInARow) { expect_no_copies(update_thrice); }

TEST(LoopCopies, NoneWhereTheOldArrayIsReadBeforeTheUpdate) { expect_no_copies(read_then_update); }

TEST(LoopCopies, AreNotedWithTheirSize) {
  const exe::ExecutableT e = compiled(1024, needs_both);
  ASSERT_FALSE(e.notes.empty());
  EXPECT_TRUE(e.notes[0].starts_with(
      "loop: f32[1024,256] (1048576 bytes) is copied in each iteration of the while at "))
      << e.notes[0];
}

TEST(LoopCopies, AreMadeOfAVersionThatIsStillRead) {
  const exe::ExecutableT e = compiled(32768, keeps_a_version);
  ASSERT_EQ(e.notes.size(), 2u);
  EXPECT_NE(e.notes[0].find("updates an array that is still needed as it was"), std::string::npos)
      << e.notes[0];
  EXPECT_NE(e.notes[1].find("carried value 1 is made elsewhere"), std::string::npos) << e.notes[1];
}

TEST(LoopCopies, OfLittleAreNotNoted) { EXPECT_TRUE(compiled(32, needs_both).notes.empty()); }

// Layers as a scan: a slice of the weights in each iteration, which writes a row of results.
constexpr int64_t kSide = 1024;  // of a matrix of 4 MiB
Values layer(RegionBuilder& r, const Values& a, Value* weights) {
  Value* zero = r.number(i32({}), 0);
  Value* taken = r.slice(weights, {a[0], zero, zero}, {1, kSide, kSide});
  Value* w = r.op(Kind::kReshape, {taken}, f32({kSide, kSide}));
  Value* y = r.op(Kind::kDotGeneral, {a[1], w}, f32({kSide, kSide}), DotAttrs{{}, {}, {1}, {0}});
  Value* row = r.op(Kind::kReshape, {y}, f32({1, kSide, kSide}));
  return {y, r.update(a[2], row, {a[0], zero, zero})};
}

// Each product reads and writes 4 MiB for its operands and result, and no more for slices: of a
// stack, and of arguments one by one.
TEST(LoopCopies, NoneOfSlicesThatKernelsReadAndWriteInPlace) {
  for (const bool one_by_one : {false, true}) {
    GraphBuilder b;
    RegionBuilder r(b.region());
    Value* x = b.arg(f32({kSide, kSide}));
    Value* weights = nullptr;
    if (one_by_one) {
      Values parts;
      for (int i = 0; i < kTrips; ++i) {
        parts.push_back(r.op(Kind::kReshape, {b.arg(f32({kSide, kSide}))}, f32({1, kSide, kSide})));
      }
      weights = r.op(Kind::kConcatenate, parts, f32({kTrips, kSide, kSide}), DimAttrs{0});
    } else {
      weights = b.arg(f32({kTrips, kSide, kSide}));
    }
    const Values out =
        r.times(kTrips, {x, r.number(f32({kTrips, kSide, kSide}), 0)},
                [&](RegionBuilder& in, const Values& a) { return layer(in, a, weights); });
    const exe::ExecutableT e =
        compile(std::move(b.done({out[1]})), spec::load_board("v3_8")).executable;
    constexpr uint64_t kMatrix = kSide * kSide * 4;
    EXPECT_LE(e.hbm_written_bytes, (kTrips * 2 + 1) * kMatrix) << one_by_one;
    EXPECT_LE(e.hbm_read_bytes, (kTrips * 3 + 2) * kMatrix) << one_by_one;
  }
}

// What a loop kernel writes into the stack, and a product reads there.
TEST(LoopCopies, NoneOfASliceThatAnotherKernelReads) {
  GraphBuilder b;
  RegionBuilder r(b.region());
  Value* x = b.arg(f32({kSide, kSide}));
  Value* w = b.arg(f32({kSide, kSide}));
  const Values out =
      r.times(kTrips, {x, r.number(f32({kTrips, kSide, kSide}), 0)},
              [&](RegionBuilder& in, const Values& a) {
                Value* zero = in.number(i32({}), 0);
                Value* y = in.op(Kind::kExp, {a[1]}, a[1]->type);
                Value* next = in.op(Kind::kDotGeneral, {y, w}, y->type, DotAttrs{{}, {}, {1}, {0}});
                Value* row = in.op(Kind::kReshape, {y}, f32({1, kSide, kSide}));
                return Values{next, in.update(a[2], row, {a[0], zero, zero})};
              });
  const exe::ExecutableT e =
      compile(std::move(b.done({out[1]})), spec::load_board("v3_8")).executable;
  constexpr uint64_t kMatrix = kSide * kSide * 4;
  EXPECT_LE(e.hbm_written_bytes, (kTrips * 2 + 1) * kMatrix);
  EXPECT_LE(e.hbm_read_bytes, (kTrips * 3 + 2) * kMatrix);
}

}  // namespace
}  // namespace tpu::compiler::test
