// The log of the firmware (--firmware-log): a text line for each line that the control harts log or
// print, with the cycle at which it ended: "[123456 TPU:3] ring open".
#pragma once

#include <fmt/format.h>

#include <string>

#include "probe/probe_set.hpp"
#include "probe/text_file.hpp"

namespace tpu::model {

class LogSink final : public ProbeSink {
 public:
  // "-": standard error. Throws std::runtime_error when the file cannot be created, or another run
  // writes it.
  explicit LogSink(const std::string& path) : file_(path, "firmware log") { file_.flush_lines(); }

  void listen(ProbeSet& probes) { probes.add(*this, {ProbeEvent::kLog}); }
  void log(const LogEvent& event) override {
    file_.write(fmt::format("[{} TPU:{}] {}\n", event.cycle, event.core, event.text));
  }

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish() { return file_.finish(); }

 private:
  TextFile file_;
};

}  // namespace tpu::model
