// Writes an FST file from a helper process: the FST library ends its process on I/O errors, which
// must not take the board with it, and a board that is killed leaves its last cycles behind. The
// parent sends records over a socket; a full disk or a dead helper is noticed and reported, and
// everything sent afterwards is dropped. Values may be set from any thread, if the options say so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "waves/wave_records.hpp"
#include "waves/wave_span.hpp"

namespace tpu::model {

struct FstOptions {
  std::string path;
  uint64_t clock_mhz = 0;    // times in the file are picoseconds, rounded down from whole cycles
  uint64_t keep_cycles = 0;  // that are written from before the window
  bool one_thread = false;   // sets all values
  // Called in the helper when the file is closed, also when the board was killed: writes the files
  // for viewers. False: one could not be written.
  std::function<bool(const WaveSpan&)> write_views{};
};

class FstProcess {
 public:
  // Throws std::runtime_error when the file cannot be created or another run writes it.
  explicit FstProcess(const FstOptions& options);
  ~FstProcess();  // finishes; errors are lost, so call finish() to see them
  FstProcess(const FstProcess&) = delete;
  FstProcess& operator=(const FstProcess&) = delete;

  // Declarations come first, scopes nest. Numbers of enums count from 1, those of signals from 0.
  void push_scope(std::string_view name);
  void pop_scope();
  uint32_t add_enum(std::string_view name, uint32_t bits,
                    std::span<const std::pair<uint64_t, std::string_view>> values);
  uint32_t add_signal(std::string_view name, uint32_t width, uint32_t enum_number = 0);
  // Its values are numbers of texts. In the file it is a string, and beside it NAME_number: GTKWave
  // colours numbers by a file of their names, and no strings.
  uint32_t add_text_signal(std::string_view name) { return add_signal(name, 0); }
  // Number of a text, from 1 on; 0 is the empty text. At any time before it is a value.
  uint32_t add_text(std::string_view text, WaveTone tone);

  // All signals are 0 at first. Of several values for one cycle the last one counts.
  void set(uint32_t signal, uint64_t cycle, uint64_t value) {
    put({WaveRecord::Kind::kSet, signal, cycle, value}, {});
  }
  void set_words(uint32_t signal, uint64_t cycle, std::span<const uint32_t> words);
  // Whoever sets values behind the others' backs names the cycle that it has reached, and kNone
  // when it is done. Holders are numbered by the caller.
  static constexpr uint64_t kNone = UINT64_MAX;
  void hold(uint32_t holder, uint64_t cycle);
  // No value will be set for a cycle before this one, but by holders.
  void reached(uint64_t cycle);

  // The window, one a file: changes from `cycle` on are written, and before it keep_cycles.
  void open(uint64_t cycle) { put({WaveRecord::Kind::kOpen, 0, cycle, 0}, {}); }
  void close(uint64_t cycle) { put({WaveRecord::Kind::kClose, 0, cycle, 0}, {}); }

  // Closes the file. `keep`: the last keep_cycles are written where no window was opened. Empty, or
  // what went wrong (also during the writes before).
  std::string finish(bool keep = false);

 private:
  void put(const WaveRecord& record, std::string_view bytes);
  void put_locked(const WaveRecord& record, std::string_view bytes);
  void flush();
  void start_helper(const FstOptions& options);

  const std::string path_;
  const bool one_thread_;
  std::mutex mutex_;
  std::string error_;
  WaveTail* tail_ = nullptr;
  std::vector<uint64_t> holds_;  // by holder
  pid_t child_ = -1;
  int socket_ = -1;
  uint32_t signals_ = 0;
  uint32_t enums_ = 0;
  uint32_t texts_ = 0;
};

}  // namespace tpu::model
