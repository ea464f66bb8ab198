// Workers of this host that a program makes for itself and that end with it: one process that
// listens at a socket in a folder of its own, and one for each part of a pod (worker_server.cpp).
// They are processes of another program file (worker_program.hpp): a copy of this process, in which
// other threads may hold locks, could not run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"
#include "socket/parent_only.hpp"
#include "tpu/board.hpp"

namespace tpu::driver::worker {

class LocalWorkers {
 public:
  /// `count` workers, which have the options of the program; host processors are shared out. Throws
  /// Error: ResourceExhausted.
  LocalWorkers(const OpenOptions& options, int count);
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;
  /// Ends them.
  ~LocalWorkers();

  /// Of all of them.
  const std::string& address() const { return address_; }

 private:
  void make_folder();
  void start(const std::vector<std::string>& program, const base::Descriptor& maker,
             const base::Descriptor& options);
  void wait_until_they_listen() const;
  void remove_folder() const;

  std::filesystem::path folder_;
  std::string address_;
  base::Descriptor end_;                       // the workers end when it is closed
  std::optional<base::ParentOnly> only_here_;  // end_: copies of this process do not keep them
  int pid_ = 0;
  base::Descriptor process_;  // of pid_; not valid on a host without such
};

}  // namespace tpu::driver::worker
