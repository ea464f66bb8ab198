// ProgramCalls: the calls that load and launch programs, and feed launches step by step. They take
// the board lock themselves; launches and batches wait for what the host needs for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/door/door.hpp"
#include "src/feeds/feeds.hpp"
#include "src/health/health.hpp"
#include "src/launches/launcher.hpp"

namespace tpu::driver {

class ProgramCalls {
 public:
  /// What the host takes, of the board's clock; may give up the lock.
  struct HostTime {
    std::function<void()> dispatch;               // of a launch
    std::function<void(uint64_t bytes)> prepare;  // of a batch
  };
  ProgramCalls(Door& door, Health& health, Loader& loader, Launcher& launcher, Feeds& feeds,
               HostTime host)
      : door_(door),
        health_(health),
        loader_(loader),
        launcher_(launcher),
        feeds_(feeds),
        host_(std::move(host)) {}

  /// `file`: of the program; empty: not known. `devices`: by partition; empty: as compiled.
  /// `wait`: until it is there.
  std::shared_ptr<LoadedProgram> load(std::shared_ptr<const exe::ExecutableT> executable,
                                      const std::string& file, const std::vector<int>& devices,
                                      bool wait);
  RunResult launch(const std::shared_ptr<LoadedProgram>& program,
                   const std::vector<Array>& arguments, const RunOptions& options);

  Event feed(StepFeedState& feed, const std::vector<HostView>& batch);
  Event step_ready(StepFeedState& feed, uint32_t step);
  std::vector<HostArray> take_step(StepFeedState& feed, uint32_t number);

 private:
  Door& door_;
  Health& health_;
  Loader& loader_;
  Launcher& launcher_;
  Feeds& feeds_;
  const HostTime host_;
};

}  // namespace tpu::driver
