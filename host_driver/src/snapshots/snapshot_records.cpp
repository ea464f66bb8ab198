// Objects to records.
#include "src/snapshots/snapshot_records.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "exe/executable.hpp"
#include "src/handles/access.hpp"
#include "src/residency/program.hpp"

namespace tpu::driver {
namespace {

Error bad_item(const std::string& name, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("snapshot: {}: {}", name, why));
}

}  // namespace

SnapshotCollector::SnapshotCollector(const BoardHandles& handles, const SnapshotItems& items)
    : handles_(handles) {
  for (const auto& [name, executable] : items.programs) {
    const auto& state = Access::state(executable);
    if (!state || state->board != handles_.board()) {
      throw bad_item(name, "the handle of the executable is empty, or belongs to another board");
    }
    add(name, state->program());
  }
  for (const auto& [name, array] : items.arrays) {
    add(name, array);
  }
  for (const auto& [name, text] : items.notes) {
    records_.note_names.push_back(name);
    records_.note_texts.push_back(text);
  }
}

uint32_t SnapshotCollector::range(const std::shared_ptr<Allocation>& memory) {
  const auto [known, fresh] =
      ranges_.try_emplace(memory.get(), static_cast<uint32_t>(records_.ranges.size()));
  if (fresh) {
    records_.ranges.push_back(
        {memory->device(), memory->address(), memory->bytes(), memory->label(), memory});
  }
  return known->second;
}

void SnapshotCollector::add(const std::string& name,
                            const std::shared_ptr<LoadedProgram>& program) {
  for (ProgramRecord& known : records_.programs) {
    if (known.program == program) {
      known.names.push_back(name);
      return;
    }
  }
  ProgramRecord record;
  record.names = {name};
  record.executable = exe::write_executable(program->exe);
  record.file = program->file;
  record.devices = program->info->devices;
  record.last_use = program->last_use;
  record.program = program;
  if (program->residence) {
    for (const Residence::Part& part : program->residence->parts) {
      if (part.ready->failed()) {
        throw bad_item(name, "the program was not loaded: " + part.ready->error->message());
      }
      ProgramRecord::Part& saved = record.parts.emplace_back();
      saved.device = part.device;
      saved.id = part.id;
      saved.sent = part.sent;
      saved.code = range(part.code);
      for (const auto& slot : part.slots) {
        saved.slots.push_back(slot ? range(slot) : ProgramRecord::kNoRange);
      }
    }
  }
  records_.programs.push_back(std::move(record));
}

void SnapshotCollector::add(const std::string& name, const Array& array) {
  if (!array.valid()) {
    throw bad_item(name, "the array is empty");
  }
  ArrayRecord& saved = records_.arrays.emplace_back();
  saved.name = name;
  saved.dtype = array.dtype();
  saved.shape = array.shape();
  saved.layout = array.layout();
  for (const Buffer& part : array.parts()) {
    saved.parts.push_back(record(name, part));
  }
}

BufferRecord SnapshotCollector::record(const std::string& name, const Buffer& buffer) {
  const auto& state = Access::state(buffer);
  if (!state || state->board != handles_.board()) {
    throw bad_item(name, "the handle of the array is empty, or belongs to another board");
  }
  const auto memory = state->hold();
  if (!memory || state->ready->failed()) {
    throw bad_item(name, "the array is not live: it was donated, discarded or lost");
  }
  BufferRecord saved;
  saved.device = state->device;
  saved.dtype = state->dtype;
  saved.shape = state->shape;
  saved.memory = range(memory);
  if (state->owned) {
    saved.by_owners = true;
    saved.owned = *state->owned;
  }
  if (const OwnedParts parts = state->hold_parts()) {
    std::transform(parts->begin(), parts->end(), std::back_inserter(saved.parts),
                   [&](const auto& part) { return range(part); });
  }
  return saved;
}

}  // namespace tpu::driver
