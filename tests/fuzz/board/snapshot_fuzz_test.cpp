// Snapshots whose checksums are right and whose numbers are not: each is refused with an error that
// is the file's, or opened and used; no process ends by a signal. The driver's part under
// sanitizers: tests/fuzz/driver. A process can have one board, so each one is opened in a child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/snapshot_mutator.hpp"
#include "tests/fuzz/use_damaged.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr int kMutations = 150;
constexpr unsigned kPatience = 120;  // seconds for one file; longer is a hang

class SnapshotFuzz : public ::testing::Test {
 protected:
  SnapshotFuzz()
      : folder_(fs::path(::testing::TempDir()) / ("snapshot_fuzz_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    EXPECT_EQ(in_child([this](std::ostream&) { save(); }), "");
    good_ = read(file("good"));
  }
  ~SnapshotFuzz() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  static std::vector<std::byte> read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> text((std::istreambuf_iterator<char>(in)), {});
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }

  std::string in_child(const std::function<void(std::ostream&)>& body) const {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatience);
      std::ofstream out(file("report"));
      body(out);
      out.close();
      std::_Exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      return "signal " + std::to_string(WTERMSIG(status));
    }
    std::ifstream in(file("report"));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // A board with a program that is loaded and one that is gone, and arrays.
  void save() const {
    const Board board = Board::open();
    SnapshotItems items;
    const auto programs = tpu::test::fuzz_corpus(TPU_PROGRAMS, ".tpuexe");
    items.programs["program"] = board.load(programs.at(0));
    tpu::test::launch(items.programs["program"]);
    board.load(programs.at(1));
    const std::vector<std::byte> zeros(4096);
    items.arrays["x"] = board.replicate(HostView(DType::kF32, {1024}, zeros));
    items.notes["step"] = "17";
    board.save_snapshot(file("good"), items);
  }

  // What becomes of the file: "", or the code of the error; "signal N".
  std::string used(const std::vector<std::byte>& bytes) const {
    std::ofstream(file("bad"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return in_child([this](std::ostream& out) {
      try {
        OpenOptions options;
        options.snapshot = file("bad");
        options.time_limit = 20;
        const Board board = Board::open(options);
        try {
          const SnapshotItems items = board.take_snapshot_items();
          for (const auto& [name, array] : items.arrays) {
            array.to_host();
          }
          for (const auto& [name, program] : items.programs) {
            if (tpu::test::parameter_bytes(program) <= tpu::test::kLargestUsed) {
              tpu::test::launch(program);
            }
          }
          board.close();
        } catch (const Error& error) {
          out << "used: " << error_code_name(error.code());
        }
      } catch (const Error& error) {
        // What was saved does not fit together: that is the file's fault, and said so.
        out << (error.code() == ErrorCode::kInternal ? error.what() : "refused");
      }
    });
  }

  // Whether it is as a user may see it.
  static bool is_said(const std::string& outcome) {
    return outcome.empty() || outcome == "refused" || outcome.starts_with("used: ");
  }

  const fs::path folder_;
  std::vector<std::byte> good_;
};

template <typename Number>
void put(std::vector<std::byte>& bytes, size_t at, Number value) {
  ASSERT_LE(at + sizeof value, bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

TEST_F(SnapshotFuzz, NumbersThatPointOutsideAreRefused) {
  ASSERT_EQ(used(tpu::test::SnapshotParts(good_).file()), "");
  const auto refused = [&](const char* section, size_t at, auto value) {
    tpu::test::SnapshotParts parts(good_);
    put(parts.section(section).bytes, at, value);
    EXPECT_EQ(used(parts.file()), "refused") << section << " at " << at << ": " << value;
  };
  // Ranges of HBM: their count, then of the first one device, address and bytes.
  for (const int32_t device : {8, -1, 1 << 20}) {
    refused("items", 8, device);
  }
  for (const uint64_t address :
       {uint64_t{1}, uint64_t{1} << 34, uint64_t{1} << 40, UINT64_MAX - 511}) {
    refused("items", 12, address);
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 34, uint64_t{1} << 40, UINT64_MAX}) {
    refused("items", 20, bytes);
  }
  // After the executable and the name of its file: the cores of the program, when it was used, its
  // parts, and of the first part core, number, whether it was sent, and its code.
  const std::vector<std::byte> items = tpu::test::SnapshotParts(good_).section("items").bytes;
  const std::string_view text(reinterpret_cast<const char*>(items.data()), items.size());
  const size_t executable = text.find("TPUEXE02");
  ASSERT_NE(executable, std::string_view::npos);
  uint64_t length = 0;
  std::memcpy(&length, items.data() + executable - sizeof length, sizeof length);
  const size_t name_at = executable + length;
  std::memcpy(&length, items.data() + name_at, sizeof length);
  const size_t devices_at = name_at + sizeof length + length;
  uint64_t devices = 0;
  std::memcpy(&devices, items.data() + devices_at, sizeof devices);
  const size_t part_at = devices_at + 8 + 4 * devices + 16;
  for (const int32_t device : {7, 8, -1, 1 << 20, INT32_MAX, INT32_MIN}) {
    refused("items", devices_at + 8, device);
    refused("items", part_at, device);
  }
  for (const uint16_t number : {uint16_t{63}, uint16_t{64}, uint16_t{5000}, uint16_t{UINT16_MAX}}) {
    refused("items", part_at + 4, number);
  }
  refused("items", part_at + 6, uint8_t{2});
  for (const uint32_t code : {uint32_t{100}, UINT32_MAX}) {
    refused("items", part_at + 7, code);
  }
}

TEST_F(SnapshotFuzz, AnyOtherNumberIsRefusedOrUsed) {
  const uint32_t seed = tpu::test::fuzz_seed(20240605);
  const int mutations = tpu::test::fuzz_inputs(kMutations);
  tpu::test::NumberMutator mutator(seed);
  std::map<std::string, int> outcomes;
  for (int i = 0; i < mutations; ++i) {
    tpu::test::SnapshotParts parts(good_);
    // Not the head, whose every number is compared, nor pages of memory, which may hold anything.
    std::vector<tpu::test::SnapshotParts::Section*> chosen_from;
    for (auto& section : parts.sections) {
      if (section.name != "head" && section.name.find(".hbm.") == std::string::npos) {
        chosen_from.push_back(&section);
      }
    }
    auto& section = *chosen_from[mutator.below(chosen_from.size())];
    for (size_t n = 1 + mutator.below(3); n > 0; --n) {
      mutator.change(section.bytes);
    }
    const std::string outcome = used(parts.file());
    ++outcomes[outcome];
    EXPECT_TRUE(is_said(outcome)) << "mutation " << i << " of seed " << seed << ", section "
                                  << section.name << ": " << outcome;
  }
  for (const auto& [name, count] : outcomes) {
    std::printf("%s: %d\n", name.empty() ? "success" : name.c_str(), count);
  }
  EXPECT_GT(outcomes["refused"], mutations / 30);
  EXPECT_GT(outcomes[""], mutations / 30);
}

}  // namespace
}  // namespace tpu::driver
