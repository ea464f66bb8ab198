// A program's call of the host: open from the instruction until the host answers.
#pragma once

#include <utility>

namespace tpu::model {

class HostCall {
 public:
  bool open() const { return open_; }
  // False: it is open already.
  bool begin() { return !std::exchange(open_, true); }
  // False: no call is open. An answer that the program has not taken is kept.
  bool answer() {
    const bool was_open = std::exchange(open_, false);
    answered_ = answered_ || was_open;
    return was_open;
  }
  // True: the program continues with the answer. False: the host has not answered.
  bool take_answer() { return std::exchange(answered_, false); }
  // The program is over. False: none was open.
  bool end() {
    answered_ = false;
    return std::exchange(open_, false);
  }

 private:
  bool open_ = false;
  bool answered_ = false;  // and the sequencer has not gone on
};

}  // namespace tpu::model
