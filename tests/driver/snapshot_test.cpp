// Snapshots of the simulated board. A process can have one board, so each board of a test lives in
// a child process, which tells what it saw in a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>

#include "exe/executable.hpp"
#include "file/files.hpp"
#include "format/digest.hpp"
#include "format/npy.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using ::testing::HasSubstr;

constexpr int kLaunches = 40;
constexpr int kPoints = 20;
constexpr int kSteps = 10;

class Snapshot : public ::testing::Test {
 protected:
  Snapshot() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("snapshot_") + info->name() + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Snapshot() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  /// What `body` prints, run in a child; "error: ..." when it throws.
  std::string in_child(const std::function<void(std::ostream&)>& body) const {
    const std::string report = file("report");
    const pid_t child = fork();
    if (child == 0) {
      std::ofstream out(report);
      try {
        body(out);
      } catch (const std::exception& error) {
        out << "error: " << error.what() << "\n";
      }
      out.close();
      std::_Exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the child died";
    std::ifstream in(report);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// The digest that `tpuboard run` prints, or what it says instead.
  std::string run(const std::string& arguments) const {
    const std::string command =
        std::string(TPUBOARD) + " run " + arguments + " > " + file("out") + " 2>&1";
    const int status = std::system(command.c_str());
    std::ifstream in(file("out"));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t digest = text.find("digest ");
    return status == 0 && digest != std::string::npos ? text.substr(digest) : text;
  }

  /// Compiles a training step of tests/data.
  std::vector<std::byte> compiled(const std::string& name) const {
    const std::string out = file("program.tpuexe");
    const std::string command = std::string(TPUC) + " " + TPU_TEST_DATA + "/" + name + " -o " + out;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return read_file(out);
  }

  std::filesystem::path folder_;
};

OpenOptions from(const std::string& path) {
  OpenOptions options;
  options.snapshot = path;
  return options;
}

/// Small numbers, of any type.
HostArray values(const ParameterInfo& info, uint32_t seed) {
  HostArray array{info.dtype, info.shape, {}};
  array.bytes.resize(byte_count(info.dtype, info.shape));
  std::minstd_rand random(seed);
  if (info.dtype == DType::kF32) {
    for (size_t at = 0; at < array.bytes.size(); at += sizeof(float)) {
      const float value = static_cast<float>(random() % 2001) * 1e-4F - 0.1F;
      std::memcpy(array.bytes.data() + at, &value, sizeof value);
    }
  }
  return array;
}

/// A training step, again and again on its own state.
class Job {
 public:
  explicit Job(const Board& board, const std::vector<std::byte>& executable)
      : board_(board), program_(board.load(executable)) {
    for (size_t i = 0; i < program_.arguments().size(); ++i) {
      arguments_.push_back(
          program_.put(i, values(program_.arguments()[i], static_cast<uint32_t>(i + 1))));
    }
  }
  explicit Job(const Board& board) : board_(board) {
    SnapshotItems items = board.take_snapshot_items();
    program_ = items.programs.at("step");
    for (size_t i = 0; i < program_.arguments().size(); ++i) {
      arguments_.push_back(items.arrays.at(std::to_string(i)));
    }
  }

  void step() {
    const RunResult result = program_.run(arguments_);
    result.done.wait();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (const int to = program_.arguments()[i].donated_to; to >= 0) {
        arguments_[i] = result.outputs[static_cast<size_t>(to)];
      }
    }
    outputs_ = result.outputs;
  }
  /// Time, every counter of every core, and the bits of all results.
  void tell(std::ostream& out) const {
    Digest digest;
    for (const Array& array : outputs_) {
      digest.add(array.to_host());
    }
    const BoardCounters counters = board_.peek();
    out << counters.now_cycles << " " << digest.finish();
    for (const CoreCounters& core : counters.cores) {
      for (const uint64_t counter : core.all) {
        out << " " << counter;
      }
      out << " " << core.hart_instructions << " " << core.times.compute << " " << core.times.stalled
          << " " << core.times.host;
    }
    out << "\n";
  }
  void save(const std::string& path) const {
    SnapshotItems items;
    items.programs["step"] = program_;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      items.arrays[std::to_string(i)] = arguments_[i];
    }
    board_.save_snapshot(path, items);
  }

 private:
  Board board_;
  Executable program_;
  std::vector<Array> arguments_;
  std::vector<Array> outputs_;
};

struct Training {
  const char* name;
  const char* program;
  std::vector<std::pair<std::string, std::string>> verilog;  // SimOptions::verilog
};
void PrintTo(const Training& training, std::ostream* out) { *out << training.name; }

class SnapshotOfTraining : public Snapshot, public ::testing::WithParamInterface<Training> {};

// 20 random points; the board that saves goes on as one that does not.
TEST_P(SnapshotOfTraining, GoesOnWithEqualBitsAndCycles) {
  const std::vector<std::byte> executable = compiled(GetParam().program);
  std::set<int> points;
  for (std::minstd_rand random(7); points.size() < kPoints;) {
    points.insert(static_cast<int>(random() % (kLaunches - kSteps)));
  }
  const auto run = [&](bool saves) {
    return [&, saves](std::ostream& out) {
      OpenOptions options;
      options.sim.verilog = GetParam().verilog;
      const Board board = Board::open(options);
      Job job(board, executable);
      for (int k = 0; k < kLaunches; ++k) {
        job.step();
        job.tell(out);
        if (saves && points.contains(k)) {
          job.save(file(std::to_string(k)));
        }
      }
    };
  };
  const std::string whole = in_child(run(true));
  EXPECT_EQ(in_child(run(false)), whole) << "saving changes nothing";
  std::vector<std::string> lines;
  std::istringstream split(whole);
  for (std::string line; std::getline(split, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), kLaunches) << whole.substr(0, 1000);
  ASSERT_NE(lines[0], lines[1]);
  for (const int point : points) {
    std::string expected;
    for (int k = point + 1; k <= point + kSteps; ++k) {
      expected += lines[static_cast<size_t>(k)] + "\n";
    }
    EXPECT_EQ(in_child([&](std::ostream& out) {
                OpenOptions options = from(file(std::to_string(point)));
                options.sim.verilog = GetParam().verilog;
                const Board board = Board::open(options);
                Job job(board);
                for (int k = 0; k < kSteps; ++k) {
                  job.step();
                  job.tell(out);
                }
              }),
              expected)
        << "restored behind launch " << point;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, SnapshotOfTraining,
                         ::testing::Values(Training{"Adam", "mlp_adam.mlirbc", {}},
                                           Training{"Momentum", "mlp_momentum.mlirbc", {}},
                                           Training{"MomentumInVerilog",
                                                    "mlp_momentum.mlirbc",
                                                    {{"board.chip0.core0.sem", "rtl"},
                                                     {"board.chip1.core1.sem", "lockstep"},
                                                     {"board.chip0.core0.dma_*", "rtl"}}}),
                         [](const auto& each) { return each.param.name; });

// 5 launches, saved, and 4 more in another process, are 9.
TEST_F(Snapshot, TheCommandGoesOnWithASavedRun) {
  const exe::ExecutableT program = exe::read_executable(compiled("mlp_adam.mlirbc"));
  std::string inputs;
  for (size_t i = 0; i < program.args.size(); ++i) {
    ParameterInfo info;
    info.dtype = static_cast<DType>(program.args[i]->elem);
    info.shape = program.args[i]->global_dims;
    const HostArray array = values(info, static_cast<uint32_t>(i + 1));
    write_npy(file(std::to_string(i) + ".npy"), array);
    inputs += " --in " + std::to_string(i) + "=" + file(std::to_string(i) + ".npy");
  }
  const std::string saved = file("run.snap");
  const std::string all = run(file("program.tpuexe") + inputs + " --launches 9");
  EXPECT_THAT(all, ::testing::StartsWith("digest "));
  EXPECT_NE(run(file("program.tpuexe") + inputs + " --launches 5 --save-snapshot " + saved), all);
  EXPECT_EQ(run("--from-snapshot " + saved + " --launches 4"), all);
  const std::string again = file("again.snap");
  std::filesystem::copy_file(saved, again);
  EXPECT_NE(run("--from-snapshot " + again + " --launches 2 --save-snapshot " + again), all);
  EXPECT_EQ(run("--from-snapshot " + again + " --launches 2"), all) << "saved to its own file";
  // Another program on that board, and what means nothing.
  EXPECT_EQ(run(file("program.tpuexe") + inputs + " --launches 9 --from-snapshot " + saved), all);
  EXPECT_THAT(run("--from-snapshot " + saved + inputs), HasSubstr("has its arguments"));
  EXPECT_THAT(run("--launches 2"),
              HasSubstr("program, or --from-snapshot of a run to continue, is required"));
  EXPECT_THAT(run("--from-snapshot " + saved + " --set hbm.gbps_per_chip=450"),
              HasSubstr("of another board"));
  const std::string full = file("no/such/folder");
  EXPECT_THAT(run("--from-snapshot " + saved + " --save-snapshot " + full), HasSubstr(full + ": "));
}

// Results come first: what is wanted beside them costs none of them, and every failure is said.
TEST_F(Snapshot, AFullDiskDoesNotCostTheResultsOfARun) {
  compiled("mlp_adam.mlirbc");
  const std::string said =
      run(file("program.tpuexe") + " --no-data --out-dir " + file("results") + " --json " +
          file("out.json") + " --save-snapshot /dev/full --record /dev/full");
  EXPECT_THAT(said, HasSubstr(" cycles, "));
  for (const char* name : {"results/0.npy", "out.json"}) {
    EXPECT_TRUE(std::filesystem::exists(file(name))) << name << ": " << said;
  }
  size_t failures = 0;
  for (size_t at = said.find("/dev/full: cannot be written: No space left");
       at != std::string::npos;
       at = said.find("/dev/full: cannot be written: No space left", at + 1)) {
    ++failures;
  }
  EXPECT_EQ(failures, 2U) << said;
}

// A board of its own with a small array and program, saved.
class SnapshotFile : public Snapshot {
 protected:
  SnapshotFile() : good_(file("good")) {
    EXPECT_EQ(in_child([&](std::ostream&) { save(good_); }), "");
    bytes_ = read_file(good_);
  }

  static void save(const std::string& path, const OpenOptions& options = {}) {
    const Board board = Board::open(options);
    SnapshotItems items;
    items.arrays["x"] = board.replicate(test::counting(DType::kF32, {64, 1024}));
    items.notes["step"] = "17";
    board.save_snapshot(path, items);
  }
  /// What opening says; "" when all is well.
  std::string opened(const OpenOptions& options) const {
    return in_child([&](std::ostream& out) {
      const Board board = Board::open(options);
      const SnapshotItems items = board.take_snapshot_items();
      if (items.arrays.at("x").to_host_checked("x").bytes !=
              test::counting(DType::kF32, {64, 1024}).bytes ||
          items.notes.at("step") != "17") {
        out << "other contents";
      }
      if (!board.take_snapshot_items().arrays.empty()) {
        out << "items are given twice";
      }
    });
  }
  std::string opened(const std::vector<std::byte>& bytes) const {
    write_file(file("bad"), bytes);
    return opened(from(file("bad")));
  }

  const std::string good_;
  std::vector<std::byte> bytes_;
};

TEST_F(SnapshotFile, KeepsItemsAndSharedPages) {
  EXPECT_EQ(opened(from(good_)), "");
  // Eight copies of 256 KiB are one.
  EXPECT_LT(bytes_.size(), size_t{4} << 20);
}

TEST_F(SnapshotFile, TheCommandSaysThatNoRunWasSaved) {
  EXPECT_THAT(run("--from-snapshot " + good_),
              HasSubstr("good: has no saved run; give the program to run"));
}

TEST_F(SnapshotFile, NamesTheSectionThatIsDamaged) {
  std::set<std::string> named;
  for (size_t at = 16; at < bytes_.size(); at += bytes_.size() / 40) {
    std::vector<std::byte> bad = bytes_;
    bad[at] ^= std::byte{0x10};
    const std::string said = opened(bad);
    EXPECT_THAT(said, HasSubstr("InvalidArgument"));
    EXPECT_THAT(said,
                ::testing::AnyOf(HasSubstr("bad: the snapshot is damaged: the checksum of its "),
                                 HasSubstr("bad: the snapshot is cut off: its end is missing")));
    named.insert(said);
  }
  EXPECT_GT(named.size(), 3U) << "sections have checksums of their own";
}

TEST_F(SnapshotFile, RefusesOneThatIsCutOff) {
  for (const size_t bytes :
       {size_t{0}, size_t{7}, size_t{16}, bytes_.size() / 2, bytes_.size() - 1}) {
    std::vector<std::byte> bad = bytes_;
    bad.resize(bytes);
    EXPECT_THAT(opened(bad),
                ::testing::AnyOf(HasSubstr("cut off"), HasSubstr("shorter than the header")))
        << bytes;
  }
}

TEST_F(SnapshotFile, RefusesOtherVersionsBoardsAndKindsOfRuns) {
  std::vector<std::byte> bad = bytes_;
  bad[8] ^= std::byte{0x40};
  const int version = std::to_integer<int>(bytes_[8]);
  EXPECT_THAT(opened(bad), HasSubstr("snapshot of version " + std::to_string(version ^ 0x40) +
                                     ": this program reads version " + std::to_string(version)));
  // Arrays of 64-bit elements in version 3 may be in their layout of before.
  bad[8] = std::byte{3};
  EXPECT_THAT(opened(bad),
              HasSubstr("snapshot of version 3: this program reads version " +
                        std::to_string(version) + "; save a new snapshot with this program"));
  bad[0] = std::byte{0};
  EXPECT_THAT(opened(bad), HasSubstr("not a snapshot of a board"));

  OpenOptions other = from(good_);
  other.overrides = {"hbm.gbps_per_chip=450"};
  EXPECT_THAT(opened(other), HasSubstr("of another board: v3_8 with hbm.gbps_per_chip=900; this "
                                       "one has hbm.gbps_per_chip=450"));
  other = from(good_);
  other.sim.no_data = true;
  EXPECT_THAT(opened(other), HasSubstr("of another kind of run: with data"));
  other = from(good_);
  other.transport = "null";
  EXPECT_THAT(opened(other), HasSubstr("this transport has no snapshots"));
  EXPECT_THAT(opened(from(file("none"))), HasSubstr("none: cannot be opened"));
}

TEST_F(Snapshot, OtherTransportsSayThatTheyHaveNone) {
  OpenOptions options;
  options.transport = "null";
  const Board board = Board::open(options);
  try {
    board.save_snapshot(file("null"));
    FAIL() << "saved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  }
  EXPECT_FALSE(std::filesystem::exists(file("null")));
}

// A bad snapshot does not use up the only board of the process.
TEST_F(SnapshotFile, LeavesTheProcessItsBoard) {
  EXPECT_EQ(in_child([&](std::ostream& out) {
              std::vector<std::byte> bad = bytes_;
              bad[bad.size() / 2] ^= std::byte{1};
              write_file(file("bad"), bad);
              try {
                Board::open(from(file("bad")));
                out << "opened";
              } catch (const Error&) {
                Board::open(from(good_)).close();
              }
            }),
            "");
}

TEST_F(SnapshotFile, KeepsTheOldFileWhenTheDiskIsFull) {
  const std::string said = in_child([&](std::ostream& out) {
    const Board board = Board::open();
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      board.save_snapshot(good_);
    } catch (const Error& error) {
      out << error.what();
    }
    board.put(0, test::counting(DType::kF32, {1024})).to_host();  // the board goes on
  });
  EXPECT_THAT(said, HasSubstr("cannot be written: File too large; make room"));
  EXPECT_EQ(read_file(good_), bytes_);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2)
      << "the snapshot and the report: nothing half written stays";
}

// Who has opened a snapshot keeps what he sees when another one replaces it.
TEST_F(SnapshotFile, IsReplacedWhileOthersReadIt) {
  const FileBytes reader(good_);
  EXPECT_EQ(in_child([&](std::ostream&) { save(good_); }), "");
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), reader.get().begin(), reader.get().end()));
  EXPECT_EQ(opened(from(good_)), "");
}

TEST_F(SnapshotFile, RefusesWhatIsNotThereOrStillWaits) {
  EXPECT_EQ(in_child([&](std::ostream& out) {
              const Board board = Board::open();
              const auto said = [&](const SnapshotItems& items) -> std::string {
                try {
                  board.save_snapshot(file("new"), items);
                  return "saved";
                } catch (const Error& error) {
                  return error.message() + "\n";
                }
              };
              SnapshotItems items;
              items.arrays["gone"] = board.replicate(test::counting(DType::kF32, {8}));
              items.arrays["gone"].discard();
              out << said(items);
              const HostEvent event = board.make_event();
              const Buffer buffer = board.put(0, test::counting(DType::kF32, {8}));
              const Buffer later = board.copy(buffer, 0, {event.event()});
              out << said({});
              event.set();
              out << said({});
            }),
            "snapshot: gone: the array is not live: it was donated, discarded or lost\n"
            "no snapshot of the board: something waits for an event that is not set; set it "
            "first\nsaved");
}

}  // namespace
}  // namespace tpu::driver
