// The public classes: thin shells over BoardImpl.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "src/board_impl.hpp"
#include "src/box.hpp"
#include "src/program.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

const BufferState& need(const std::shared_ptr<BufferState>& state) {
  if (!state) {
    throw Error(ErrorCode::kInvalidArgument, "the buffer handle is empty");
  }
  return *state;
}

template <typename State>
State& need_program(const std::shared_ptr<State>& state) {
  if (!state) {
    throw Error(ErrorCode::kInvalidArgument, "the executable handle is empty");
  }
  return *state;
}

BoardImpl& need(const std::shared_ptr<BoardImpl>& impl) {
  if (!impl) {
    throw Error(ErrorCode::kInvalidArgument, "the board handle is empty");
  }
  return *impl;
}

// Uploads one global array: equal boxes are staged once.
Array place(BoardImpl& board, const HostView& host, const Layout& layout,
            const std::vector<int>& devices, uint64_t alloc_bytes, const std::string& label) {
  std::vector<Buffer> parts(devices.size());
  for (size_t p = 0; p < devices.size(); ++p) {
    if (parts[p].valid()) {
      continue;
    }
    std::vector<size_t> same;
    std::vector<int> targets;
    for (size_t q = p; q < devices.size(); ++q) {
      if (layout.offsets[q] == layout.offsets[p]) {
        same.push_back(q);
        targets.push_back(devices[q]);
      }
    }
    const HostArray box = cut_box(host, layout.offsets[p], layout.local);
    std::vector<Buffer> made = board.upload(targets, box, alloc_bytes, label);
    for (size_t k = 0; k < same.size(); ++k) {
      parts[same[k]] = made[k];
    }
  }
  return Array(host.dtype, host.shape, layout, std::move(parts));
}

std::vector<int> first_devices(const BoardImpl& board, int count) {
  const int all = static_cast<int>(board.device_count());
  if (count < 0 || count > all) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} devices wanted, the board has {}", count, all));
  }
  std::vector<int> ids(static_cast<size_t>(count == 0 ? all : count));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int>(i);
  }
  return ids;
}

}  // namespace

int Buffer::device() const { return need(state_).device; }
DType Buffer::dtype() const { return need(state_).dtype; }
const Shape& Buffer::shape() const { return need(state_).shape; }
uint64_t Buffer::bytes() const { return need(state_).bytes; }
bool Buffer::live() const { return need(state_).live && !state_->ready->failed(); }

Event Buffer::ready() const {
  need(state_);
  return Event(state_->ready);
}

Event Buffer::read(std::span<std::byte> out) const {
  need(state_);
  return state_->board->read(state_, out);
}

HostArray Buffer::to_host() const {
  HostArray host{dtype(), shape(), std::vector<std::byte>(bytes())};
  read(host.bytes).wait();
  return host;
}

void Array::wait() const {
  for (const Buffer& part : parts_) {
    part.ready().wait();
  }
}

namespace {

// Asks part `owner` for its runs, to their places in `out`.
Event read_owned(const std::shared_ptr<BufferState>& handle, size_t owner,
                 std::span<std::byte> out) {
  const BufferState& state = *handle;
  const uint64_t element = dtype_bytes(state.dtype);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  uint64_t at = 0;
  for (const OwnedRun& run : *state.owned) {
    const uint64_t end = at + run.elements * element;
    if (run.owner == owner) {
      ranges.emplace_back(at, end);
    }
    at = end;
  }
  return state.board->read_ranges(handle, out, ranges);
}

// State of a sharded update, each run from its owner.
HostArray gather_owned(const std::vector<Buffer>& parts) {
  HostArray global = {parts[0].dtype(), parts[0].shape(), std::vector<std::byte>(parts[0].bytes())};
  std::vector<Event> events;
  for (size_t p = 0; p < parts.size(); ++p) {
    events.push_back(read_owned(parts[p].state(), p, global.bytes));
  }
  ErrorPtr failure;
  for (const Event& event : events) {  // all of them: they write into `global`
    if (ErrorPtr error = event.wait_for_error()) {
      failure = failure ? failure : error;
    }
  }
  if (failure) {
    throw Error(*failure);
  }
  return global;
}

}  // namespace

HostArray Array::gather(bool check, const std::string& what) const {
  if (parts_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the array handle is empty");
  }
  if (parts_[0].state()->owned != nullptr) {
    return gather_owned(parts_);
  }
  // All reads are asked for before the first wait, so that they overlap.
  std::vector<HostArray> boxes(parts_.size());
  std::vector<Event> events(parts_.size());
  std::vector<bool> wanted(parts_.size(), true);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const auto& offsets = layout_.offsets;
    wanted[p] = check || std::find(offsets.begin(), offsets.begin() + static_cast<ptrdiff_t>(p),
                                   offsets[p]) == offsets.begin() + static_cast<ptrdiff_t>(p);
    if (wanted[p]) {
      boxes[p] = {dtype_, layout_.local, std::vector<std::byte>(parts_[p].bytes())};
      events[p] = parts_[p].read(boxes[p].bytes);
    }
  }
  // A failed read must not leave others writing into memory that is gone.
  ErrorPtr failure;
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (ErrorPtr error = wanted[p] ? events[p].wait_for_error() : nullptr) {
      failure = failure ? failure : error;
    }
  }
  if (failure) {
    throw Error(*failure);
  }
  HostArray global{dtype_, shape_,
                   std::vector<std::byte>(element_count(shape_) * dtype_bytes(dtype_))};
  std::vector<size_t> first_of(parts_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (!wanted[p]) {
      continue;
    }
    const auto first = static_cast<size_t>(
        std::find(layout_.offsets.begin(), layout_.offsets.end(), layout_.offsets[p]) -
        layout_.offsets.begin());
    if (first == p) {
      paste_box(global, boxes[p], layout_.offsets[p]);
      continue;
    }
    if (const auto place = first_difference(boxes[first], boxes[p])) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("{} differs between cores {} and {} at element [{}]: {} and {}", what,
                              parts_[first].device(), parts_[p].device(),
                              fmt::join(place->index, ","), place->left, place->right));
    }
  }
  return global;
}

HostArray Array::to_host() const { return gather(false, {}); }
HostArray Array::to_host_checked(const std::string& what) const { return gather(true, what); }

const std::string& Executable::name() const { return need_program(state_).program->exe.name; }
const std::vector<ParameterInfo>& Executable::arguments() const {
  return need_program(state_).program->arguments;
}
const std::vector<ParameterInfo>& Executable::results() const {
  return need_program(state_).program->results;
}
uint32_t Executable::partitions() const { return need_program(state_).program->exe.partitions; }
uint64_t Executable::matmul_flops() const { return need_program(state_).program->exe.matmul_flops; }

Array Executable::put(size_t index, const HostView& global) const {
  const LoadedProgram& program = *need_program(state_).program;
  if (index >= program.arguments.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} arguments; there is no argument {}", program.exe.name,
                            program.arguments.size(), index));
  }
  const ParameterInfo& info = program.arguments[index];
  if (global.dtype != info.dtype || global.shape != info.shape) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("argument {} of {} must be {}, not {}", index, program.exe.name,
                    type_text(info.dtype, info.shape), type_text(global.dtype, global.shape)));
  }
  std::vector<int> devices;
  for (const LoadedProgram::Part& part : program.parts) {
    devices.push_back(part.device);
  }
  return place(*state_->board, global, info.layout, devices,
               program.exe.slots[program.exe.args[index]->slot]->bytes,
               fmt::format("argument {} of {}", index, program.exe.name));
}

RunResult Executable::run(const std::vector<Array>& arguments, const RunOptions& options) const {
  const ExecutableState& state = need_program(state_);
  return state.board->launch(state.program, arguments, options);
}

Board Board::open(const OpenOptions& options) { return Board(BoardImpl::open(options)); }

std::vector<DeviceInfo> Board::devices() const { return need(impl_).device_infos(); }
const std::string& Board::name() const { return need(impl_).params().board.name; }
double Board::clock_hz() const {
  return static_cast<double>(need(impl_).params().core.clock_mhz) * 1e6;
}
uint64_t Board::hash() const { return need(impl_).hash(); }

uint64_t Board::peak_flops_per_cycle() const {
  const spec::BoardParams& params = need(impl_).params();
  return static_cast<uint64_t>(2 * params.core.mxus * params.mxu.rows * params.mxu.cols);
}

Executable Board::load(const std::string& path, int device) const {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: cannot be opened", path));
  }
  const std::vector<char> text{std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>()};
  auto program = need(impl_).load(std::as_bytes(std::span(text)), path, device);
  return Executable(std::make_shared<ExecutableState>(ExecutableState{impl_, std::move(program)}));
}

Executable Board::load(std::span<const std::byte> bytes, int device) const {
  auto program = need(impl_).load(bytes, "executable", device);
  return Executable(std::make_shared<ExecutableState>(ExecutableState{impl_, std::move(program)}));
}

Buffer Board::put(int device, const HostView& host) const {
  return need(impl_).upload({device}, host, 0, type_text(host.dtype, host.shape)).front();
}

Buffer Board::zeros(int device, DType dtype, const Shape& shape) const {
  return need(impl_).zeros(device, dtype, shape);
}

Buffer Board::clone(const Buffer& source) const {
  driver::need(source.state());
  return need(impl_).clone(source.state());
}

Array Board::replicate(const HostView& host, int count) const {
  const std::vector<int> ids = first_devices(need(impl_), count);
  Layout layout;
  layout.local = host.shape;
  layout.offsets.assign(ids.size(), Shape(host.shape.size(), 0));
  layout.replicated = true;
  return place(*impl_, host, layout, ids, 0, type_text(host.dtype, host.shape));
}

Array Board::shard(const HostView& host, int count, size_t dim) const {
  const std::vector<int> ids = first_devices(need(impl_), count);
  if (dim >= host.shape.size() || host.shape[dim] % static_cast<int64_t>(ids.size()) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be cut into {} equal parts along dimension {}",
                            type_text(host.dtype, host.shape), ids.size(), dim));
  }
  Layout layout;
  layout.local = host.shape;
  layout.local[dim] /= static_cast<int64_t>(ids.size());
  for (size_t p = 0; p < ids.size(); ++p) {
    Shape offset(host.shape.size(), 0);
    offset[dim] = static_cast<int64_t>(p) * layout.local[dim];
    layout.offsets.push_back(std::move(offset));
  }
  return place(*impl_, host, layout, ids, 0, type_text(host.dtype, host.shape));
}

uint64_t Board::now() const { return need(impl_).now(); }
std::vector<uint64_t> Board::hart_instructions() const { return need(impl_).hart_instructions(); }
std::vector<uint64_t> Board::run_cycles() const { return need(impl_).run_cycles(); }
std::vector<HostWorkTime> Board::profile() const { return need(impl_).profile(); }
BoardCounters Board::counters() const { return need(impl_).counters(); }
void Board::synchronize() const { need(impl_).synchronize(); }
void Board::close(CloseMode mode) const { need(impl_).close(mode); }

}  // namespace tpu::driver
