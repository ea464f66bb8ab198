// Loading core programs.
#include "src/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "file/crc32c.hpp"
#include "src/access.hpp"
#include "src/board/board_impl.hpp"
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
  info.layout.terms.assign(tensor.terms.begin(), tensor.terms.end());
  info.donated_to = tensor.donated_to;
  return info;
}

HostCallInfo host_call(const exe::HostCallT& call, const exe::ExecutableT& exe) {
  const exe::OpInfoT& op = *exe.ops[call.op];
  HostCallInfo info;
  info.channel = call.channel;
  info.to_host = call.to_host;
  info.partition = call.partition;
  info.dtype = static_cast<DType>(call.elem);
  info.shape = call.dims;
  info.op = op.name;
  info.source = op.file.empty() ? std::string() : fmt::format("{}:{}", op.file, op.line);
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

std::shared_ptr<const ProgramInfo> program_info(const exe::ExecutableT& exe,
                                                std::vector<int> devices) {
  auto info = std::make_shared<ProgramInfo>();
  info->name = exe.name;
  info->devices = std::move(devices);
  info->cost = program_cost(exe);
  for (const auto& tensor : exe.args) {
    info->arguments.push_back(parameter(*tensor, exe.partitions));
  }
  for (const auto& tensor : exe.results) {
    info->results.push_back(parameter(*tensor, exe.partitions));
  }
  for (const auto& call : exe.host_calls) {
    info->host_calls.push_back(host_call(*call, exe));
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
        break;  // below, with those in the slots of donated arguments
      case exe::SlotKind::constant:
        cost.constant_bytes += slot->bytes;
        break;
      case exe::SlotKind::scratch:
        cost.scratch_bytes += slot->bytes;
        break;
    }
  }
  for (const auto& result : exe.results) {
    const exe::SlotT& slot = *exe.slots[result->slot];
    cost.result_bytes += slot.bytes;
    cost.donated_bytes += slot.kind == exe::SlotKind::argument ? slot.bytes : 0;
  }
  cost.hbm_bytes = cost.code_bytes + cost.argument_bytes + cost.result_bytes - cost.donated_bytes +
                   cost.constant_bytes + cost.scratch_bytes;
  return cost;
}

Residence::~Residence() {
  if (const auto owner = board.lock()) {
    owner->retire(*this);
  }
}

LoadedProgram::LoadedProgram(std::shared_ptr<const exe::ExecutableT> from, std::vector<int> on)
    : owner(std::move(from)),
      exe(*owner),
      image_crc(spec::crc32c(std::as_bytes(std::span(exe.image)))),
      info(program_info(exe, std::move(on))) {
  for (const auto& tensor : exe.args) {
    argument_owned.push_back(owned_runs(*tensor));
  }
  for (const auto& tensor : exe.results) {
    result_owned.push_back(owned_runs(*tensor));
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

void BoardImpl::retire(const Residence& residence) {
  const std::lock_guard<std::mutex> guard(retired_mutex_);
  for (const Residence::Part& part : residence.parts) {
    if (part.has_id) {
      retired_.push_back({part.device, part.id, part.sent});
    }
  }
}

// The code of a retired program may be overwritten from now on: launches that use it are over,
// since they hold the residence. A core whose load failed answers UNLOAD with NO_PROGRAM, which
// does no harm.
void BoardImpl::collect_retired() {
  for (;;) {
    RetiredId next;
    {
      const std::lock_guard<std::mutex> guard(retired_mutex_);
      if (retired_.empty()) {
        break;
      }
      next = retired_.front();
      retired_.pop_front();
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
  }
  std::erase_if(programs_, [](const auto& weak) { return weak.expired(); });
}

// The cores of the program, in the order of its partitions: those that were asked for, when it can
// run there.
std::vector<int> BoardImpl::place_of(const exe::ExecutableT& exe, const std::string& name,
                                     const std::vector<int>& wanted) {
  std::vector<int> compiled_for(exe.cores.begin(), exe.cores.end());
  if (compiled_for.empty()) {
    compiled_for.resize(exe.partitions);
    std::iota(compiled_for.begin(), compiled_for.end(), 0);
  }
  for (const int device : compiled_for) {
    device_at(device);
  }
  if (wanted.empty()) {
    return compiled_for;
  }
  if (wanted.size() != exe.partitions) {
    throw bad_program(fmt::format("{}: the program runs on {} cores, {} devices were given", name,
                                  exe.partitions, wanted.size()));
  }
  for (const int device : wanted) {
    device_at(device);
  }
  // The cores of a gang know each other by their numbers.
  if (exe.partitions > 1 && wanted != compiled_for) {
    throw bad_program(fmt::format("{}: compiled for the cores [{}], not for [{}]", name,
                                  fmt::join(compiled_for, ","), fmt::join(wanted, ",")));
  }
  return wanted;
}

std::shared_ptr<LoadedProgram> BoardImpl::load(std::shared_ptr<const exe::ExecutableT> executable,
                                               const std::string& name,
                                               const std::vector<int>& devices, bool wait) {
  const exe::ExecutableT& exe = *executable;
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
  auto program =
      std::make_shared<LoadedProgram>(std::move(executable), place_of(exe, name, devices));
  const Entry entry(*this);
  health_.check_usable();
  programs_.push_back(program);  // a core that dies on the way loads it again
  const auto residence = make_resident(*program);
  if (wait) {
    await_load(*residence);
  }
  return program;
}

void BoardImpl::await_load(const Residence& residence) {
  ErrorPtr failure;
  for (const Residence::Part& part : residence.parts) {
    while (part.ready->open() && !health_.broken()) {
      pump();
    }
    failure = failure ? failure : part.ready->error;
  }
  if (failure) {
    throw Error(*failure);
  }
}

// The program on its cores, for as long as the caller holds the result. What was used longest ago
// makes room. Memory and ids of a load that fails come back with its residence.
std::shared_ptr<Residence> BoardImpl::make_resident(LoadedProgram& program) {
  program.last_use = ++use_count_;
  const auto failed = [](const Residence::Part& part) { return part.ready->failed(); };
  if (program.residence &&
      std::none_of(program.residence->parts.begin(), program.residence->parts.end(), failed)) {
    return program.residence;
  }
  program.residence.reset();
  collect_retired();
  auto residence = std::make_shared<Residence>();
  residence->board = weak_from_this();
  residence->parts.resize(program.info->devices.size());
  for (size_t p = 0; p < residence->parts.size(); ++p) {
    residence->parts[p].device = program.info->devices[p];
  }
  take_memory(program, *residence);
  take_ids(*residence);  // nothing is sent before all of it is there
  for (Residence::Part& part : residence->parts) {
    const Submission load_op(*this, fmt::format("loading {}", program.exe.name));
    part.ready = load_op.op()->event;
    send_program(program, part, load_op.op());
    send_constants(program, part, load_op.op());
  }
  health_.check_unbroken();
  program.residence = residence;
  return residence;
}

void BoardImpl::take_memory(const LoadedProgram& program, Residence& residence) {
  const exe::ExecutableT& exe = program.exe;
  const ProgramCost& cost = program.info->cost;
  need_room_behind((cost.constant_bytes + cost.scratch_bytes) * residence.parts.size(),
                   fmt::format("the constant and scratch memory of {}", exe.name));
  for (Residence::Part& part : residence.parts) {
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
}

// Takes the program that was used longest ago off its cores, of those on `device` that no launch
// holds. False: there is none.
bool BoardImpl::evict(int device) {
  std::shared_ptr<LoadedProgram> oldest;
  for (const auto& weak : programs_) {
    const auto program = weak.lock();
    if (!program || program->residence.use_count() != 1) {
      continue;
    }
    const auto& on = program->info->devices;
    if (std::find(on.begin(), on.end(), device) != on.end() &&
        (!oldest || program->last_use < oldest->last_use)) {
      oldest = program;
    }
  }
  if (!oldest) {
    return false;
  }
  oldest->residence.reset();
  return true;
}

void BoardImpl::take_ids(Residence& residence) {
  for (Residence::Part& part : residence.parts) {
    Device& device = devices_[static_cast<size_t>(part.device)];
    auto& used = device.program_used;
    auto free = used.end();
    while ((free = std::find(used.begin(), used.end(), false)) == used.end()) {
      if (evict(part.device)) {
        collect_retired();
        continue;
      }
      send_waiting();  // what has become free keeps its id no longer than it runs
      health_.check_unbroken();
      if (device.ring.open() == 0) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("all {} program ids are taken by launches that have not been sent",
                                used.size()),
                    {.device = part.device, .op = {}, .source = {}});
      }
      pump();
      collect_retired();
    }
    part.id = static_cast<uint16_t>(free - used.begin());
    part.has_id = true;
    *free = true;
  }
}

// LOAD_PROGRAM to one core. The image is one transfer, since its CRC is that of all of it.
void BoardImpl::send_program(const LoadedProgram& program, Residence::Part& part,
                             const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
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
  load.image_crc = program.image_crc;
  load.program_id = part.id;
  load.isa_version = exe.isa_version;
  set_payload(*command, TPU_OP_LOAD_PROGRAM, TPU_TRACK_LAUNCH, load);
  command->on_ok = [loaded = part.loaded] { *loaded = true; };
  part.sent = true;
  add(op, command);
}

// Constants of one core.
void BoardImpl::send_constants(const LoadedProgram& program, const Residence::Part& part,
                               const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
  for (size_t s = 0; s < exe.slots.size(); ++s) {
    if (exe.slots[s]->kind == exe::SlotKind::constant) {
      const auto& data = exe.constants[exe.slots[s]->index]->data;
      const auto source = [&](uint64_t at, std::span<std::byte> piece) {
        std::memcpy(piece.data(), data.data() + at, piece.size());
      };
      send_up({op}, {part.slots[s]}, data.size(), false, source);
    }
  }
}

}  // namespace tpu::driver
