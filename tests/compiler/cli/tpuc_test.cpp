// The command tpuc: exit codes and messages, as a user sees them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "tests/support/process.hpp"

namespace {

using tpu::test::Result;

// `before`: commands of the shell in front.
Result tpuc(const std::string& arguments, const std::string& before = "") {
  return tpu::test::call(before + std::string(TPUC) + " " + arguments);
}

Result tpuc_in(const std::string& folder, const std::string& arguments) {
  return tpuc(arguments, "cd '" + folder + "' && ");
}

std::string data(const std::string& name) { return std::string(TPU_TEST_DATA) + "/" + name; }

class Tpuc : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("tpuc_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string out(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(Tpuc, CompilesAndRoundTripsThroughText) {
  const Result c = tpuc(data("dense.mlirbc") + " -v -o " + out("a.tpuexe"));
  EXPECT_EQ(c.code, 0) << c.text;
  EXPECT_NE(c.text.find("1 core,"), std::string::npos) << c.text;
  EXPECT_EQ(tpuc("--disasm " + out("a.tpuexe") + " -o " + out("a.s")).code, 0);
  EXPECT_EQ(tpuc("--asm " + out("a.s") + " -o " + out("b.tpuexe")).code, 0);
  const auto a = std::filesystem::file_size(out("a.tpuexe"));
  EXPECT_EQ(a, std::filesystem::file_size(out("b.tpuexe")));
}

// Assembly text of what the compiler makes of a program, without names of results: HLO has none.
std::string listing(const std::string& program, const std::string& folder) {
  const std::string exe = folder + "/x.tpuexe", text = folder + "/x.s";
  const Result compiled = tpuc(program + " -o " + exe);
  EXPECT_EQ(compiled.code, 0) << compiled.text;
  EXPECT_EQ(tpuc("--disasm " + exe + " -o " + text).code, 0);
  std::ifstream file(text);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  return std::regex_replace(all, std::regex("\\.result \"[^\"]*\""), ".result");
}

TEST_F(Tpuc, CompilesHloModulesToTheSameExecutables) {
  for (const std::string name :
       {"dense", "control", "shapes", "collectives", "collectives_2d", "sharded_outside"}) {
    EXPECT_EQ(listing(data("hlo/" + name + ".hlo.pb"), folder_.string()),
              listing(data(name + ".mlirbc"), folder_.string()))
        << name;
  }
}

TEST_F(Tpuc, NamesLinesOfPythonInErrorsOfHloModules) {
  const Result r = tpuc_in(folder_.string(), data("hlo/bad_f16.hlo.pb"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(
      r.text.find("export_graphs.py:150:11: stablehlo.add: argument 0 ('x'): element type f16"),
      std::string::npos)
      << r.text;
}

TEST_F(Tpuc, NamesExecutablesOfHloModulesAfterThem) {
  const Result r = tpuc_in(folder_.string(), data("hlo/dense.hlo.pb"));
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("wrote dense.tpuexe"), std::string::npos) << r.text;
}

TEST_F(Tpuc, DumpsStages) {
  const Result r = tpuc(data("dense.mlirbc") + " --dump-after kernels --dump-after listing");
  EXPECT_EQ(r.code, 0);
  EXPECT_NE(r.text.find("contract b1"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("mxu0 matmul"), std::string::npos) << r.text;
}

TEST_F(Tpuc, TellsWhatPassesDid) {
  const Result r = tpuc(data("control.mlirbc") + " --stats -o " + out("a.tpuexe"));
  EXPECT_EQ(r.code, 0) << r.text;
  for (const char* pass : {"inline", "unroll", "shard_update", "total"}) {
    EXPECT_NE(r.text.find("\n" + std::string(pass)), std::string::npos) << pass << r.text;
  }
  EXPECT_NE(r.text.find("gave up 1 x: trip count unknown or large"), std::string::npos) << r.text;
}

TEST_F(Tpuc, RefusesWithOneLineThatNamesTheOp) {
  for (const char* name : {"bad_f16.mlirbc", "bad_dynamic.mlirbc"}) {
    const Result r = tpuc(data(name) + " -o " + out("x.tpuexe"));
    EXPECT_EQ(r.code, 1) << name;
    EXPECT_EQ(r.text.rfind("tpuc: error: ", 0), 0u) << r.text;
    EXPECT_FALSE(std::filesystem::exists(out("x.tpuexe"))) << "a failed compile leaves no file";
  }
  const Result r = tpuc(data("bad_cholesky.mlirbc") + " -o " + out("x.tpuexe"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.text.find("cholesky"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find(".py:"), std::string::npos) << r.text;
}

TEST_F(Tpuc, SaysWhereTheExecutableGoes) {
  const Result r = tpuc_in(folder_.string(), data("dense.mlirbc"));
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.text, "wrote dense.tpuexe\n");
  EXPECT_TRUE(std::filesystem::exists(out("dense.tpuexe")));
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " -o " + out("a.tpuexe")).text, "");
}

TEST_F(Tpuc, UnknownStagesAreNamedWithTheKnownOnes) {
  const Result r = tpuc(data("dense.mlirbc") + " --dump-after simplfy");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.text.find("simplfy not in {import,inline,"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("kernels,memory,listing}"), std::string::npos) << r.text;
}

TEST_F(Tpuc, SaysWhyNothingIsSharded) {
  const std::string one = tpuc(data("dense.mlirbc") + " --update-sharding=on -o /dev/null").text;
  EXPECT_NE(one.find("changes nothing: the program runs on one core"), std::string::npos) << one;
  const std::string small =
      tpuc(data("mlp_sgd.mlirbc") + " --update-sharding=on -o /dev/null").text;
  EXPECT_NE(small.find("has 524288 bytes or more"), std::string::npos) << small;
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " --update-sharding=auto -o /dev/null").text, "");
  const std::string verbose = tpuc(data("dense.mlirbc") + " -v -o /dev/null").text;
  EXPECT_NE(verbose.find(": 1 core, "), std::string::npos) << verbose;
  EXPECT_NE(verbose.find("update sharding off (the program runs on one core)"), std::string::npos)
      << verbose;
}

TEST_F(Tpuc, SaysThatThereAreNoLayersToRoll) {
  const std::string one = tpuc(data("dense.mlirbc") + " --roll-layers=on -o /dev/null").text;
  EXPECT_NE(one.find("--roll-layers=on changes nothing: the program has no equal layers"),
            std::string::npos)
      << one;
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " --roll-layers=off -o /dev/null").text, "");
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " --roll-layers=yes -o /dev/null").code, 2);
}

TEST_F(Tpuc, StylesThatThereAreNotAreWrongUsage) {
  const std::string program = data("mlp_sgd.mlirbc") + " -o /dev/null ";
  const Result unknown = tpuc(program + "--style xla2018");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.text.find("--style: xla2018 not in {best,xla2019,xla2023}"), std::string::npos)
      << unknown.text;
  for (const std::string style : {"best", "xla2019"}) {
    for (const std::string mode : {"auto", "on", "off"}) {
      EXPECT_EQ(tpuc(program + "--style " + style + " --update-sharding=" + mode).code, 0);
    }
  }
}

TEST_F(Tpuc, FailuresLeaveWhatWasThere) {
  std::filesystem::create_directory(out("folder"));
  for (const std::string& target : {std::string("/dev/full"), out("folder")}) {
    const Result r = tpuc(data("dense.mlirbc") + " -o " + target);
    EXPECT_EQ(r.code, 1) << target;
    EXPECT_NE(r.text.find("cannot write '" + target + "': "), std::string::npos) << r.text;
  }
  ASSERT_EQ(tpuc(data("dense.mlirbc") + " -o " + out("a.tpuexe")).code, 0);
  const auto size = std::filesystem::file_size(out("a.tpuexe"));
  // Files end after 1 KiB: the write fails halfway.
  const Result r = tpuc(data("mlp_sgd.mlirbc") + " -o " + out("a.tpuexe"), "ulimit -f 1; ");
  EXPECT_EQ(r.code, 1) << r.text;
  EXPECT_EQ(std::filesystem::file_size(out("a.tpuexe")), size);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "a rest is left";
}

TEST_F(Tpuc, StandardOutputThatIsFullIsAnError) {
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " --dump-after listing > /dev/full").code, 1);
}

TEST_F(Tpuc, AnInputIsNotReplacedByTheOutput) {
  const std::string program = out("p.mlirbc");
  std::filesystem::copy_file(data("dense.mlirbc"), program);
  std::filesystem::create_symlink(program, out("link"));
  const auto size = std::filesystem::file_size(program);
  for (const std::string& output : {program, out("link")}) {
    const Result r = tpuc(program + " -o " + output);
    EXPECT_EQ(r.code, 1);
    EXPECT_NE(r.text.find(output + ": would be written over the input " + program),
              std::string::npos)
        << r.text;
    EXPECT_EQ(std::filesystem::file_size(program), size);
  }
  ASSERT_EQ(tpuc(program + " -o " + out("a.tpuexe")).code, 0);
  EXPECT_EQ(tpuc("--disasm " + out("a.tpuexe") + " -o " + out("a.tpuexe")).code, 1);
  ASSERT_EQ(tpuc("--disasm " + out("a.tpuexe") + " -o " + out("t.tpuexe")).code, 0);
  EXPECT_EQ(tpuc_in(folder_.string(), "--asm t.tpuexe").code, 1);  // its own name by default
  EXPECT_EQ(tpuc_in(folder_.string(), "--asm t.tpuexe -o u.tpuexe").code, 0);
}

TEST_F(Tpuc, ArraysThatAreSmallAreNotAskedToBeSmaller) {
  const Result r = tpuc(data("mlp_sgd.mlirbc") + " --set core.vmem_kib=16 -o " + out("a.tpuexe"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.text.find("does not fit into VMEM (16 KiB)"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("more VMEM (core.vmem_kib)"), std::string::npos) << r.text;
}

TEST_F(Tpuc, WhatHasNoEndIsNotRead) {
  for (const std::string input : {"/dev/zero", "--asm /dev/zero", "--disasm /dev/zero",
                                  "--board ./../../../../../../../dev/zero x.mlirbc"}) {
    const Result r = tpuc(input, "ulimit -v 4000000; cd / && ");
    EXPECT_EQ(r.code, 1) << input;
    EXPECT_NE(r.text.find("/dev/zero: is a device; name a file"), std::string::npos) << r.text;
  }
}

TEST_F(Tpuc, LinksStayLinks) {
  ASSERT_EQ(tpuc(data("dense.mlirbc") + " -o " + out("a.tpuexe")).code, 0);
  std::filesystem::create_symlink(out("a.tpuexe"), out("link.tpuexe"));
  const auto size = std::filesystem::file_size(out("a.tpuexe"));
  ASSERT_EQ(tpuc(data("mlp_sgd.mlirbc") + " -o " + out("link.tpuexe")).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(out("link.tpuexe")));
  EXPECT_NE(std::filesystem::file_size(out("a.tpuexe")), size);
}

TEST_F(Tpuc, FilesOfAnotherKindAreNamed) {
  const std::string artifact = data("dense.mlirbc"), program = out("a.tpuexe");
  ASSERT_EQ(tpuc(artifact + " -o " + program).code, 0);
  const Result graph = tpuc(program + " -o " + out("b.tpuexe"));
  EXPECT_NE(graph.text.find(program + ": not a StableHLO portable artifact"), std::string::npos)
      << graph.text;
  std::ofstream(out("d.mlir")) << "\n#loc = loc(unknown)\nmodule @jit_f {\n}\n";
  const Result printed = tpuc(out("d.mlir") + " -o " + out("b.tpuexe"));
  EXPECT_EQ(printed.code, 1);
  EXPECT_NE(printed.text.find(out("d.mlir") + ": this is MLIR as text"), std::string::npos)
      << printed.text;
  std::ofstream(out("c.s")) << ".arg \"x\" global=[4] slot=7\n halt\n";
  const Result slots = tpuc("--asm " + out("c.s") + " -o " + out("c.tpuexe"));
  EXPECT_EQ(slots.code, 1);
  EXPECT_NE(slots.text.find(out("c.s") + ": no driver would load"), std::string::npos)
      << slots.text;
  const Result text = tpuc("--disasm " + artifact);
  EXPECT_NE(text.text.find(artifact + ": not a tpuboard executable"), std::string::npos)
      << text.text;
}

TEST_F(Tpuc, CutsABatchOverTheCores) {
  const std::string artifact = data("whole_mlp_16.mlirbc");
  const Result all = tpuc(artifact + " -v --data-parallel 12,13 -o " + out("a.tpuexe"));
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.text.find("8 cores, "), std::string::npos) << all.text;
  EXPECT_NE(all.text.find("sharding: 7 cross-core reductions"), std::string::npos) << all.text;
  const Result two = tpuc(artifact + " -v --data-parallel 12,13 --cores 6,7 -o " + out("a.tpuexe"));
  EXPECT_NE(two.text.find("2 cores, "), std::string::npos) << two.text;
  const Result state = tpuc(artifact + " --data-parallel 0 -o " + out("b.tpuexe"));
  EXPECT_EQ(state.code, 1);
  EXPECT_NE(state.text.find("dimension 0 cannot be sharded into 8 equal parts"), std::string::npos)
      << state.text;
  EXPECT_EQ(tpuc(artifact + " --data-parallel images -o " + out("b.tpuexe")).code, 2);
  EXPECT_EQ(tpuc("--disasm " + out("a.tpuexe") + " --data-parallel 12").code, 2);
}

TEST_F(Tpuc, WrongUsageAndFiles) {
  EXPECT_EQ(tpuc("").code, 2);
  EXPECT_EQ(tpuc("--no-such-flag x").code, 2);
  EXPECT_EQ(tpuc("/no/such/file.mlirbc").code, 1);
  EXPECT_EQ(tpuc(data("dense.mlirbc") + " -o /no/such/folder/x.tpuexe").code, 1);
  const Result r = tpuc(data("dense.mlirbc") + " --set core.no_such_key=1 -o " + out("x.tpuexe"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.text.find("no_such_key"), std::string::npos) << r.text;
  EXPECT_EQ(tpuc("--version").code, 0);
}

}  // namespace
