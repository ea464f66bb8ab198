// For the happens-before checker: which transfers with the host are behind which calls of a core's
// program, and before which answers. The transfers of a core begin in the order of their calls.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tpu::exe {
struct ExecutableT;
struct HostCallT;
}  // namespace tpu::exe

namespace tpu::model {

class HostCallOrder {
 public:
  using Clock = std::vector<uint32_t>;  // by unit of the board
  struct Call {
    uint32_t pc = 0;
    uint32_t op_id = 0;
    int64_t channel = 0;
    bool whole = true;  // the core waits for the transfer
    Clock clock{};      // of the sequencer there
  };

  // A launch begins; `program` is null where nobody knows it: each answer is behind all transfers
  // that have begun then.
  void begin(std::shared_ptr<const exe::ExecutableT> program) { program_ = std::move(program); }
  // What is under way is over.
  void forget() {
    open_.clear();
    beside_.clear();
  }

  // The core comes to a call. True if a transfer will be behind it.
  bool call(uint32_t number, const Call& call);
  // What the core does from here on is behind this, too. `host`: of the last transfer. Null: it
  // waited for none.
  const Clock* answer(uint32_t number, const Clock& host);
  // The call of the transfer that begins; of an unknown launch, `latest`.
  Call take(Call latest);
  // It has that clock.
  void moves(const Call& call, const Clock& host);

 private:
  const exe::HostCallT* of(uint32_t number) const;

  std::shared_ptr<const exe::ExecutableT> program_;
  std::deque<Call> open_;            // whose transfer has not begun
  std::map<int64_t, Clock> beside_;  // by channel: of its last transfer that began beside a program
};

}  // namespace tpu::model
