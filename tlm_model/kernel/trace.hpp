// Where the model reports what its engines did: one call per engine command, marks of the program,
// and busy edges for waveforms. Interfaces and the plain text file writer; other writers (timeline,
// waves) implement TraceSink elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace tpu::model {

struct CommandTrace {
  uint64_t issued;  // cycles
  uint64_t start;
  uint64_t free_at;
  uint64_t done;
  uint32_t pc;  // word index of the command
  uint32_t op_id;
  uint32_t step;
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
  virtual void program(uint64_t /*cycle*/, uint32_t /*core*/, bool /*begin*/) {}
};

// One line per command:
//   start done core queue opcode op=<id> pc=<word> step=<n> free=<cycle>
// and `cycle core mark begin|end op=<id>` for marks. Buffered; flushed by the destructor.
class TextTraceSink final : public TraceSink {
 public:
  // Throws std::runtime_error when the file cannot be created.
  explicit TextTraceSink(const std::string& path);
  ~TextTraceSink() override;
  TextTraceSink(const TextTraceSink&) = delete;
  TextTraceSink& operator=(const TextTraceSink&) = delete;

  void command(const CommandTrace& command) override;
  void mark(uint64_t cycle, uint32_t core, uint32_t op_id, bool begin) override;

 private:
  std::FILE* file_;
};

}  // namespace tpu::model
