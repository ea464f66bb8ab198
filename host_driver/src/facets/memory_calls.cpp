// Each call enters by the door, and leaves the work to the owners.
#include "src/facets/memory_calls.hpp"

namespace tpu::driver {

void MemoryCalls::need_room(uint64_t bytes, const std::string& what) {
  const Door::Entry entry(door_);
  health_.check_usable();
  memory_.need_room(bytes, what);
}

std::vector<Buffer> MemoryCalls::upload(const std::vector<int>& devices, const HostView& host,
                                        const Box& box, const Shape& local, uint64_t alloc_bytes,
                                        const std::string& label) {
  const Door::Entry entry(door_);
  health_.check_usable();
  prepare_(box.bytes());
  return transfers_.upload(devices, host, box, local, alloc_bytes, label);
}

Buffer MemoryCalls::upload_later(int device, DType dtype, const Shape& shape,
                                 const std::shared_ptr<const std::vector<std::byte>>& bytes,
                                 const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  prepare_(bytes->size());
  return transfers_.upload_later(device, dtype, shape, bytes, after);
}

Buffer MemoryCalls::zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.zeros(device, dtype, shape, alloc_bytes);
}

Buffer MemoryCalls::copy(const BufferState& source, int device, const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.copy(source, device, after);
}

Event MemoryCalls::read(const std::vector<ReadPart>& parts, const std::vector<Event>& after) {
  const Door::Entry entry(door_);
  health_.check_usable();
  return transfers_.read(parts, after);
}

}  // namespace tpu::driver
