#include "memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "errors.hpp"

namespace tpu::tensorflow {
namespace {

constexpr unsigned kDeviceShift = 44;
constexpr uint64_t kAlignment = 512;

std::string text_of(uint64_t address) { return fmt::format("{:#x}", address); }

}  // namespace

SE_DeviceMemoryBase Memory::allocate(int device, uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  const uint64_t base = (static_cast<uint64_t>(device) + 1) << kDeviceShift;
  uint64_t& next = next_[device];
  const uint64_t address = base + next;
  next += std::max<uint64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  if (next >> kDeviceShift != 0) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted,
                        fmt::format("TPU:{}: all addresses have been allocated", device));
  }
  blocks_[address] = {device, bytes, {}};
  return {reinterpret_cast<void*>(address), bytes, 0};
}

void Memory::free(uint64_t address) {
  Contents last;  // gone without the lock
  const base::MutexLock lock(mutex_);
  const auto at = blocks_.find(address);
  if (at == blocks_.end()) {
    find(address);  // throws
  }
  last = std::move(at->second.contents);
  blocks_.erase(at);
}

const Memory::Block& Memory::find(uint64_t address) const {
  const auto at = blocks_.find(address);
  if (at == blocks_.end()) {
    pjrt::throw_invalid("device address " + text_of(address) +
                        ": expected one of TpuExecutor_Allocate that was not freed");
  }
  return at->second;
}

int Memory::device_of(uint64_t address) const {
  const base::MutexLock lock(mutex_);
  return find(address).device;
}

void Memory::set(uint64_t address, Contents contents) {
  const base::MutexLock lock(mutex_);
  find(address);
  std::swap(blocks_.at(address).contents, contents);
}

Contents Memory::contents(uint64_t address) const {
  const base::MutexLock lock(mutex_);
  return find(address).contents;
}

TupleTable Memory::table(uint64_t address) const {
  Contents there = contents(address);
  if (auto* table = std::get_if<TupleTable>(&there)) {
    return std::move(*table);
  }
  pjrt::throw_invalid("device address " + text_of(address) +
                      ": expected the table of a tuple, found other contents");
}

pjrt::DeviceArrayPtr Memory::array(uint64_t address, driver::DType dtype,
                                   const driver::Shape& dims) {
  const Contents there = contents(address);
  const int device = device_of(address);
  const uint64_t bytes = driver::byte_count(dtype, dims);
  Untyped source;
  if (const auto* array = std::get_if<pjrt::DeviceArrayPtr>(&there)) {
    if ((*array)->dtype() == dtype && (*array)->shape() == dims) {
      return *array;
    }
    auto read = std::make_shared<std::vector<std::byte>>((*array)->bytes());
    source = {read, (*array)->read(0, *read)};
  } else if (const auto* untyped = std::get_if<Untyped>(&there)) {
    source = *untyped;
  } else {
    throw driver::Error(
        driver::ErrorCode::kFailedPrecondition,
        fmt::format("device address {} (TPU:{}) is read as {}, but {}", text_of(address), device,
                    driver::type_text(dtype, dims),
                    std::holds_alternative<TupleTable>(there) ? "has the table of a tuple"
                                                              : "nothing has been written there"));
  }
  if (source.bytes->size() != bytes) {
    pjrt::throw_invalid(fmt::format(
        "device address {} (TPU:{}) is read as {} ({} bytes), but has {} bytes", text_of(address),
        device, driver::type_text(dtype, dims), bytes, source.bytes->size()));
  }
  pjrt::DeviceArrayPtr typed =
      runtime_.put(device, dtype, dims, std::move(source.bytes), source.ready);
  set(address, typed);
  return typed;
}

Memory::Use Memory::use(int device) const {
  const base::MutexLock lock(mutex_);
  Use use;
  for (const auto& [address, block] : blocks_) {
    if (block.device == device) {
      ++use.blocks;
      use.largest = std::max(use.largest, static_cast<int64_t>(block.bytes));
    }
  }
  return use;
}

}  // namespace tpu::tensorflow
