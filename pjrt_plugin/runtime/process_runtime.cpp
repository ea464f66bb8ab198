#include "runtime/process_runtime.hpp"

#include "process_board.hpp"
#include "runtime/local_runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {
namespace {

base::Mutex opening;
// Never destroyed: threads may outlive static objects.
const Runtime* opened TPU_GUARDED_BY(opening) = nullptr;

}  // namespace

const Runtime& process_runtime() {
  const base::MutexLock lock(opening);
  if (opened == nullptr) {
    opened = new LocalRuntime(
        client::ProcessBoard::get().board(),
        std::chrono::duration<double>(client::ProcessBoard::options().replica_seconds),
        client::join_programs);
  }
  return *opened;
}

const Runtime* open_runtime() {
  const base::MutexLock lock(opening);
  return opened;
}

}  // namespace tpu::pjrt
