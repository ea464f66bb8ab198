// SimCalls: how the board is simulated and how long launches may take, and the calls that change
// this while the board is open. They take the board lock themselves.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "src/door/door.hpp"
#include "src/harts/harts.hpp"
#include "src/health/health.hpp"
#include "src/launches/launch_records.hpp"
#include "src/pump/time_limit.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class SimCalls {
 public:
  /// `settle`: under the board lock; waits until everything that was submitted is over.
  SimCalls(Door& door, Health& health, const std::unique_ptr<Transport>& transport,
           LaunchRecords& records, const Harts& harts, TimeLimit& limit,
           std::function<void()> settle)
      : door_(door),
        health_(health),
        transport_(transport),
        records_(records),
        harts_(harts),
        limit_(limit),
        settle_(std::move(settle)) {}

  /// At the opening of a board: its options, then the limit of its launches (empty: by the
  /// options). Throws InvalidArgument for a negative limit.
  void open(const SimOptions& sim) TPU_REQUIRES(board_lock);
  void open_limit(std::optional<double> seconds, size_t devices) TPU_REQUIRES(board_lock);
  /// As the board was opened, or changed last. Under the board lock.
  const SimOptions& options() const { return sim_; }

  SimOptions sim();
  void change_sim(const SimOptions& sim);
  void change_time_limit(std::optional<double> seconds);

 private:
  LaunchClock clock_of(const SimOptions& sim, std::optional<double> time_limit) const;

  Door& door_;
  Health& health_;
  const std::unique_ptr<Transport>& transport_;
  LaunchRecords& records_;
  const Harts& harts_;
  TimeLimit& limit_;
  const std::function<void()> settle_;
  SimOptions sim_;
  std::optional<double> time_limit_;  // OpenOptions::time_limit
  size_t devices_ = 0;
};

}  // namespace tpu::driver
