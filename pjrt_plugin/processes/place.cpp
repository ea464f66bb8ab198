#include "processes/place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "board/board_loader.hpp"
#include "errors.hpp"
#include "process_board.hpp"
#include "processes/jax_process.hpp"
#include "processes/real_machine.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {
namespace {

constexpr const char* kOwnNumber = "TPUBOARD_PROCESS_ID";
constexpr const char* kOwnCount = "TPUBOARD_PROCESS_COUNT";

// Where the launcher of the processes says how many there are too, it has the number.
std::optional<ProcessNumber> number_of_own_variables(const client::ClientOptions& options,
                                                     const Variable& variable) {
  const bool is_only = options.processes == 0 || options.processes == 1;
  if (is_only && options.process < 0) {
    return std::nullopt;
  }
  const int process = options.process < 0
                          ? number_by_launcher(variable, options.processes, kOwnCount)
                          : options.process;
  if (options.processes == 0 || process < 0) {
    throw_invalid(fmt::format("{} and {} go together: one of them is set", kOwnNumber, kOwnCount));
  }
  return ProcessNumber{process, options.processes, kOwnNumber};
}

std::optional<ProcessNumber> number_told(const std::optional<ToldProcess>& told,
                                         const char* source) {
  if (!told || told->processes <= 1) {
    return std::nullopt;
  }
  return ProcessNumber{told->process, told->processes, source};
}

// The first, with which all others agree.
ProcessNumber agreed(const std::vector<std::optional<ProcessNumber>>& numbers) {
  std::optional<ProcessNumber> first;
  for (const auto& number : numbers) {
    if (!first) {
      first = number;
    } else if (number &&
               (number->process != first->process || number->processes != first->processes)) {
      throw_invalid(fmt::format("{} says process {} of {}, {} says process {} of {}", first->source,
                                first->process, first->processes, number->source, number->process,
                                number->processes));
    }
  }
  return first.value_or(ProcessNumber{});
}

// A name that a file can have.
std::string hashed(const std::string& text) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return fmt::format("{:016x}", hash);
}

std::string default_folder(const Variable& variable, const std::optional<ToldProcess>& jax) {
  const auto runtime = variable("XDG_RUNTIME_DIR");
  const std::string base = runtime && runtime->starts_with('/')
                               ? *runtime + "/tpuboard"
                               : fmt::format("/tmp/tpuboard-{}", ::geteuid());
  if (const auto addresses = value_of(variable, kAddresses)) {
    return base + "/addresses-" + hashed(*addresses);
  }
  if (jax && !jax->coordinator.empty()) {
    return base + "/jax-" + hashed(jax->coordinator);
  }
  return fmt::format("{}/session-{}", base, ::getsid(0));
}

}  // namespace

ProcessPlace read_place(const client::ClientOptions& options, const spec::BoardParams& board,
                        const Variable& variable, const ToldProcesses& told) {
  const ProcessNumber number = agreed(
      {number_of_own_variables(options, variable),
       number_told(told.options, "the option node_id of the client"),
       number_of_tpus(variable, board), number_told(told.jax, "jax.distributed.initialize()")});
  ProcessPlace place{.process = number.process, .processes = number.processes};
  const auto devices = static_cast<int>(spec::core_count(board));
  if (place.process < 0 || place.process >= place.processes || devices % place.processes != 0) {
    throw_invalid(
        fmt::format("process {} of {}: the board has {} cores, which processes must "
                    "share equally, and processes count from 0",
                    place.process, place.processes, devices));
  }
  place.owners = read_owners(variable, board, place.processes);
  if (place.is_shared()) {
    place.is_own_folder = !options.process_folder.empty();
    place.has_store = told.options || (told.jax && told.jax->passes_store);
    place.folder =
        place.is_own_folder ? options.process_folder : default_folder(variable, told.jax);
  }
  return place;
}

const ProcessPlace& process_place(const std::optional<ToldProcess>& options) {
  static base::Mutex mutex;
  static const ProcessPlace* place = nullptr;
  const base::MutexLock lock(mutex);
  if (place == nullptr) {
    place =
        new ProcessPlace(read_place(client::ProcessBoard::options(), client::ProcessBoard::params(),
                                    variable_of_environment(), {options, jax_process()}));
  }
  if (options && options->processes > 1 &&
      (options->process != place->process || options->processes != place->processes)) {
    throw_invalid(fmt::format(
        "the option node_id of the client says process {} of {}, this process opened the board as "
        "process {} of {}",
        options->process, options->processes, place->process, place->processes));
  }
  return *place;
}

}  // namespace tpu::pjrt
