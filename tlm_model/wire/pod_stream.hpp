// Frames between the processes of a pod (spec/formats/pod_wire.toml) over a Wire. Frames of one
// process come in the order in which it has sent them; damage, gaps and sizes out of bounds end the
// pod (PodLost). Bytes that there is no room for wait here, so that two processes that send to each
// other never wait for each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tpu/spec/pod_wire.h"
#include "wire/wire.hpp"

namespace tpu::model {

struct PodFrame {
  uint16_t kind = 0;
  uint64_t at = 0;
  uint32_t board = 0;
  uint32_t core = 0;
  uint64_t number = 0;
  uint32_t to = 0;
  std::vector<std::byte> body;
};

class PodStream {
 public:
  explicit PodStream(std::unique_ptr<Wire> wire);

  uint32_t rank() const { return wire_->rank(); }
  uint32_t ranks() const { return wire_->ranks(); }
  Wire& wire() { return *wire_; }

  // Waits here until flush().
  void post(uint32_t to, const PodFrame& frame);
  // Sends what there is room for; true: nothing is left.
  bool flush();
  // The next frame of a process; false: none has come whole. Throws PodLost.
  bool next(uint32_t from, PodFrame& frame);
  uint64_t frames_sent() const { return frames_sent_; }
  // The last words of this process to all others. Gives up when they do not read for so long.
  void send_lost(const std::string& text, std::chrono::milliseconds limit);
  struct Lost {
    std::string told;   // last words of another process
    std::string ended;  // why nothing more comes of another process
  };
  // Reads all that has come without taking a frame; empty: none has said that, or has ended. For a
  // process that waits for room, or for an end whose reason may be known.
  Lost find_lost();

 private:
  struct Out {
    std::vector<std::byte> bytes;
    size_t sent = 0;
    uint64_t sequence = 0;
  };
  struct In {
    std::vector<std::byte> bytes;
    size_t used = 0;    // of the bytes, by frames
    size_t filled = 0;  // bytes that have come
    uint64_t sequence = 0;
  };

  void send_rest(uint32_t to);
  bool read_more(uint32_t from, In& in);
  [[noreturn]] void refuse(uint32_t from, const In& in, const char* why) const;

  const std::unique_ptr<Wire> wire_;
  std::vector<Out> out_;  // by rank
  std::vector<In> in_;
  uint64_t frames_sent_ = 0;
};

}  // namespace tpu::model
