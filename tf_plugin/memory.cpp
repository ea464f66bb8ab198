#include "memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "errors.hpp"
#include "runtime/local_array.hpp"
#include "stream.hpp"

namespace tpu::tensorflow {
namespace {

constexpr unsigned kDeviceShift = 52;  // addresses are not given again
constexpr uint64_t kAlignment = 512;

// The first `dims` elements of an array of `bounds`, both row-major.
void copy_box(const std::vector<std::byte>& from, const driver::Shape& bounds,
              std::vector<std::byte>& to, const driver::Shape& dims, size_t element) {
  if (to.empty()) {
    return;
  }
  const size_t row = static_cast<size_t>(dims.back()) * element;
  std::vector<int64_t> at(dims.size(), 0);
  for (size_t done = 0; done < to.size(); done += row) {
    size_t index = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      index = index * static_cast<size_t>(bounds[d]) + static_cast<size_t>(at[d]);
    }
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(index * element), row,
                to.begin() + static_cast<std::ptrdiff_t>(done));
    for (size_t d = dims.size() - 1; d-- > 0;) {
      if (++at[d] < dims[d]) {
        break;
      }
      at[d] = 0;
    }
  }
}

// An array of a replicated program has a dimension of one in front, for its replica.
driver::Shape without_front(const driver::Shape& dims, size_t rank) {
  auto first = dims.begin();
  while (dims.end() - first > static_cast<std::ptrdiff_t>(rank) && *first == 1) {
    ++first;
  }
  return {first, dims.end()};
}

bool is_all_of(const pjrt::DeviceArray& array, const driver::Shape& dims) {
  const driver::Shape& bounds = array.shape();
  return without_front(bounds, dims.size()) == without_front(dims, bounds.size());
}

Untyped box_of(const pjrt::Runtime& runtime, const pjrt::DeviceArray& array,
               const driver::Shape& wanted) {
  const driver::Shape bounds = without_front(array.shape(), wanted.size());
  const driver::Shape dims = without_front(wanted, bounds.size());
  if (dims.size() != bounds.size() || !std::ranges::equal(dims, bounds, std::less_equal{})) {
    pjrt::throw_invalid("an array of " + driver::type_text(array.dtype(), bounds) + " is read as " +
                        driver::type_text(array.dtype(), dims) +
                        ": expected as many dimensions, each at most as large");
  }
  auto all = std::make_shared<std::vector<std::byte>>(array.bytes());
  auto box = std::make_shared<std::vector<std::byte>>(driver::byte_count(array.dtype(), dims));
  const driver::HostEvent done = runtime.make_event();
  array.read(0, *all).on_ready([all, box, bounds, dims, done, dtype = array.dtype()](
                                   const std::shared_ptr<const driver::Error>& error) {
    if (error) {
      return pjrt::fail_event(done, *error);
    }
    copy_box(*all, bounds, *box, dims, driver::dtype_bytes(dtype));
    set_event(done);
  });
  return {box, done.event()};
}

// Which contents they are: the same for the same alone. Null: nothing.
const void* source_of(const Contents& contents) {
  if (const auto* array = std::get_if<pjrt::DeviceArrayPtr>(&contents)) {
    return array->get();
  }
  if (const auto* untyped = std::get_if<Untyped>(&contents)) {
    return untyped->bytes.get();
  }
  const auto* const sized = std::get_if<Sized>(&contents);
  return sized != nullptr ? sized->array.get() : nullptr;
}

uint64_t base_of(int device) { return (static_cast<uint64_t>(device) + 1) << kDeviceShift; }

std::string text_of(uint64_t address) { return fmt::format("{:#x}", address); }

}  // namespace

SE_DeviceMemoryBase Memory::allocate(int device, uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  const uint64_t base = base_of(device);
  uint64_t& next = next_[device];
  const uint64_t address = base + next;
  const uint64_t left = (uint64_t{1} << kDeviceShift) - next;
  if (left <= kAlignment || bytes > left - kAlignment) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted,
                        fmt::format("TPU:{}: an allocation of {} bytes, expected at most {}",
                                    device, bytes, left - std::min(left, kAlignment)));
  }
  next += std::max<uint64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  blocks_[address] = {device, bytes, {}};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows it
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

void Memory::forget() {
  std::vector<Contents> last;  // gone without the lock
  const base::MutexLock lock(mutex_);
  for (auto& [address, block] : blocks_) {
    block.forgotten = block.forgotten || !std::holds_alternative<std::monostate>(block.contents);
    last.push_back(std::exchange(block.contents, {}));
  }
}

const Memory::Block& Memory::find(uint64_t address) const {
  const auto at = blocks_.find(address);
  if (at == blocks_.end()) {
    pjrt::throw_invalid("device address " + text_of(address) +
                        ": expected one of TpuExecutor_Allocate that was not freed");
  }
  return at->second;
}

Memory::Block Memory::block(uint64_t address) const {
  const base::MutexLock lock(mutex_);
  return find(address);
}

int Memory::device_of(uint64_t address) const {
  const base::MutexLock lock(mutex_);
  return find(address).device;
}

void Memory::set(uint64_t address, Contents contents) {
  const base::MutexLock lock(mutex_);
  find(address);
  Block& block = blocks_.at(address);
  std::swap(block.contents, contents);
  block.forgotten = false;
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

void Memory::fail_without_array(uint64_t address, const Block& block,
                                const std::string& use) const {
  const char* found = "nothing has been written there";
  if (std::holds_alternative<TupleTable>(block.contents)) {
    found = "has the table of a tuple";
  } else if (block.forgotten) {
    found = "was written before the TPU system was initialized again: write it anew";
  }
  throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                      fmt::format("device address {} (TPU:{}) is read{}, but {}", text_of(address),
                                  block.device, use, found));
}

// What has been written there meanwhile stays.
void Memory::take_over(uint64_t address, const Contents& old, pjrt::DeviceArrayPtr typed) {
  Contents last;  // gone without the lock
  const base::MutexLock lock(mutex_);
  const auto at = blocks_.find(address);
  if (at != blocks_.end() && source_of(at->second.contents) == source_of(old)) {
    last = std::exchange(at->second.contents, std::move(typed));
  }
}

pjrt::DeviceArrayPtr Memory::array(uint64_t address, driver::DType dtype,
                                   const driver::Shape& dims) {
  const Block there = block(address);
  const uint64_t bytes = driver::byte_count(dtype, dims);
  Untyped source;
  if (const auto* array = std::get_if<pjrt::DeviceArrayPtr>(&there.contents)) {
    // Arrays are row-major: in other dimensions, as with one for the replicas, the bytes are these.
    if ((*array)->dtype() == dtype && (*array)->bytes() == bytes) {
      return *array;
    }
    auto read = std::make_shared<std::vector<std::byte>>((*array)->bytes());
    source = {read, (*array)->read(0, *read)};
  } else if (const auto* untyped = std::get_if<Untyped>(&there.contents)) {
    source = *untyped;
  } else if (const auto* sized = std::get_if<Sized>(&there.contents)) {
    if (sized->array->dtype() == dtype && is_all_of(*sized->array, dims)) {
      return sized->array;
    }
    source = box_of(runtime_, *sized->array, dims);
  } else {
    fail_without_array(address, there, " as " + driver::type_text(dtype, dims));
  }
  if (source.bytes->size() != bytes) {
    pjrt::throw_invalid(fmt::format(
        "device address {} (TPU:{}) is read as {} ({} bytes), but has {} bytes", text_of(address),
        there.device, driver::type_text(dtype, dims), bytes, source.bytes->size()));
  }
  pjrt::DeviceArrayPtr typed =
      runtime_.put(there.device, dtype, dims, std::move(source.bytes), source.ready);
  take_over(address, there.contents, typed);
  return typed;
}

driver::Event Memory::read(uint64_t address, driver::DType dtype, const driver::Shape& dims,
                           std::span<std::byte> out) {
  const Contents there = contents(address);
  const auto* sized = std::get_if<Sized>(&there);
  if (sized == nullptr || sized->array->dtype() != dtype || is_all_of(*sized->array, dims)) {
    return array(address, dtype, dims)->read(0, out);
  }
  const Untyped box = box_of(runtime_, *sized->array, dims);
  const driver::HostEvent done = runtime_.make_event();
  box.ready.on_ready([box, out, done](const std::shared_ptr<const driver::Error>& error) {
    if (error) {
      return pjrt::fail_event(done, *error);
    }
    std::copy_n(box.bytes->data(), std::min(out.size(), box.bytes->size()), out.data());
    set_event(done);
  });
  return done.event();
}

void Memory::check_readable(uint64_t address, uint64_t bytes) const {
  const Block there = block(address);
  uint64_t has = 0;
  if (const auto* array = std::get_if<pjrt::DeviceArrayPtr>(&there.contents)) {
    has = (*array)->bytes();
  } else if (const auto* untyped = std::get_if<Untyped>(&there.contents)) {
    has = untyped->bytes->size();
  } else if (const auto* sized = std::get_if<Sized>(&there.contents)) {
    has = sized->array->bytes();
  } else {
    fail_without_array(address, there, "");
  }
  if (bytes > has) {
    pjrt::throw_invalid(
        fmt::format("device address {} (TPU:{}): {} bytes are read, expected at "
                    "most {}, which were written there",
                    text_of(address), there.device, bytes, has));
  }
}

Memory::Use Memory::use(int device) const {
  const base::MutexLock lock(mutex_);
  Use use;
  const auto end = blocks_.lower_bound(base_of(device + 1));
  for (auto at = blocks_.lower_bound(base_of(device)); at != end; ++at) {
    ++use.blocks;
    use.largest = std::max(use.largest, static_cast<int64_t>(at->second.bytes));
  }
  return use;
}

}  // namespace tpu::tensorflow
