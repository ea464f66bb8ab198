// Which signal let a command start: the one that brought the semaphore to what its wait wanted.
// Semaphores count, so the signals that nobody has taken yet are kept in the order in which they
// were sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace tpu::model {

class SemaphoreFlows {
 public:
  explicit SemaphoreFlows(size_t cores) : semaphores_(cores) {}

  // `flow` 0: nothing shows who sent it.
  void signal(uint32_t core, uint32_t semaphore, uint32_t amount, uint64_t flow) {
    std::deque<Sent>& sent = semaphores_[core][semaphore];
    if (sent.size() == kMostKept) {  // is only looked at, never taken
      sent[1].amount += sent[0].amount;
      sent.pop_front();
    }
    sent.push_back({amount, flow});
  }

  // The flow of the signal that met the wait; 0: none, or another wait was its end.
  uint64_t take(uint32_t core, uint32_t semaphore, uint32_t threshold, bool takes) {
    std::deque<Sent>& sent = semaphores_[core][semaphore];
    uint64_t flow = 0;
    uint64_t sum = 0;
    for (Sent& each : sent) {
      sum += each.amount;
      if (sum >= threshold) {
        flow = std::exchange(each.flow, 0);
        break;
      }
    }
    uint64_t left = takes ? threshold : 0;
    while (left != 0 && !sent.empty()) {
      const uint64_t part = std::min(left, sent.front().amount);
      left -= part;
      sent.front().amount -= part;
      if (sent.front().amount == 0) {
        sent.pop_front();
      }
    }
    return flow;
  }

  void clear(uint32_t core) { semaphores_[core].clear(); }

 private:
  static constexpr size_t kMostKept = 64;
  struct Sent {
    uint64_t amount;
    uint64_t flow;
  };
  std::vector<std::map<uint32_t, std::deque<Sent>>> semaphores_;  // by core
};

}  // namespace tpu::model
