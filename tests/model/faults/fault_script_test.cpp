// Fault files: what they say, and the errors of those that are wrong.
#include "faults/fault_script.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>

#include "board/board_loader.hpp"
#include "probe/events.hpp"

namespace tpu::model {
namespace {

FaultScript parse(const std::string& text, uint64_t seed = 0) {
  return parse_fault_script(text, "f.toml", seed, spec::load_board("v3_8"));
}

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

std::string entry(const std::string& rest) { return "[[fault]]\n" + rest; }

TEST(FaultScript, ReadsAllThatAnEntryCanSay) {
  const FaultScript script = parse(R"(
seed = 7
[[fault]]
kind = "hbm"
where = "core 3"
at = "step 120 + 5000"
bits = 2
address = "slot 4 + 0x100"
[[fault]]
kind = "core_hang"
where = "core 7"
at = "op dot.3 #12"
unit = "mxu1"
[[fault]]
kind = "pcie_down"
where = "chip 3"
rate = "0.25 per launch"
)");
  ASSERT_EQ(script.entries.size(), 3U);
  EXPECT_EQ(script.seed, 7U);
  EXPECT_TRUE(script.ecc);
  const FaultEntry& hbm = script.entries[0];
  EXPECT_EQ(hbm.kind, FaultKind::kHbm);
  EXPECT_EQ(hbm.unit, 3U);
  EXPECT_EQ(hbm.bits, 2U);
  EXPECT_EQ(hbm.time.kind, FaultTime::Kind::kStep);
  EXPECT_EQ(hbm.time.number, 120U);
  EXPECT_EQ(hbm.time.cycles, 5000U);
  EXPECT_EQ(hbm.address.kind, FaultAddress::Kind::kSlot);
  EXPECT_EQ(hbm.address.slot, 4U);
  EXPECT_EQ(hbm.address.offset, 256U);
  const FaultEntry& hang = script.entries[1];
  EXPECT_EQ(hang.engine, static_cast<uint32_t>(spec::Queue::kMxu1));
  EXPECT_EQ(hang.time.op, "dot.3");
  EXPECT_EQ(hang.time.number, 12U);
  EXPECT_EQ(script.entries[2].time.rate, 0.25);
  EXPECT_EQ(fault_place(script.entries[2]), "chip 3");
  EXPECT_EQ(
      parse("seed = 1\n" + entry("kind=\"hart_hang\"\nwhere=\"core 0\"\nat=\"cycle 1\""), 5).seed,
      5U);
}

TEST(FaultScript, WideRangesAreDrawnWhole) {
  uint64_t high = 0;
  uint64_t low = UINT64_MAX;
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    const std::string wide = "kind=\"hart_hang\"\nwhere=\"core 0\"\nat=\"cycle 0..0xfffffffffff\"";
    const uint64_t cycle = parse(entry(wide), seed).entries[0].time.number;
    EXPECT_LE(cycle, 0xfffffffffffU);
    high = std::max(high, cycle);
    low = std::min(low, cycle);
  }
  EXPECT_GT(high, uint64_t{1} << 43);
  EXPECT_LT(low, uint64_t{1} << 43);
}

TEST(FaultScript, ErrorsNameTheLineAndWhatToDo) {
  const struct {
    const char* text;
    const char* part;
  } kCases[] = {
      {"", "there is no fault in it"},
      {"sed = 3", "unknown key 'sed'"},
      {"seed = -1", "'seed' must be an integer"},
      {"ecc = 1", "'ecc' must be true or false"},
      {"fault = 3", "'fault' must be a list of tables"},
      {"[[fault]\n", "f.toml:1"},
      {"[[fault]]\nwhere = \"core 1\"", "'kind' is missing"},
      {"[[fault]]\nkind = \"hmb\"", "like it are hbm"},
      {"[[fault]]\nkind = \"rtl_mismatch\"",
       "use kind = \"mxu\", a wrong result, on a board whose matrix units are in lockstep"},
      {"[[fault]]\nkind = \"mxu\"\nwhere = \"core 1\"\nat = \"step 1\"\nunit = \"mxu2\"",
       "a matrix unit, mxu0 to mxu1"},
      {"[[fault]]\nkind = \"mxu\"\nwhere = \"core 1\"\nat = \"step 1\"\ncommands = 0",
       "commands = 0: expected 1 or more"},
      {"[[fault]]\nkind = \"mxu\"\nwhere = \"core 1\"\nat = \"step 1\"\naddress = \"0\"",
       "has no key 'address'"},
      {"[[fault]]\nkind = \"mxu\"\nwhere = \"core 1\"\nat = \"step 1\"\nbit = 32",
       "bit = 32: expected 0 to 31"},
      {"[[fault]]\nkind = \"tcm\"\nwhere = \"core 1\"\nat = \"step 1\"\nbit = 8",
       "bit = 8: expected 0 to 7"},
      {"[[fault]]\nkind = \"tcm\"\nwhere = \"core 1\"\nat = \"step 1\"\nbits = 2",
       "has no key 'bits'"},
      {"[[fault]]\nkind = \"smem\"\nwhere = \"core 1\"\nat = \"step 1\"\nbit = 3\nbits = 2",
       "contradicts bits = 2"},
      {"[[fault]]\nkind = \"vmem\"\nwhere = \"core 1\"\nat = \"step 1\"\naddress = \"16777216\"",
       "the memory has 16777216 bytes"},
      {"[[fault]]\nkind = \"vmem\"\nwhere = \"core 1\"\nat = \"step 1\"\naddress = \"slot 1\"",
       "or an offset in the core's VMEM"},
      {"[[fault]]\nkind = \"vmem\"\nwhere = \"core 1\"\nat = \"step 9..3\"", "may be ranges"},
      {"[[fault]]\nkind = \"vmem\"\nwhere = \"core 1\"\nat = \"step 3..\"", "may be ranges"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 8\"\nat = \"cycle 1\"", "cores 0 to 7"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"chip 1\"\nat = \"cycle 1\"", "expected \"core N\""},
      {"[[fault]]\nkind = \"pcie_down\"\nwhere = \"chip 4\"\nat = \"cycle 1\"", "chips 0 to 3"},
      {"[[fault]]\nkind = \"link_down\"\nwhere = \"chip 1\"\nat = \"cycle 1\"",
       "expected \"link chipN +x\""},
      {"[[fault]]\nkind = \"link_down\"\nwhere = \"link chip4 +x\"\nat = \"cycle 1\"",
       "the board has chips 0 to 3"},
      {"[[fault]]\nkind = \"link_down\"\nwhere = \"link chip0 -y\"\nat = \"cycle 1\"\nfor = \"1 "
       "h\"",
       "expected \"N us\""},
      {"[[fault]]\nkind = \"link_corrupt\"\nwhere = \"link chip0 -y\"\nat = \"cycle 1\"\nrepeats = "
       "9",
       "expected 1 to 8"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"", "'at' or 'rate' is missing"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"cycle 1\"\nrate = \"0.1 per step\"",
       "contradict each other"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"soon\"", "expected \"cycle N\""},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"step 3 +\"", "expected \"cycle N\""},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"op x #0\"", "expected \"cycle N\""},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nrate = \"1.5 per step\"", "at most 1"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nrate = \"nan per step\"", "at most 1"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nrate = \"0.1 per day\"", "\"R per step\""},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"cycle 1\"\nbits = 3", "bits = 3"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"cycle 1\"\naddress = \"slot 1\"",
       "slots belong to a launch"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"step 1\"\naddress = \"slot 99999\"",
       "at most 16384 slots"},
      {"[[fault]]\nkind = \"hbm\"\nwhere = \"core 1\"\nat = \"step 1\"\naddress = \"17179869184\"",
       "the memory has 17179869184 bytes"},
      {"[[fault]]\nkind = \"hart_hang\"\nwhere = \"core 1\"\nat = \"step 1\"\nbits = 1",
       "has no key 'bits'"},
      {"[[fault]]\nkind = \"core_hang\"\nwhere = \"core 1\"\nat = \"step 1\"\nunit = \"mxu2\"",
       "a core has sequencer, mxu0, mxu1"},
      {"[[fault]]\nkind = \"hart_hang\"\nwhere = \"core 1\"\nat = \"step 1\"\n[[fault]]\nkind = "
       "\"hart_hang\"\nwhere = \"core 1\"\nat = \"step 1\"",
       "f.toml:5: fault 2 is the same as fault 1 in line 1"},
  };
  for (const auto& each : kCases) {
    const std::string error = error_of(each.text);
    EXPECT_NE(error.find(each.part), std::string::npos) << each.text << "\n-> " << error;
    EXPECT_TRUE(error.starts_with("f.toml:")) << error;
  }
}

TEST(FaultScript, TheSeedChoosesFromRanges) {
  const std::string text =
      entry("kind = \"mxu\"\nwhere = \"core 1\"\nat = \"step 2..9 + 100..199\"\nunit = \"random\"");
  std::set<uint64_t> steps;
  std::set<uint64_t> cycles;
  std::set<uint32_t> units;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const FaultEntry drawn = parse(text, seed).entries[0];
    steps.insert(drawn.time.number);
    cycles.insert(drawn.time.cycles);
    units.insert(drawn.engine);
    EXPECT_EQ(parse(text, seed).entries[0].time.cycles, drawn.time.cycles);
  }
  EXPECT_EQ(steps, (std::set<uint64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(*cycles.begin() / 100, 1U);
  EXPECT_EQ(*cycles.rbegin() / 100, 1U);
  EXPECT_GT(cycles.size(), 50U);
  EXPECT_EQ(units, (std::set<uint32_t>{static_cast<uint32_t>(spec::Queue::kMxu0),
                                       static_cast<uint32_t>(spec::Queue::kMxu1)}));
}

TEST(FaultScript, TheDigestIsOfTextAndSeed) {
  const std::string text = entry("kind=\"hart_hang\"\nwhere=\"core 0\"\nat=\"cycle 1\"");
  EXPECT_EQ(parse(text, 3).digest, parse(text, 3).digest);
  EXPECT_NE(parse(text, 3).digest, parse(text, 4).digest);
  EXPECT_NE(parse(text, 3).digest, parse(text + "\n", 3).digest);
}

TEST(FaultScript, DrawsDependOnNothingButSeedEntryAndCount) {
  const std::string text = entry("kind=\"hbm\"\nwhere=\"core 0\"\nat=\"cycle 1\"");
  const FaultEntry one = parse(text).entries[0];
  FaultEntry other = one;
  other.unit = 1;
  EXPECT_EQ(fault_draw(3, one, 0), fault_draw(3, one, 0));
  const std::set<std::array<uint32_t, 4>> draws = {fault_draw(3, one, 0), fault_draw(4, one, 0),
                                                   fault_draw(3, one, 1), fault_draw(3, other, 0)};
  EXPECT_EQ(draws.size(), 4U);
}

}  // namespace
}  // namespace tpu::model
