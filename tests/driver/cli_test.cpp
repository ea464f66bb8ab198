// The command tpuboard on the null board: exit codes, files in and out, texts of errors, training
// loop. Launches compute nothing there, so donated state comes back as it was and losses are zero.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/npy.hpp"
#include "mxu/mxu_replay.hpp"
#include "mxu/mxu_scalar.hpp"
#include "tests/driver/program_builder.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::ProgramBuilder;

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpuboard_cli_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  int call(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tpuboard");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(argument.c_str());
    }
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = tpuboard_main(static_cast<int>(argv.size()), argv.data());
    out_ = ::testing::internal::GetCapturedStdout();
    error_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  // y (donated from x, cut over the cores), z replicated.
  void save_program() {
    ProgramBuilder builder(8);
    builder.argument(DType::kF32, {16, 4}, true);
    builder.argument(DType::kBf16, {3});
    builder.result(DType::kF32, {16, 4}, true, 0);
    builder.result(DType::kBf16, {3}, false, 1);
    write_file(path("p.tpuexe"), builder.bytes());
    write_npy(path("x.npy"), counting(DType::kF32, {16, 4}));
    write_npy(path("b.npy"), counting(DType::kBf16, {3}));
  }

  std::filesystem::path folder_;
  std::string out_;
  std::string error_;
};

TEST_F(Cli, WrongUsageEndsWithTwo) {
  EXPECT_EQ(call({}), 2);
  EXPECT_EQ(call({"fly"}), 2);
  EXPECT_EQ(call({"run"}), 2);
  EXPECT_EQ(call({"devices", "--threads", "-1"}), 2);
  EXPECT_EQ(call({"devices", "--simd", "mmx"}), 2);
  for (const char* limit : {"-1", "soon"}) {
    EXPECT_EQ(call({"devices", "--transport", "null", "--time-limit", limit}), 2) << limit;
  }
  EXPECT_EQ(call({"devices", "--transport", "null", "--time-limit", "0.5"}), 0) << error_;
  EXPECT_EQ(call({"devices", "--transport", "null", "--mxu", "a=slow"}), 2);
  EXPECT_NE(error_.find("lockstep:1/N"), std::string::npos);
  EXPECT_EQ(call({"devices", "--transport", "null", "--mxu", "a=lockstep:1/0"}), 2);
  EXPECT_EQ(call({"devices", "--transport", "null", "--set", "speed"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "x.npy"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "a=x.npy"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "0=x.npy", "--in", "0=y.npy"}), 2);
  EXPECT_EQ(call({"train", "c.toml", "--steps", "0"}), 2);
}

TEST_F(Cli, VersionAndHelpAreEverywhere) {
  for (const char* command : {"devices", "run", "train", "objdump", "bench", "mxu-replay"}) {
    EXPECT_EQ(call({command, "--version"}), 0);
    EXPECT_NE(out_.find("tpuboard 0."), std::string::npos);
    EXPECT_EQ(call({command, "--help"}), 0);
  }
  EXPECT_EQ(call({"--version"}), 0);
}

TEST_F(Cli, DevicesListsEveryCore) {
  ASSERT_EQ(call({"devices", "--transport", "null"}), 0) << error_;
  EXPECT_NE(out_.find("TPU:0  chip 0  core 0  coordinates (0,0)  HBM 16 GiB"), std::string::npos);
  EXPECT_NE(out_.find("TPU:7  chip 3  core 1  coordinates (1,1)  HBM 16 GiB"), std::string::npos);
  EXPECT_EQ(call({"devices", "--transport", "null", "--set", "board.speed=1"}), 1);
  EXPECT_NE(error_.find("unknown key board.speed"), std::string::npos);
}

TEST_F(Cli, RunWritesOutputsAndFigures) {
  save_program();
  ASSERT_EQ(call({"run", path("p.tpuexe"), "--in", "0=" + path("x.npy"), "--in",
                  "1=" + path("b.npy"), "--out-dir", path("out"), "--json", path("r.json"),
                  "--transport", "null", "--mxu", "board.*=lockstep:1/100"}),
            0)
      << error_;
  EXPECT_EQ(read_file(path("out/0.npy")), read_file(path("x.npy")));
  EXPECT_EQ(read_file(path("out/1.npy")), read_file(path("b.npy")));
  const auto json = nlohmann::json::parse(std::ifstream(path("r.json")));
  for (const char* key : {"sim_cycles", "sim_cycles_per_core", "sim_seconds", "wall_seconds",
                          "mxu_utilization", "idle", "instructions_per_hart", "digest"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["lockstep"]["mismatches"], 0);
  EXPECT_EQ(json["digest"].get<std::string>().size(), 64u);
}

TEST_F(Cli, RunLaunchesAgainAndTakesZerosWithoutData) {
  save_program();
  ASSERT_EQ(call({"run", path("p.tpuexe"), "--in", "0=" + path("x.npy"), "--in",
                  "1=" + path("b.npy"), "--out-dir", path("out"), "--json", path("r.json"),
                  "--transport", "null", "--launches", "3"}),
            0)
      << error_;
  EXPECT_EQ(read_file(path("out/0.npy")), read_file(path("x.npy")));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("r.json")))["launch_seconds"].size(), 3u);
  EXPECT_EQ(call({"run", path("p.tpuexe"), "--transport", "null", "--no-data"}), 0) << error_;
  EXPECT_EQ(call({"run", path("p.tpuexe"), "--launches", "0"}), 2);
}

// Standard output is JSON and nothing else; the lines for people are on standard error.
TEST_F(Cli, JsonOnStandardOutputIsPure) {
  save_program();
  ASSERT_EQ(call({"run", path("p.tpuexe"), "--transport", "null", "--no-data", "--json", "-"}), 0)
      << error_;
  EXPECT_TRUE(nlohmann::json::parse(out_).contains("sim_cycles"));
  EXPECT_NE(error_.find("halt_program:"), std::string::npos) << error_;
  ASSERT_EQ(call({"bench", path("p.tpuexe"), "--transport", "null", "--launches", "5", "--json",
                  "-", "--profile"}),
            0)
      << error_;
  EXPECT_TRUE(nlohmann::json::parse(out_).contains("engine_commands"));
  ASSERT_EQ(call({"devices", "--transport", "null", "--json"}), 0) << error_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["devices"].size(), 8u);
  EXPECT_EQ(json["devices"][7]["chip"], 3);
  EXPECT_EQ(json["devices"][7]["coordinates"], nlohmann::json({1, 1}));
  EXPECT_EQ(json["clock_hz"], 940e6);
  ASSERT_EQ(call({"devices", "--transport", "null", "--json", path("d.json")}), 0) << error_;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("d.json"))), json);
  EXPECT_EQ(out_, "");
}

TEST_F(Cli, RunTakesADeviceForAProgramOfOneCore) {
  save_program();
  ProgramBuilder one(1);
  one.argument(DType::kF32, {4});
  one.result(DType::kF32, {4}, false, 0);
  write_file(path("one.tpuexe"), one.bytes());
  write_npy(path("v.npy"), counting(DType::kF32, {4}));
  const auto on = [&](const char* device) {
    return call({"run", path("one.tpuexe"), "--in", "0=" + path("v.npy"), "--transport", "null",
                 "--device", device, "--out-dir", path(device), "--json", path("r.json")});
  };
  for (const char* device : {"0", "7"}) {
    ASSERT_EQ(on(device), 0) << error_;
    EXPECT_EQ(read_file(path(device) + "/0.npy"), read_file(path("v.npy")));
    // On the null board cycles count commands: those of the core that ran it.
    EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("r.json")))["sim_cycles_per_core"].size(),
              1u);
  }
  EXPECT_EQ(on("8"), 1);
  EXPECT_NE(error_.find("--device 8: the board has the devices 0 to 7"), std::string::npos);
  EXPECT_EQ(on("-1"), 2);
  EXPECT_EQ(call({"run", path("p.tpuexe"), "--transport", "null", "--no-data", "--device", "1"}),
            1);
  EXPECT_NE(error_.find("a program for 8 cores"), std::string::npos) << error_;
}

TEST_F(Cli, FoldersAsFilesAreNamed) {
  save_program();
  const std::string folder = path("folder");
  std::filesystem::create_directories(folder + ".mlirbc");
  std::filesystem::create_directories(folder + ".tpuexe");
  std::filesystem::create_directories(folder + ".npy");
  std::filesystem::create_directories(folder + ".toml");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& name) {
    EXPECT_EQ(call(arguments), 1);
    EXPECT_NE(error_.find(name + ": is a folder; name a file"), std::string::npos) << error_;
  };
  refused({"run", folder + ".tpuexe", "--transport", "null"}, folder + ".tpuexe");
  refused({"run", folder + ".mlirbc", "--transport", "null"}, folder + ".mlirbc");
  refused({"objdump", folder + ".tpuexe"}, folder + ".tpuexe");
  refused({"bench", folder + ".tpuexe", "--transport", "null"}, folder + ".tpuexe");
  refused({"run", path("p.tpuexe"), "--transport", "null", "--in", "0=" + folder + ".npy", "--in",
           "1=" + path("b.npy")},
          folder + ".npy");
  refused({"train", folder + ".toml", "--transport", "null"}, folder + ".toml");
  refused({"devices", "--board", folder + ".toml"}, folder + ".toml");
  EXPECT_EQ(call({"mxu-replay", folder + ".npy"}), 1);
  EXPECT_NE(error_.find("is not a tile dump"), std::string::npos) << error_;
}

// /dev/full is a disk without room.
TEST_F(Cli, AFullDiskIsAFailureOfEveryOutput) {
  save_program();
  const std::vector<std::string> run = {"run", path("p.tpuexe"), "--transport", "null",
                                        "--no-data"};
  const auto full = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(call(arguments), 1) << out_;
    EXPECT_NE(error_.find("No space left on device"), std::string::npos) << error_;
  };
  full(run, {"--json", "/dev/full"});
  full({"devices", "--transport", "null"}, {"--json", "/dev/full"});
  full({"bench", path("p.tpuexe"), "--transport", "null", "--launches", "1"},
       {"--json", "/dev/full"});
  std::filesystem::create_directories(path("out"));
  std::filesystem::create_symlink("/dev/full", path("out/0.npy"));
  full(run, {"--out-dir", path("out")});
}

TEST_F(Cli, FoldersThatCannotBeMadeAreNamed) {
  save_program();
  for (const char* command : {"run", "train"}) {
    save("c.toml", "");
    EXPECT_EQ(call({command, path("p.tpuexe"), "--transport", "null", "--out-dir",
                    path("p.tpuexe") + "/out"}),
              1);
    EXPECT_EQ(error_.find("filesystem error"), std::string::npos) << error_;
  }
}

TEST_F(Cli, RunNamesWhatIsWrongWithInputs) {
  save_program();
  const auto refused = [&](const std::vector<std::string>& inputs, const std::string& text) {
    std::vector<std::string> arguments = {"run", path("p.tpuexe"), "--transport", "null"};
    for (const std::string& input : inputs) {
      arguments.insert(arguments.end(), {"--in", input});
    }
    EXPECT_EQ(call(arguments), 1);
    EXPECT_NE(error_.find(text), std::string::npos) << error_;
  };
  const std::string x = "0=" + path("x.npy");
  const std::string b = "1=" + path("b.npy");
  refused({x}, "argument 1 (bf16[3]) of halt_program is not given");
  refused({x, b, "2=" + path("b.npy")}, "takes 2 arguments, numbered from 0");
  refused({x, "1=" + path("x.npy")}, "argument 1 must be bf16[3], the file holds f32[16,4]");
  refused({x, "1=" + path("no.npy")}, "no.npy: cannot be opened");
  refused({x, "1=" + path("p.tpuexe")}, "not a NumPy .npy file");
  EXPECT_EQ(call({"run", path("none.tpuexe"), "--transport", "null"}), 1);
  EXPECT_EQ(call({"run", path("x.npy"), "--transport", "null"}), 1);
  EXPECT_NE(error_.find("not a tpuboard executable"), std::string::npos);
  EXPECT_EQ(call({"run", path("p.tpuexe"), "--in", x, "--in", b, "--out-dir", "/proc/nowhere",
                  "--transport", "null"}),
            1);
}

TEST_F(Cli, ReplayTellsWhetherATileAgrees) {
  model::MxuTileDump dump;
  dump.tile.rows = 2;
  dump.tile.weights.assign(128 * 128, 0x3f80);  // ones
  dump.tile.x.assign(2 * 128, 0x4000);          // twos
  dump.tile.running.assign(2 * 128, 0);
  model::MxuScalarEngine engine(dump.tile.shape);
  dump.rtl = dump.engine = model::mxu_run_tile(engine, dump.tile);
  model::mxu_write_dump(path("good.tile"), dump);
  EXPECT_EQ(call({"mxu-replay", path("good.tile"), "--waves", path("tile.fst")}), 0) << error_;
  EXPECT_NE(out_.find("all agree"), std::string::npos) << out_;
  EXPECT_GT(std::filesystem::file_size(path("tile.fst")), 1000u);

  dump.engine[128 + 5] ^= 1;
  model::mxu_write_dump(path("bad.tile"), dump);
  EXPECT_EQ(call({"mxu-replay", path("bad.tile")}), 1);
  EXPECT_NE(out_.find("first: row 1, column 5: 0x43800001, the law gives 0x43800000"),
            std::string::npos)
      << out_;
  EXPECT_NE(error_.find("the engines agree now; the recorded results do not"), std::string::npos);

  save("none.tile", "no tile");
  EXPECT_EQ(call({"mxu-replay", path("none.tile")}), 1);
  EXPECT_NE(error_.find("is not a tile dump"), std::string::npos) << error_;
  EXPECT_EQ(call({"mxu-replay", path("missing.tile")}), 1);
  EXPECT_EQ(call({"mxu-replay"}), 2);
}

// The engines' programs are not beside the test: their lines say what to build.
TEST_F(Cli, BenchReportsFiguresAndWhatIsMissing) {
  save_program();
  ASSERT_EQ(call({"bench", path("p.tpuexe"), "--transport", "null", "--launches", "5", "--json",
                  path("bench.json")}),
            0)
      << error_;
  EXPECT_NE(out_.find("--preset release"), std::string::npos) << out_;
  const auto json = nlohmann::json::parse(std::ifstream(path("bench.json")));
  EXPECT_TRUE(json["hart_mips"]["value"].is_null());
  EXPECT_EQ(json["engine_commands"]["at_least"], 200000);
  EXPECT_EQ(json["instructions_per_launch"]["at_most"], 20000);
}

TEST_F(Cli, ObjdumpListsAProgram) {
  save_program();
  ASSERT_EQ(call({"objdump", path("p.tpuexe")}), 0) << error_;
  EXPECT_NE(out_.find("argument 0: f32[16,4], f32[2,4] a core, slot 0, donated to result 0"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("op 0: dot_general at model.py:42"), std::string::npos);
  EXPECT_NE(out_.find("halt"), std::string::npos);
  EXPECT_EQ(call({"objdump", path("x.npy")}), 1);
}

class CliTrain : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    ProgramBuilder train(8);
    train.argument(DType::kF32, {});
    train.argument(DType::kF32, {4, 3});
    train.argument(DType::kF32, {16, 4}, true);
    train.argument(DType::kI32, {16}, true);
    train.result(DType::kF32, {}, false, 0);
    train.result(DType::kF32, {4, 3}, false, 1);
    train.result(DType::kF32, {});
    write_file(path("train.tpuexe"), train.bytes());
    ProgramBuilder eval(8);
    eval.argument(DType::kF32, {});
    eval.argument(DType::kF32, {4, 3});
    eval.argument(DType::kF32, {24, 4}, true);
    eval.argument(DType::kI32, {24}, true);
    eval.argument(DType::kF32, {24}, true);
    eval.result(DType::kF32, {}, false, 0);  // "correct" is state leaf 0, one a batch
    write_file(path("eval.tpuexe"), eval.bytes());
    write_npy(path("images.npy"), counting(DType::kU8, {100, 2, 2}));
    save("labels.u8", std::string(100, '\3'));
    save("c.toml", kConfig);
  }

  std::vector<std::string> train_call(const std::string& out) const {
    return {"train", path("c.toml"), "--transport", "null", "--out", path(out)};
  }

  static constexpr const char* kConfig = R"([program]
train = "train.tpuexe"
eval = "eval.tpuexe"
[state]
seed = 3
init = ["ones", "he_normal"]
[data]
images = "images.npy"
labels = "labels.u8"
split_seed = 7
eval_count = 30
[run]
batch = 16
epochs = 3
checkpoint = "ck"
)";
};

TEST_F(CliTrain, RunsEpochsAndWritesReportAndCheckpoint) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);  // 70 examples: 4 batches an epoch
  EXPECT_EQ(json["epochs"].size(), 3u);
  EXPECT_DOUBLE_EQ(json["test_accuracy"], 2.0 / 30);  // two batches of 24
  EXPECT_EQ(json["losses"].size(), 12u);
  EXPECT_EQ(json["step_seconds"].size(), 12u);
  EXPECT_EQ(read_npy(path("a/ck/0.npy")).shape, Shape{});
  const HostArray weights = read_npy(path("a/ck/1.npy"));
  EXPECT_EQ(weights.shape, (Shape{4, 3}));
  ASSERT_EQ(call(train_call("b")), 0) << error_;
  EXPECT_EQ(json["digest"], nlohmann::json::parse(std::ifstream(path("b/run.json")))["digest"]);

  // A checkpoint goes in again by file:, with another seed nothing else differs.
  std::string config = kConfig;
  config.replace(config.find("\"he_normal\""), 11, "\"file:a/ck/1.npy\"");
  config.replace(config.find("seed = 3"), 8, "seed = 4");
  save("c.toml", config);
  ASSERT_EQ(call(train_call("c")), 0) << error_;
  EXPECT_EQ(json["digest"], nlohmann::json::parse(std::ifstream(path("c/run.json")))["digest"]);
  config.replace(config.find("\"file:a/ck/1.npy\""), 17, "\"he_normal\"");
  save("c.toml", config);
  ASSERT_EQ(call(train_call("d")), 0) << error_;
  EXPECT_NE(json["digest"], nlohmann::json::parse(std::ifstream(path("d/run.json")))["digest"]);
}

TEST_F(CliTrain, WithoutDataThereAreNoLossesAndNoAccuracy) {
  auto arguments = train_call("a");
  arguments.emplace_back("--no-data");
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_EQ(out_.find("loss"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("accuracy"), std::string::npos) << out_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);
  EXPECT_TRUE(json["test_accuracy"].is_null());
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_TRUE(json["losses"].empty());
}

// Without data there is no state that would be worth a checkpoint: a good one is not replaced.
TEST_F(CliTrain, WithoutDataTheCheckpointStays) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  const auto before = read_file(path("a/ck/checkpoint.json"));
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--no-data", "--steps", "3"});
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(error_.find("no checkpoint is written"), std::string::npos) << error_;
  EXPECT_EQ(read_file(path("a/ck/checkpoint.json")), before);
  arguments.emplace_back("--resume");
  EXPECT_EQ(call(arguments), 2);
}

TEST_F(CliTrain, ResumeGoesOnFromTheCheckpoint) {
  auto arguments = train_call("a");
  arguments.emplace_back("--resume");
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("a/ck: no checkpoint to resume from"), std::string::npos) << error_;
  auto first = train_call("a");
  first.insert(first.end(), {"--steps", "5"});
  ASSERT_EQ(call(first), 0) << error_;
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(out_.find("resumed at step 5"), std::string::npos) << out_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);
  EXPECT_EQ(json["first_step"], 5);
  EXPECT_EQ(json["losses"].size(), 12u);
  EXPECT_EQ(json["step_seconds"].size(), 7u);
  EXPECT_EQ(json["epochs"].size(), 3u);
  // What is done is done: nothing more to run, and the same figures.
  ASSERT_EQ(call(arguments), 0) << error_;
  const auto again = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(again["digest"], json["digest"]);
  EXPECT_EQ(again["epochs"], json["epochs"]);
  EXPECT_TRUE(again["sim_seconds_per_step"].is_null());
}

TEST_F(CliTrain, ACheckpointDoesNotReplaceOtherFiles) {
  std::filesystem::create_directories(path("a/ck"));
  save("a/ck/thesis.txt", "mine");
  EXPECT_EQ(call(train_call("a")), 1);
  EXPECT_NE(error_.find("'thesis.txt' in it is no part of one"), std::string::npos) << error_;
  EXPECT_TRUE(std::filesystem::exists(path("a/ck/thesis.txt")));
}

TEST_F(CliTrain, AFullDiskIsAFailureAndTheOtherResultsAreWritten) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--json", "/dev/full"});
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("/dev/full: cannot be written: No space left"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path("a/run.json")));
  EXPECT_TRUE(std::filesystem::exists(path("a/ck/checkpoint.json")));
  arguments.back() = "-";
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_EQ(nlohmann::json::parse(out_), nlohmann::json::parse(std::ifstream(path("a/run.json"))));
  EXPECT_NE(error_.find("epoch   1"), std::string::npos) << error_;
}

TEST_F(CliTrain, StepsAndEpochsCutTheRun) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--steps", "5", "--epochs", "2"});
  ASSERT_EQ(call(arguments), 0) << error_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 5);
  EXPECT_EQ(json["epochs"].size(), 2u);
}

TEST_F(CliTrain, NamesWhatDoesNotFitTheConvention) {
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& text) {
    std::string config = kConfig;
    config.replace(config.find(from), from.size(), to);
    save("c.toml", config);
    EXPECT_EQ(call(train_call("x")), 1);
    EXPECT_NE(error_.find(text), std::string::npos) << error_;
  };
  refused("\"ones\", ", "", "state.init has 1 entries, halt_program has 2 state leaves");
  refused("batch = 16", "batch = 8", "must be the images, f32, bf16 or ui8 [8,...]");
  refused("\"eval.tpuexe\"", "\"train.tpuexe\"", "eval program takes the first state leaves");
  refused("\"train.tpuexe\"", "\"eval.tpuexe\"", "a train program takes state leaves");
  refused("labels.u8", "missing.u8", "missing.u8: cannot be opened");
  refused("eval_count = 30", "eval_count = 30\nclasses = 3",
          "labels.u8: label 3 of example 0 is none of the 3 classes, 0 to 2 (data.classes)");
  refused("epochs = 3", "epochs = 9223372036854775807", "run.epochs must be at most");
  refused("checkpoint = \"ck\"", "checkpoint = \".\"", "must name a folder of its own");
  refused("labels.u8", "images.npy", "400 labels for 100 images");
  refused("eval_count = 30", "eval_count = 100", "leaves no example of 100 for training");
  refused("eval_count = 30", "eval_count = 90", "10 training examples are less than one batch");
  refused("he_normal", "file:images.npy", "state leaf 1 must be f32[4,3], the file holds");
  refused("train.tpuexe", "train.mlirbc", "train.mlirbc: cannot be opened");
}

}  // namespace
}  // namespace tpu::driver
