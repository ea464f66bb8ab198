// Fault files: what they say, and the errors of those that are wrong.
#include "faults/fault_script.hpp"

#include <gtest/gtest.h>

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
      {"[[fault]]\nkind = \"mxu\"", "kind 'mxu' is not built into this version"},
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
