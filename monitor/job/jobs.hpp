// Where the jobs of a user tell of themselves: a folder with one file a process, replaced whenever
// there is news, taken away when the job ends. A file whose process is gone was left by a job that
// was killed.
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
  /// Throws driver::Error (FailedPrecondition) for a folder that cannot be made or that others may
  /// write to.
  explicit JobFile(const std::filesystem::path& folder);
  /// Takes the file away, unless this is a child made by fork().
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  /// Throws driver::Error.
  void write(const Report& report) const;

 private:
  std::filesystem::path path_;
  int64_t pid_;
};

/// Processes with a file in the folder, by number; files of those that are gone are taken away.
/// Throws driver::Error when the folder is another user's.
std::vector<int64_t> running_jobs(const std::filesystem::path& folder);

/// Why a job has no more news.
enum class JobEnd : uint8_t { kDone, kKilled };

/// The news of a job.
struct JobNews {
  std::optional<Report> report;
  JobEnd end = JobEnd::kDone;  ///< without a report
};
/// Throws driver::Error for a file that is none of a job's, though there is such a process.
JobNews read_job(const std::filesystem::path& folder, int64_t pid);

/// The job `pid`, or the only one there is (0). Throws driver::Error that says what there is: no
/// job, several, no such process, one of another user.
int64_t choose_job(const std::filesystem::path& folder, int64_t pid);

}  // namespace tpu::monitor
