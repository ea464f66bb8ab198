// The helper's side of FstProcess: puts changes in order of time, holds back those before the
// window, and feeds the FST library.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "waves/fst_process.hpp"
#include "waves/wave_records.hpp"

namespace tpu::model {

inline constexpr char kWaveAcknowledge = 'K';
// Exit status of the helper: another run took the file; it is whole, but files beside it are not.
inline constexpr int kWaveFileTaken = 2;
inline constexpr int kWaveViewsFailed = 3;
inline constexpr uint32_t kWaveTextBits = 24;  // of the number of a text

class FstWriter {
 public:
  FstWriter(int socket, const WaveTail& tail, const FstOptions& options)
      : socket_(socket), tail_(tail), options_(options) {}

  // Exit status of the helper: 0 when the file is whole.
  int run();

 private:
  using Words = std::vector<uint32_t>;  // the lowest first
  // Plain, since there are many: sorted and moved as bytes.
  struct Change {
    uint64_t cycle;
    uint32_t signal;  // or one of the marks
    uint64_t value;   // of a signal of more than 64 bits: number of its words
  };
  static constexpr uint32_t kOpenMark = UINT32_MAX;
  static constexpr uint32_t kCloseMark = UINT32_MAX - 1;
  struct Signal {
    uint32_t handle = 0;  // of the FST library
    uint32_t width = 0;   // 0: its values are texts
    uint32_t number = 0;  // handle of NAME_number
    bool touched = false;
    bool shown = false;    // the file has a value of it:
    uint64_t written = 0;  // this one
    Words written_words{};
    uint64_t value = 0;  // the present one, as in Change; kNoWords: a wide signal that is 0
  };
  static constexpr uint64_t kNoWords = UINT64_MAX;

  enum class State : uint8_t { kBefore, kOpen, kAfter };

  bool read_more();
  bool get(void* to, size_t size);
  bool copy_records();
  bool take(const WaveRecord& record);
  void add_enum(const WaveRecord& record);
  void add_signal(const WaveRecord& record);
  uint32_t create(uint32_t type, uint32_t width, const std::string& name);
  void queue(uint64_t cycle, uint32_t signal, uint64_t value);
  uint64_t keep_words(Words words);
  void set_value(const Change& change);
  bool changed(const Signal& signal) const;
  std::span<const uint32_t> words_of(const Signal& signal) const;
  void emit(Signal& signal);
  void emit_bits(uint32_t handle, uint32_t width, uint64_t value);
  void emit_time(uint64_t cycle);
  void settle(uint64_t end);
  void pass(const Change& change);
  void open_window(uint64_t cycle);
  void write(const Change& change);
  void write_cycle();
  void end(bool keep);
  bool readable() const;
  uint64_t picoseconds(uint64_t cycle) const;

  const int socket_;
  const WaveTail& tail_;
  const FstOptions options_;
  void* fst_ = nullptr;
  bool tail_read_ = false;
  uint64_t received_ = 0;
  char buffer_[WaveTail::kBytes];
  size_t begin_ = 0;
  size_t end_ = 0;
  std::string text_;  // behind the record

  std::vector<uint32_t> enums_;  // handles
  std::vector<WaveText> texts_ = {{}};
  std::vector<Signal> signals_;
  std::vector<Words> words_;          // of wide values that are on their way or present
  std::vector<uint64_t> free_words_;  // numbers in it
  Words zero_;                        // as wide as the widest signal
  std::vector<Change> pending_;       // may still be passed by earlier ones
  std::deque<Change> kept_;           // before the window
  std::vector<uint32_t> touched_;     // signals that change in now_
  uint64_t now_ = 0;
  uint32_t in_block_ = 0;  // changes of the block that the library collects
  State state_ = State::kBefore;
  WaveSpan span_;
};

}  // namespace tpu::model
