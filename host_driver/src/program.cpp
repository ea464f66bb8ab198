// Loading core programs.
#include "src/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "src/access.hpp"
#include "src/board/board_impl.hpp"
#include "src/crc32c.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::driver {
namespace {

Error bad_program(const std::string& text) { return Error(ErrorCode::kInvalidArgument, text); }

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

std::shared_ptr<const ProgramInfo> program_info(const exe::ExecutableT& exe) {
  auto info = std::make_shared<ProgramInfo>();
  info->name = exe.name;
  info->partitions = exe.partitions;
  info->cost = program_cost(exe);
  for (const auto& tensor : exe.args) {
    info->arguments.push_back(parameter(*tensor, exe.partitions));
  }
  for (const auto& tensor : exe.results) {
    info->results.push_back(parameter(*tensor, exe.partitions));
  }
  return info;
}

}  // namespace

ProgramCost program_cost(const exe::ExecutableT& exe) {
  ProgramCost cost;
  cost.matmul_flops = exe.matmul_flops;
  cost.vector_ops = exe.vector_ops;
  cost.hbm_read_bytes = exe.hbm_read_bytes;
  cost.hbm_written_bytes = exe.hbm_written_bytes;
  cost.link_bytes = exe.link_bytes;
  cost.estimated_cycles = exe.estimated_cycles;
  cost.code_bytes = exe.image.size();
  cost.vmem_peak_bytes = exe.vmem_peak_bytes;
  for (const auto& slot : exe.slots) {
    switch (slot->kind) {
      case exe::SlotKind::argument:
        cost.argument_bytes += slot->bytes;
        break;
      case exe::SlotKind::result:
        cost.result_bytes += slot->bytes;
        cost.donated_bytes += slot->alias_of >= 0 ? slot->bytes : 0;
        break;
      case exe::SlotKind::constant:
        cost.constant_bytes += slot->bytes;
        break;
      case exe::SlotKind::scratch:
        cost.scratch_bytes += slot->bytes;
        break;
    }
  }
  cost.hbm_bytes = cost.code_bytes + cost.argument_bytes + cost.result_bytes - cost.donated_bytes +
                   cost.constant_bytes + cost.scratch_bytes;
  return cost;
}

LoadedProgram::~LoadedProgram() {
  if (const auto owner = board.lock()) {
    owner->retire(*this);
  }
}

std::shared_ptr<LoadedProgram> ExecutableState::program() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!program_) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("{} was unloaded", info->name));
  }
  return program_;
}

void ExecutableState::unload() {
  std::shared_ptr<LoadedProgram> gone;  // its end takes other locks
  const std::lock_guard<std::mutex> guard(mutex_);
  gone.swap(program_);
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
      set_payload(*command, TPU_OP_UNLOAD_PROGRAM, TPU_TRACK_LAUNCH, unload);
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
    throw bad_program(fmt::format("{}: {}", name, error.what()));
  }
  const exe::ExecutableT& exe = program->exe;
  if (exe.partitions > devices_.size()) {
    throw bad_program(fmt::format("{}: the program needs {} cores, this board has {}", name,
                                  exe.partitions, devices_.size()));
  }
  if (exe.board_hash != hash_) {
    throw bad_program(
        fmt::format("{}: compiled for another board ({}, hash {:016x}; this board is {}, "
                    "hash {:016x}); compile it again with the same board file",
                    name, exe.board_name, exe.board_hash, params_.board.name, hash_));
  }
  const Entry entry(*this);
  check_usable();
  device_at(device);
  program->board = weak_from_this();
  program->info = program_info(exe);
  for (const auto& tensor : exe.args) {
    program->argument_owned.push_back(owned_runs(*tensor));
  }
  for (const auto& tensor : exe.results) {
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
  const ProgramCost& cost = program.info->cost;
  need_room_behind((cost.constant_bytes + cost.scratch_bytes) * program.parts.size(),
                   fmt::format("the constant and scratch memory of {}", exe.name));
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
  set_payload(*command, TPU_OP_LOAD_PROGRAM, TPU_TRACK_LAUNCH, load);
  command->on_ok = [loaded = part.loaded] { *loaded = true; };
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

}  // namespace tpu::driver
