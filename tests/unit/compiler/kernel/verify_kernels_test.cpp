// Broken kernel programs are refused, each with what is wrong; every pass leaves a sound one.
#include "kernel/verify_kernels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../control_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

using testing::HasSubstr;

std::string error_of(const KernelProgram& program) {
  try {
    verify(program);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Kernel& first(KernelProgram& program, KernelClass kind) {
  for (Kernel& k : program.kernels) {
    if (k.kind == kind) {
      return k;
    }
  }
  throw Error("the program has no such kernel");
}

// x.y, then its exponential and the sums of it, in kernels of their own.
class VerifyKernels : public testing::Test {
 protected:
  VerifyKernels() {
    Value* x = b_.arg(f32({64, 32}));
    Value* y = b_.arg(f32({32, 16}));
    DotAttrs dot;
    dot.lhs_contract = {1};
    dot.rhs_contract = {0};
    Value* d = b_.op(Kind::kDotGeneral, {x, y}, f32({64, 16}), dot);
    Value* e = b_.op(Kind::kExp, {d}, f32({64, 16}));
    Value* s = b_.reduce(e, b_.constant(f32({}), 0), {1}, f32({64}), Kind::kAdd);
    program_ = form_kernels(b_.done({e, s}), {512 * 1024});
    verify(program_);
  }

  GraphBuilder b_;
  KernelProgram program_;
};

TEST_F(VerifyKernels, RefusesReadersInFrontOfTheMaker) {
  program_.kernels.splice(program_.kernels.end(), program_.kernels, program_.kernels.begin());
  EXPECT_THAT(error_of(program_), HasSubstr("has an order that does not count up"));
  renumber(program_);
  EXPECT_THAT(error_of(program_), HasSubstr("reads a value in front of the kernel that makes it"));
}

TEST_F(VerifyKernels, RefusesReadsThatNobodyMakes) {
  program_.kernels.pop_front();
  renumber(program_);
  EXPECT_THAT(error_of(program_), HasSubstr("reads a value that no kernel makes"));
}

TEST_F(VerifyKernels, RefusesTwoWriters) {
  program_.kernels.push_back(first(program_, KernelClass::kLoop));
  renumber(program_);
  const std::string e = error_of(program_);
  EXPECT_THAT(e, HasSubstr("writes what another kernel writes"));
  EXPECT_THAT(e, HasSubstr("test.py:"));
  EXPECT_THAT(e, HasSubstr("stablehlo."));
}

TEST_F(VerifyKernels, RefusesANestThatReadsAnotherBuffer) {
  first(program_, KernelClass::kLoop).reads.clear();
  EXPECT_THAT(error_of(program_), HasSubstr("has a nest that reads another buffer"));
}

TEST_F(VerifyKernels, RefusesWritesOfForeignOps) {
  Kernel& loop = first(program_, KernelClass::kLoop);
  Value* other = b_.module()
                     .main->body.append(Kind::kIota, {}, {f32({4})}, DimAttrs{}, unknown_loc())
                     ->result();
  loop.writes.push_back(other);
  EXPECT_THAT(error_of(program_), HasSubstr("writes what it does not compute"));
}

TEST_F(VerifyKernels, RefusesRecomputedOpsThatAreWritten) {
  Kernel& loop = first(program_, KernelClass::kLoop);
  loop.as<LoopPart>().recomputed.insert(loop.writes.at(0)->def);
  EXPECT_THAT(error_of(program_), HasSubstr("writes what it recomputes"));
}

TEST_F(VerifyKernels, RefusesAContractionThatLosesItsResult) {
  first(program_, KernelClass::kContract).writes.clear();
  EXPECT_THAT(error_of(program_), HasSubstr("does not write its result"));
}

TEST_F(VerifyKernels, RefusesPartsOfAnotherClass) {
  first(program_, KernelClass::kLoop).part = MovePart{};
  EXPECT_THAT(error_of(program_), HasSubstr("has the part of another class"));
}

TEST_F(VerifyKernels, RefusesAYieldInMain) {
  Kernel yield(KernelClass::kYield);
  yield.ops = {b_.module().main->body.ops[0].get()};
  program_.kernels.push_back(yield);
  renumber(program_);
  EXPECT_THAT(error_of(program_), HasSubstr("is a yield inside of a program"));
}

TEST(VerifyExchanges, RefusesBytesOutsideOfTheValue) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({16}));
  Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, f32({16}), CollectiveAttrs{}), Kind::kAdd);
  KernelProgram program = form_kernels(b.done({sum}), {512 * 1024});
  verify(program);
  first(program, KernelClass::kAllReduce).as<ExchangePart>().spans.at(0).bytes += 4;
  EXPECT_THAT(error_of(program), HasSubstr("exchanges bytes outside of a value"));
}

TEST(VerifyRegions, RefusesLoopsWithoutBodyOrYield) {
  GraphBuilder b;
  Value* x = b.arg(f32({3000}));
  RegionBuilder r(b.region());
  b.done(r.times(5, {x},
                 [](RegionBuilder& in, const Values& a) { return Values{in.mul(a[1], a[1])}; }));
  KernelProgram program = form_kernels(b.module(), {512 * 1024});
  verify(program);
  Kernel& loop = first(program, KernelClass::kWhile);
  const Kernel yield = loop.control().regions[1]->kernels.back();
  loop.control().regions[1]->kernels.pop_back();
  renumber(program);
  EXPECT_THAT(error_of(program), HasSubstr("ends a region without one"));
  loop.control().regions[1]->kernels.push_back(yield);
  renumber(program);
  verify(program);
  loop.as<ControlPart>().regions[1] = nullptr;
  renumber(program);
  EXPECT_THAT(error_of(program), HasSubstr("has no body"));
}

// The copy may go over an argument that the kernel behind it reads.
TEST(VerifyRegions, RefusesKernelsBehindACopyToAResult) {
  GraphBuilder b;
  Value* x = b.arg(f32({3000}));
  RegionBuilder r(b.region());
  b.done(r.times(5, {x},
                 [](RegionBuilder& in, const Values& a) { return Values{in.mul(a[1], a[1])}; }));
  KernelProgram program = form_kernels(b.module(), {512 * 1024});
  std::list<Kernel>& body =
      first(program, KernelClass::kWhile).as<ControlPart>().regions[1]->kernels;
  const Value* made = body.front().writes.at(0);
  Kernel copy(KernelClass::kCopyOut);
  copy.out = made;
  copy.reads = {made};
  body.insert(std::prev(body.end()), copy);
  renumber(program);
  verify(program);
  Kernel late(KernelClass::kLoop);
  late.ops = body.front().ops;
  body.insert(std::prev(body.end()), late);
  renumber(program);
  EXPECT_THAT(error_of(program), HasSubstr("is behind a copy to a result"));
}

TEST(KernelPasses, RunInOrderAndKeepTheProgramSound) {
  GraphBuilder b;
  Value* x = b.arg(f32({3000}));
  Module& m = b.done({b.op(Kind::kExp, {x}, f32({3000}))});
  const spec::BoardParams board = spec::load_board("v3_8");
  KernelContext context{m, board};
  std::vector<std::string> seen;
  KernelPassOptions options;
  options.after = [&](const std::string& pass, const KernelProgram&) { seen.push_back(pass); };
  const KernelProgram program = run_kernel_passes(context, options);
  EXPECT_EQ(seen, (std::vector<std::string>{"form", "one_result", "recompute", "split", "epilogue",
                                            "span_taps", "shard_update", "early_exchanges",
                                            "late_updates", "host_transfers", "full_blocks"}));
  EXPECT_EQ(seen, kernel_pass_names());
  EXPECT_EQ(print(program), print(make_kernels(m, board)));
}

}  // namespace
}  // namespace tpu::compiler::test
