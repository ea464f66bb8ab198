// The ports of the Verilog in the board's wave file are those of the Verilog's own dump, cycle by
// cycle.
#include "waves/verilog_ports.hpp"

#include <gtest/gtest.h>

#include "fst_reader.hpp"
#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu_job_source.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kClockMhz = 940;
constexpr uint64_t kStart = 1000;  // cycle of the first command
const std::string kUnit = "board.chip0.core1.mxu0";

// At a half of a cycle, in picoseconds.
uint64_t at(uint64_t half_cycles) { return half_cycles * 1'000'000 / (2 * kClockMhz); }

std::string value(const test::WaveChanges& changes, const std::string& signal, uint64_t time) {
  std::string found;
  for (const test::WaveChange& change : changes.at(kUnit + "." + signal)) {
    if (change.time > time) {
      break;
    }
    found = change.value;
  }
  return found;
}

// The dump has a signal a word.
std::string words(const test::WaveChanges& changes, const std::string& port, uint64_t time,
                  int count) {
  std::string bits;
  for (int word = count - 1; word >= 0; --word) {
    bits += value(changes, port + "[" + std::to_string(word) + "]", time);
  }
  return bits;
}

TEST(VerilogPorts, AreThoseOfTheVerilogsOwnFile) {
  const std::string own_path = ::testing::TempDir() + "/ports_own.fst";
  const std::string board_path = ::testing::TempDir() + "/ports_board.fst";
  const auto engine = make_mxu_engine(
      {.kind = "rtl", .simd = "scalar", .shape = {}, .path = kUnit, .lockstep = {}});
  auto& rtl = dynamic_cast<MxuRtlEngine&>(*engine);
  rtl.set_wave_window(
      {.path = own_path, .depth = 1, .clock_hz = kClockMhz * 1'000'000, .tiles = 9});
  SignalTree tree({});
  VerilogPorts ports({.path = kUnit}, tree);
  FstProcess fst({.path = board_path, .clock_mhz = kClockMhz});
  tree.declare(fst);
  fst.open(0);
  rtl.set_port_observer([&](const MxuPorts& now) { ports.show(fst, 0, UINT64_MAX, now); });
  const test::OwnedJob owned =
      test::packed_job({.rows = 7, .k = 200, .n = 40}, 3, test::Values::kNormal);
  std::vector<uint32_t> out = owned.out;
  MxuJob job = owned.on(out);
  job.start_cycle = kStart;
  job.op_id = 12;
  rtl.run(job);
  const uint64_t end = kStart + rtl.last_cycles().done_at;
  rtl.finish_waves();
  EXPECT_EQ(fst.finish(), "");

  const test::WaveChanges own = test::read_fst(own_path);
  const test::WaveChanges board = test::read_fst(board_path);
  size_t rows = 0;
  for (uint64_t cycle = kStart + 1; cycle < end; ++cycle) {
    const auto same = [&](const std::string& mine, const std::string& theirs, uint64_t half) {
      const std::string shown = value(board, "rtl." + mine, at(2 * cycle));
      EXPECT_EQ(shown, value(own, theirs, at(2 * cycle + half))) << mine << " " << cycle;
      return shown;
    };
    const auto same_words = [&](const std::string& mine, const std::string& theirs, int count,
                                uint64_t half) {
      EXPECT_EQ(value(board, "rtl." + mine, at(2 * cycle)),
                words(own, theirs, at(2 * cycle + half), count))
          << mine << " " << cycle;
    };
    // The dump has inputs in the middle of their cycle, outputs from the edge on.
    same("w_valid", "w_valid_i", 1);
    same("x_swap", "x_swap_i", 1);
    same("busy", "busy_o", 0);
    if (same("x_valid", "x_valid_i", 1) == "1") {
      same_words("x", "x_i", 64, 1);
      same_words("acc", "acc_i", 128, 1);
    }
    if (value(board, "rtl.w_valid", at(2 * cycle)) == "1") {
      same_words("w", "w_i", 128, 1);
    }
    if (same("y_valid", "y_valid_o", 0) == "1") {
      same_words("y", "y_o", 128, 0);
      ++rows;
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(rows, 2U * 7U);  // of two tiles
  EXPECT_EQ(std::stoul(value(board, "rtl.op_id", at(2 * kStart)), nullptr, 2), 12U);
}

}  // namespace
}  // namespace tpu::model
