#include "runtime/process_runtime.hpp"

#include "process_board.hpp"
#include "processes/greeting.hpp"
#include "processes/job_store.hpp"
#include "processes/meeting.hpp"
#include "processes/remote_runtime.hpp"
#include "runtime/local_runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {
namespace {

base::Mutex opening;
// Never destroyed: threads may outlive static objects.
const Runtime* opened TPU_GUARDED_BY(opening) = nullptr;

const Runtime* new_local(OwnerText owner) {
  return new LocalRuntime(
      client::ProcessBoard::get().board(),
      std::chrono::duration<double>(client::ProcessBoard::options().replica_seconds),
      client::join_programs, std::move(owner));
}

const Runtime* new_remote(ProcessPlace place, const JobStore* store) {
  client::ProcessBoard::set_elsewhere(
      "this process shares its board with others, and another process has it: measurements, waves "
      "and the C interface need the board in their own process; run one process, in PyTorch with "
      "xmp.spawn(fn) or torch_xla.launch(fn) and without TPUBOARD_PROCESS_COUNT");
  if (store != nullptr) {
    place.folder = agreed_folder(*store, place);
  }
  FrameSocket socket = meet(place);
  const pid_t server = greet(socket, hello_of_process(place));
  return new RemoteRuntime(*new RemoteLink(std::move(socket), server));
}

}  // namespace

const Runtime& process_runtime(const JobStore* store) {
  const base::MutexLock lock(opening);
  if (opened == nullptr) {
    opened = process_place().is_shared() ? new_remote(process_place(), store) : new_local({});
  }
  return *opened;
}

const Runtime& own_runtime(OwnerText owner) {
  const base::MutexLock lock(opening);
  if (opened == nullptr) {
    opened = new_local(std::move(owner));
  }
  return *opened;
}

const Runtime* open_runtime() {
  const base::MutexLock lock(opening);
  return opened;
}

}  // namespace tpu::pjrt
