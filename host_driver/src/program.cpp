// Loading and launching core programs.
#include "src/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "src/board_impl.hpp"
#include "src/crc32c.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::driver {
namespace {

Error invalid(const std::string& text) { return Error(ErrorCode::kInvalidArgument, text); }

ParameterInfo parameter(const exe::TensorT& tensor, uint32_t partitions) {
  ParameterInfo info;
  info.name = tensor.name;
  info.dtype = static_cast<DType>(tensor.elem);
  info.shape = tensor.global_dims;
  info.layout.local = tensor.local_dims;
  info.layout.replicated = tensor.replicated;
  const size_t rank = tensor.local_dims.size();
  for (size_t p = 0; p < partitions; ++p) {
    const auto first = tensor.offsets.begin() + static_cast<ptrdiff_t>(p * rank);
    info.layout.offsets.emplace_back(first, first + static_cast<ptrdiff_t>(rank));
  }
  info.donated_to = tensor.donated_to;
  return info;
}

OwnedRuns owned_runs(const exe::TensorT& tensor) {
  if (tensor.owned_elements.empty()) {
    return nullptr;
  }
  std::vector<OwnedRun> runs;
  for (size_t i = 0; i < tensor.owned_elements.size(); ++i) {
    runs.push_back({tensor.owned_elements[i], tensor.owned_by.at(i)});
  }
  return std::make_shared<const std::vector<OwnedRun>>(std::move(runs));
}

std::string argument_text(size_t index, const ParameterInfo& info) {
  return info.name.empty() ? fmt::format("argument {}", index)
                           : fmt::format("argument {} ({})", index, info.name);
}

}  // namespace

LoadedProgram::~LoadedProgram() {
  if (const auto owner = board.lock()) {
    owner->retire(*this);
  }
}

void BoardImpl::retire(const LoadedProgram& program) {
  const std::lock_guard<std::mutex> guard(retired_mutex_);
  for (const LoadedProgram::Part& part : program.parts) {
    if (part.has_id) {
      retired_.push_back({part.device, part.id, part.sent});
    }
  }
}

// The code of a retired program may be overwritten from now on: launches that use it are over,
// since they hold the program. A core whose load failed answers UNLOAD with NO_PROGRAM, which does
// no harm.
void BoardImpl::collect_retired() {
  for (;;) {
    RetiredId next;
    {
      const std::lock_guard<std::mutex> guard(retired_mutex_);
      if (retired_.empty()) {
        break;
      }
      next = retired_.front();
    }
    if (next.sent) {
      auto command = std::make_shared<Command>();
      command->device = next.device;
      tpu_command_unload_t unload{};
      unload.program_id = next.id;
      set_payload(*command, TPU_OP_UNLOAD_PROGRAM, TPU_LANE_LAUNCH, unload);
      const Submission unload_op(*this, fmt::format("unloading program {}", next.id));
      add(unload_op.op(), command);
    }
    devices_[static_cast<size_t>(next.device)].program_used[next.id] = false;
    const std::lock_guard<std::mutex> guard(retired_mutex_);
    retired_.pop_front();
  }
  std::erase_if(programs_, [](const auto& weak) { return weak.expired(); });
}

std::shared_ptr<LoadedProgram> BoardImpl::load(std::span<const std::byte> bytes,
                                               const std::string& name, int device) {
  auto program = std::make_shared<LoadedProgram>();
  try {
    program->exe = exe::read_executable(bytes);
  } catch (const exe::ExecutableError& error) {
    throw invalid(fmt::format("{}: {}", name, error.what()));
  }
  const exe::ExecutableT& exe = program->exe;
  if (exe.partitions > devices_.size()) {
    throw invalid(fmt::format("{}: the program needs {} cores, this board has {}", name,
                              exe.partitions, devices_.size()));
  }
  if (exe.board_hash != hash_) {
    throw invalid(
        fmt::format("{}: compiled for another board ({}, hash {:016x}; this board is {}, "
                    "hash {:016x}); compile it again with the same board file",
                    name, exe.board_name, exe.board_hash, params_.board.name, hash_));
  }
  const Entry entry(*this);
  check_usable();
  device_at(device);
  program->board = weak_from_this();
  for (const auto& tensor : exe.args) {
    program->arguments.push_back(parameter(*tensor, exe.partitions));
    program->argument_owned.push_back(owned_runs(*tensor));
  }
  for (const auto& tensor : exe.results) {
    program->results.push_back(parameter(*tensor, exe.partitions));
    program->result_owned.push_back(owned_runs(*tensor));
  }
  for (uint32_t p = 0; p < exe.partitions; ++p) {
    LoadedProgram::Part part;
    part.device = exe.partitions == 1 ? device : static_cast<int>(p);
    program->parts.push_back(std::move(part));
  }
  collect_retired();
  programs_.push_back(program);  // a core that dies on the way loads it again
  place_program(*program);
  return program;
}

void BoardImpl::place_program(LoadedProgram& program) {
  const exe::ExecutableT& exe = program.exe;
  for (LoadedProgram::Part& part : program.parts) {
    part.code = allocate(part.device, exe.image.size(), fmt::format("code of {}", exe.name));
    part.slots.resize(exe.slots.size());
    for (size_t s = 0; s < exe.slots.size(); ++s) {
      const exe::SlotT& slot = *exe.slots[s];
      if (slot.kind == exe::SlotKind::constant || slot.kind == exe::SlotKind::scratch) {
        part.slots[s] = allocate(
            part.device, slot.bytes,
            fmt::format("{} {} of {}", exe::EnumNameSlotKind(slot.kind), slot.index, exe.name));
      }
    }
  }
  // Nothing is sent before all memory is there. Ids and memory of a load that fails come back with
  // the program.
  take_ids(program);
  std::deque<Submission> ops;
  for (size_t p = 0; p < program.parts.size(); ++p) {
    const auto& op = ops.emplace_back(*this, fmt::format("loading {}", exe.name)).op();
    send_program(program, p, op);
    send_constants(program, p, op);
  }
  std::vector<std::shared_ptr<EventState>> events;
  for (const Submission& each : ops) {
    events.push_back(each.op()->event);
  }
  ops.clear();  // sealed
  ErrorPtr failure;
  for (const auto& event : events) {
    while (!event->done.load() && !broken_) {
      pump();
    }
    failure = failure ? failure : event->error;
  }
  if (failure) {
    throw Error(*failure);
  }
  for (const auto& constant : program.exe.constants) {
    std::vector<uint8_t>().swap(constant->data);
  }
}

void BoardImpl::take_ids(LoadedProgram& program) {
  for (LoadedProgram::Part& part : program.parts) {
    auto& used = devices_[static_cast<size_t>(part.device)].program_used;
    const auto free = std::find(used.begin(), used.end(), false);
    if (free == used.end()) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("all {} program ids are taken; drop executables that are not needed",
                              used.size()),
                  {.device = part.device, .op = {}, .source = {}});
    }
    part.id = static_cast<uint16_t>(free - used.begin());
    part.has_id = true;
    *free = true;
  }
}

// LOAD_PROGRAM to one core. The image is one transfer, since its CRC is that of all of it.
void BoardImpl::send_program(LoadedProgram& program, size_t partition,
                             const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
  LoadedProgram::Part& part = program.parts[partition];
  const auto image = stage_now(exe.image.size());
  std::memcpy(image->bytes().data(), exe.image.data(), exe.image.size());
  auto command = std::make_shared<Command>();
  command->device = part.device;
  command->writes = {part.code};
  command->keep = {image};
  tpu_command_load_t load{};
  load.image_iova = image->iova();
  load.hbm_dst = part.code->address();
  load.bytes = exe.image.size();
  load.image_crc = crc32c(image->bytes());
  load.program_id = part.id;
  load.isa_version = exe.isa_version;
  set_payload(*command, TPU_OP_LOAD_PROGRAM, TPU_LANE_LAUNCH, load);
  command->good = [loaded = part.loaded] { *loaded = true; };
  part.sent = true;
  add(op, command);
}

// Constants of one core.
void BoardImpl::send_constants(const LoadedProgram& program, size_t partition,
                               const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
  const LoadedProgram::Part& part = program.parts[partition];
  for (size_t s = 0; s < exe.slots.size(); ++s) {
    if (exe.slots[s]->kind == exe::SlotKind::constant) {
      const auto& data = exe.constants[exe.slots[s]->index]->data;
      send_up({op}, {part.slots[s]}, data.size(), [&](uint64_t at, std::span<std::byte> piece) {
        std::memcpy(piece.data(), data.data() + at, piece.size());
      });
    }
  }
}

namespace {

// Everything that can be wrong with the arguments of a launch, before anything is sent.
void check_arguments(const BoardImpl& board, const LoadedProgram& program,
                     const std::vector<Array>& arguments, const RunOptions& options) {
  const exe::ExecutableT& exe = program.exe;
  if (arguments.size() != program.arguments.size()) {
    throw invalid(fmt::format("{} takes {} arguments, {} were given", exe.name,
                              program.arguments.size(), arguments.size()));
  }
  if (options.steps == 0) {
    throw invalid("a launch has at least one step");
  }
  const bool donates = std::any_of(program.arguments.begin(), program.arguments.end(),
                                   [](const ParameterInfo& info) { return info.donated_to >= 0; });
  if (options.steps > 1 && !donates) {
    throw invalid(fmt::format("{} donates no argument, so {} steps would all compute the same",
                              exe.name, options.steps));
  }
  std::set<const BufferState*> donated;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ParameterInfo& info = program.arguments[i];
    const Array& array = arguments[i];
    const std::string what = argument_text(i, info);
    if (!array.valid()) {
      throw invalid(fmt::format("{} is empty", what));
    }
    if (array.dtype() != info.dtype || array.shape() != info.shape) {
      throw invalid(fmt::format("{} must be {}, not {}", what, type_text(info.dtype, info.shape),
                                type_text(array.dtype(), array.shape())));
    }
    if (array.parts().size() != program.parts.size() || array.layout().local != info.layout.local ||
        array.layout().offsets != info.layout.offsets) {
      throw invalid(
          fmt::format("{} does not lie on the cores as the program wants it; use "
                      "Executable::put()",
                      what));
    }
    for (size_t p = 0; p < array.parts().size(); ++p) {
      if (!array.parts()[p].valid()) {
        throw invalid(fmt::format("part {} of {} is empty", p, what));
      }
      const BufferState& buffer = *array.parts()[p].state();
      if (buffer.board.get() != &board) {
        throw invalid(fmt::format("{} belongs to another board than the program", what));
      }
      if (buffer.device != program.parts[p].device) {
        throw invalid(fmt::format("part {} of {} lies on TPU:{}, the program runs on TPU:{}", p,
                                  what, buffer.device, program.parts[p].device));
      }
      if (!buffer.live) {
        throw Error(ErrorCode::kFailedPrecondition, fmt::format("{} was donated or deleted", what));
      }
      if (buffer.memory->capacity() < exe.slots[exe.args[i]->slot]->bytes) {
        throw invalid(fmt::format("{} has less memory than its slot; use Executable::put()", what));
      }
      if (info.donated_to >= 0) {
        donated.insert(&buffer);
      }
    }
  }
  std::set<const BufferState*> seen;
  for (const Array& array : arguments) {
    for (const Buffer& part : array.parts()) {
      if (!seen.insert(part.state().get()).second && donated.contains(part.state().get())) {
        throw invalid("a buffer is donated and used for a second argument of the same launch");
      }
    }
  }
}

}  // namespace

// State of a sharded update that this program wants otherwise: put together and sent to all cores.
void BoardImpl::gather_foreign(const LoadedProgram& program, std::vector<Array>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Array old = arguments[i];
    const OwnedRuns& has = old.parts().at(0).state()->owned;
    const OwnedRuns& wants = program.argument_owned[i];
    if (has == nullptr || (wants != nullptr && (wants == has || *wants == *has))) {
      continue;
    }
    std::vector<int> devices;
    for (const LoadedProgram::Part& part : program.parts) {
      devices.push_back(part.device);
    }
    const HostArray host = old.to_host();
    const Box whole(host.dtype, host.shape, Shape(host.shape.size(), 0), host.shape);
    arguments[i] = Array(old.dtype(), old.shape(), old.layout(),
                         upload(devices, host, whole, host.shape,
                                program.exe.slots[program.exe.args[i]->slot]->bytes,
                                argument_text(i, program.arguments[i])));
  }
}

void BoardImpl::give_launch_id(Operation& op) {
  launch_count_ += launch_count_ == UINT32_MAX ? 2 : 1;  // never 0
  op.launch_id = launch_count_;
  for (const auto& command : op.commands) {
    tpu_command_launch_t wire;
    std::memcpy(&wire, command->wire.data(), sizeof(wire));
    wire.launch_id = op.launch_id;
    std::memcpy(command->wire.data(), &wire, sizeof(wire));
  }
}

// Donated buffers are given up only when all that can be refused is behind.
void BoardImpl::submit_launch(const std::shared_ptr<Operation>& op,
                              const std::vector<std::shared_ptr<BufferState>>& donated) {
  // The id is given when no more waiting can happen but for room in the rings, which keeps the
  // order.
  give_launch_id(*op);
  op->give_back = [back = std::vector<std::weak_ptr<BufferState>>(donated.begin(), donated.end())] {
    for (const auto& weak : back) {
      if (const auto buffer = weak.lock()) {
        buffer->live = true;
      }
    }
  };
  for (const auto& buffer : donated) {
    buffer->live = false;
  }
  try {
    submit_gang(op);
  } catch (...) {
    finish(*op, given_up());
    throw;
  }
}

// State that lies otherwise is gathered, and what the caller keeps is copied.
std::vector<Array> BoardImpl::prepare_arguments(const LoadedProgram& program,
                                                std::vector<Array> arguments,
                                                const std::vector<size_t>& kept) {
  gather_foreign(program, arguments);
  for (const size_t keep : kept) {
    if (keep >= arguments.size()) {
      throw invalid(fmt::format("cannot keep argument {}: there are {}", keep, arguments.size()));
    }
    if (program.arguments[keep].donated_to >= 0) {
      std::vector<Buffer> copies;
      for (const Buffer& part : arguments[keep].parts()) {
        copies.push_back(clone(part.state()));
      }
      const Array& old = arguments[keep];
      arguments[keep] = Array(old.dtype(), old.shape(), old.layout(), std::move(copies));
    }
  }
  return arguments;
}

// Memory of the slots of partition `p`: what is bound, and new memory of results, whose buffers are
// added to `outputs`.
std::vector<std::shared_ptr<Allocation>> BoardImpl::bind_slots(
    const Operation& op, size_t p, const std::vector<Array>& arguments,
    std::vector<std::vector<Buffer>>& outputs) {
  const LoadedProgram& program = *op.program;
  const exe::ExecutableT& exe = program.exe;
  const LoadedProgram::Part& part = program.parts[p];
  std::vector<std::shared_ptr<Allocation>> slots = part.slots;
  for (size_t i = 0; i < arguments.size(); ++i) {
    slots[exe.args[i]->slot] = arguments[i].parts()[p].state()->memory;
  }
  for (size_t r = 0; r < exe.results.size(); ++r) {
    const uint32_t s = exe.results[r]->slot;
    const exe::SlotT& slot = *exe.slots[s];
    slots[s] = slot.alias_of >= 0
                   ? slots[static_cast<size_t>(slot.alias_of)]
                   : allocate(part.device, slot.bytes, fmt::format("result {} of {}", r, exe.name));
    auto state = make_buffer(part.device, program.results[r].dtype, program.results[r].layout.local,
                             slots[s], op.event);
    state->owned = program.result_owned[r];
    outputs[r].emplace_back(std::move(state));
  }
  return slots;
}

// The LAUNCH command of one core, with its slot table staged.
std::shared_ptr<Command> BoardImpl::launch_command(
    const LoadedProgram& program, size_t p, uint32_t steps,
    const std::vector<std::shared_ptr<Allocation>>& slots) {
  const exe::ExecutableT& exe = program.exe;
  const LoadedProgram::Part& part = program.parts[p];
  auto command = std::make_shared<Command>();
  command->device = part.device;
  command->reads = {part.code};
  const auto staged = stage(std::max<size_t>(1, slots.size()) * sizeof(tpu_slot_entry_t));
  const auto table = staged->bytes().first(slots.size() * sizeof(tpu_slot_entry_t));
  for (size_t s = 0; s < slots.size(); ++s) {
    tpu_slot_entry_t row{};
    row.mode = slots[s] ? TPU_SLOT_FIXED : TPU_SLOT_NULL;
    row.base = slots[s] ? slots[s]->address() : 0;
    row.size = slots[s] ? exe.slots[s]->bytes : 0;
    std::memcpy(table.data() + s * sizeof(row), &row, sizeof(row));
    const exe::SlotKind kind = exe.slots[s]->kind;
    if (slots[s]) {
      const bool written = kind == exe::SlotKind::result || kind == exe::SlotKind::scratch;
      (written ? command->writes : command->reads).push_back(slots[s]);
    }
  }
  command->keep = {staged};
  tpu_command_launch_t wire{};
  wire.table_iova = staged->iova();
  wire.program_id = part.id;
  wire.slots = static_cast<uint16_t>(slots.size());
  wire.steps = steps;
  for (const LoadedProgram::Part& each : program.parts) {
    wire.core_mask = static_cast<uint8_t>(wire.core_mask | 1u << each.device);
  }
  wire.replica = static_cast<uint8_t>(p);
  wire.table_crc = crc32c(table);
  set_payload(*command, TPU_OP_LAUNCH, TPU_LANE_LAUNCH, wire);
  return command;
}

RunResult BoardImpl::launch(const std::shared_ptr<LoadedProgram>& program,
                            const std::vector<Array>& given, const RunOptions& options) {
  const exe::ExecutableT& exe = program->exe;
  check_arguments(*this, *program, given, options);
  const std::vector<Array> arguments = prepare_arguments(*program, given, options.keep);
  const std::set<size_t> kept(options.keep.begin(), options.keep.end());

  const Entry entry(*this);
  check_usable();
  // Another thread may have donated in between.
  check_arguments(*this, *program, arguments, options);
  const auto op = begin(fmt::format("launch of {}", exe.name));
  op->program = program;
  std::vector<std::vector<Buffer>> outputs(exe.results.size());
  std::vector<std::shared_ptr<BufferState>> donated;
  for (size_t p = 0; p < program->parts.size(); ++p) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto& buffer = arguments[i].parts()[p].state();
      op->inputs.push_back(buffer->ready);
      if (program->arguments[i].donated_to >= 0) {
        donated.push_back(buffer);
        const auto& original = given[i].parts()[p].state();
        if (original != buffer && !kept.contains(i)) {
          donated.push_back(original);  // gathered into another one
        }
      }
    }
    op->commands.push_back(
        launch_command(*program, p, options.steps, bind_slots(*op, p, arguments, outputs)));
  }
  RunResult result;
  for (size_t r = 0; r < outputs.size(); ++r) {
    const ParameterInfo& info = program->results[r];
    result.outputs.emplace_back(info.dtype, info.shape, info.layout, std::move(outputs[r]));
  }
  result.done = Event(op->event);
  submit_launch(op, donated);  // the last thing that can fail
  return result;
}

}  // namespace tpu::driver
