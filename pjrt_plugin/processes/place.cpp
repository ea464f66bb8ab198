#include "processes/place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "board/board_loader.hpp"
#include "errors.hpp"
#include "process_board.hpp"
#include "processes/jax_process.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {
namespace {

constexpr const char* kBounds = "TPU_PROCESS_BOUNDS";
constexpr const char* kChips = "TPU_CHIPS_PER_PROCESS_BOUNDS";
constexpr const char* kVisible = "TPU_VISIBLE_CHIPS";
constexpr const char* kAddresses = "TPU_PROCESS_ADDRESSES";

std::vector<int> numbers_of(const char* name, const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int number = -1;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), number);
    constexpr int kMost = 1 << 20;
    if (end.ec != std::errc() || end.ptr != part.data() + part.size() || number < 0 ||
        number > kMost) {
      throw_invalid(
          fmt::format("environment variable {}: expected numbers with commas, as 2,2,1; "
                      "found '{}'",
                      name, text));
    }
    numbers.push_back(number);
  }
  return numbers;
}

// "2,2,1" is 4; at most 2^20.
int product_of(const char* name, const std::string& text) {
  int product = 1;
  for (const int number : numbers_of(name, text)) {
    constexpr int kMost = 1 << 20;
    if (number == 0 || product > kMost / number) {
      throw_invalid(
          fmt::format("environment variable {}: '{}' does not multiply to a size", name, text));
    }
    product *= number;
  }
  return product;
}

// TPU_WORKER_ID is the number of the host; on a host with several processes CLOUD_TPU_TASK_ID has
// the number of the process.
int task_of(const Variable& variable, const std::string& bounds) {
  for (const char* name : {"CLOUD_TPU_TASK_ID", "TPU_WORKER_ID"}) {
    const auto text = variable(name);
    if (!text || text->empty()) {
      continue;
    }
    const std::vector<int> numbers = numbers_of(name, *text);
    if (numbers.size() != 1) {
      throw_invalid(
          fmt::format("environment variable {}: expected one number, found '{}'", name, *text));
    }
    return numbers[0];
  }
  throw_invalid(
      fmt::format("{} is {}; CLOUD_TPU_TASK_ID or TPU_WORKER_ID must say which of the "
                  "processes this one is",
                  kBounds, bounds));
}

void check_chips(const Variable& variable, const ProcessPlace& place, int chips,
                 const std::string& bounds) {
  const int each = chips / place.processes;
  if (const auto text = variable(kChips); text && !text->empty()) {
    if (product_of(kChips, *text) * place.processes != chips) {
      throw_invalid(fmt::format("{} is {} and {} is {}: {} chips; the board has {}", kBounds,
                                bounds, kChips, *text, product_of(kChips, *text) * place.processes,
                                chips));
    }
  }
  if (const auto text = variable(kVisible); text && !text->empty()) {
    std::vector<int> own;
    for (int chip = 0; chip < each; ++chip) {
      own.push_back(place.process * each + chip);
    }
    if (numbers_of(kVisible, *text) != own) {
      throw_invalid(fmt::format("{} is {}; process {} of {} has {} chip(s) from chip {} on",
                                kVisible, *text, place.process, place.processes, each,
                                place.process * each));
    }
  }
}

std::optional<ProcessPlace> of_real_variables(const Variable& variable, int chips) {
  const auto bounds = variable(kBounds);
  if (!bounds || bounds->empty() || product_of(kBounds, *bounds) == 1) {
    return std::nullopt;
  }
  ProcessPlace place;
  place.processes = product_of(kBounds, *bounds);
  if (place.processes > chips || chips % place.processes != 0) {
    throw_invalid(fmt::format("{} is {}: {} processes; the board has {} chips", kBounds, *bounds,
                              place.processes, chips));
  }
  place.process = task_of(variable, *bounds);
  check_chips(variable, place, chips, *bounds);
  return place;
}

std::optional<ProcessPlace> of_own_variables(const client::ClientOptions& options) {
  const bool is_only = options.processes == 0 || options.processes == 1;
  if (is_only && options.process < 0) {
    return std::nullopt;
  }
  if (options.processes == 0 || options.process < 0) {
    throw_invalid("TPUBOARD_PROCESS_ID and TPUBOARD_PROCESS_COUNT go together: one of them is set");
  }
  return ProcessPlace{options.process, options.processes, {}};
}

void check_same(const std::optional<ProcessPlace>& one, const char* one_name,
                const std::optional<ProcessPlace>& other, const char* other_name) {
  if (one && other && (one->process != other->process || one->processes != other->processes)) {
    throw_invalid(fmt::format("{} says process {} of {}, {} says process {} of {}", one_name,
                              one->process, one->processes, other_name, other->process,
                              other->processes));
  }
}

// A name that a file can have.
std::string hashed(const std::string& text) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return fmt::format("{:016x}", hash);
}

std::string default_folder(const Variable& variable, const std::optional<JaxProcess>& jax) {
  const auto runtime = variable("XDG_RUNTIME_DIR");
  const std::string base = runtime && runtime->starts_with('/')
                               ? *runtime + "/tpuboard"
                               : fmt::format("/tmp/tpuboard-{}", ::geteuid());
  if (const auto addresses = variable(kAddresses); addresses && !addresses->empty()) {
    return base + "/addresses-" + hashed(*addresses);
  }
  if (jax && !jax->coordinator.empty()) {
    return base + "/jax-" + hashed(jax->coordinator);
  }
  return fmt::format("{}/session-{}", base, ::getsid(0));
}

}  // namespace

ProcessPlace read_place(const client::ClientOptions& options, const spec::BoardParams& board,
                        const Variable& variable, const std::optional<JaxProcess>& jax) {
  const auto own = of_own_variables(options);
  const auto real = of_real_variables(variable, static_cast<int>(board.board.chips));
  std::optional<ProcessPlace> of_jax;
  if (jax && jax->processes > 1) {
    of_jax = ProcessPlace{jax->process, jax->processes, {}};
  }
  check_same(own, "TPUBOARD_PROCESS_ID", real, kBounds);
  check_same(own, "TPUBOARD_PROCESS_ID", of_jax, "jax.distributed.initialize()");
  check_same(real, kBounds, of_jax, "jax.distributed.initialize()");
  ProcessPlace place = own ? *own : real ? *real : of_jax.value_or(ProcessPlace{});
  const auto devices = static_cast<int>(spec::core_count(board));
  if (place.process >= place.processes || devices % place.processes != 0) {
    throw_invalid(
        fmt::format("process {} of {}: the board has {} cores, which processes must "
                    "share equally, and processes count from 0",
                    place.process, place.processes, devices));
  }
  if (place.is_shared()) {
    place.folder =
        options.process_folder.empty() ? default_folder(variable, jax) : options.process_folder;
  }
  return place;
}

const ProcessPlace& process_place() {
  static base::Mutex mutex;
  static const ProcessPlace* place = nullptr;
  const base::MutexLock lock(mutex);
  if (place == nullptr) {
    const Variable variable = [](const char* name) -> std::optional<std::string> {
      const char* value = std::getenv(name);
      return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
    place = new ProcessPlace(read_place(client::ProcessBoard::options(),
                                        client::ProcessBoard::params(), variable, jax_process()));
  }
  return *place;
}

}  // namespace tpu::pjrt
