// The text trace (--trace): a line for each engine command that is done, each mark, and each trace
// word of a control hart. Input of sim_scripts/timeline.py.
#pragma once

#include <cstdio>
#include <string>

#include "kernel/file_lock.hpp"
#include "probe/probe_set.hpp"

namespace tpu::model {

// One line per command, in the order of `done`:
//   start done core queue opcode op=<id> pc=<word> step=<n> free=<cycle>
// `cycle core mark begin|end op=<id>` for marks, and for words that firmware writes to TRACE
// (spec/regs/console.toml) `cycle core hart word=0x<8 digits>`. Buffered; completed by finish().
class TextSink final : public ProbeSink {
 public:
  // Throws std::runtime_error when the file cannot be created, or another run writes it.
  explicit TextSink(const std::string& path);
  ~TextSink() override;
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;

  void listen(ProbeSet& probes) {
    probes.add(*this, {ProbeEvent::kDone, ProbeEvent::kMark, ProbeEvent::kHart});
  }
  void done(const DoneEvent& event) override;
  void mark(const MarkEvent& event) override;
  void hart(const HartEvent& event) override;

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish();

 private:
  void note(int printed);

  const std::string path_;
  FileLock lock_;
  std::FILE* file_;
  int write_error_ = 0;  // as in errno
  std::string error_;
};

}  // namespace tpu::model
