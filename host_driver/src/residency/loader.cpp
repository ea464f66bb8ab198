// Sending programs, their constants and ids.
#include "src/residency/loader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tpu::driver {
namespace {

Error bad_program(const std::string& text) { return Error(ErrorCode::kInvalidArgument, text); }

}  // namespace

// The code of a retired program may be overwritten from now on: launches that use it are over,
// since they hold the residence. A core whose load failed answers UNLOAD with NO_PROGRAM, which
// does no harm.
void Loader::collect_retired() {
  while (const auto next = ids_->next_retired()) {
    if (next->sent) {
      auto command = std::make_shared<Command>();
      command->device = next->device;
      tpu_command_unload_t unload{};
      unload.program_id = next->id;
      set_payload(*command, TPU_OP_UNLOAD_PROGRAM, TPU_TRACK_LAUNCH, unload);
      const Operations::Submission unload_op(operations_,
                                             fmt::format("unloading program {}", next->id));
      operations_.add(unload_op.op(), command);
    }
    ids_->give_back(next->device, next->id);
  }
}

std::vector<int> Loader::place_of(const exe::ExecutableT& exe, const std::string& name,
                                  const std::vector<int>& wanted) {
  const std::vector<uint16_t> cores = exe::cores_of(exe);
  std::vector<int> compiled_for(cores.begin(), cores.end());
  if (compiled_for.empty()) {
    compiled_for.resize(exe.partitions);
    std::iota(compiled_for.begin(), compiled_for.end(), 0);
  }
  for (const int device : compiled_for) {
    devices_.at(device);
  }
  if (wanted.empty()) {
    return compiled_for;
  }
  if (wanted.size() != exe.partitions) {
    throw bad_program(
        fmt::format("{}: the program runs on {} cores: expected one device for each, found {}",
                    name, exe.partitions, wanted.size()));
  }
  for (const int device : wanted) {
    devices_.at(device);
  }
  // The cores of a gang know each other by their numbers.
  if (exe.partitions > 1 && wanted != compiled_for) {
    throw bad_program(fmt::format("{}: compiled for the cores [{}], not for [{}]", name,
                                  fmt::join(compiled_for, ","), fmt::join(wanted, ",")));
  }
  return wanted;
}

void Loader::set_board(const std::string& name, uint64_t hash,
                       const std::vector<std::string>& overrides) {
  board_name_ = name;
  board_hash_ = hash;
  overrides_ = overrides;
  ids_ = std::make_shared<ProgramIds>(devices_.size());
}

std::string Loader::advice_for(const std::string& program_board) const {
  const std::string own = fmt::format("{}", fmt::join(overrides_, ", "));
  if (program_board != board_name_) {
    return "compile it again with the same board file" +
           (own.empty() ? "" : " and OpenOptions::overrides " + own);
  }
  return own.empty() ? "compile it again for this board, or use the OpenOptions::overrides that it "
                       "was compiled with"
                     : "this one has OpenOptions::overrides " + own +
                           ": compile it again with the same, or use those that it was compiled "
                           "with";
}

std::shared_ptr<LoadedProgram> Loader::make(std::shared_ptr<const exe::ExecutableT> executable,
                                            const std::string& file,
                                            const std::vector<int>& devices) {
  const std::string name = file.empty() ? "executable" : file;
  const exe::ExecutableT& exe = *executable;
  if (exe.partitions > devices_.size()) {
    throw bad_program(fmt::format("{}: the program needs {} cores, this board has {}", name,
                                  exe.partitions, devices_.size()));
  }
  if (exe.board_hash != board_hash_) {
    throw bad_program(
        fmt::format("{}: compiled for another board ({}, hash {:016x}; this board is {}, "
                    "hash {:016x}); {}",
                    name, exe.board_name, exe.board_hash, board_name_, board_hash_,
                    advice_for(exe.board_name)));
  }
  std::vector<int> place = place_of(exe, name, devices);
  return std::make_shared<LoadedProgram>(std::move(executable), std::move(place), file);
}

void Loader::load(const std::shared_ptr<LoadedProgram>& program, bool wait) {
  programs_.add(program);  // a core that dies on the way loads it again
  const auto residence = make_resident(*program);
  if (wait) {
    await_load(*residence);
  }
}

void Loader::await_load(const Residence& residence) {
  ErrorPtr failure;
  for (const Residence::Part& part : residence.parts) {
    while (part.ready->open() && !health_.broken()) {
      pump_();
    }
    failure = failure ? failure : part.ready->error;
  }
  if (failure) {
    throw Error(*failure);
  }
}

std::shared_ptr<Residence> Loader::make_resident(LoadedProgram& program) {
  programs_.use(program);
  const auto failed = [](const Residence::Part& part) { return part.ready->failed(); };
  if (program.residence &&
      std::none_of(program.residence->parts.begin(), program.residence->parts.end(), failed)) {
    return program.residence;
  }
  program.residence.reset();
  collect_retired();
  auto residence = std::make_shared<Residence>();
  residence->ids = ids_;
  residence->parts.resize(program.info->devices.size());
  for (size_t p = 0; p < residence->parts.size(); ++p) {
    residence->parts[p].device = program.info->devices[p];
  }
  take_memory(program, *residence);
  take_ids(*residence);  // nothing is sent before all of it is there
  const auto image = staged_image(program.exe);
  for (Residence::Part& part : residence->parts) {
    const Operations::Submission load_op(operations_, fmt::format("loading {}", program.exe.name));
    part.ready = load_op.op()->event;
    send_program(program, part, image, load_op.op());
    send_constants(program, part, load_op.op());
  }
  health_.check_unbroken();
  program.residence = residence;
  return residence;
}

void Loader::take_memory(const LoadedProgram& program, Residence& residence) {
  const exe::ExecutableT& exe = program.exe;
  const ProgramCost& cost = program.info->cost;
  memory_.need_room((cost.constant_bytes + cost.scratch_bytes) * residence.parts.size(),
                    fmt::format("the constant and scratch memory of {}", exe.name));
  for (Residence::Part& part : residence.parts) {
    part.code =
        memory_.allocate(part.device, exe.image.size(), fmt::format("code of {}", exe.name));
    part.slots.resize(exe.slots.size());
    for (size_t s = 0; s < exe.slots.size(); ++s) {
      const exe::SlotT& slot = *exe.slots[s];
      if (slot.kind == exe::SlotKind::constant || slot.kind == exe::SlotKind::scratch) {
        part.slots[s] = memory_.allocate(
            part.device, slot.bytes,
            fmt::format("{} {} of {}", exe::EnumNameSlotKind(slot.kind), slot.index, exe.name));
      }
    }
  }
}

void Loader::take_ids(Residence& residence) {
  for (Residence::Part& part : residence.parts) {
    const Device& device = devices_[part.device];
    std::optional<uint16_t> id;
    while (!(id = ids_->take(part.device))) {
      if (programs_.evict(part.device)) {
        collect_retired();
        continue;
      }
      order_.send_waiting();  // what has become free keeps its id no longer than it runs
      health_.check_unbroken();
      if (device.ring.open() == 0) {
        throw Error(ErrorCode::kResourceExhausted,
                    fmt::format("all {} program ids of the core are used by launches that wait for "
                                "their inputs; complete these inputs first",
                                TPU_MAX_PROGRAMS),
                    {.device = part.device, .op = {}, .source = {}});
      }
      pump_();
      collect_retired();
    }
    part.id = *id;
    part.has_id = true;
  }
}

// All cores read it there.
std::shared_ptr<StagingRange> Loader::staged_image(const exe::ExecutableT& exe) {
  auto image = memory_.stage_now(exe.image.size());
  std::memcpy(image->bytes().data(), exe.image.data(), exe.image.size());
  return image;
}

// LOAD_PROGRAM to one core. The image is one transfer, since its CRC is that of all of it.
void Loader::send_program(const LoadedProgram& program, Residence::Part& part,
                          const std::shared_ptr<StagingRange>& image,
                          const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
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
  operations_.add(op, command);
}

// Constants of one core.
void Loader::send_constants(const LoadedProgram& program, const Residence::Part& part,
                            const std::shared_ptr<Operation>& op) {
  const exe::ExecutableT& exe = program.exe;
  for (size_t s = 0; s < exe.slots.size(); ++s) {
    if (exe.slots[s]->kind == exe::SlotKind::constant) {
      const auto& data = exe.constants[exe.slots[s]->index]->data;
      const auto source = [&](uint64_t at, std::span<std::byte> piece) {
        std::memcpy(piece.data(), data.data() + at, piece.size());
      };
      transfers_.send_up({op}, {part.slots[s]}, data.size(), false, source);
    }
  }
}

void Loader::load_again(const std::vector<int>& devices) {
  for (const auto& program : programs_.live()) {
    if (!program->residence) {
      continue;
    }
    std::shared_ptr<StagingRange> image;
    for (Residence::Part& part : program->residence->parts) {
      // What the core has not loaded yet is sent again as all that was lost.
      if (!*part.loaded ||
          std::find(devices.begin(), devices.end(), part.device) == devices.end()) {
        continue;
      }
      const Operations::Submission load_op(operations_,
                                           fmt::format("loading {} again", program->exe.name));
      image = image != nullptr ? image : staged_image(program->exe);
      send_program(*program, part, image, load_op.op());
    }
  }
}

}  // namespace tpu::driver
