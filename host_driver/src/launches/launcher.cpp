// Arguments, slots, gangs.
#include "src/launches/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "file/crc32c.hpp"
#include "src/handles/access.hpp"

namespace tpu::driver {
namespace {

Error invalid(const std::string& text) { return Error(ErrorCode::kInvalidArgument, text); }

std::string argument_text(size_t index, const ParameterInfo& info) {
  return info.name.empty() ? fmt::format("argument {}", index)
                           : fmt::format("argument {} ({})", index, info.name);
}

// A donated buffer becomes a result: the launch may have it only once. Of a donated argument in
// `kept` a copy becomes the result.
void check_donations(const std::vector<ParameterInfo>& infos, const std::vector<Array>& arguments,
                     const std::vector<size_t>& kept) {
  const auto is_donated = [&](size_t i) {
    return infos[i].donated_to >= 0 && std::find(kept.begin(), kept.end(), i) == kept.end();
  };
  std::map<const BufferState*, size_t> owners;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const Buffer& part : arguments[i].parts()) {
      const auto [owner, is_new] = owners.emplace(Access::state(part).get(), i);
      const size_t first = owner->second;
      if (!is_new && (is_donated(first) || is_donated(i))) {
        const size_t donated = is_donated(first) ? first : i;
        throw invalid(fmt::format(
            "{} and {} are the same buffer, and {} is donated; pass a copy, or do not donate it",
            argument_text(first, infos[first]), argument_text(i, infos[i]),
            argument_text(donated, infos[donated])));
      }
    }
  }
}

// Everything that can be wrong with the options of a launch and the number of its arguments.
void check_options(const LoadedProgram& program, const std::vector<Array>& arguments,
                   const RunOptions& options) {
  if (arguments.size() != program.info->arguments.size()) {
    throw invalid(fmt::format("{} takes {} arguments, {} were given", program.exe.name,
                              program.info->arguments.size(), arguments.size()));
  }
  if (options.steps == 0) {
    throw invalid("RunOptions::steps: expected at least 1, found 0");
  }
  for (const size_t keep : options.keep) {
    if (keep >= arguments.size()) {
      throw invalid(fmt::format("RunOptions::keep: expected arguments below {}, found {}",
                                arguments.size(), keep));
    }
  }
  const bool donates = std::any_of(program.info->arguments.begin(), program.info->arguments.end(),
                                   [](const ParameterInfo& info) { return info.donated_to >= 0; });
  if (options.steps > 1 && !donates && options.infeed.empty() && options.outfeed.empty()) {
    throw invalid(fmt::format("{} donates no argument, so {} steps would all compute the same",
                              program.exe.name, options.steps));
  }
}

std::vector<std::string> result_labels(const exe::ExecutableT& exe) {
  std::vector<std::string> labels;
  for (size_t r = 0; r < exe.results.size(); ++r) {
    labels.push_back(fmt::format("result {} of {}", r, exe.name));
  }
  return labels;
}

// Everything that can be wrong with the arguments of a launch, before anything is sent.
void check_arguments(const BoardHandles& handles, const LoadedProgram& program,
                     const std::vector<Array>& arguments, const RunOptions& options) {
  const exe::ExecutableT& exe = program.exe;
  check_options(program, arguments, options);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ParameterInfo& info = program.info->arguments[i];
    const Array& array = arguments[i];
    const auto what = [&] { return argument_text(i, info); };
    const auto& fed = options.infeed;
    if (std::find(fed.begin(), fed.end(), i) != fed.end()) {
      if (array.valid()) {
        throw invalid(fmt::format(
            "{} is in RunOptions::infeed: its array in the call must be empty", what()));
      }
      continue;
    }
    if (!array.valid()) {
      throw invalid(fmt::format("{} is empty", what()));
    }
    if (array.dtype() != info.dtype || array.shape() != info.shape) {
      throw invalid(fmt::format("{} must be {}, not {}", what(), type_text(info.dtype, info.shape),
                                type_text(array.dtype(), array.shape())));
    }
    if (array.parts().size() != program.info->devices.size() ||
        array.layout().local != info.layout.local ||
        array.layout().offsets != info.layout.offsets ||
        array.layout().terms != info.layout.terms) {
      throw invalid(
          fmt::format("{} is sharded differently than the program expects; use "
                      "Executable::put()",
                      what()));
    }
    for (size_t p = 0; p < array.parts().size(); ++p) {
      if (!array.parts()[p].valid()) {
        throw invalid(fmt::format("part {} of {} is empty", p, what()));
      }
      const BufferState& buffer = *Access::state(array.parts()[p]);
      if (!handles.owns(buffer)) {
        throw invalid(fmt::format("{} belongs to another board than the program", what()));
      }
      if (buffer.device != program.info->devices[p]) {
        throw invalid(
            fmt::format("part {} of {} is on TPU:{}, expected TPU:{}, where the program runs", p,
                        what(), buffer.device, program.info->devices[p]));
      }
      const auto memory = buffer.hold();
      if (!memory) {
        throw Error(ErrorCode::kFailedPrecondition,
                    fmt::format("{} was donated or deleted", what()));
      }
      if (memory->capacity() < exe.slots[exe.args[i]->slot]->bytes) {
        throw invalid(
            fmt::format("{} has less memory than its slot; use Executable::put()", what()));
      }
    }
  }
  check_donations(program.info->arguments, arguments, options.keep);
}

void check_host_calls(const LoadedProgram& program, const RunOptions& options) {
  const auto& calls = program.info->host_calls;
  const auto asked = std::ranges::find_if(calls, [](const auto& call) { return !call.memory; });
  if (asked != calls.end() && !options.on_host_call) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{} calls the host while it runs, but has no host callback: run it from "
                    "JAX, or set RunOptions::on_host_call",
                    program.exe.name),
        {.device = -1, .op = asked->op, .source = asked->source});
  }
}

// Whoever has one buffer of a sharded update's state can get at all of it.
void share_parts(const std::vector<Buffer>& parts) {
  if (Access::state(parts[0])->owned == nullptr) {
    return;
  }
  std::vector<std::shared_ptr<Allocation>> memory;
  for (const Buffer& part : parts) {
    memory.push_back(Access::state(part)->hold());
  }
  const auto all = std::make_shared<const std::vector<std::shared_ptr<Allocation>>>(memory);
  for (const Buffer& part : parts) {
    Access::state(part)->share(all);
  }
}

// The results of a launch, by result and part; those that are fed are empty.
std::vector<Array> arrays_of(const ProgramInfo& info, std::vector<std::vector<Buffer>> outputs) {
  std::vector<Array> arrays(outputs.size());
  for (size_t r = 0; r < outputs.size(); ++r) {
    if (!outputs[r].empty()) {
      share_parts(outputs[r]);
      const ParameterInfo& result = info.results[r];
      arrays[r] = Array(result.dtype, result.shape, result.layout, std::move(outputs[r]));
    }
  }
  return arrays;
}

}  // namespace

void Launcher::forget_id(const Operation& op) const {
  if (op.launch_id != 0) {
    name_(op.launch_id, nullptr, 0);
  }
}

void Launcher::give_id(Operation& op) {
  forget_id(op);
  last_id_ += last_id_ == UINT32_MAX ? 2 : 1;  // never 0
  op.launch_id = last_id_;
  name_(op.launch_id, op.program->owner, op.trace_context);
  for (const auto& command : op.commands) {
    tpu_command_launch_t wire;
    std::memcpy(&wire, command->wire.data(), sizeof(wire));
    wire.launch_id = op.launch_id;
    std::memcpy(command->wire.data(), &wire, sizeof(wire));
  }
}

// Donated buffers are given up only when all that can be refused is behind.
void Launcher::submit(const std::shared_ptr<Operation>& op,
                      const std::vector<std::shared_ptr<BufferState>>& donated) {
  op->donated.assign(donated.begin(), donated.end());
  for (const auto& buffer : donated) {
    buffer->donate();
  }
  try {
    order_.send_in_order(op, [this, op]() TPU_REQUIRES(board_lock) {
      if (health_.broken()) {
        health_.check_usable();  // the call has waited for room, and the board was closed meanwhile
      }
      // No more waiting can happen but for room in the rings, which keeps the order.
      give_id(*op);
      operations_.submit_gang(op);
      feeds_.queue(*op);
      feeds_.send();
    });
  } catch (...) {
    operations_.finish(*op, given_up());
    throw;
  }
}

// A program takes what each core has of an array: all of it, or state of a sharded update of which
// the cores own what the program expects, all parts of one array in their places. (It may write
// there: no other buffer may then read it.)
bool Launcher::lies_as_wanted(const Array& array, const OwnedRuns& wants) const {
  const auto& parts = array.parts();
  const auto whole = [](const Buffer& part) { return Access::state(part)->owned == nullptr; };
  if (std::all_of(parts.begin(), parts.end(), whole)) {
    return true;
  }
  const BufferState& first = *Access::state(parts[0]);
  if (whole(parts[0]) || wants == nullptr || (wants != first.owned && *wants != *first.owned)) {
    return false;
  }
  const Contents together = handles_.contents(first);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (together.parts.size() != parts.size() ||
        together.parts[p] != handles_.hold(*Access::state(parts[p]))) {
      return false;
    }
  }
  return true;
}

// State that lies otherwise is gathered on each core, and what the caller keeps is copied.
std::vector<Array> Launcher::prepare_arguments(const LoadedProgram& program,
                                               std::vector<Array> arguments,
                                               const std::vector<size_t>& kept) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Array& old = arguments[i];
    if (!old.valid()) {
      continue;  // fed
    }
    const bool keep = program.info->arguments[i].donated_to >= 0 &&
                      std::find(kept.begin(), kept.end(), i) != kept.end();
    if (!keep && lies_as_wanted(old, program.argument_owned[i])) {
      continue;
    }
    std::vector<Buffer> parts;
    for (const Buffer& part : old.parts()) {
      const BufferState& state = *Access::state(part);
      parts.push_back(keep || state.owned ? transfers_.copy(state, state.device, {}) : part);
    }
    arguments[i] = Array(old.dtype(), old.shape(), old.layout(), std::move(parts));
  }
  return arguments;
}

// Memory of the slots of partition `p`: what is bound, and new memory of results, whose buffers are
// added to `outputs`.
std::vector<std::shared_ptr<Allocation>> Launcher::bind_slots(
    const Operation& op, size_t p, const std::vector<Array>& arguments,
    const std::vector<std::string>& labels, std::vector<std::vector<Buffer>>& outputs) {
  const LoadedProgram& program = *op.program;
  const exe::ExecutableT& exe = program.exe;
  const Residence::Part& part = op.residence->parts[p];
  std::vector<std::shared_ptr<Allocation>> slots = part.slots;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].valid()) {
      slots[exe.args[i]->slot] = handles_.hold(*Access::state(arguments[i].parts()[p]));
    }
  }
  if (op.feed) {
    for (const auto* fed : {&op.feed->infeed, &op.feed->outfeed}) {
      for (const FeedSlot& slot : *fed) {
        slots[slot.slot] = slot.memory[p];
      }
    }
  }
  for (size_t r = 0; r < exe.results.size(); ++r) {
    const uint32_t s = exe.results[r]->slot;
    const exe::SlotT& slot = *exe.slots[s];
    if (op.feed && op.feed->gives(r)) {
      continue;
    }
    if (slot.kind == exe::SlotKind::result) {  // else in the memory of a donated argument
      slots[s] = memory_.allocate(part.device, slot.bytes, labels[r]);
    }
    auto state = handles_.make_buffer(part.device, program.info->results[r].dtype,
                                      program.info->results[r].layout.local, slots[s], op.event);
    state->owned = program.result_owned[r];
    outputs[r].push_back(Access::buffer(std::move(state)));
  }
  return slots;
}

// How LAUNCH tells the firmware who is in the gang.
Launcher::Gang Launcher::gang_of(const Residence& residence) {
  spec::CoreSet cores;
  for (const Residence::Part& part : residence.parts) {
    cores.insert(static_cast<uint32_t>(part.device));
  }
  Gang gang;
  if (cores.end() <= TPU_MASK_CORES) {
    cores.for_each([&](uint32_t core) { gang.core_mask |= uint32_t{1} << core; });
    return gang;
  }
  gang.core_mask = cores.lowest() + 1;
  constexpr uint32_t kRowCores = TPU_GANG_ROW_BYTES * 8;
  gang.rows.resize(size_t{(cores.end() + kRowCores - 1) / kRowCores} * TPU_GANG_ROW_BYTES);
  cores.for_each([&](uint32_t core) { gang.rows[core / 8] |= std::byte{1} << core % 8; });
  return gang;
}

// The LAUNCH command of one core, with its slot table staged.
std::shared_ptr<Command> Launcher::launch_command(
    const Operation& op, size_t p, const Gang& gang,
    const std::vector<std::shared_ptr<Allocation>>& slots) {
  const exe::ExecutableT& exe = op.program->exe;
  const Residence::Part& part = op.residence->parts[p];
  auto command = std::make_shared<Command>();
  command->device = part.device;
  command->reads.reserve(slots.size() + 1);
  command->reads.push_back(part.code);
  const size_t slot_bytes = slots.size() * sizeof(tpu_slot_entry_t);
  const size_t bytes = slot_bytes + gang.rows.size();
  const auto staged = memory_.stage(std::max(bytes, sizeof(tpu_slot_entry_t)));
  const auto table = staged->bytes().first(bytes);
  std::ranges::copy(gang.rows, table.begin() + static_cast<ptrdiff_t>(slot_bytes));
  for (size_t s = 0; s < slots.size(); ++s) {
    tpu_slot_entry_t row{};
    row.mode = slots[s] ? TPU_SLOT_FIXED : TPU_SLOT_NULL;
    row.base = slots[s] ? slots[s]->address() : 0;
    row.size = slots[s] ? exe.slots[s]->bytes : 0;
    const exe::SlotKind kind = exe.slots[s]->kind;
    const bool fresh = kind == exe::SlotKind::result || kind == exe::SlotKind::scratch;
    const bool donated =
        kind == exe::SlotKind::argument && exe.args[exe.slots[s]->index]->donated_to >= 0;
    if (slots[s] && fresh) {
      row.flags = TPU_SLOT_FLAG_FRESH;
    }
    if (const FeedSlot* fed = op.feed ? op.feed->fed_slot(static_cast<uint32_t>(s), p) : nullptr) {
      row.mode = kind == exe::SlotKind::result ? TPU_SLOT_OUTFEED : TPU_SLOT_INFEED;
      row.flags = 0;
      row.depth = TPU_INFEED_DEPTH;
      row.stride = static_cast<uint32_t>(fed->stride);
    }
    std::memcpy(table.data() + s * sizeof(row), &row, sizeof(row));
    if (slots[s] && !fresh) {
      command->reads.push_back(slots[s]);
    }
    if (slots[s] && (fresh || donated)) {
      command->writes.push_back(slots[s]);
    }
  }
  command->keep = {staged};
  if (op.feed) {
    command->flags |= op.feed->launch_flags(p);
  }
  tpu_command_launch_t wire{};
  wire.table_iova = staged->iova();
  wire.program_id = part.id;
  wire.slots = static_cast<uint16_t>(slots.size());
  wire.steps = op.steps;
  wire.core_mask = gang.core_mask;
  wire.gang_rows = static_cast<uint16_t>(gang.rows.size() / TPU_GANG_ROW_BYTES);
  wire.replica = static_cast<uint16_t>(p);
  wire.table_crc = spec::crc32c(table);
  set_payload(*command, TPU_OP_LAUNCH, TPU_TRACK_LAUNCH, wire);
  return command;
}

void Launcher::check(const LoadedProgram& program, const std::vector<Array>& arguments,
                     const RunOptions& options) const {
  check_arguments(handles_, program, arguments, options);
  handles_.check_after(options.after);
  check_host_calls(program, options);
  const ProgramCost& cost = program.info->cost;
  memory_.need_room((cost.result_bytes - cost.donated_bytes) * program.info->devices.size(),
                    "the result memory of ", program.exe.name);
}

RunResult Launcher::launch(const std::shared_ptr<LoadedProgram>& program,
                           const std::vector<Array>& given, const RunOptions& options) {
  const exe::ExecutableT& exe = program->exe;
  const std::vector<Array> arguments = prepare_arguments(*program, given, options.keep);
  const std::set<size_t> kept(options.keep.begin(), options.keep.end());
  const auto residence = loader_.make_resident(*program);
  const auto op = operations_.begin(fmt::format("launch of {}", exe.name));
  op->program = program;
  op->residence = residence;
  op->steps = options.steps;
  op->trace_context = options.trace_context;
  op->on_host_call = options.on_host_call;
  op->feed = feeds_.make(op, options);
  const size_t cores = program->info->devices.size();
  const std::vector<std::string> labels = result_labels(exe);
  std::vector<std::vector<Buffer>> outputs(exe.results.size());
  for (std::vector<Buffer>& parts : outputs) {
    parts.reserve(cores);
  }
  std::vector<std::shared_ptr<BufferState>> donated;
  const Gang gang = gang_of(*residence);
  if (exe.slots.size() + gang.rows.size() / TPU_GANG_ROW_BYTES > TPU_MAX_SLOTS) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} slots leave no room for a gang of {} cores in the table of a "
                            "launch, which has {} entries; give fewer arguments and results",
                            exe.name, exe.slots.size(), cores, TPU_MAX_SLOTS));
  }
  op->inputs.reserve(cores * (1 + arguments.size()));
  op->commands.reserve(cores);
  for (size_t p = 0; p < cores; ++p) {
    if (const auto& loaded = op->residence->parts[p].ready; loaded->open()) {
      op->inputs.push_back(loaded);
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].valid()) {
        continue;  // fed
      }
      const auto& buffer = Access::state(arguments[i].parts()[p]);
      op->inputs.push_back(buffer->ready);
      if (program->info->arguments[i].donated_to >= 0) {
        donated.push_back(buffer);
        const auto& original = Access::state(given[i].parts()[p]);
        if (original != buffer && !kept.contains(i)) {
          donated.push_back(original);  // gathered into another one
        }
      }
    }
    auto slots = bind_slots(*op, p, arguments, labels, outputs);
    op->commands.push_back(launch_command(*op, p, gang, slots));
    if (!exe.host_calls.empty()) {
      op->calls.emplace_back().slots = std::move(slots);
    }
  }
  RunResult result;
  result.outputs = arrays_of(*program->info, std::move(outputs));
  result.done = Access::event(op->event);
  handles_.depend(*op, options.after);
  for (const auto& command : op->commands) {
    op->reads.insert(op->reads.end(), command->reads.begin(), command->reads.end());
    op->writes.insert(op->writes.end(), command->writes.begin(), command->writes.end());
  }
  // The call may have waited for room, while others donated or deleted what it was given.
  for (const std::vector<Array>* arrays : {&given, &arguments}) {
    for (const Array& array : *arrays) {
      for (const Buffer& part : array.parts()) {
        handles_.hold(*Access::state(part));
      }
    }
  }
  if (op->feed) {
    result.feed = Access::step_feed(handles_.board(), op->feed);
  }
  submit(op, donated);  // the last thing that can fail
  return result;
}

}  // namespace tpu::driver
