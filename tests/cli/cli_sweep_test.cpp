// `tpuboard sweep` without a run: what a file means, mistakes in it, the script for a cluster,
// locks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/sweep/campaign.hpp"
#include "cli/sweep/slurm_script.hpp"
#include "cli/sweep/sweep_file.hpp"
#include "cli/sweep/sweep_folder.hpp"
#include "cli/sweep/sweep_table.hpp"
#include "file/files.hpp"
#include "report/line_plot.hpp"
#include "tests/cli/cli_fixture.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CliSweep : public test::Cli {
 protected:
  std::string refusal(const std::string& text) {
    save("s.toml", text);
    EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--dry-run"}), 1) << text;
    EXPECT_FALSE(std::filesystem::exists(path("o")));
    return error_;
  }
  Sweep sweep(const std::string& text) {
    save("s.toml", text);
    return load_sweep(path("s.toml"));
  }

  const std::string front_ = "[sweep]\ncommand = \"run\"\n[options]\nprogram = \"p.tpuexe\"\n";
};

TEST_F(CliSweep, AGridIsEveryCombinationInTheOrderOfTheFile) {
  const Sweep read = sweep(front_ + R"(
set.dma.in_fixed_ns = 100
in = ["0=a.npy", "1=b.npy"]
[grid]
set.hbm.gbps_per_chip = [450, 900]
check = [false, true]
[[zip]]
program = ["p.tpuexe", "q.tpuexe"]
launches = [1, 0x10]
[[row]]
name = "alone"
set.dma.in_fixed_ns = 50
)");
  EXPECT_EQ(read.folder, folder_.string());
  EXPECT_THAT(read.axes, ElementsAre("set.hbm.gbps_per_chip", "check", "program", "launches",
                                     "set.dma.in_fixed_ns"));
  ASSERT_EQ(read.rows.size(), 9u);
  EXPECT_THAT(read.rows[0].words,
              ElementsAre("--set", "dma.in_fixed_ns=100", "--in", "0=a.npy", "--in", "1=b.npy",
                          "--set", "hbm.gbps_per_chip=450", "p.tpuexe", "--launches", "1"));
  EXPECT_EQ(read.rows[0].name, "set.hbm.gbps_per_chip=450 check=false program=p.tpuexe launches=1");
  EXPECT_THAT(read.rows[3].words, ElementsAre("--set", "dma.in_fixed_ns=100", "--in", "0=a.npy",
                                              "--in", "1=b.npy", "--set", "hbm.gbps_per_chip=450",
                                              "--check", "q.tpuexe", "--launches", "16"));
  EXPECT_EQ(read.rows[8].name, "alone");
  EXPECT_THAT(read.rows[8].words, ElementsAre("p.tpuexe", "--in", "0=a.npy", "--in", "1=b.npy",
                                              "--set", "dma.in_fixed_ns=50"));
  EXPECT_EQ(read.rows[8].values.at("set.dma.in_fixed_ns").number, 50);
}

TEST_F(CliSweep, KeysOfAConfigurationKeepTheirType) {
  const Sweep read = sweep(
      "[sweep]\ncommand = \"train\"\n[options]\nconfig = \"c.toml\"\n[grid]\n"
      "with.program.train = [\"3\", \"b.mlirbc\"]\nwith.state.init = [[\"ones\", \"zeros\"]]\n"
      "with.run.stop_on_nan = [true]\n");
  ASSERT_EQ(read.rows.size(), 2u);
  ASSERT_EQ(read.rows[0].words.size(), 7u);
  EXPECT_EQ(read.rows[0].words[2], "program.train=\"3\"");
  EXPECT_THAT(read.rows[0].words[4], StartsWith("state.init=["));
  EXPECT_EQ(read.rows[0].words[6], "run.stop_on_nan=true");
}

TEST_F(CliSweep, MistakesAreNamedBeforeAnythingRuns) {
  EXPECT_THAT(refusal("[grid]\nsteps = [1]\n"), HasSubstr("s.toml: section [sweep] is missing"));
  EXPECT_THAT(
      refusal("[sweep]\ncommand = \"fly\"\n"),
      HasSubstr("s.toml:2: sweep.command: invalid value 'fly': expected train, run or bench"));
  EXPECT_THAT(refusal("[sweep]\ncommand = \"run\"\nspeed = 1\n"),
              HasSubstr("s.toml:3: unknown key sweep.speed; known: command, figures"));
  EXPECT_THAT(refusal("x = \n"), HasSubstr("s.toml:1: "));
  EXPECT_THAT(refusal(front_), HasSubstr("s.toml: no rows; give [grid], [[zip]] or [[row]]"));
  EXPECT_THAT(refusal(front_ + "[gird]\n"), HasSubstr("s.toml:5: unknown section [gird]"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlunches = [1]\n"),
              HasSubstr("s.toml:6: tpuboard run has no 'lunches'; known: program, in, device"));
  EXPECT_THAT(refusal(front_ + "[grid]\nout-dir = [\"a\"]\n"),
              HasSubstr("s.toml:6: 'out-dir' is given by the sweep"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = 3\n"),
              HasSubstr("s.toml:6: 'launches' must be a list of values to try"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [true]\n"),
              HasSubstr("s.toml:6: 'launches' takes a value, not true or false"));
  EXPECT_THAT(refusal(front_ + "[grid]\ncheck = [1]\n"),
              HasSubstr("s.toml:6: 'check': expected true or false"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [{a = 1}]\n"),
              HasSubstr("s.toml:6: 'launches': expected a string, a number or a list of them"));
  EXPECT_THAT(refusal(front_ + "[[zip]]\nlaunches = [1, 2]\ndevice = [1]\n"),
              HasSubstr("s.toml:7: 'device' has 1 values, 'launches' beside it 2"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [1]\n[[zip]]\nlaunches = [1]\n"),
              HasSubstr("s.toml:8: 'launches' is an axis already"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [1, 2, 1]\n"),
              HasSubstr("s.toml: rows 0 and 2 are the same run"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [1, 0]\n"),
              HasSubstr("s.toml: row 1 (launches=0): --launches: "));
  EXPECT_THAT(refusal("[sweep]\ncommand = \"run\"\n[grid]\nlaunches = [1]\n"),
              HasSubstr("s.toml: row 0 (launches=1): program, or --from-snapshot "));
  EXPECT_THAT(refusal(front_ + "[[row]]\nname = 3\n"), HasSubstr("s.toml:6: the name of a row"));
  EXPECT_THAT(refusal(front_ + "[row]\nlaunches = 3\n"),
              HasSubstr("s.toml:5: 'row' must be written as [[row]]"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [1]\n[slurm]\nmem = \"1\\n2\"\n"),
              HasSubstr("s.toml:8: slurm.mem must be an option of sbatch"));
  EXPECT_THAT(refusal(front_ + "[grid]\nlaunches = [1]\n[slurm]\narray = \"0-3\"\n"),
              HasSubstr("s.toml:8: slurm.array must be an option of sbatch"));
  EXPECT_THAT(refusal(front_ + "[[row]]\nname = \"a\"\nlunches = 3\n"),
              HasSubstr("s.toml:7: tpuboard run has no 'lunches'"));
  EXPECT_THAT(refusal(front_ + "[grid]\nhelp = [true]\n"),
              HasSubstr("s.toml:6: tpuboard run has no 'help'"));
  EXPECT_EQ(call({"sweep", path("none.toml")}), 1);
  EXPECT_EQ(call({"sweep", path("s.toml"), "--slurm", "--collect"}), 2);
  EXPECT_EQ(call({"sweep", path("s.toml"), "--task", "-1"}), 2);
}

// Also the last one of a night.
TEST_F(CliSweep, ValuesOfTheBoardAndTheConfigurationAreChecked) {
  EXPECT_THAT(refusal(front_ + "[grid]\nset.hbm.gbps_per_chip = [900, 0]\n"),
              HasSubstr("s.toml: row 1 (set.hbm.gbps_per_chip=0): --set: hbm.gbps_per_chip = 0 "));
  EXPECT_THAT(refusal(front_ + "set.hbm.gpbs = 1\n[grid]\nlaunches = [1]\n"),
              HasSubstr("s.toml: row 0 (launches=1): --set hbm.gpbs=1: "));
  std::filesystem::create_directories(path("b"));
  save("b/none.toml", "[board]\n");
  EXPECT_THAT(refusal(front_ + "board = \"b/none.toml\"\n[grid]\nlaunches = [1]\n"),
              HasSubstr("s.toml: row 0 (launches=1): " + path("b/none.toml")));
  save("c.toml", "[program]\ntrain = \"t.mlirbc\"\n");
  const std::string train = "[sweep]\ncommand = \"train\"\n[options]\nconfig = \"c.toml\"\n";
  EXPECT_THAT(refusal(train + "[grid]\nwith.program.trian = [\"a\"]\n"),
              HasSubstr("s.toml: row 0 (with.program.trian=a): --with program.trian="));
  EXPECT_THAT(refusal(train + "[grid]\nsteps = [1]\n"),
              HasSubstr("s.toml: row 0 (steps=1): " + path("c.toml") + ": section ["));
}

// Of a run that reads a file before it changes and ends behind that nothing is complete.
TEST_F(CliSweep, AFileThatChangesDuringARunMakesItNew) {
  save("p.tpuexe", "one");
  const Sweep read = sweep(front_ + "[grid]\nlaunches = [1]\n");
  const SweepFolder folder(path("o"), read);
  make_folder(folder.row(0));
  const std::string stamp = folder.stamp(0);
  folder.end(0, {RowState::kDone, "", 4, 2}, stamp);
  EXPECT_EQ(folder.read(0).state, RowState::kDone);
  save("p.tpuexe", "another");
  folder.end(0, {RowState::kDone, "", 4, 2}, stamp);
  EXPECT_EQ(folder.read(0).state, RowState::kNotRun);
}

// The newest checkpoint that is complete is what the row begins with.
TEST_F(CliSweep, ANewCheckpointToBeginWithMakesARowNew) {
  std::filesystem::create_directory(path("old"));
  save("old/step3.safetensors", "three");
  save("c.toml",
       "[program]\ntrain = \"t.mlirbc\"\n[state]\nseed = 1\nfrom = \"old\"\n[data]\n"
       "images = \"i.npy\"\nlabels = \"l.npy\"\nsplit_seed = 7\neval_count = 0\n[run]\n"
       "batch = 16\nepochs = 1\n");
  const Sweep read =
      sweep("[sweep]\ncommand = \"train\"\n[options]\nconfig = \"c.toml\"\n[grid]\nsteps = [1]\n");
  const SweepFolder folder(path("o"), read);
  make_folder(folder.row(0));
  const auto state_behind = [&](const std::string& file, const std::string& text) {
    folder.end(0, {RowState::kDone, "", 4, 2}, folder.stamp(0));
    EXPECT_EQ(folder.read(0).state, RowState::kDone);
    save(file, text);
    return folder.read(0).state;
  };
  EXPECT_EQ(state_behind("old/step3.safetensors", "another"), RowState::kNotRun);
  EXPECT_EQ(state_behind("old/step5.safetensors", "five"), RowState::kNotRun);
  EXPECT_EQ(state_behind("old/notes.txt", "no checkpoint"), RowState::kDone);
}

TEST_F(CliSweep, AGridOfAnySizeIsRefusedAtOnce) {
  std::string text = front_ + "[grid]\n";
  for (const char* key : {"launches", "threads", "device", "time-limit", "set.a", "set.b"}) {
    text += std::string(key) + " = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n";
  }
  EXPECT_THAT(refusal(text), HasSubstr("s.toml: more than 10000 rows"));
}

TEST_F(CliSweep, ADryRunPrintsTheRows) {
  save("s.toml", front_ + "[grid]\nin = [\"0=a b.npy\"]\nlaunches = [1, 2]\n");
  ASSERT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--dry-run"}), 0) << error_;
  EXPECT_THAT(out_, HasSubstr("2 rows, 2 of them to run, in " + path("o") + "\ncd " +
                              folder_.string() + "\n"));
  EXPECT_THAT(out_, HasSubstr("# row 1: in=0=a b.npy launches=2\n"
                              "tpuboard run p.tpuexe --in '0=a b.npy' --launches 2 --json "));
  EXPECT_FALSE(std::filesystem::exists(path("o")));
}

TEST_F(CliSweep, ACollectionTellsWhatIsNotRun) {
  save("s.toml", front_ + "[grid]\nlaunches = [1, 2]\n");
  EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--collect"}), 1);
  EXPECT_THAT(error_, HasSubstr("2 of 2 rows have no result: 0 failed, 2 not run"));
  EXPECT_THAT(out_, HasSubstr("not run"));
}

TEST_F(CliSweep, ACollectionTellsWhichRowFailedFirst) {
  const Sweep read = sweep(
      "[sweep]\ncommand = \"run\"\nfigures = [\"tiels\"]\n[options]\nprogram = \"p.tpuexe\"\n"
      "[grid]\nlaunches = [1, 2, 3]\n");
  const SweepFolder folder(path("o"), read);
  for (size_t row = 0; row < 3; ++row) {
    make_folder(folder.row(row));
    save(std::filesystem::relative(folder.row(row) / "figures.json", folder_).string(), "{}");
    folder.end(row,
               {row == 0 ? RowState::kDone : RowState::kFailed,
                row == 0 ? "" : "broke at " + std::to_string(row), 1, 1},
               folder.stamp(row));
  }
  EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--collect"}), 1);
  EXPECT_THAT(error_, HasSubstr("2 of 3 rows have no result: 2 failed, 0 not run; the first, row 1 "
                                "(launches=2): broke at 1"));
  EXPECT_THAT(error_, HasSubstr("no row has a number tiels; what there is: " +
                                (folder.row(0) / "figures.json").string()));
}

TEST_F(CliSweep, TheScriptIsOneJobArray) {
  save("s.toml", front_ +
                     "[grid]\nlaunches = [1, 2, 3]\n[slurm]\npartition = \"a b\"\n"
                     "cpus-per-task = 4\n");
  ASSERT_EQ(call({"sweep", path("s.toml"), "--out", path("o p"), "--slurm"}), 0) << error_;
  EXPECT_THAT(out_, StartsWith("#!/bin/bash\n#SBATCH --job-name=s\n#SBATCH --array=0-2\n"));
  EXPECT_THAT(out_, HasSubstr("#SBATCH --output='" + path("o p") +
                              "/slurm-%a.txt'\n"
                              "#SBATCH --partition='a b'\n#SBATCH --cpus-per-task=4\n"));
  EXPECT_THAT(out_, HasSubstr(" sweep " + path("s.toml") + " --out '" + path("o p") +
                              "' --task \"$SLURM_ARRAY_TASK_ID\"\n"));
  EXPECT_TRUE(std::filesystem::is_directory(path("o p")));  // sbatch makes none for its output
  EXPECT_EQ(call({"sweep", path("s.toml"), "--task", "3"}), 1);
  EXPECT_THAT(error_, HasSubstr("--task 3: expected a row of " + path("s.toml") + ": 0 to 2"));
}

TEST_F(CliSweep, TwoSweepsDoNotShareAFolderNorARow) {
  const Sweep read = sweep(front_ + "[grid]\nlaunches = [1]\n");
  const SweepFolder rows(path("o"), read);
  make_folder(rows.row(0));
  {
    const FolderLock other(path("o"));
    EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o")}), 1);
    EXPECT_THAT(error_, HasSubstr(path("o") + ": another run writes there"));
  }
  const FolderLock other(rows.row(0));
  EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--task", "0"}), 1);
  EXPECT_THAT(error_, HasSubstr("row 0 (launches=1) was not run: FailedPrecondition: " +
                                rows.row(0).string() + ": another run writes there"));
}

// The file of the sweep is an input.
TEST_F(CliSweep, TheFileIsKept) {
  save("s.toml", front_ + "[grid]\nlaunches = [1]\n");
  EXPECT_EQ(call({"sweep", path("s.toml"), "--collect", "--json", path("s.toml")}), 1);
  EXPECT_THAT(error_, HasSubstr("s.toml"));
  EXPECT_EQ(sweep(front_ + "[grid]\nlaunches = [1]\n").rows.size(), 1u);
}

// Rows as two runs of `run` would leave them.
TEST_F(CliSweep, TheTableComparesWithTheFirstRow) {
  const Sweep read = sweep(
      "[sweep]\ncommand = \"run\"\nfigures = [\"lockstep.tiles\", \"cycles\", \"loss\", "
      "\"cycles\"]\n"
      "[options]\n"
      "program = \"p.tpuexe\"\n[grid]\nlaunches = [1, 2]\ndevice = [0, 1]\n");
  const SweepFolder folder(path("o"), read);
  const auto row_done = [&](size_t row, double seconds, int launches, double mxu) {
    make_folder(folder.row(row));
    save(std::filesystem::relative(folder.row(row) / "figures.json", folder_).string(),
         nlohmann::json{{"sim_seconds", seconds},
                        {"launches", launches},
                        {"mxu_utilization", mxu},
                        {"cycles", 1000000001 + row},
                        {"lockstep", {{"tiles", row}}}}
             .dump());
    folder.end(row, {RowState::kDone, "", 4, 2}, folder.stamp(row));
  };
  row_done(0, 0.002, 1, 0.5);
  row_done(1, 0.002, 2, 0.75);
  make_folder(folder.row(3));
  folder.end(3, {RowState::kFailed, "InvalidArgument: \"p\" is wrong,\nsee there", 1, 1},
             folder.stamp(3));
  const SweepTable table(read, folder);
  const auto json = table.json();
  EXPECT_EQ(json["rows"][0]["state"], "done");
  EXPECT_EQ(json["rows"][0]["figures"]["step_ms"], 2.0);
  EXPECT_EQ(json["rows"][1]["values"]["device"], 1);
  EXPECT_EQ(json["rows"][1]["figures"]["step_ms"], 1.0);
  EXPECT_EQ(json["rows"][1]["against_first"]["step_ms"], 2.0);
  EXPECT_EQ(json["rows"][1]["against_first"]["mxu_percent"], 25.0);
  EXPECT_EQ(json["rows"][1]["figures"]["lockstep.tiles"], 1.0);
  EXPECT_FALSE(json["rows"][1]["figures"].contains("loss"));
  EXPECT_EQ(json["rows"][2]["state"], "not run");
  EXPECT_EQ(json["rows"][3]["error"], "InvalidArgument: \"p\" is wrong,\nsee there");
  const std::string text = table.text();
  EXPECT_THAT(text, HasSubstr("1.0000 (2.00x)  75.00 (+25.00)"));
  EXPECT_THAT(text, HasSubstr("  1000000002 (+1)  "));
  EXPECT_THAT(table.unknown_figures(), ElementsAre("loss"));
  EXPECT_THAT(text, HasSubstr("failed: InvalidArgument: \"p\" is wrong,\n"));
  EXPECT_THAT(table.csv(), HasSubstr("\"InvalidArgument: \"\"p\"\" is wrong,\nsee there\"\n"));
  EXPECT_THAT(table.csv(),
              HasSubstr("\n1,launches=1 device=1,done,1,1,1,75,1,1000000002,4,2,2,25,1,1,1,1,"));
  const auto plots = table.plots();
  ASSERT_TRUE(plots.contains("step_ms_by_device.svg"));
  EXPECT_THAT(plots.at("step_ms_by_device.svg"), HasSubstr(">launches=1</text>"));
  EXPECT_TRUE(plots.contains("mxu_percent_by_launches.svg"));
}

// What it does is as much of a row as its options are.
TEST_F(CliSweep, RowsOfAnotherCommandAreOthers) {
  const std::string grid = "[grid]\nset.hbm.gbps_per_chip = [900]\n";
  const Sweep run = sweep(front_ + grid);
  const Sweep bench =
      sweep("[sweep]\ncommand = \"bench\"\n[options]\nprogram = \"p.tpuexe\"\n" + grid);
  EXPECT_EQ(run.rows[0].words, bench.rows[0].words);
  EXPECT_NE(SweepFolder(path("o"), run).row(0), SweepFolder(path("o"), bench).row(0));
}

TEST_F(CliSweep, WordsThatRunTogetherAlikeAreOtherRows) {
  const Sweep read =
      sweep(front_ + "[[row]]\nin = [\"0=a\", \"1=b\"]\n[[row]]\nin = \"0=a--in1=b\"\n");
  const SweepFolder folder(path("o"), read);
  EXPECT_NE(folder.row(0), folder.row(1));
}

// Names of rows are free texts; plots without an axis of numbers are over the rows, in their order.
TEST_F(CliSweep, ATableOfNamedRows) {
  const Sweep read =
      sweep(front_ + "[[row]]\nname = \"a, b\"\ncheck = true\n[[row]]\nname = \"c\"\n");
  const SweepFolder folder(path("o"), read);
  for (size_t row = 0; row < 2; ++row) {
    make_folder(folder.row(row));
    save(std::filesystem::relative(folder.row(row) / "figures.json", folder_).string(),
         nlohmann::json{{"sim_seconds", 0.001}}.dump());
    folder.end(row, {RowState::kDone, "", 4, 2}, folder.stamp(row));
  }
  folder.end(1, {RowState::kFailed, std::string(200, 'x') + "\nmore", 1, 1}, folder.stamp(1));
  const SweepTable table(read, folder);
  EXPECT_THAT(table.csv(), HasSubstr("\n0,\"a, b\",done,"));
  EXPECT_THAT(table.text(), HasSubstr("failed: " + std::string(100, 'x') + " ...\n"));
  EXPECT_TRUE(table.plots().contains("step_ms_by_row.svg"));
}

TEST_F(CliSweep, EveryFileThatARowReadsCounts) {
  const auto changes = [&](const Sweep& read, const std::string& file) {
    const SweepFolder folder(path("o"), read);
    const std::string before = folder.stamp(0);
    save(file, "longer than it was");
    return folder.stamp(0) != before;
  };
  save("a.npy", "a");
  EXPECT_TRUE(changes(sweep(front_ + "[grid]\nin = [\"0=a.npy\"]\n"), "a.npy"));
  save("c.toml",
       "[program]\ntrain = \"a.mlirbc\"\n[state]\nseed = 1\ninit = [\"zeros\"]\n[data]\nimages = "
       "\"i.npy\"\n"
       "labels = \"l.npy\"\nsplit_seed = 1\neval_count = 0\n[run]\nbatch = 1\nepochs = 1\n");
  const Sweep train = sweep(
      "[sweep]\ncommand = \"train\"\n[options]\nconfig = \"c.toml\"\n[grid]\n"
      "with.program.train = [\"b.mlirbc\"]\n");
  for (const char* file : {"a.mlirbc", "b.mlirbc", "i.npy"}) {
    save(file, "short");
  }
  EXPECT_FALSE(changes(train, "a.mlirbc"));  // which this row does not use
  EXPECT_TRUE(changes(train, "b.mlirbc"));
  EXPECT_TRUE(changes(train, "i.npy"));
}

TEST_F(CliSweep, ARowBeginsWithAnEmptyFolder) {
  const Sweep read = sweep(front_ + "[grid]\nlaunches = [1]\n");
  const SweepFolder folder(path("o"), read);
  make_folder(folder.row(0) / "out" / "checkpoint");
  folder.end(0, {RowState::kDone, "", 4, 2}, folder.stamp(0));
  folder.begin(0);
  EXPECT_EQ(folder.read(0).state, RowState::kNotRun);
  EXPECT_FALSE(std::filesystem::exists(folder.row(0) / "out"));
}

TEST_F(CliSweep, ARowsFolderThatNoSweepHasFilledIsNotEmptied) {
  const Sweep read = sweep(front_ + "[grid]\nlaunches = [1]\n");
  const SweepFolder folder(path("o"), read);
  make_folder(folder.row(0) / "out" / "mine");
  try {
    folder.begin(0);
    FAIL() << "begun";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("out: no row of a sweep has written it"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder.row(0) / "out" / "mine"));
  std::filesystem::remove_all(folder.row(0) / "out");
  folder.begin(0);
  make_folder(folder.row(0) / "out");
  folder.begin(0);  // as behind a sweep that was killed
  EXPECT_FALSE(std::filesystem::exists(folder.row(0) / "out"));
}

TEST_F(CliSweep, AgainRunsWhatIsComplete) {
  const Sweep read = sweep(front_ + "[grid]\nlaunches = [1, 2]\n");
  const SweepFolder folder(path("o"), read);
  make_folder(folder.row(0));
  folder.end(0, {RowState::kDone, "", 4, 2}, folder.stamp(0));
  ASSERT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--dry-run"}), 0);
  EXPECT_THAT(out_, HasSubstr("2 rows, 1 of them to run"));
  EXPECT_THAT(out_, HasSubstr("# row 0, complete: "));
  ASSERT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--dry-run", "--again"}), 0);
  EXPECT_THAT(out_, HasSubstr("2 rows, 2 of them to run"));
}

TEST_F(CliSweep, PlotsAreOfTheNumbersThereAre) {
  const Sweep read = sweep(
      "[sweep]\ncommand = \"bench\"\n[options]\nprogram = \"p.tpuexe\"\n[grid]\n"
      "set.hbm.gbps_per_chip = [900, 450]\nsimd = [\"scalar\", \"avx2\"]\n");
  const SweepFolder folder(path("o"), read);
  for (size_t row = 0; row < 4; ++row) {
    make_folder(folder.row(row));
    save(std::filesystem::relative(folder.row(row) / "figures.json", folder_).string(),
         "{\"sim_us_per_launch\": {\"value\": 7.5}}");
    folder.end(row, {RowState::kDone, "", 4, 2}, folder.stamp(row));
  }
  make_folder(folder.root() / "plots");
  save("o/plots/loss_by_launches.svg",
       training::line_plot({"loss", "launches"}, {{"c", {{1, 2}, {2, 3}}}}));
  save("o/plots/mine_by_hand.svg", "of the user");
  const SweepTable table(read, folder);
  EXPECT_EQ(table.json()["rows"][0]["figures"]["step_ms"], 0.0075);
  table.write();
  EXPECT_TRUE(std::filesystem::exists(path("o/plots/step_ms_by_set.hbm.gbps_per_chip.svg")));
  EXPECT_FALSE(std::filesystem::exists(path("o/plots/step_ms_by_simd.svg")));
  EXPECT_FALSE(std::filesystem::exists(path("o/plots/loss_by_launches.svg")));
  EXPECT_TRUE(std::filesystem::exists(path("o/plots/mine_by_hand.svg")));
}

TEST(SweepShell, AWordStaysOne) {
  EXPECT_EQ(shell_word("it's a $x"), "'it'\\''s a $x'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a/b-c_d=e.f:g,h@i%j+k"), "a/b-c_d=e.f:g,h@i%j+k");
}

TEST(SweepLog, TheLastErrorIsFound) {
  EXPECT_EQ(error_in(""), "");
  EXPECT_EQ(error_in("all is well\n"), "");
  EXPECT_EQ(error_in("tpuboard: a note\nepoch 1\ntpuboard: it broke: tpuboard: x\nand\n"),
            "it broke: tpuboard: x\nand");
}

constexpr const char* kCampaign =
    "[sweep]\ncommand = \"run\"\n[options]\nprogram = \"p.tpuexe\"\n[campaign]\n";

TEST_F(CliSweep, ACampaignHasACleanRowBeforeThoseWithFaults) {
  save("a.toml", "");
  save("b.toml", "");
  const Sweep alone = sweep(std::string(kCampaign) + "faults = [\"a.toml\"]\nseeds = 2\n");
  ASSERT_EQ(alone.rows.size(), 3u);
  EXPECT_EQ(alone.rows[0].name, "clean");
  EXPECT_EQ(alone.rows[0].clean, std::nullopt);
  EXPECT_EQ(alone.rows[2].name, "faults=a.toml fault-seed=2");
  const Sweep own = sweep(std::string(kCampaign) + "faults = [\"a.toml\"]\n");
  ASSERT_EQ(own.rows.size(), 2u);
  EXPECT_THAT(own.rows[1].words, ElementsAre("p.tpuexe", "--faults", "a.toml"));
  const Sweep read = sweep(std::string(kCampaign) +
                           "faults = [\"a.toml\", \"b.toml\"]\nseeds = 2\nfirst_seed = 7\n[grid]\n"
                           "launches = [1, 2]\n");
  EXPECT_TRUE(read.campaign);
  EXPECT_THAT(read.axes, ElementsAre("launches", "faults", "fault-seed"));
  ASSERT_EQ(read.rows.size(), 10u);
  EXPECT_EQ(read.rows[5].name, "launches=2 clean");
  EXPECT_THAT(read.rows[5].words, ElementsAre("p.tpuexe", "--launches", "2"));
  EXPECT_EQ(read.rows[9].clean, 5u);
  EXPECT_THAT(read.rows[9].words, ElementsAre("p.tpuexe", "--launches", "2", "--faults", "b.toml",
                                              "--fault-seed", "8"));
  const SweepFolder folder(path("o"), read);
  const std::vector<std::string> words = folder.words(9);
  EXPECT_EQ(words.back(), folder.fault_log(9).string());
  EXPECT_EQ(folder.words(5).back(), (folder.row(5) / "figures.json").string());
}

TEST_F(CliSweep, MistakesInACampaignAreNamed) {
  save("a.toml", "");
  const std::string good = std::string(kCampaign) + "faults = [\"a.toml\"]\nseeds = 2\n";
  EXPECT_THAT(refusal(kCampaign), HasSubstr("campaign.faults is missing"));
  EXPECT_THAT(refusal(std::string(kCampaign) + "faults = [\"a.toml\"]\nfirst_seed = 3\n"),
              HasSubstr("s.toml:7: campaign.first_seed needs campaign.seeds"));
  EXPECT_THAT(refusal(std::string(kCampaign) + "faults = []\nseeds = 2\n"),
              HasSubstr("s.toml:6: campaign.faults must be a list of fault files"));
  EXPECT_THAT(refusal(std::string(kCampaign) + "faults = [\"none.toml\"]\nseeds = 2\n"),
              HasSubstr("s.toml:6: campaign.faults names 'none.toml', which is not a file in "));
  EXPECT_THAT(refusal(good + "seed = 1\n"), HasSubstr("unknown key campaign.seed; known: "));
  EXPECT_THAT(refusal(good + "[grid]\nfault-seed = [1]\n"),
              HasSubstr("s.toml: 'fault-seed' does not go with [campaign]"));
  EXPECT_THAT(refusal(good + "[grid]\nno-data = [true]\n"),
              HasSubstr("'no-data' does not go with [campaign], which compares results"));
  EXPECT_THAT(refusal("[sweep]\ncommand = \"bench\"\n[options]\nprogram = \"p.tpuexe\"\n"
                      "[campaign]\nfaults = [\"a.toml\"]\nseeds = 2\n"),
              HasSubstr("s.toml: [campaign] compares results, which tpuboard bench does not have"));
}

TEST(FaultClasses, ComeFromTheLogTheResultAndTheError) {
  const std::string fired = "[12] fault hbm core 3: a bit flips in the word at 0x100\n";
  const auto found = [](const std::string& log, const RowEnd& end) {
    return fault_class(parse_fault_log(log), end, "d1");
  };
  const RowEnd same{.ok = true, .error = {}, .result = "d1", .repeats = 0};
  RowEnd repeated = same;
  repeated.repeats = 1;
  RowEnd other = same;
  other.result = "d2";
  const auto ended = [](const std::string& error) {
    return RowEnd{.ok = false, .error = error, .result = {}, .repeats = 0};
  };
  EXPECT_EQ(found("fault 1 (line 2: hbm in core 3, step 90) never came\n", same),
            FaultClass::kNotFired);
  EXPECT_EQ(found(fired, same), FaultClass::kMasked);
  EXPECT_EQ(
      found(fired + "[15] damage hbm core 3: the word at 0x100 is read, and corrected\n", same),
      FaultClass::kCorrected);
  EXPECT_EQ(
      found("[1] fault pcie_poison chip 0: x\n[2] damage pcie_poison chip 0: a transfer\n", same),
      FaultClass::kRecovered);
  EXPECT_EQ(found("[1] fault mxu core 0: x\n[2] damage mxu core 0: bit 3 flips\n", same),
            FaultClass::kMasked);
  const std::string down = "[1] fault link_down link chip0 +x: the link goes down for 3 us\n";
  const std::string back = "[9] back link_down link chip0 +x: the link works again\n";
  EXPECT_EQ(found(down + back, same), FaultClass::kMasked);
  EXPECT_EQ(found(down + "[2] damage link_down link chip0 +x: a transfer waits\n" + back, same),
            FaultClass::kCorrected);
  EXPECT_EQ(found(fired, repeated), FaultClass::kRecovered);
  EXPECT_EQ(found(fired, other), FaultClass::kSilent);
  const std::string nothing = "[7] nothing hbm core 3: the launch has no slots\n";
  EXPECT_EQ(found(nothing, same), FaultClass::kNotFired);
  EXPECT_EQ(found(nothing, other), FaultClass::kUnexplained);
  EXPECT_EQ(found(nothing, ended("InvalidArgument: no such file")), std::nullopt);
  EXPECT_EQ(found(fired, ended("DataLoss: HBM_ECC")), FaultClass::kDetected);
  EXPECT_EQ(found(fired, ended("DeviceFault: WATCHDOG: the step does not end (pc 3, step 1)")),
            FaultClass::kHang);
  EXPECT_EQ(found(fired, ended("")), FaultClass::kCrash);
  EXPECT_EQ(found("", ended("InvalidArgument: no such file")), std::nullopt);
  EXPECT_EQ(fault_class(parse_fault_log(fired), same, ""), std::nullopt);
}

TEST(FaultClasses, ALogNamesKindsAndPlaces) {
  const FaultLog log = parse_fault_log(
      "[7] fault link_down link chip0 +x: the link goes down for 3 us\n"
      "[9] damage link_down link chip0 +x: a transfer waits\n"
      "[9] nothing hbm core 3: the launch has no byte 99 in slot 0\n"
      "fault 2 (line 9: hart_trap in core 1, step 4 + 3) never came\nnoise\n[ fault x\n");
  EXPECT_THAT(log.fired, ElementsAre(FaultUnit("link_down", "link chip0 +x")));
  EXPECT_EQ(log.met, log.fired);
  EXPECT_THAT(log.never, ElementsAre(FaultUnit("hart_trap", "core 1"), FaultUnit("hbm", "core 3")));
}

// Rows as runs would leave them: of a file whose fault finds nothing to damage, and of one whose
// hart was started again.
TEST_F(CliSweep, ACampaignTellsRowsThatNoFaultExplains) {
  save("a.toml", "");
  save("b.toml", "");
  const Sweep read = sweep(std::string(kCampaign) + "faults = [\"a.toml\", \"b.toml\"]\n");
  ASSERT_EQ(read.rows.size(), 3u);
  const SweepFolder folder(path("o"), read);
  const auto leave = [&](size_t row, const char* digest, int recoveries, const std::string& log) {
    make_folder(folder.row(row));
    const auto file = [&](const std::filesystem::path& at) {
      return std::filesystem::relative(at, folder_).string();
    };
    save(file(folder.row(row) / "figures.json"),
         nlohmann::json{{"digest", digest}, {"recoveries", recoveries}}.dump());
    save(file(folder.fault_log(row)), log);
    folder.end(row, {RowState::kDone, "", 4, 2}, folder.stamp(row));
  };
  const std::string nothing = "[7] nothing hbm core 3: the launch has no slots\n";
  leave(0, "d1", 0, "");
  leave(1, "d1", 0, nothing);
  leave(2, "d1", 1, "[7] fault hart_trap core 3: the program counter is damaged\n");
  EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--collect"}), 0) << error_;
  EXPECT_THAT(error_, HasSubstr("a.toml: no fault of this file happened in any row (hbm core 3)"));
  const auto classes = SweepTable(read, folder).json()["campaign"]["all"];
  EXPECT_EQ(classes["not fired"], 1);
  EXPECT_EQ(classes["recovered"], 1);
  leave(1, "d2", 0, nothing);
  EXPECT_EQ(call({"sweep", path("s.toml"), "--out", path("o"), "--collect"}), 1);
  EXPECT_THAT(error_, HasSubstr("1 row has another result than the clean row, and no fault "
                                "happened: the board or this program is wrong; row 1 ("));
  EXPECT_EQ(SweepTable(read, folder).json()["rows"][1]["class"], "unexplained");
}

}  // namespace
}  // namespace tpu::driver
