// The command tpuboard on the null board: exit codes, files in and out, texts of errors. Launches
// compute nothing there, so donated state comes back as it was.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "file/files.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu/mxu_tile.hpp"
#include "tests/cli/cli_fixture.hpp"

namespace tpu::driver {
namespace {

using test::Cli;
using test::counting;
using test::ProgramBuilder;

TEST_F(Cli, WrongUsageEndsWithTwo) {
  EXPECT_EQ(call({}), 2);
  EXPECT_EQ(call({"fly"}), 2);
  EXPECT_EQ(call({"run"}), 2);
  EXPECT_EQ(call({"devices", "--threads", "-1"}), 2);
  EXPECT_EQ(call({"devices", "--simd", "mmx"}), 2);
  for (const char* limit : {"-1", "soon", "nan", "-nan", "inf", "1e10"}) {
    EXPECT_EQ(call({"devices", "--transport", "null", "--time-limit", limit}), 2) << limit;
    EXPECT_NE(error_.find("invalid value '" + std::string(limit) +
                          "': expected a number of seconds from 0 to "),
              std::string::npos)
        << error_;
  }
  EXPECT_EQ(call({"devices", "--transport", "null", "--time-limit", "0.5"}), 0) << error_;
  EXPECT_EQ(call({"devices", "--transport", "null", "--mxu", "a=slow"}), 2);
  EXPECT_NE(error_.find("lockstep:1/N"), std::string::npos);
  EXPECT_EQ(call({"devices", "--transport", "null", "--mxu", "a=lockstep:1/0"}), 2);
  EXPECT_EQ(call({"devices", "--transport", "null", "--verilog", "a=fast"}), 2);
  EXPECT_EQ(call({"devices", "--transport", "null", "--set", "speed"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "x.npy"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "a=x.npy"}), 2);
  EXPECT_EQ(call({"run", "p", "--in", "0=x.npy", "--in", "0=y.npy"}), 2);
  EXPECT_EQ(call({"train", "c.toml", "--steps", "0"}), 2);
  // A window of a file that nobody asked for.
  EXPECT_EQ(call({"run", "p", "--waves-steps", "0..1"}), 2);
  EXPECT_NE(error_.find("--waves-steps requires --waves"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "p", "--waves-scope", "*"}), 2);
  EXPECT_NE(error_.find("--waves-scope requires --waves"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "p", "--waves", "w.fst", "--waves-for", "3steps"}), 2);
  EXPECT_NE(error_.find("--waves-for requires --waves-trigger"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "p", "--waves", "w.fst", "--waves-trigger", "fault", "--waves-for", "3"}),
            2);
  EXPECT_NE(error_.find("expected a number of cycles or steps, for example 5000cycles or 3steps"),
            std::string::npos)
      << error_;
  EXPECT_EQ(
      call({"run", "p", "--waves", "w.fst", "--waves-trigger", "fault", "--waves-steps", "0..1"}),
      2);
  EXPECT_EQ(call({"run", "p", "--waves", "w.vcd"}), 2);
  EXPECT_NE(error_.find("waves are written as FST"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "p", "--mxu", "board.*=rtl", "--mxu-waves", "out/a"}), 2);
  EXPECT_NE(error_.find("--mxu-waves: invalid value 'out/a': expected a name that ends in .fst"),
            std::string::npos)
      << error_;
  for (const char* units : {"rtl", "help", "board.*=verilog"}) {
    EXPECT_EQ(call({"run", "p", "--mxu", units}), 2);
    EXPECT_NE(error_.find("expected GLOB=MODE, a MODE of fast, scalar, rtl, lockstep or "
                          "lockstep:1/N, and @A..B or @A for steps or @waves; for example "
                          "'board.*.mxu0=rtl'"),
              std::string::npos)
        << error_;
  }
  EXPECT_EQ(call({"run", "p", "--verilog", "rtl"}), 2);
  EXPECT_NE(error_.find("for example 'board.*.sem=rtl'"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "--from-snapshot", "board.snap", "--device", "3"}), 2);
  EXPECT_NE(error_.find("continues where it was"), std::string::npos) << error_;
  EXPECT_EQ(call({"debug", "p.mlirbc", "--record", "r"}), 2);
  EXPECT_EQ(call({"run", "p", "--mxu-waves-tiles", "0..1"}), 2);
  EXPECT_NE(error_.find("--mxu-waves-tiles requires --mxu-waves"), std::string::npos) << error_;
  EXPECT_EQ(call({"run", "p", "--schedule-seed", "-1"}), 2);
  EXPECT_NE(error_.find("--schedule-seed: invalid value '-1': expected an integer from 0 to"),
            std::string::npos)
      << error_;
  EXPECT_EQ(call({"run", "p", "--record", "r", "--record-step", "-1"}), 2);
  EXPECT_EQ(call({"run", "p", "--out-dir", ""}), 2);
  EXPECT_NE(error_.find("--out-dir: invalid value '': expected the path of a folder"),
            std::string::npos)
      << error_;
  EXPECT_EQ(call({"train", "p.toml", "--out", ""}), 2);
  EXPECT_EQ(call({"sweep", "p.toml", "--out", ""}), 2);
}

TEST_F(Cli, TheNullBoardSaysWhatItCannotShow) {
  save_program();
  const std::vector<std::vector<std::string>> asked = {{"--check"},
                                                       {"--profile"},
                                                       {"--mxu", "board.*=lockstep"},
                                                       {"--verilog", "board.*=rtl"},
                                                       {"--schedule-seed", "3"},
                                                       {"--hang-report", path("hang.json")},
                                                       {"--waves", path("w.fst")},
                                                       {"--timeline", path("t.pftrace")},
                                                       {"--trace", path("t.txt")},
                                                       {"--record", path("r.tpurec")},
                                                       {"--gdb", ":0"}};
  for (const std::vector<std::string>& options : asked) {
    std::vector<std::string> arguments = {"run", path("p.tpuexe"), "--transport", "null",
                                          "--no-data"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_EQ(call(arguments), 1) << options[0];
    EXPECT_NE(error_.find(options[0] + ": a board of the transport 'null' has "), std::string::npos)
        << error_;
  }
}

// Not behind hours of work.
TEST_F(Cli, FilesWrittenAtTheEndAreTriedAtTheStart) {
  save_program();
  for (const char* option : {"--json", "--record", "--hang-report", "--save-snapshot"}) {
    EXPECT_EQ(call({"run", path("p.tpuexe"), "--no-data", option, path("nowhere/file")}), 1);
    EXPECT_NE(error_.find("nowhere/file: cannot be written: No such file or directory; the folder "
                          "must exist"),
              std::string::npos)
        << option << error_;
    EXPECT_EQ(out_, "") << "nothing ran";
  }
  save("old.json", "old");
  EXPECT_EQ(call({"run", path("none.tpuexe"), "--json", path("old.json")}), 1);
  std::string left;
  std::getline(std::ifstream(path("old.json")), left);
  EXPECT_EQ(left, "old");
  EXPECT_EQ(call({"bench", path("p.tpuexe"), "--json", path("nowhere/file")}), 1);
  EXPECT_EQ(call({"report", path("p.tpuexe"), "-o", path("nowhere/page.html")}), 1);
  EXPECT_NE(error_.find("nowhere/page.html: cannot be written"), std::string::npos) << error_;
}

TEST_F(Cli, AMistypedCommandIsNamed) {
  EXPECT_EQ(call({"runn", "x"}), 2);
  EXPECT_EQ(error_,
            "tpuboard: unknown command 'runn'; did you mean 'run'?\n"
            "Run with --help for more information.\n");
  EXPECT_EQ(call({"serve-makers"}), 2);
  EXPECT_EQ(error_.find("serve-maker'?"), std::string::npos) << "one that is not for people";
  EXPECT_EQ(call({"simulate", "--help"}), 2);
  EXPECT_EQ(error_,
            "tpuboard: unknown command 'simulate'\nRun with --help for more information.\n");
  EXPECT_EQ(call({""}), 2);
  EXPECT_NE(error_.find("unknown command ''"), std::string::npos) << error_;
  EXPECT_EQ(call({}), 2);
}

TEST_F(Cli, VersionAndHelpAreEverywhere) {
  for (const char* command :
       {"devices", "run", "train", "sweep", "convert", "objdump", "bench", "mxu-replay"}) {
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
  ASSERT_EQ(
      call({"run", path("p.tpuexe"), "--in", "0=" + path("x.npy"), "--in", "1=" + path("b.npy"),
            "--out-dir", path("out"), "--json", path("r.json"), "--transport", "null"}),
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

TEST_F(Cli, ObjdumpTellsTheCostAsJson) {
  save_program();
  ASSERT_EQ(call({"objdump", path("p.tpuexe"), "--json", "-"}), 0) << error_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["program"], "halt_program");
  EXPECT_EQ(json["arguments"].size(), 2u);
  EXPECT_EQ(json["arguments"][0]["shape"], nlohmann::json({16, 4}));
  const auto& cost = json["cost"];
  EXPECT_EQ(cost["hbm_bytes"].get<uint64_t>(),
            cost["code_bytes"].get<uint64_t>() + cost["argument_bytes"].get<uint64_t>() +
                cost["result_bytes"].get<uint64_t>() - cost["donated_bytes"].get<uint64_t>() +
                cost["constant_bytes"].get<uint64_t>() + cost["scratch_bytes"].get<uint64_t>());
}

// Standard output is JSON and nothing else; the lines for people are on standard error.
TEST_F(Cli, JsonOnStandardOutputIsPure) {
  save_program();
  ASSERT_EQ(call({"run", path("p.tpuexe"), "--transport", "null", "--no-data", "--json", "-"}), 0)
      << error_;
  EXPECT_TRUE(nlohmann::json::parse(out_).contains("sim_cycles"));
  EXPECT_TRUE(nlohmann::json::parse(out_).at("digest").is_null());
  EXPECT_NE(error_.find("halt_program:"), std::string::npos) << error_;
  EXPECT_EQ(error_.find("digest"), std::string::npos) << error_;
  ASSERT_EQ(
      call({"bench", path("p.tpuexe"), "--transport", "null", "--launches", "5", "--json", "-"}), 0)
      << error_;
  EXPECT_TRUE(nlohmann::json::parse(out_).contains("engine_commands"));
  EXPECT_EQ(call({"bench", path("p.tpuexe"), "--no-data", "--dense"}), 1);
  EXPECT_NE(error_.find("--no-data: values are not computed; leave out"), std::string::npos)
      << error_;
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

TEST_F(Cli, TwoRunsDoNotShareAFolder) {
  save_program();
  const std::vector<std::string> words = {
      "run",  path("p.tpuexe"),     "--transport", "null",     "--in", "0=" + path("x.npy"),
      "--in", "1=" + path("b.npy"), "--out-dir",   path("out")};
  ASSERT_EQ(call(words), 0) << error_;
  {
    const FolderLock other(path("out"));
    EXPECT_EQ(call(words), 1);
    EXPECT_NE(error_.find("out: another run writes there; give each run its own folder"),
              std::string::npos)
        << error_;
  }
  ASSERT_EQ(call(words), 0) << error_;
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
  const std::string artifact = std::string(TPU_TEST_DATA) + "/dense.mlirbc";
  refused({"run", artifact, "--board", folder + ".toml", "--transport", "null"}, folder + ".toml");
  EXPECT_EQ(error_.find(artifact), std::string::npos) << error_;
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
  EXPECT_NE(out_.find("first: row 1, column 5: 0x43800001, the reference gives 0x43800000"),
            std::string::npos)
      << out_;
  EXPECT_NE(error_.find("the engines agree now; the recorded results do not"), std::string::npos);

  save("none.tile", "no tile");
  EXPECT_EQ(call({"mxu-replay", path("none.tile")}), 1);
  EXPECT_NE(error_.find("is not a tile dump"), std::string::npos) << error_;
  EXPECT_EQ(call({"mxu-replay", path("missing.tile")}), 1);
  EXPECT_NE(error_.find("missing.tile: No such file or directory"), std::string::npos) << error_;
  EXPECT_EQ(call({"mxu-replay", path("good.tile"), path("bad.tile")}), 2);
  EXPECT_NE(error_.find("takes one FILE.tile, found also "), std::string::npos) << error_;
  EXPECT_EQ(call({"mxu-replay", path("good.tile"), "--wave", "w.fst"}), 2);
  EXPECT_NE(error_.find("not expected: --wave w.fst"), std::string::npos) << error_;
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
  EXPECT_NE(out_.find("halt  ; word "), std::string::npos);
  EXPECT_EQ(call({"objdump", path("x.npy")}), 1);
}

}  // namespace
}  // namespace tpu::driver
