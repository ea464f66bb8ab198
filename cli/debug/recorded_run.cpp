// Compile, run, read.
#include "cli/debug/recorded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "cli/compile_file.hpp"
#include "cli/program_file.hpp"
#include "cli/program_inputs.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "sim/option_names.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

compiler::ValueReference reference_of(const std::vector<std::byte>& artifact,
                                      const std::string& path) {
  try {
    return compiler::ValueReference(artifact);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, path + ": " + error.what());
  }
}

exe::ExecutableT code_of(const std::vector<std::byte>& bytes, const std::string& path) {
  try {
    return exe::read_executable(bytes);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, path + ": " + error.what());
  }
}

// Those that never ended come last.
bool ends_before(const spec::LoggedCommand& a, const spec::LoggedCommand& b) {
  const auto key = [](const spec::LoggedCommand& command) {
    return std::tuple(command.done == 0, command.done, command.core, command.unit, command.number);
  };
  return key(a) < key(b);
}

[[noreturn]] void refuse_values() {
  throw Error(ErrorCode::kFailedPrecondition,
              "there are no results: the launch has failed; `memory` shows what was there before");
}

}  // namespace

RecordedRun::RecordedRun(const OpenOptions& options, const std::string& artifact,
                         const std::string& executable, const std::map<size_t, std::string>& inputs)
    : artifact_(read_file(artifact)),
      reference_(reference_of(artifact_, artifact)),
      inputs_(inputs) {
  const std::vector<std::byte> image =
      executable.empty() ? compile_kept(artifact, options.preset, options.overrides)
                         : read_file(executable);
  code_ = code_of(image, executable);
  board_ = Board::open(options);
  program_ = load_program(board_, executable.empty() ? artifact : executable, image, 0,
                          !executable.empty());
  check_results(executable);
  commands_ = run(std::nullopt).commands;
  std::sort(commands_.begin(), commands_.end(), ends_before);
  find_makers();
}

void RecordedRun::check_results(const std::string& executable) const {
  const auto& results = program_.results();
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected what tpuc --keep-values makes of this program: {}",
                            executable, why));
  };
  const size_t wanted = kept().results + kept().values.size();
  if (results.size() != wanted) {
    fail(fmt::format("expected {} results, found {}", wanted, results.size()));
  }
  for (size_t i = 0; i < kept().values.size(); ++i) {
    const ParameterInfo& info = results[kept().results + i];
    const compiler::Type& type = kept().values[i].type;
    if (byte_count(info.dtype, info.shape) !=
        static_cast<uint64_t>(type.bytes()) * devices().size()) {
      fail(fmt::format("result {}: expected a {} of each core, found {}", kept().results + i,
                       to_string(type), type_text(info.dtype, info.shape)));
    }
  }
}

// The memory of a run before is given back first, so that everything lies where it lay.
spec::CommandLog RecordedRun::run(const std::optional<spec::MemoryLook>& look) {
  log_commands(board_, look);  // first: what is refused has changed nothing
  for (const std::vector<Array>* arrays : {&arguments_, &result_.outputs}) {
    for (const Array& array : *arrays) {
      array.discard();
    }
  }
  board_.synchronize();
  arguments_ = place_inputs(program_, inputs_, false);
  failure_.clear();
  result_ = program_.run(arguments_);
  try {
    result_.done.wait();
  } catch (const Error& error) {
    failure_ = spec::name_options(error.what(), spec::OptionDoor::kCommandLine);
  }
  return take_commands(board_);
}

void RecordedRun::find_makers() {
  std::map<uint32_t, std::map<uint64_t, size_t>> places;  // by device: address -> value
  std::map<uint32_t, size_t> partitions;
  for (size_t core = 0; core < devices().size(); ++core) {
    const auto device = static_cast<uint32_t>(devices()[core]);
    partitions[device] = core;
    for (size_t i = 0; failure_.empty() && i < kept().values.size(); ++i) {
      places[device][result_.outputs[kept().results + i].parts()[core].address()] = i;
    }
  }
  makers_.assign(kept().values.size(),
                 std::vector<std::optional<size_t>>(devices().size(), std::nullopt));
  for (size_t c = 0; c < commands_.size(); ++c) {
    for (const spec::OperandRange& operand : commands_[c].operands) {
      const spec::MemoryRange& range = operand.range;
      const auto device = places.find(range.core);
      if (!operand.write || range.memory != spec::CoreMemory::kHbm || device == places.end()) {
        continue;
      }
      auto value = device->second.upper_bound(range.low);
      value = value == device->second.begin() ? value : std::prev(value);
      for (; value != device->second.end() && value->first < range.low + range.bytes; ++value) {
        const auto bytes = static_cast<uint64_t>(kept().values[value->second].type.bytes());
        if (value->first + bytes > range.low) {
          makers_[value->second][partitions.at(range.core)] = c;
        }
      }
    }
  }
}

HostArray RecordedRun::read(size_t result, size_t core) const {
  if (!failure_.empty()) {
    refuse_values();
  }
  return result_.outputs.at(result).parts().at(core).to_host();
}

HostArray RecordedRun::value(size_t number, size_t core) const {
  HostArray row = read(kept().results + number, core);
  row.shape.erase(row.shape.begin());
  return row;
}

HostArray RecordedRun::result(size_t number, size_t core) const { return read(number, core); }

HostArray RecordedRun::argument(size_t number) const { return read_npy(inputs_.at(number)); }

std::vector<std::byte> RecordedRun::memory_after(size_t command, const spec::MemoryRange& range) {
  const spec::LoggedCommand& at = commands_[command];
  spec::CommandLog log = run(spec::MemoryLook{at.core, at.number, range});
  if (log.commands.size() != commands_.size() || !log.looked) {
    throw Error(ErrorCode::kInternal,
                "the program did not run as before; a host call may have answered otherwise");
  }
  return *std::move(log.looked);
}

const compiler::ValueChecked& RecordedRun::check(double tolerance) {
  if (!failure_.empty()) {
    refuse_values();
  }
  if (!checked_) {
    std::vector<std::vector<std::byte>> arguments;
    for (size_t i = 0; i < program_.arguments().size(); ++i) {
      arguments.push_back(argument(i).bytes);
    }
    try {
      checked_ = reference_.check(
          arguments, {.tolerance = tolerance, .board = [this](size_t number, size_t core) {
                        return value(number, core).bytes;
                      }});
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(
          ErrorCode::kUnimplemented,
          fmt::format("the program cannot be evaluated by the reference: {}", error.what()));
    }
  }
  return *checked_;
}

}  // namespace tpu::driver
