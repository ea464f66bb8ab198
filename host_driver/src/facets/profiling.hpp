// Profiling: figures and records of a board that its transport keeps, as the calls of Board of the
// same names show them. They change no cycle, and take the board lock themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/door/door.hpp"
#include "src/health/health.hpp"
#include "src/launches/launch_records.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class Profiling {
 public:
  /// `settle`: under the board lock; waits until everything that was submitted is over.
  Profiling(Door& door, Health& health, const std::unique_ptr<Transport>& transport,
            const LaunchRecords& records, std::function<void()> settle)
      : door_(door),
        health_(health),
        transport_(transport),
        records_(records),
        settle_(std::move(settle)) {}

  uint64_t now();
  std::vector<uint64_t> hart_instructions();
  std::vector<uint64_t> run_cycles();
  std::vector<HostWorkTime> host_profile();
  std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads);
  std::vector<OpTime> op_times();
  std::string take_xspace();
  std::string take_record();
  void log_commands(const std::optional<spec::MemoryLook>& look);
  spec::CommandLog take_commands();

 private:
  template <typename Look>
  auto look(const Look& at);

  Door& door_;
  Health& health_;
  const std::unique_ptr<Transport>& transport_;
  const LaunchRecords& records_;
  const std::function<void()> settle_;
};

}  // namespace tpu::driver
