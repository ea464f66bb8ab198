// The sinks that the options ask for, registered with the probe of a board: text trace, waves,
// happens-before checker.
#pragma once

#include <memory>
#include <string>

#include "board/board_host.hpp"
#include "probe/probe_set.hpp"
#include "probe/race_sink.hpp"
#include "probe/text_sink.hpp"
#include "waves/board_waves.hpp"

namespace tpu::model {

class ProbeSinks {
 public:
  // Throws std::runtime_error when a file cannot be created. `probes` tells nobody once this is
  // gone.
  ProbeSinks(const BoardOptions& options, ProbeSet& probes);

  // With --check, else null.
  const RaceSink* race() const { return race_.get(); }
  // Closes the files; what went wrong, or nothing. No event comes after it.
  std::string finish();

 private:
  std::unique_ptr<TextSink> text_;
  std::unique_ptr<BoardWaves> waves_;
  std::unique_ptr<RaceSink> race_;
};

}  // namespace tpu::model
