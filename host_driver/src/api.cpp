// The public classes: thin shells over BoardImpl.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "check/host_room.hpp"
#include "file/whole_file.hpp"
#include "src/board/board_impl.hpp"
#include "src/handles/access.hpp"
#include "src/memory/box.hpp"
#include "src/residency/program.hpp"
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
  check_view(host);
  board.memory().need_room(byte_count(host.dtype, layout.local) * devices.size(), label);
  std::vector<Buffer> parts(devices.size());
  for (size_t p = 0; p < devices.size(); ++p) {
    if (parts[p].valid()) {
      continue;
    }
    std::vector<size_t> same;
    std::vector<int> targets;
    if (!layout.terms.empty() && layout.terms[p] != 0) {
      parts[p] = board.memory().zeros(devices[p], host.dtype, layout.local, alloc_bytes);
      continue;
    }
    for (size_t q = p; q < devices.size(); ++q) {
      const bool is_term = !layout.terms.empty() && layout.terms[q] != 0;
      if (layout.offsets[q] == layout.offsets[p] && !is_term) {
        same.push_back(q);
        targets.push_back(devices[q]);
      }
    }
    const Box box(host, layout.offsets[p], layout.local);
    std::vector<Buffer> made =
        board.memory().upload(targets, host, box, layout.local, alloc_bytes, label);
    for (size_t k = 0; k < same.size(); ++k) {
      parts[same[k]] = made[k];
    }
  }
  return Array(host.dtype, host.shape, layout, std::move(parts));
}

const ParameterInfo& argument_of(const LoadedProgram& program, size_t index) {
  const auto& arguments = program.info->arguments;
  if (index >= arguments.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} arguments; there is no argument {}", program.exe.name,
                            arguments.size(), index));
  }
  return arguments[index];
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

std::shared_ptr<const exe::ExecutableT> parse(std::span<const std::byte> bytes,
                                              const std::string& name) {
  try {
    return std::make_shared<exe::ExecutableT>(exe::read_executable(bytes));
  } catch (const exe::ExecutableError& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, error.what()));
  }
}

// `device` is that of a program of one core.
std::vector<int> devices_of(const exe::ExecutableT& executable, int device) {
  return executable.partitions == 1 ? std::vector<int>{device} : std::vector<int>{};
}

}  // namespace

int Buffer::device() const { return need(state_).device; }
DType Buffer::dtype() const { return need(state_).dtype; }
const Shape& Buffer::shape() const { return need(state_).shape; }
uint64_t Buffer::bytes() const { return need(state_).bytes; }
bool Buffer::live() const { return need(state_).live() && !state_->ready->failed(); }

uint64_t Buffer::address() const {
  const auto memory = need(state_).hold();
  if (!memory) {
    throw Error(ErrorCode::kFailedPrecondition, "the buffer was donated or deleted");
  }
  return memory->address();
}

Event Buffer::ready() const {
  need(state_);
  return Access::event(state_->ready);
}

Event Buffer::read(std::span<std::byte> out, const std::vector<Event>& after) const {
  need(state_);
  if (out.size() != state_->bytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the buffer has {} bytes, but the output has {}", state_->bytes, out.size()));
  }
  return read_part(0, out, after);
}

Event Buffer::read_part(uint64_t first, std::span<std::byte> out,
                        const std::vector<Event>& after) const {
  need(state_);
  if (first > state_->bytes || out.size() > state_->bytes - first) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the buffer has {} bytes, {} from {} on were asked for", state_->bytes,
                            out.size(), first));
  }
  const ByteSink sink = [out, first](uint64_t at, std::span<const std::byte> piece) {
    std::memcpy(out.data() + (at - first), piece.data(), piece.size());
  };
  return state_->board->memory().read({{state_, {{first, first + out.size()}}, sink}}, after);
}

HostArray Buffer::to_host() const {
  refuse_in_callback();
  HostArray host = host_array(dtype(), shape());
  const Event done = read(host.bytes);
  const ErrorPtr error = done.wait_for_error();  // `host` must outlive the transfer
  if (error) {
    throw Error(*error);
  }
  return host;
}

void Buffer::discard() const {
  need(state_);
  state_->discard();
}

const std::string& Executable::name() const { return need_program(state_).info->name; }
const std::vector<ParameterInfo>& Executable::arguments() const {
  return need_program(state_).info->arguments;
}
const std::vector<ParameterInfo>& Executable::results() const {
  return need_program(state_).info->results;
}
uint32_t Executable::partitions() const { return static_cast<uint32_t>(devices().size()); }
const std::vector<int>& Executable::devices() const { return need_program(state_).info->devices; }
const ProgramCost& Executable::cost() const { return need_program(state_).info->cost; }
const std::vector<HostCallInfo>& Executable::host_calls() const {
  return need_program(state_).info->host_calls;
}
uint64_t Executable::matmul_flops() const { return cost().matmul_flops; }

Array Executable::put(size_t index, const HostView& global) const {
  const auto loaded = need_program(state_).program();
  const LoadedProgram& program = *loaded;
  const ParameterInfo& info = argument_of(program, index);
  if (global.dtype != info.dtype || global.shape != info.shape) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("argument {} of {} must be {}, not {}", index, program.exe.name,
                    type_text(info.dtype, info.shape), type_text(global.dtype, global.shape)));
  }
  return place(*state_->board, global, info.layout, program.info->devices,
               program.exe.slots[program.exe.args[index]->slot]->bytes,
               fmt::format("argument {} of {}", index, program.exe.name));
}

Array Executable::zeros(size_t index) const {
  const auto loaded = need_program(state_).program();
  const ParameterInfo& info = argument_of(*loaded, index);
  std::vector<Buffer> buffers;
  for (const int device : loaded->info->devices) {
    buffers.push_back(
        state_->board->memory().zeros(device, info.dtype, info.layout.local,
                                      loaded->exe.slots[loaded->exe.args[index]->slot]->bytes));
  }
  return Array(info.dtype, info.shape, info.layout, std::move(buffers));
}

void Executable::unload() const { need_program(state_).unload(); }

RunResult Executable::run(const std::vector<Array>& arguments, const RunOptions& options) const {
  const ExecutableState& state = need_program(state_);
  return state.board->programs().launch(state.program(), arguments, options);
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

Executable ProgramFacet::load(const std::string& path, int device) const {
  refuse_in_callback();
  std::vector<std::byte> bytes;
  try {
    bytes = spec::read_whole_file(path);
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
  auto executable = parse(bytes, path);
  const std::vector<int> devices = devices_of(*executable, device);
  return load(std::move(executable), path, devices, true);
}

Executable ProgramFacet::load(std::span<const std::byte> bytes, int device,
                              const std::string& file) const {
  refuse_in_callback();
  auto executable = parse(bytes, "executable");
  const std::vector<int> devices = devices_of(*executable, device);
  return load(std::move(executable), file, devices, true);
}

Executable ProgramFacet::load(std::span<const std::byte> bytes,
                              const std::vector<int>& devices) const {
  return load(parse(bytes, "executable"), {}, devices, false);
}

Executable ProgramFacet::load(std::shared_ptr<const exe::ExecutableT> executable,
                              const std::vector<int>& devices) const {
  if (executable == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "there is no executable to load");
  }
  return load(std::move(executable), {}, devices, false);
}

Executable ProgramFacet::load(std::shared_ptr<const exe::ExecutableT> executable,
                              const std::string& file, const std::vector<int>& devices,
                              bool wait) const {
  auto program = need(impl_).programs().load(std::move(executable), file, devices, wait);
  return Access::executable(std::make_shared<ExecutableState>(impl_, std::move(program)));
}

Buffer MemoryFacet::put(int device, const HostView& host) const {
  check_view(host);
  const Box whole(host, Shape(host.shape.size(), 0), host.shape);
  const std::string label = type_text(host.dtype, host.shape);
  need(impl_).memory().need_room(whole.bytes(), label);
  return need(impl_).memory().upload({device}, host, whole, host.shape, 0, label).front();
}

Buffer MemoryFacet::put(int device, DType dtype, const Shape& shape,
                        std::shared_ptr<const std::vector<std::byte>> bytes,
                        const std::vector<Event>& after) const {
  if (bytes == nullptr || bytes->size() != byte_count(dtype, shape)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected {} bytes, found {}", type_text(dtype, shape),
                            byte_count(dtype, shape), bytes == nullptr ? 0 : bytes->size()));
  }
  return need(impl_).memory().upload_later(device, dtype, shape, std::move(bytes), after);
}

Buffer MemoryFacet::zeros(int device, DType dtype, const Shape& shape) const {
  return need(impl_).memory().zeros(device, dtype, shape, 0);
}

Buffer MemoryFacet::copy(const Buffer& source, int device, const std::vector<Event>& after) const {
  driver::need(Access::state(source));
  return need(impl_).memory().copy(*Access::state(source), device, after);
}

Buffer MemoryFacet::clone(const Buffer& source) const { return copy(source, source.device()); }

HostEvent Board::make_event() const { return need(impl_).waits().make_host_event(); }

Array MemoryFacet::replicate(const HostView& host, int count) const {
  const std::vector<int> ids = first_devices(need(impl_), count);
  Layout layout;
  layout.local = host.shape;
  layout.offsets.assign(ids.size(), Shape(host.shape.size(), 0));
  layout.replicated = true;
  return place(*impl_, host, layout, ids, 0, type_text(host.dtype, host.shape));
}

Array MemoryFacet::shard(const HostView& host, int count, size_t dim) const {
  const std::vector<int> ids = first_devices(need(impl_), count);
  check_view(host);
  if (dim >= host.shape.size() || host.shape[dim] % static_cast<int64_t>(ids.size()) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be sharded into {} equal parts along dimension {}",
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

uint64_t ProfilingFacet::now() const { return need(impl_).profiling().now(); }
std::vector<uint64_t> ProfilingFacet::hart_instructions() const {
  return need(impl_).profiling().hart_instructions();
}
std::vector<uint64_t> ProfilingFacet::run_cycles() const {
  return need(impl_).profiling().run_cycles();
}
std::vector<HostWorkTime> ProfilingFacet::profile() const {
  return need(impl_).profiling().host_profile();
}
std::vector<ThreadForecast> ProfilingFacet::thread_forecast(const std::vector<int>& threads) const {
  return need(impl_).profiling().thread_forecast(threads);
}

BoardCounters ProfilingFacet::peek() const { return need(impl_).counters().peek(); }

BoardCounters ProfilingFacet::counters() const {
  refuse_in_callback();
  return need(impl_).counters().counters();
}

SimOptions Board::sim() const { return need(impl_).sim().sim(); }
uint32_t DebugFacet::peek_word(int device, const std::string& place) const {
  return need(impl_).debug_port().peek_word(device, place);
}
void DebugFacet::poke_word(int device, const std::string& place, uint32_t value) const {
  need(impl_).debug_port().poke_word(device, place, value);
}
std::string ProfilingFacet::take_xspace() const { return need(impl_).profiling().take_xspace(); }
std::string ProfilingFacet::take_record() const { return need(impl_).profiling().take_record(); }
std::vector<OpTime> ProfilingFacet::op_times() const { return need(impl_).profiling().op_times(); }

void log_commands(const Board& board, const std::optional<spec::MemoryLook>& look) {
  refuse_in_callback();
  need(Access::impl(board)).profiling().log_commands(look);
}

spec::CommandLog take_commands(const Board& board) {
  refuse_in_callback();
  return need(Access::impl(board)).profiling().take_commands();
}

void Board::change_sim(const SimOptions& sim) const {
  refuse_in_callback();
  need(impl_).sim().change_sim(sim);
}

void Board::change_time_limit(std::optional<double> seconds) const {
  refuse_in_callback();
  need(impl_).sim().change_time_limit(seconds);
}

void SnapshotFacet::save_snapshot(const std::string& path, const SnapshotItems& items) const {
  refuse_in_callback();
  need(impl_).snapshots().save(path, items);
}

SnapshotItems SnapshotFacet::take_snapshot_items() const {
  return need(impl_).snapshots().take_items();
}

void Board::synchronize() const {
  refuse_in_callback();
  need(impl_).waits().synchronize(std::nullopt);
}

void Board::synchronize_for(std::chrono::nanoseconds timeout) const {
  refuse_in_callback();
  if (!need(impl_).waits().synchronize(deadline_in(timeout))) {
    throw wait_timeout("the board is not done", timeout);
  }
}

void Board::close(CloseMode mode) const {
  refuse_in_callback();
  need(impl_).close(mode);
}

}  // namespace tpu::driver
