// Wave files: what is written can be read back, windows hold their step only, and a full disk is an
// error of the waves, not of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>

#include "gtkwave/fstapi.h"
#include "waves/board_waves.hpp"
#include "waves/fst_process.hpp"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

struct Change {
  uint64_t time;
  std::string value;
  bool operator==(const Change&) const = default;
};
using Changes = std::map<std::string, std::vector<Change>>;

struct Reading {
  std::map<fstHandle, std::string> names;
  Changes changes;
};

void on_change(void* user, uint64_t time, fstHandle handle, const unsigned char* value) {
  auto* reading = static_cast<Reading*>(user);
  reading->changes[reading->names[handle]].push_back({time, reinterpret_cast<const char*>(value)});
}

void on_string(void* user, uint64_t time, fstHandle handle, const unsigned char* value,
               uint32_t size) {
  auto* reading = static_cast<Reading*>(user);
  reading->changes[reading->names[handle]].push_back(
      {time, std::string(reinterpret_cast<const char*>(value), size)});
}

Changes read_fst(const std::string& path) {
  Reading reading;
  void* fst = fstReaderOpen(path.c_str());
  EXPECT_NE(fst, nullptr) << path;
  if (fst == nullptr) {
    return {};
  }
  std::vector<std::string> scopes;
  while (const fstHier* entry = fstReaderIterateHier(fst)) {
    if (entry->htyp == FST_HT_SCOPE) {
      scopes.emplace_back(entry->u.scope.name);
    } else if (entry->htyp == FST_HT_UPSCOPE) {
      scopes.pop_back();
    } else if (entry->htyp == FST_HT_VAR) {
      std::string name;
      for (const std::string& scope : scopes) {
        name += scope + ".";
      }
      reading.names[entry->u.var.handle] = name + entry->u.var.name;
    }
  }
  fstReaderSetFacProcessMaskAll(fst);
  fstReaderIterBlocks2(fst, on_change, on_string, &reading, nullptr);
  fstReaderClose(fst);
  return reading.changes;
}

std::string temp_file(const std::string& name) { return ::testing::TempDir() + "/" + name; }

CommandTrace command(uint64_t issued, uint64_t start, uint64_t end, uint8_t core, spec::Queue queue,
                     spec::Opcode opcode) {
  return {.issued = issued,
          .start = start,
          .free_at = end,
          .done = end + 10,
          .pc = 0,
          .op_id = 7,
          .step = 0,
          .core = core,
          .queue = static_cast<uint8_t>(queue),
          .opcode = static_cast<uint8_t>(opcode)};
}

TEST(FstProcess, RoundTrip) {
  const std::string path = temp_file("roundtrip.fst");
  FstProcess fst(path);
  fst.push_scope("top");
  const uint32_t bits = fst.add_bits("count", 8);
  const uint32_t text = fst.add_string("state");
  fst.pop_scope();
  for (uint64_t t = 0; t < 1000; ++t) {
    fst.time(t * 3);
    fst.set_bits(bits, t & 0xff);
    fst.set_string(text, t % 2 != 0 ? "odd" : "even");
  }
  EXPECT_EQ(fst.finish(), "");
  const Changes changes = read_fst(path);
  ASSERT_EQ(changes.at("top.count").size(), 1000U);
  EXPECT_EQ(changes.at("top.count")[5], (Change{15, "00000101"}));
  EXPECT_EQ(changes.at("top.state")[1], (Change{3, "odd"}));
}

TEST(FstProcess, RefusesAPathThatCannotBeCreated) {
  EXPECT_THROW(FstProcess("/nonexistent-folder/x.fst"), std::runtime_error);
}

TEST(FstProcess, FullDiskIsAnErrorOfTheWavesOnly) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small),
            0);  // the helper inherits it: writes beyond 4 KiB fail
  FstProcess fst(temp_file("full.fst"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  const uint32_t bits = fst.add_bits("noise", 64);
  uint64_t value = 1;
  for (uint64_t t = 0; t < 400'000; ++t) {
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    fst.time(t);
    fst.set_bits(bits, value);
  }
  EXPECT_THAT(fst.finish(), HasSubstr("full.fst failed"));
}

TEST(BoardWaves, WritesTheWindowInOrderOfTime) {
  const std::string path = temp_file("board.fst");
  BoardWaves waves({.path = path,
                    .chips = 1,
                    .cores_per_chip = 1,
                    .clock_mhz = 1000,
                    .first_step = 1,
                    .step_count = 1});
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t t = 1000 * step;
    waves.program(t, 0, true);
    // Reported in order of completion: the second started first.
    waves.command(command(t + 3, t + 50, t + 60, 0, spec::Queue::kVpu, spec::Opcode::kVpuKernel));
    waves.command(command(t + 1, t + 10, t + 90, 0, spec::Queue::kMxu0, spec::Opcode::kMatmul));
    waves.program(t + 200, 0, false);
  }
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(path);
  const auto& busy = changes.at("board.chip0.core0.mxu0.busy");
  EXPECT_EQ(std::vector<Change>(busy.end() - 2, busy.end()),
            (std::vector<Change>{{1010000, "1"}, {1090000, "0"}}));
  const auto& opcode = changes.at("board.chip0.core0.vpu.opcode");
  EXPECT_EQ(opcode[opcode.size() - 2], (Change{1050000, "vpu_kernel"}));
  for (const auto& [name, list] : changes) {
    for (const Change& change : list) {
      EXPECT_TRUE(change.time == 0 || (change.time >= 1000000 && change.time <= 1200000))
          << name << " " << change.time;
    }
  }
  EXPECT_TRUE(std::filesystem::exists(temp_file("board.gtkw")));
}

}  // namespace
}  // namespace tpu::model
