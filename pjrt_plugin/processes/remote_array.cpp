#include "processes/remote_array.hpp"

#include <cstring>

namespace tpu::pjrt {

RemoteArray::~RemoteArray() {
  if (known_) {
    wire::DropArrayT drop;
    drop.array = number_;
    link_.tell(std::move(drop));
  }
}

driver::Event RemoteArray::ready() const {
  wire::WatchT watch;
  watch.array = number_;
  watch.event = link_.new_number();
  const driver::Event event = link_.expect(watch.event);
  link_.tell(std::move(watch));
  return event;
}

driver::Event RemoteArray::read(uint64_t first, std::span<std::byte> out) const {
  wire::ReadT read;
  read.array = number_;
  read.first = first;
  read.size = out.size();
  read.event = link_.new_number();
  std::shared_ptr<SegmentPool::Segment> segment;
  if (out.size() > kMostInFrame) {
    segment = link_.segments().take(out.size());
    read.segment = segment->number;
  }
  const uint64_t number = read.event;
  const driver::Event event = link_.expect(number, [segment, out](const wire::EventDoneT& done) {
    if (segment == nullptr && done.bytes.size() != out.size()) {
      throw driver::Error(driver::ErrorCode::kInternal,
                          "a read from the board brought another number of bytes");
    }
    if (!out.empty()) {
      std::memcpy(out.data(),
                  segment == nullptr ? static_cast<const void*>(done.bytes.data())
                                     : static_cast<const void*>(segment->memory.bytes().data()),
                  out.size());
    }
  });
  try {
    link_.call(std::move(read));
  } catch (...) {
    link_.forget(number);
    throw;
  }
  return event;
}

uint64_t RemoteArray::address() const {
  wire::AddressT call;
  call.array = number_;
  return link_.call(std::move(call)).number;
}

void RemoteArray::discard() const {
  wire::DiscardT call;
  call.array = number_;
  link_.tell(std::move(call));
}

}  // namespace tpu::pjrt
