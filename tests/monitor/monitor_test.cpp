// What a job publishes and what readers make of it: figures between two snapshots, the file of a
// job, which jobs there are, and that a look changes no cycle of the board.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "job/sampler.hpp"
#include "readers/view.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/monitor/job_folder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::monitor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(MonitorFigures, AreThoseOfTheCoresThatWork) {
  const Figures lately = some_report().lately;
  EXPECT_DOUBLE_EQ(lately.mxu, 0.25);
  EXPECT_DOUBLE_EQ(lately.time.idle(), 0.25);
  EXPECT_DOUBLE_EQ(lately.cores[0].hbm_gbps, 4);
  EXPECT_DOUBLE_EQ(lately.cores[0].link_gbps, 0.5);
  EXPECT_DOUBLE_EQ(lately.cores[1].time.host, 1);
  EXPECT_DOUBLE_EQ(lately.board_seconds, 1);
  EXPECT_DOUBLE_EQ(lately.steps_per_second, 20);
  EXPECT_DOUBLE_EQ(lately.left_seconds.value(), 3);
  for (const CoreFigures& core : lately.cores) {
    const TimeShares& time = core.time;
    EXPECT_DOUBLE_EQ(time.compute + time.links + time.hbm + time.stalled + time.input + time.host,
                     1);
  }
}

TEST(MonitorFigures, WithoutNewStepsTheRateIsThatOfTheRun) {
  const Report report = some_report();
  Snapshot later = report.now;
  later.taken = 110;
  const Figures lately = figures(report.now, later);
  EXPECT_DOUBLE_EQ(lately.steps_per_second, 4);
  EXPECT_DOUBLE_EQ(lately.left_seconds.value(), 15);
  EXPECT_DOUBLE_EQ(lately.mxu, 0) << "no simulated time has passed";
}

TEST(MonitorReport, IsReadAsItWasWritten) {
  const Report report = some_report();
  const std::string text = json_line(report);
  const Report back = report_from(text, "here");
  EXPECT_EQ(json_line(back), text);
  EXPECT_EQ(back.now.cores[0].times.stalled, 50u);
  EXPECT_EQ(back.now.progress->values[0].second, 0.5);
  Report other = report;
  other.now.progress.reset();
  EXPECT_FALSE(report_from(json_line(other), "here").now.progress);
}

TEST(MonitorReport, WhatJsonHasNoWordForComesBack) {
  Report report = some_report();
  report.now.command = "run \xff.tpuexe";
  report.now.progress->loss = std::nan("");
  report.now.progress->values = {{"perplexity", std::numeric_limits<double>::infinity()}};
  const Report back = report_from(json_line(report), "here");
  EXPECT_FALSE(back.now.progress->loss);
  EXPECT_TRUE(std::isnan(back.now.progress->values[0].second));
  EXPECT_THAT(back.now.command, HasSubstr(".tpuexe"));
}

TEST(MonitorReport, DamagedTextIsRefused) {
  const std::string text = json_line(some_report());
  const auto error_of = [](const std::string& damaged) -> std::string {
    try {
      report_from(damaged, "/run/7.json");
    } catch (const driver::Error& error) {
      return error.message();
    }
    return "none";
  };
  for (const size_t length : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
    EXPECT_THAT(error_of(text.substr(0, length)),
                HasSubstr("/run/7.json: does not hold the metrics of a job"));
  }
  EXPECT_THAT(error_of("[1]"), HasSubstr("/run/7.json: does not hold the metrics of a job"));
  EXPECT_THAT(error_of(R"({"format": 2})"), HasSubstr("expected format 1, found 2"));
}

TEST(MonitorReport, AWrongMemberIsNamed) {
  const std::string text = json_line(some_report());
  const auto error_with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    try {
      report_from(changed.replace(at, from.size(), to), "/run/7.json");
    } catch (const driver::Error& error) {
      return error.message();
    }
    return "none";
  };
  EXPECT_EQ(error_with("\"board\":", "\"bord\":"),
            "/run/7.json: does not hold the metrics of a job: board: expected a string, found no "
            "such member; delete it");
  EXPECT_THAT(error_with("\"pid\":", "\"pid\":[],\"old\":"),
              HasSubstr(": pid: expected an integer, found an array; delete it"));
  EXPECT_THAT(error_with("\"programs\":", "\"programs\":-1,\"old\":"),
              HasSubstr(": cores[0].programs: expected an integer of at least 0, found -1;"));
  EXPECT_THAT(error_with("\"loss\":", "\"loss\":\"x\",\"old\":"),
              HasSubstr(": progress.loss: expected a number, found \"x\";"));
}

TEST(MonitorView, CountsFaultsOnPurpose) {
  Report report = some_report();
  EXPECT_THAT(view(report), Not(HasSubstr("on purpose")));
  report.now.faults = {{.kind = "hbm", .place = "core 3", .fired = 1, .seen = 5}};
  EXPECT_THAT(view(report),
              HasSubstr("\nfault on purpose hbm core 3: happened 1 time, damage met 5 times\n"));
}

TEST(MonitorView, TellsWhatTheJobDoes) {
  const std::string text = view(some_report());
  EXPECT_THAT(text,
              AllOf(HasSubstr("tpuboard train c.toml"), HasSubstr("board v3_8"),
                    HasSubstr("step 40 of 100  epoch 2  loss 0.2500  accuracy 0.5"),
                    HasSubstr("20.0 steps/s  3 s left"), HasSubstr("MXU 25.00 %  idle 25.00 %"),
                    HasSubstr("compute 40.0 %  all-reduce 20.0 %  HBM 10.0 %  waiting 5.0 %  "
                              "idle: input 15.0 %, host 10.0 %"),
                    HasSubstr("TPU:1")));
  EXPECT_THAT(view(some_report(), 65), HasSubstr("no news for 1 min 05 s"));
}

TEST_F(MonitorJobs, ASamplerPublishesWhileItLives) {
  const driver::test::NullBoard made;
  const driver::Board& board = made.board;
  std::vector<Report> shown;
  {
    Sampler sampler(board, {.command = "test",
                            .folder = folder_,
                            .every = std::chrono::milliseconds(1),
                            .show = [&](const Report& report) { shown.push_back(report); }});
    sampler.progress({.step = 7, .steps = 9, .epoch = 1, .loss = 0.5, .values = {}});
    for (;;) {
      const JobNews news = read_job(folder_, getpid());
      if (news.report && news.report->now.progress) {
        EXPECT_EQ(news.report->now.progress->step, 7);
        EXPECT_EQ(news.report->now.cores.size(), 8u);
        EXPECT_GT(news.report->now.cores[7].hbm_bytes, 0u);
        break;
      }
      std::this_thread::yield();
    }
  }
  EXPECT_THAT(running_jobs(folder_), IsEmpty());
  ASSERT_FALSE(shown.empty());
  EXPECT_EQ(shown.back().now.progress->step, 7);
  board.close();
}

TEST_F(MonitorJobs, ABoardThatIsClosedEndsTheNewsAndNothingElse) {
  const driver::test::NullBoard made;
  const driver::Board& board = made.board;
  Sampler sampler(
      board,
      {.command = "test", .folder = folder_, .every = std::chrono::milliseconds(1), .show = {}});
  board.close();
  sampler.stop();
  EXPECT_THAT(running_jobs(folder_), IsEmpty());
}

TEST_F(MonitorJobs, WhereNothingCanBePublishedTheJobGoesOn) {
  const driver::test::NullBoard made;
  const driver::Board& board = made.board;
  std::ofstream(folder_.string()) << "a file in the place of the folder";
  ::testing::internal::CaptureStderr();
  Sampler sampler(board, {.command = "test", .folder = folder_, .show = {}});
  sampler.progress({});
  sampler.stop();
  board.close();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("expected a folder of this user that no other user can write to; tpuboard "
                        "monitor will not see this job"));
}

#ifdef TPU_HAVE_SIM_TRANSPORT
constexpr const char* kCopy = R"(
.op "copy" file="model.py" line=7
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma op=0 wait=0:1:take src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  halt
)";

// The times of core 0 after some launches, in a process of its own: it can have one board.
struct Times {
  uint64_t now = 0, run = 0;
  driver::CoreTimes of{};
  uint64_t looks = 0, late = 0;
};

void launch_many(const driver::Board& board, const std::string& folder, bool watched,
                 Times& times) {
  const std::string text =
      ".program \"copies\"\n.partitions 1\n" + std::string(driver::test::kCopySlots) + kCopy;
  const driver::Executable program = board.load(
      exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
  std::optional<Sampler> sampler;
  if (watched) {
    sampler.emplace(board, SamplerOptions{.command = "test",
                                          .folder = folder,
                                          .every = std::chrono::milliseconds(0),
                                          .show = [&](const Report&) { ++times.looks; }});
  }
  for (int i = 0; i < 50; ++i) {
    const driver::Array x = program.put(0, driver::test::counting(driver::DType::kI32, {1024}));
    program.run({x}).done.wait();
  }
  while (watched && times.looks < 3) {
    std::this_thread::yield();
  }
  sampler.reset();
  const driver::BoardCounters counters = board.peek();
  times.now = counters.now_cycles;
  times.run = counters.cores[0].run_cycles;
  times.of = counters.cores[0].times;
  times.late = counters.late_calls;
}

Times times_in_a_process(const std::string& folder, bool watched) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    Times times;
    const driver::Board board = driver::Board::open({});
    launch_many(board, folder, watched, times);
    board.close();
    _exit(::write(ends[1], &times, sizeof times) == sizeof times ? 0 : 1);
  }
  close(ends[1]);
  Times times;
  EXPECT_EQ(::read(ends[0], &times, sizeof times), static_cast<ssize_t>(sizeof times));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return times;
}

TEST_F(MonitorJobs, LooksChangeNoCycle) {
  const Times alone = times_in_a_process(folder_.string(), false);
  const Times watched = times_in_a_process(folder_.string(), true);
  EXPECT_GE(watched.looks, 3u);
  EXPECT_EQ(watched.late, 0u);
  EXPECT_EQ(watched.now, alone.now);
  EXPECT_EQ(watched.run, alone.run);
  const driver::CoreTimes& of = alone.of;
  EXPECT_GT(alone.run, 0u);
  EXPECT_EQ(of.compute + of.links + of.hbm + of.stalled, alone.run);
  EXPECT_EQ(of.compute + of.links + of.hbm + of.stalled + of.input + of.host, alone.now);
  EXPECT_EQ(of.links, 0u);
  EXPECT_GT(of.hbm, 0u) << "the program copies";
  EXPECT_GT(of.input, 0u) << "it waits for its argument";
  EXPECT_GT(of.host, 0u);
}
#endif

}  // namespace
}  // namespace tpu::monitor
