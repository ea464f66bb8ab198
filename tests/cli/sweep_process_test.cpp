// `tpuboard sweep` with rows that train on the simulated board: side by side, failed, stopped,
// killed, and again. Nothing here depends on how long anything takes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "file/files.hpp"
#include "format/npy.hpp"
#include "tests/cli/command_line_fixture.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

class SweepProcess : public test::CommandLineFixture {
 protected:
  void SetUp() override {
    CommandLineFixture::SetUp();
    std::vector<float> images(80 * 12);
    std::vector<int32_t> labels(80);
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>(i % 4);
    }
    write_npy(path("images.npy"),
              HostView(DType::kF32, {80, 12}, std::as_bytes(std::span(images))));
    write_npy(path("labels.npy"), HostView(DType::kI32, {80}, std::as_bytes(std::span(labels))));
    save_config("c.toml", "1");
    save_config("endless.toml", "1000000000");
  }

  void save(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  void save_config(const std::string& name, const std::string& epochs) const {
    save(name, "[program]\ntrain = \"" TPU_TEST_DATA
               "/mlp_sgd.mlirbc\"\n"
               "[state]\nseed = 1\n"
               "init = [\"zeros\", \"he_normal\", \"zeros\", \"he_normal\", \"zeros\", "
               "\"he_normal\"]\n[data]\nimages = \"images.npy\"\nlabels = \"labels.npy\"\n"
               "split_seed = 7\neval_count = 10\n[run]\nbatch = 16\nepochs = " +
                   epochs + "\n");
  }

  test::Result sweep(const std::string& more = "", const std::string& jobs = "2") const {
    return test::call(std::string(TPUBOARD) + " sweep " + path("s.toml") + " --out " + path("o") +
                      " --jobs " + jobs + " " + more);
  }
  Json table() const { return Json::parse(std::ifstream(path("o/sweep.json"))); }

  // A sweep with a row without end, which has begun to train when this returns.
  pid_t start_endless() const {
    save("s.toml",
         "[sweep]\ncommand = \"train\"\n[grid]\nconfig = [\"c.toml\", \"endless.toml\"]\n");
    std::vector<std::string> words = {TPUBOARD, "sweep", path("s.toml"), "--out", path("o"),
                                      "--jobs", "2"};
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const int log = open(path("log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    wait_until([&] { return records() == 1 && trains(); });
    return child;
  }
  // Rows that have ended.
  int records() const {
    int count = 0;
    std::error_code none;
    for (const auto& row : fs::directory_iterator(path("o/rows"), none)) {
      count += fs::exists(row.path() / "row.json") ? 1 : 0;
    }
    return count;
  }
  // The folder of the row without an end.
  fs::path endless() const {
    std::error_code none;
    for (const auto& row : fs::directory_iterator(path("o/rows"), none)) {
      if (!fs::exists(row.path() / "row.json")) {
        return row.path();
      }
    }
    return {};
  }
  bool trains() const {
    std::ifstream file(endless() / "log.txt");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.find("epoch") != std::string::npos;
  }
  template <typename Condition>
  static void wait_until(Condition condition) {
    while (!condition()) {  // the test's own time limit ends it
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  // The row without an end gets one; the sweep goes on with it alone.
  void expect_goes_on() const {
    save_config("endless.toml", "2");
    const test::Result rest = sweep();
    EXPECT_EQ(rest.code, 0) << rest.text;
    EXPECT_THAT(rest.text, HasSubstr("1 of 2 rows are complete\n1/1  row 1 (config=endless.toml)"));
    EXPECT_EQ(table()["rows"][1]["state"], "done");
  }
};

TEST_F(SweepProcess, RowsAreAsRunsAlone) {
  save("s.toml", R"([sweep]
command = "train"
figures = ["sim_cycles_per_step", "digest"]
[options]
config = "c.toml"
[grid]
with.state.seed = [1, 2]
set.hbm.gbps_per_chip = [900, 90]
[[row]]
name = "no such batch"
with.run.batch = 8
)");
  const test::Result first = sweep();
  EXPECT_EQ(first.code, 1) << first.text;
  EXPECT_THAT(first.text, HasSubstr("1 of 5 rows have no result: 1 failed, 0 not run; the first, "
                                    "row 4 (no such batch): InvalidArgument: mlp_sgd: argument 6"));
  const Json json = table();
  ASSERT_EQ(json["rows"].size(), 5u);
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(json["rows"][row]["state"], "done") << row;
  }
  EXPECT_EQ(json["rows"][4]["state"], "failed");
  EXPECT_LT(json["rows"][1]["against_first"]["step_ms"], 1.0);  // a tenth of the memory's speed
  EXPECT_EQ(json["rows"][1]["figures"]["loss"], json["rows"][0]["figures"]["loss"]);
  EXPECT_NE(json["rows"][2]["figures"]["loss"], json["rows"][0]["figures"]["loss"]);
  EXPECT_TRUE(fs::exists(path("o/plots/step_ms_by_set.hbm.gbps_per_chip.svg")));
  EXPECT_TRUE(fs::exists(path("o/sweep.csv")));

  const test::Result alone =
      test::call(std::string(TPUBOARD) + " train " + path("c.toml") +
                 " --with state.seed=2 --set hbm.gbps_per_chip=90 --out " + path("alone"));
  ASSERT_EQ(alone.code, 0) << alone.text;
  const std::string folder = json["rows"][3]["folder"];
  const Json run = Json::parse(std::ifstream(path("alone/run.json")));
  const Json row = Json::parse(std::ifstream(folder + "/out/run.json"));
  EXPECT_EQ(row["digest"], run["digest"]);
  EXPECT_EQ(row["sim_cycles"], run["sim_cycles"]);
  EXPECT_EQ(json["rows"][3]["figures"]["sim_cycles_per_step"], run["sim_cycles_per_step"]);

  // Again: what is complete stays, what failed is tried, and a changed input makes all rows new.
  const test::Result again = sweep();
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.text,
              HasSubstr("4 of 5 rows are complete\n1/1  row 4 (no such batch): failed"));
  EXPECT_EQ(table()["rows"][0]["figures"], json["rows"][0]["figures"]);
  save_config("c.toml", "2");
  EXPECT_THAT(sweep("--dry-run").text, HasSubstr("5 rows, 5 of them to run"));
}

TEST_F(SweepProcess, TasksOfAnArrayAreCollected) {
  save("s.toml", "[sweep]\ncommand = \"train\"\n[grid]\nconfig = [\"c.toml\"]\nsteps = [1, 2]\n");
  ASSERT_EQ(sweep("--task 1").code, 0);
  EXPECT_THAT(sweep("--task 1").text, HasSubstr("row 1 (config=c.toml steps=2) is complete"));
  const test::Result half = sweep("--collect");
  EXPECT_EQ(half.code, 1);
  EXPECT_THAT(half.text, HasSubstr("1 of 2 rows have no result: 0 failed, 1 not run"));
  ASSERT_EQ(sweep("--task 0").code, 0);
  const test::Result all = sweep("--collect --json -");
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_EQ(table()["rows"][1]["state"], "done");
}

TEST_F(SweepProcess, ASignalStopsTheRows) {
  const pid_t child = start_endless();
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  std::ifstream log(path("log"));
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_THAT(text, HasSubstr("row 1 (config=endless.toml): stopped"));
  EXPECT_THAT(text, HasSubstr("SIGTERM: 1 of 2 rows have no result; the same command continues"));
  EXPECT_EQ(records(), 1);
  EXPECT_TRUE(fs::exists(endless() / "out/run.json"));  // as `train` stops
  expect_goes_on();
}

// Its rows end with it, so that they do not run beside those of the next.
TEST_F(SweepProcess, AKilledSweepGoesOn) {
  const pid_t child = start_endless();
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(records(), 1);
  wait_until([&] {
    try {
      const FolderLock lock(endless() / "out");
      return true;
    } catch (const Error&) {
      return false;
    }
  });
  expect_goes_on();
}

// Classes are those of the seeds, not of threads, and each says what its faults did.
TEST_F(SweepProcess, ACampaignClassesItsRowsTheSameForAnyThreads) {
  const auto fault = [&](const std::string& name, const std::string& text) {
    save(name + ".toml", text);
  };
  const std::string entry = "[[fault]]\nwhere = \"core 1\"\nat = \"step 1\"\n";
  fault("far", entry + "kind = \"hbm\"\naddress = \"random\"\n");
  fault("one", entry + "kind = \"hbm\"\naddress = \"slot 1 + 64\"\n");
  fault("two", entry + "kind = \"hbm\"\nbits = 2\naddress = \"slot 1 + 64\"\n");
  fault("flip", "ecc = false\n" + entry + "kind = \"hbm\"\naddress = \"slot 1 + 64\"\n");
  fault("hang", entry + "kind = \"core_hang\"\nunit = \"dma_in\"\n");
  fault("never", "[[fault]]\nwhere = \"core 1\"\nat = \"step 900\"\nkind = \"hart_trap\"\n");
  save("s.toml",
       "[sweep]\ncommand = \"train\"\n[options]\nconfig = \"c.toml\"\n"
       "set.mgmt.watchdog_us = 100\n[campaign]\nseeds = 1\nfaults = [\"far.toml\", \"one.toml\", "
       "\"two.toml\", \"flip.toml\", \"hang.toml\", \"never.toml\"]\n"
       "[[row]]\nwith.run.on_fault = \"stop\"\n[[row]]\nwith.run.on_fault = \"replay\"\n");
  const test::Result first = sweep("", "1");
  EXPECT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(first.text, HasSubstr("never.toml: no fault of this file happened in any row "
                                    "(hart_trap core 1)"));
  std::vector<std::string> classes;
  const Json rows = table()["rows"];
  for (const Json& row : rows) {
    classes.push_back(row.value("class", "clean"));
  }
  EXPECT_THAT(classes,
              ::testing::ElementsAre("clean", "masked", "corrected", "detected", "detected",
                                     "detected", "not fired", "clean", "masked", "corrected",
                                     "recovered", "detected", "recovered", "not fired"));
  const auto bytes = [&](const char* name) { return read_file(path(name)); };
  const auto counted = bytes("o/campaign.csv");
  const std::string text(reinterpret_cast<const char*>(counted.data()), counted.size());
  EXPECT_THAT(text, HasSubstr("\nhbm,core 1,0,2,2,1,3,0,0,0,0\n"));
  EXPECT_THAT(text, HasSubstr("\nhart_trap,all,2,0,0,0,0,0,0,0,0\n"));
  const auto page = bytes("o/campaign.html");
  const Json before = table()["campaign"];
  const test::Result again = sweep("--again");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(bytes("o/campaign.csv"), counted);
  EXPECT_EQ(bytes("o/campaign.html"), page);
  EXPECT_EQ(table()["campaign"], before);
  EXPECT_THAT(sweep().text, ::testing::Not(HasSubstr("ended by its faults")));  // all complete
}

}  // namespace
}  // namespace tpu::driver
