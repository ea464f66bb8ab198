// Short loops outside of a command: each of their iterations has a program of its own, which reads
// only what some element takes there.
#include <gtest/gtest.h>

#include <sstream>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "entry/codegen.hpp"

namespace tpu::compiler::test {
namespace {

// Reads of each command of the vector unit behind the first, which makes the taps.
std::vector<int> reads_of_commands(const Module& m) {
  std::string text;
  CompileOptions options;
  options.dump_after = {"listing"};
  options.dump = [&](const std::string&, const std::string& t) { text = t; };
  generate(m, spec::load_board("v3_8", {}), options);
  std::vector<int> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("vpu_kernel") == std::string::npos) {
      continue;
    }
    std::istringstream words(line);
    int reads = 0;
    for (std::string word; words >> word;) {
      reads += word.starts_with("Rvmem") ? 1 : 0;
    }
    out.push_back(reads);
  }
  out.erase(out.begin());
  return out;
}

// y[n, h, p, w, q, c] = tap[n, h, w, c] == 2 * p + q ? x[n, h, w, c] : 0, of taps 0 and 1. More
// rows of taps than of results keep images and rows two loops.
TEST(Phases, ReadWhatSomeElementTakes) {
  GraphBuilder b;
  const Dims rows = {3, 7, 5, 64}, windows = {3, 6, 5, 64}, all = {3, 6, 2, 5, 2, 64};
  const Type bytes{Elem::kI8, rows};
  const auto wide = [&](Value* v) {
    Value* part = b.op(Kind::kSlice, {v}, {v->type.elem, windows},
                       SliceAttrs{{0, 0, 0, 0}, windows, {1, 1, 1, 1}});
    return b.op(Kind::kBroadcastInDim, {part}, {v->type.elem, all}, DimsAttrs{{0, 1, 3, 5}});
  };
  Value* tap =
      b.op(Kind::kSelect, {b.arg(i1(rows)), b.constant(bytes, 1), b.constant(bytes, 0)}, bytes);
  Value* code = b.op(Kind::kConvert, {wide(tap)}, i32(all));
  Value* row = b.op(Kind::kIota, {}, i32(all), DimAttrs{2});
  Value* twice = b.op(Kind::kMultiply, {row, b.constant(i32(all), 2)}, i32(all));
  Value* column = b.op(Kind::kIota, {}, i32(all), DimAttrs{4});
  Value* wanted = b.op(Kind::kAdd, {twice, column}, i32(all));
  Value* mine = b.op(Kind::kCompare, {code, wanted}, i1(all),
                     CompareAttrs{CompareDirection::kEq, CompareType::kSigned});
  Value* x = wide(b.arg(f32(rows)));
  Value* y = b.op(Kind::kSelect, {mine, x, b.constant(f32(all), 0)}, f32(all));
  EXPECT_EQ(reads_of_commands(b.done({y})), (std::vector<int>{2, 2, 0, 0}));
}

}  // namespace
}  // namespace tpu::compiler::test
