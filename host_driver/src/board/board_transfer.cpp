// Calls that move data, and the end of launches.
#include "src/board/board_impl.hpp"

namespace tpu::driver {

// A launch is over, and its event not set yet.
void BoardImpl::end_launch(Operation& launch, const ErrorPtr& error) {
  if (launch.feed) {
    feeds_.end(*launch.feed, error);
  }
  if (sim_.op_times && launch.on_board) {
    count_ops(launch);
  }
  if (sim_.check && launch.on_board) {
    tell_findings(launch);
  }
  forget_launch(launch);
}

void BoardImpl::need_host_memory(uint64_t bytes, const std::string& what) {
  const Entry entry(*this);
  health_.check_usable();
  memory_.need_room(bytes, what);
}

std::vector<Buffer> BoardImpl::upload(const std::vector<int>& devices, const HostView& host,
                                      const Box& box, const Shape& local, uint64_t alloc_bytes,
                                      const std::string& label) {
  const Entry entry(*this);
  health_.check_usable();
  prepare_input(box.bytes());
  return transfers_.upload(devices, host, box, local, alloc_bytes, label);
}

Buffer BoardImpl::upload_later(int device, DType dtype, const Shape& shape,
                               const std::shared_ptr<const std::vector<std::byte>>& bytes,
                               const std::vector<Event>& after) {
  const Entry entry(*this);
  health_.check_usable();
  prepare_input(bytes->size());
  return transfers_.upload_later(device, dtype, shape, bytes, after);
}

Buffer BoardImpl::zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes) {
  const Entry entry(*this);
  health_.check_usable();
  return transfers_.zeros(device, dtype, shape, alloc_bytes);
}

Buffer BoardImpl::copy(const std::shared_ptr<BufferState>& source, int device,
                       const std::vector<Event>& after) {
  const Entry entry(*this);
  health_.check_usable();
  return transfers_.copy(*source, device, after);
}

Event BoardImpl::read(const std::vector<ReadPart>& parts, const std::vector<Event>& after) {
  const Entry entry(*this);
  health_.check_usable();
  return transfers_.read(parts, after);
}

}  // namespace tpu::driver
