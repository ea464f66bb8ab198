// The text trace (--trace): a line for each engine command that is done, each mark, and each trace
// word of a control hart. Input of sim_scripts/timeline.py.
#pragma once

#include <string>

#include "probe/probe_set.hpp"
#include "probe/text_file.hpp"

namespace tpu::model {

// One line per command, in the order of `done`:
//   start done core queue opcode op=<id> pc=<word> step=<n> free=<cycle>
// `cycle core mark begin|end op=<id>` for marks, `cycle core fault|damage <kind> <place>: <text>`
// for faults on purpose (docs/faults.md) and what the board meets of them, and for words that
// firmware writes to TRACE (spec/regs/console.toml) `cycle core hart word=0x<8 digits>`. Buffered;
// completed by finish().
class TextSink final : public ProbeSink {
 public:
  // Throws std::runtime_error when the file cannot be created, or another run writes it.
  explicit TextSink(const std::string& path) : file_(path, "trace") {}

  void listen(ProbeSet& probes) {
    probes.add(*this,
               {ProbeEvent::kDone, ProbeEvent::kMark, ProbeEvent::kHart, ProbeEvent::kUpset});
  }
  void done(const DoneEvent& event) override;
  void mark(const MarkEvent& event) override;
  void hart(const HartEvent& event) override;
  void upset(const UpsetEvent& event) override;

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish() { return file_.finish(); }

 private:
  TextFile file_;
};

}  // namespace tpu::model
