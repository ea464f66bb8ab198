// A program's call of the host: open from the instruction until the host answers.
#pragma once

#include <utility>

namespace tpu::model {

class HostCall {
 public:
  bool open() const { return open_; }
  // False: it is open already.
  bool begin() { return !std::exchange(open_, true); }
  // False: none is open; an answer that is not taken yet stays.
  bool answer() {
    const bool was_open = std::exchange(open_, false);
    answered_ = answered_ || was_open;
    return was_open;
  }
  // The program goes on with the answer; false: there is none.
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
