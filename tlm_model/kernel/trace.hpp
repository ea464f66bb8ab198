// Where the model reports what its engines did: one call per engine command, marks of the program,
// and busy edges for waveforms. Interfaces and the plain text file writer; other writers (timeline,
// waves) implement TraceSink elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "kernel/file_lock.hpp"

namespace tpu::model {

struct CommandTrace {
  uint64_t issued;  // cycles
  uint64_t start;
  uint64_t free_at;
  uint64_t done;
  uint32_t pc;  // word index of the command
  uint32_t op_id;
  uint64_t step;  // of the board (kernel/step_counter.hpp)
  uint8_t core;
  uint8_t queue;
  uint8_t opcode;
};

// All calls come from the kernel thread; a command is reported when it is done, so the order is
// that of `done`.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void command(const CommandTrace& command) = 0;
  virtual void mark(uint64_t /*cycle*/, uint32_t /*core*/, uint32_t /*op_id*/, bool /*begin*/) {}
  virtual void busy(uint64_t /*cycle*/, uint32_t /*core*/, uint32_t /*queue*/, uint8_t /*opcode*/,
                    bool /*begin*/) {}
  // A core begins or ends step `step` of the board.
  virtual void program(uint64_t /*cycle*/, uint32_t /*core*/, uint64_t /*step*/, bool /*begin*/) {}
  // Where the control hart stands; told when it falls asleep, wakes, and between its slices.
  virtual void hart(uint64_t /*cycle*/, uint32_t /*core*/, uint32_t /*pc*/, bool /*sleeping*/) {}
};

// One line per command:
//   start done core queue opcode op=<id> pc=<word> step=<n> free=<cycle>
// and `cycle core mark begin|end op=<id>` for marks. Buffered; completed by finish().
class TextTraceSink final : public TraceSink {
 public:
  // Throws std::runtime_error when the file cannot be created, or another run writes it.
  explicit TextTraceSink(const std::string& path);
  ~TextTraceSink() override;
  TextTraceSink(const TextTraceSink&) = delete;
  TextTraceSink& operator=(const TextTraceSink&) = delete;

  void command(const CommandTrace& command) override;
  void mark(uint64_t cycle, uint32_t core, uint32_t op_id, bool begin) override;

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish();

 private:
  const std::string path_;
  FileLock lock_;
  std::FILE* file_;
  std::string error_;
};

}  // namespace tpu::model
