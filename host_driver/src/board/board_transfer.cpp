// Calls that move data, load and launch, and the end of launches.
#include "src/board/board_impl.hpp"

namespace tpu::driver {

// A launch is over, and its event not set yet.
void BoardImpl::end_launch(Operation& launch, const ErrorPtr& error) {
  if (launch.feed) {
    feeds_.end(*launch.feed, error);
  }
  if (launch.on_board) {
    records_.end(launch);
  }
  launcher_.forget_id(launch);
}

void BoardImpl::need_host_memory(uint64_t bytes, const std::string& what) {
  const Door::Entry entry(door_);
  health_.check_usable();
  memory_.need_room(bytes, what);
}

std::vector<Buffer> BoardImpl::upload(const std::vector<int>& devices, const HostView& host,
                                      const Box& box, const Shape& local, uint64_t alloc_bytes,
                                      const std::string& label) {
  const Door::Entry entry(door_);
  health_.check_usable();
  prepare_input(box.bytes());
  return transfers_.upload(devices, host, box, local, alloc_bytes, label);
}

Buffer BoardImpl::upload_later(int device, DType dtype, const Shape& shape,
                               const std::shared_ptr<const std::vector<std::byte>>& bytes,
                               const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  prepare_input(bytes->size());
  return transfers_.upload_later(device, dtype, shape, bytes, after);
}

Buffer BoardImpl::zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.zeros(device, dtype, shape, alloc_bytes);
}

Buffer BoardImpl::copy(const std::shared_ptr<BufferState>& source, int device,
                       const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.copy(*source, device, after);
}

Event BoardImpl::read(const std::vector<ReadPart>& parts, const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.read(parts, after);
}

std::shared_ptr<LoadedProgram> BoardImpl::load(std::shared_ptr<const exe::ExecutableT> executable,
                                               const std::string& file,
                                               const std::vector<int>& devices, bool wait) {
  const auto program = loader_.make(std::move(executable), file, devices);
  const Door::Entry entry(door_);
  health_.check_usable();
  loader_.load(program, wait);
  return program;
}

RunResult BoardImpl::launch(const std::shared_ptr<LoadedProgram>& program,
                            const std::vector<Array>& arguments, const RunOptions& options) {
  const Door::Entry entry(door_);
  health_.check_usable();
  launcher_.check(*program, arguments, options);
  spend_host_time(static_cast<uint64_t>(params_.host.dispatch_cycles));
  return launcher_.launch(program, arguments, options);
}

}  // namespace tpu::driver
