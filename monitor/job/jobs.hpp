// Where the jobs of a user tell of themselves: a folder with one file a process, replaced whenever
// there is news, taken away when the job ends. A file whose process is gone was left by a job that
// was killed; the next job of the user takes it away. Who only looks changes nothing, and believes
// a file when its owner is the user of its process.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/snapshot.hpp"

namespace tpu::monitor {

/// $XDG_RUNTIME_DIR/tpuboard, else tpuboard-UID in the folder for temporary files.
std::filesystem::path jobs_folder();

/// When a process began, in ticks since the host did; nothing when there is none, or it has ended.
std::optional<uint64_t> process_start(int64_t pid);

/// The file of this process.
class JobFile {
 public:
  /// Takes away what killed jobs of this user have left there. Throws driver::Error
  /// (FailedPrecondition) for a folder that cannot be made or that others may write to.
  explicit JobFile(const std::filesystem::path& folder);
  /// Takes the file away, if it was written and this is no child made by fork().
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  /// Throws driver::Error.
  void write(const Report& report) const;

 private:
  std::filesystem::path path_;
  int64_t pid_;
  mutable bool written_ = false;
};

/// What a look into the folder finds.
struct JobList {
  std::vector<int64_t> running;         ///< processes with a file, by number
  std::vector<std::string> unreadable;  ///< of a process each: file and what is wrong with it
};
/// Throws driver::Error when the folder is another user's.
JobList list_jobs(const std::filesystem::path& folder);
/// Those that can be read.
std::vector<int64_t> running_jobs(const std::filesystem::path& folder);

/// Why a job has no more news.
enum class JobEnd : uint8_t { kDone, kKilled };

/// The news of a job.
struct JobNews {
  std::optional<Report> report;
  JobEnd end = JobEnd::kDone;  ///< without a report
};
/// Throws driver::Error when the process exists, but the file does not hold a job's report or
/// belongs to another user than the process.
JobNews read_job(const std::filesystem::path& folder, int64_t pid);

/// The job `pid`, or the only one there is (0), beside files that cannot be read. Throws
/// driver::Error that says what there is: no job, several, no such process, one of another user.
int64_t choose_job(const std::filesystem::path& folder, int64_t pid);

}  // namespace tpu::monitor
