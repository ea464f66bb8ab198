// The helper's side of FstProcess: puts changes in order of time, holds back those before the
// window, and feeds the FST library.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "waves/fst_process.hpp"
#include "waves/wave_records.hpp"

namespace tpu::model {

inline constexpr char kWaveAcknowledge = 'K';
inline constexpr int kWaveFileTaken = 2;  // exit status of the helper: another run took the file

class FstWriter {
 public:
  FstWriter(int socket, const WaveTail& tail, const FstOptions& options)
      : socket_(socket), tail_(tail), options_(options) {}

  // Exit status of the helper: 0 when the file is whole.
  int run();

 private:
  struct Value {
    uint64_t low = 0;             // of a signal of up to 64 bits
    std::vector<uint32_t> words;  // of a wider one, the lowest first
    bool operator==(const Value&) const = default;
  };
  struct Change {
    uint64_t cycle;
    uint32_t signal;  // or one of the marks
    Value value;
  };
  static constexpr uint32_t kOpenMark = UINT32_MAX;
  static constexpr uint32_t kCloseMark = UINT32_MAX - 1;
  struct Signal {
    uint32_t handle = 0;  // of the FST library
    uint32_t width = 0;
    Value value{};
    std::optional<Value> written{};  // what the file shows
    bool touched = false;
  };
  enum class State : uint8_t { kBefore, kOpen, kAfter };

  bool read_more();
  bool get(void* to, size_t size);
  bool copy_records();
  bool take(const WaveRecord& record);
  void add_enum(const WaveRecord& record);
  void add_signal(const WaveRecord& record);
  void queue(uint64_t cycle, uint32_t signal, Value value);
  void settle(uint64_t end);
  void pass(Change change);
  void open_window(uint64_t cycle);
  void write(Change change);
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
  std::vector<Signal> signals_;
  std::vector<Change> pending_;    // may still be passed by earlier ones
  std::deque<Change> kept_;        // before the window
  std::vector<uint32_t> touched_;  // signals that change in now_
  uint64_t now_ = 0;
  State state_ = State::kBefore;
};

}  // namespace tpu::model
