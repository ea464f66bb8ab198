// Bookkeeping of HBM ranges. Address 0 is left out, so that a zero base always means "not bound".
#include "src/memory/device_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tpu::driver {

DeviceMemory::DeviceMemory(int device, uint64_t bytes)
    : device_(device),
      capacity_(bytes - RangeAllocator::kPage),
      ranges_(RangeAllocator::kPage, capacity_) {}

MemoryUse DeviceMemory::use() {
  const base::MutexLock guard(mutex_);
  return {ranges_.used(),
          ranges_.peak(),
          ranges_.largest_fit(),
          ranges_.allocations(),
          ranges_.allocations_ever(),
          ranges_.largest_ever()};
}

void DeviceMemory::visit_state(spec::Archive& archive) {
  const base::MutexLock guard(mutex_);
  archive(ranges_);
}

bool DeviceMemory::retire(uint64_t address, std::string& label) {
  const base::MutexLock guard(mutex_);
  const auto holder = std::ranges::find_if(live_, [&](const Allocation* each) {
    return address >= each->address() && address - each->address() < each->bytes();
  });
  label = holder == live_.end() ? std::string() : (*holder)->label();
  return ranges_.retire(address);
}

uint64_t DeviceMemory::retired() {
  const base::MutexLock guard(mutex_);
  return ranges_.retired();
}

std::string DeviceMemory::largest(size_t count) {
  const base::MutexLock guard(mutex_);
  std::vector<const Allocation*> all(live_.begin(), live_.end());
  std::sort(all.begin(), all.end(), [](const Allocation* a, const Allocation* b) {
    return a->bytes() != b->bytes() ? a->bytes() > b->bytes() : a->address() < b->address();
  });
  std::string text;
  for (size_t i = 0; i < std::min(count, all.size()); ++i) {
    text += fmt::format("\n  {:>14} bytes  {}", all[i]->bytes(), all[i]->label());
  }
  return text;
}

std::shared_ptr<Allocation> Allocation::make(const std::shared_ptr<DeviceMemory>& memory,
                                             uint64_t bytes, std::string label) {
  const std::shared_ptr<Allocation> made(new Allocation(memory, bytes, std::move(label)));
  const base::MutexLock guard(memory->mutex_);
  const auto address = memory->ranges_.allocate(bytes);
  if (!address) {
    return nullptr;
  }
  made->address_ = *address;
  memory->live_.insert(made.get());
  return made;
}

std::shared_ptr<Allocation> Allocation::make_at(const std::shared_ptr<DeviceMemory>& memory,
                                                uint64_t address, uint64_t bytes,
                                                std::string label) {
  std::shared_ptr<Allocation> made(new Allocation(memory, bytes, std::move(label)));
  const base::MutexLock guard(memory->mutex_);
  if (!memory->ranges_.take(address, bytes)) {
    return nullptr;
  }
  made->address_ = address;
  memory->live_.insert(made.get());
  return made;
}

Allocation::Allocation(std::shared_ptr<DeviceMemory> memory, uint64_t bytes, std::string label)
    : memory_(std::move(memory)), bytes_(bytes), label_(std::move(label)) {}

Allocation::~Allocation() {
  const base::MutexLock guard(memory_->mutex_);
  memory_->ranges_.free(address_);  // 0 was never handed out
  memory_->live_.erase(this);
}

}  // namespace tpu::driver
