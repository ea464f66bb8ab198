// Counts forks by pthread_atfork().
#include "src/turn/fork_check.hpp"

#include <pthread.h>

#include <atomic>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

std::atomic<uint32_t> forks{0};  // of which this process is the child

uint32_t forks_so_far() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(watched);
  return forks.load();
}

}  // namespace

ForkCheck::ForkCheck() : forks_(forks_so_far()) {}

bool ForkCheck::in_child() const { return forks.load() != forks_; }

void ForkCheck::check() const {
  if (in_child()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this process was forked from the one that opened the board, and the board stayed "
                "there: use a new process that opens its own (spawn, not fork)");
  }
}

}  // namespace tpu::driver
