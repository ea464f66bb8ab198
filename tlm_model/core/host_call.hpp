// A program's call of the host: open from the instruction until the host answers.
#pragma once

#include <utility>

namespace tpu::model {

class HostCall {
 public:
  bool open() const { return open_; }
  // False: it is open already.
  bool begin() { return !std::exchange(open_, true); }
  // False: none is open.
  bool answer() {
    answered_ = std::exchange(open_, false);
    return answered_;
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
