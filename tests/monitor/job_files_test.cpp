// The files of jobs: which jobs there are, what is believed and removed of what lies in the folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "job/jobs.hpp"
#include "readers/prometheus.hpp"
#include "tests/monitor/job_folder.hpp"
#include "tpu/error.hpp"

namespace tpu::monitor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(MonitorJobs, AJobIsSeenUntilItEnds) {
  EXPECT_THAT(
      choice_error(0),
      AllOf(HasSubstr("no job is running: expected a file PID.json of a running process in " +
                      folder_.string()),
            HasSubstr("found none")));
  {
    const JobFile file(folder_);
    file.write(some_report());
    EXPECT_EQ(choose_job(folder_, 0), getpid());
    EXPECT_EQ(read_job(folder_, getpid()).report->now.command, "tpuboard train c.toml");
  }
  const JobNews news = read_job(folder_, getpid());
  EXPECT_FALSE(news.report);
  EXPECT_EQ(news.end, JobEnd::kDone);
  EXPECT_THAT(running_jobs(folder_), IsEmpty());
}

TEST_F(MonitorJobs, AKilledJobIsToldFromOneThatEnded) {
  const pid_t job = start_job();
  EXPECT_THAT(running_jobs(folder_), ElementsAre(job));
  end_job(job);
  EXPECT_EQ(read_job(folder_, job).end, JobEnd::kKilled);
  EXPECT_THAT(choice_error(0), HasSubstr("no job is running"));
  EXPECT_TRUE(std::filesystem::exists(file_of(job))) << "who looks deletes nothing";
  { const JobFile next(folder_); }
  EXPECT_TRUE(std::filesystem::exists(file_of(job))) << "it may be alive in another container";
  make_old(file_of(job));
  { const JobFile next(folder_); }
  EXPECT_FALSE(std::filesystem::exists(file_of(job))) << "the next job takes away what it left";
}

// By name they could be those of processes that are gone.
TEST_F(MonitorJobs, FilesThatNoJobHasWrittenStay) {
  std::filesystem::create_directory(folder_);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  const pid_t job = start_job();
  end_job(job);
  const auto renamed = folder_ / "20240101.json";
  std::filesystem::rename(file_of(job), renamed);
  const auto another = file_of(int64_t{1} << 39);
  std::ofstream(another) << R"({"format": 7})";
  std::filesystem::create_directory(file_of(77777777));
  std::filesystem::create_symlink(another, file_of(88888888));
  for (const auto& file : {renamed, another}) {
    make_old(file);
  }
  EXPECT_THAT(running_jobs(folder_), IsEmpty());
  { const JobFile next(folder_); }
  for (const auto& file : {renamed, another, file_of(77777777), file_of(88888888)}) {
    EXPECT_TRUE(std::filesystem::exists(file)) << file;
  }
}

// Files of processes that do run, but are none that they have written.
TEST_F(MonitorJobs, OneUnreadableFileDoesNotHideTheOthers) {
  const pid_t job = start_job();
  std::ofstream(file_of(getpid())) << R"({"format": 2})";
  ASSERT_EQ(mkfifo(file_of(getppid()).c_str(), 0600), 0);
  EXPECT_EQ(choose_job(folder_, 0), job);
  const JobList list = list_jobs(folder_);
  EXPECT_THAT(list.running, ElementsAre(job));
  EXPECT_THAT(
      list.unreadable,
      ::testing::UnorderedElementsAre(
          HasSubstr(std::to_string(getpid()) + ".json: written by another version of tpuboard"),
          HasSubstr(std::to_string(getppid()) + ".json: does not hold the metrics of a job")));
  const std::string text = prometheus_text({*read_job(folder_, job).report}, list.unreadable);
  EXPECT_THAT(text, AllOf(HasSubstr("tpuboard_unreadable_job_files 2\n"),
                          HasSubstr("# " + list.unreadable[0] + "\n"),
                          HasSubstr(R"(tpuboard_job_info{pid=")" + std::to_string(job))));
  end_job(job);
}

TEST_F(MonitorJobs, FaultsOnPurposeAreCountedByKindAndPlace) {
  Report report = some_report();
  report.now.faults = {{.kind = "hbm", .place = "core 3", .fired = 2, .seen = 5},
                       {.kind = "link_down", .place = "link chip1 +x", .fired = 1, .seen = 0}};
  const JobFile file(folder_);
  file.write(report);
  const Report back = *read_job(folder_, getpid()).report;
  EXPECT_EQ(back.now.faults, report.now.faults);
  const std::string text = prometheus_text({back}, {});
  EXPECT_THAT(text, AllOf(HasSubstr("# TYPE tpuboard_faults_total counter\n"),
                          HasSubstr("# TYPE tpuboard_fault_effects_total counter\n"),
                          HasSubstr(",kind=\"hbm\",place=\"core 3\"} 2\n"),
                          HasSubstr(",kind=\"hbm\",place=\"core 3\"} 5\n"),
                          HasSubstr(",place=\"link chip1 +x\"} 1\n"),
                          HasSubstr(",place=\"link chip1 +x\"} 0\n")));
}

TEST_F(MonitorJobs, AFileOfAnotherProcessOrUserIsNotBelieved) {
  const pid_t job = start_job();
  std::filesystem::copy_file(file_of(job), file_of(getpid()));
  EXPECT_THAT(choice_error(getpid()), HasSubstr("found those of " + std::to_string(job)));
  std::filesystem::remove(file_of(getpid()));
  if (geteuid() == 0) {
    ASSERT_EQ(::chown(file_of(job).c_str(), 65534, 65534), 0);
    EXPECT_THAT(choice_error(job),
                HasSubstr("expected the user of process " + std::to_string(job)));
  }
  end_job(job);
}

TEST_F(MonitorJobs, AFolderThatOthersMayWriteToIsRefused) {
  using std::filesystem::perms;
  std::filesystem::create_directory(folder_);
  for (const perms more : {perms::group_write, perms::others_write}) {
    std::filesystem::permissions(folder_, perms::owner_all | more);
    EXPECT_THROW(JobFile{folder_}, driver::Error);
  }
  std::filesystem::permissions(folder_, perms::owner_all | perms::group_read);
  const JobFile file(folder_);
  const auto link = folder_.string() + ".link";
  std::filesystem::create_symlink(folder_, link);
  EXPECT_THROW(JobFile{link}, driver::Error);
  std::filesystem::remove(link);
}

TEST_F(MonitorJobs, ANumberThatIsUsedAgainIsAnotherProcess) {
  const JobFile file(folder_);
  Report report = some_report();
  ++report.now.process_start;
  file.write(report);
  EXPECT_THAT(running_jobs(folder_), IsEmpty());
}

TEST_F(MonitorJobs, OneOfTwoJobsIsChosenByItsNumber) {
  const pid_t first = start_job();
  const pid_t second = start_job();
  EXPECT_THAT(choice_error(0),
              AllOf(HasSubstr("2 jobs are running; choose one:"),
                    HasSubstr("--pid " + std::to_string(first) + "  tpuboard train c.toml"),
                    HasSubstr("--pid " + std::to_string(second))));
  EXPECT_EQ(choose_job(folder_, second), second);
  EXPECT_THAT(choice_error(getpid()), HasSubstr("has no open board"));
  EXPECT_THAT(choice_error(int64_t{1} << 39), HasSubstr("there is no process"));
  end_job(first);
  end_job(second);
}

TEST_F(MonitorJobs, AFileThatIsNoJobsIsNamed) {
  std::filesystem::create_directory(folder_);
  std::ofstream(folder_ / "notes.txt") << "not a job";
  EXPECT_THAT(choice_error(0), HasSubstr("no job is running"));
  const std::string file = std::to_string(getpid()) + ".json";
  std::ofstream(folder_ / file) << "{}";
  EXPECT_THAT(
      choice_error(0),
      HasSubstr(file + ": does not hold the metrics of a job: format: expected an integer"));
  EXPECT_THAT(
      choice_error(getpid()),
      HasSubstr(file + ": does not hold the metrics of a job: format: expected an integer"));
  const pid_t job = start_job();
  EXPECT_EQ(choose_job(folder_, job), job) << "another's file is in the way";
  end_job(job);
}

// In a process of another user where this one is root's; else root's folder is another's already.
TEST_F(MonitorJobs, JobsOfAnotherUserAreRefusedByName) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) {
      _exit(2);
    }
    const auto says = [](const std::function<void()>& call, const std::string& text) {
      try {
        call();
      } catch (const driver::Error& error) {
        return std::string(error.message()).find(text) != std::string::npos;
      }
      return false;
    };
    const bool folder = says([] { running_jobs("/usr"); }, "its jobs belong to the user root");
    const bool process = says([this] { choose_job(folder_, 1); }, "belongs to the user root");
    const bool publish = says([] { const JobFile file("/usr"); }, "expected a folder of this user");
    _exit(folder && process && publish ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(MonitorJobs, AChildOfAJobIsNoneAndLeavesItsFile) {
  const JobFile file(folder_);
  file.write(some_report());
  const pid_t child = fork();
  if (child == 0) {
    file.~JobFile();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(choose_job(folder_, 0), getpid());
}

}  // namespace
}  // namespace tpu::monitor
