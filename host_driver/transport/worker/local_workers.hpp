// Workers of this host that a program makes for itself and that end with it: one process that
// listens at a socket in a folder of its own, and one for each part of a pod (worker_server.cpp).
#pragma once

#include <filesystem>
#include <string>

#include "socket/descriptor.hpp"
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
  [[noreturn]] static void serve(const OpenOptions& options, int count, const std::string& address,
                                 int maker);
  void remove_folder() const;

  std::filesystem::path folder_;
  std::string address_;
  base::Descriptor end_;  // the workers end when it is closed
  int pid_ = 0;
};

}  // namespace tpu::driver::worker
