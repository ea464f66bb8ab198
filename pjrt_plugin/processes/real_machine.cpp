#include "processes/real_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "board/board_loader.hpp"
#include "errors.hpp"

namespace tpu::pjrt {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"},
                                   {"PMI_RANK", "PMI_SIZE"}};

// "host:8476" or "[::1]:8476"; without a port the whole.
std::string host_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string::npos &&
                        address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return has_port ? address.substr(0, colon) : address;
}

std::string port_of(const std::string& address) {
  const std::string host = host_of(address);
  return host.size() < address.size() ? address.substr(host.size() + 1) : "";
}

bool is_this_host(const std::string& host) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  constexpr const char* kLoopback[] = {"localhost", "127.0.0.1", "[::1]", "::1"};
  return host == name.data() || std::ranges::find(kLoopback, host) != std::end(kLoopback);
}

// Processes of a board are on one host, whatever its name is.
void check_one_host(const char* name, const std::vector<std::string>& addresses) {
  std::vector<std::string> hosts;
  for (const std::string& address : addresses) {
    const std::string host = host_of(address);
    hosts.push_back(is_this_host(host) ? "localhost" : host);
  }
  const auto other =
      std::ranges::find_if(hosts, [&](const auto& host) { return host != hosts[0]; });
  if (other != hosts.end()) {
    throw_invalid(fmt::format(
        "environment variable {} names processes on the hosts {} and {}; the processes that share "
        "a board run on one host. Where each has a board of its own, take the variable away",
        name, host_of(addresses[0]),
        host_of(addresses[static_cast<size_t>(other - hosts.begin())])));
  }
}

// Processes, and the variable that says so.
std::optional<ProcessNumber> count_of(const Variable& variable) {
  const auto addresses = value_of(variable, kAddresses);
  const int listed = addresses ? static_cast<int>(parts_of(*addresses).size()) : 0;
  if (const auto bounds = value_of(variable, kProcessBounds)) {
    const int count = product_of(kProcessBounds, *bounds);
    if (count > 1 && listed > 0 && listed != count) {
      throw_invalid(fmt::format("{} is {}: {} processes; {} has {}: {}", kProcessBounds, *bounds,
                                count, kAddresses, listed, *addresses));
    }
    return count > 1 ? std::optional<ProcessNumber>({-1, count, kProcessBounds}) : std::nullopt;
  }
  if (addresses) {
    return listed > 1 ? std::optional<ProcessNumber>({-1, listed, kAddresses}) : std::nullopt;
  }
  if (const auto names = value_of(variable, kHostNames)) {
    const std::vector<std::string> hosts = parts_of(*names);
    if (hosts.size() > 1) {
      check_one_host(kHostNames, hosts);
      return ProcessNumber{-1, static_cast<int>(hosts.size()), kHostNames};
    }
  }
  return std::nullopt;
}

// TPU_WORKER_ID is the number of the host; on a host with several processes CLOUD_TPU_TASK_ID has
// the number of the process.
int task_of(const Variable& variable, const ProcessNumber& counted) {
  for (const char* name : {"CLOUD_TPU_TASK_ID", "TPU_WORKER_ID"}) {
    if (const auto text = value_of(variable, name)) {
      return number_of(name, *text);
    }
  }
  const int rank = number_by_launcher(variable, counted.processes, counted.source);
  if (rank < 0) {
    throw_invalid(
        fmt::format("{} is {}; CLOUD_TPU_TASK_ID or TPU_WORKER_ID must say which of the "
                    "processes this one is",
                    counted.source, *variable(counted.source.c_str())));
  }
  return rank;
}

void check_address(const Variable& variable, const ProcessNumber& number) {
  const auto addresses = value_of(variable, kAddresses);
  if (!addresses) {
    return;
  }
  const std::vector<std::string> all = parts_of(*addresses);
  check_one_host(kAddresses, all);
  const auto port = value_of(variable, kPort);
  const auto place = static_cast<size_t>(number.process);
  if (port && place < all.size() && !port_of(all[place]).empty() && port_of(all[place]) != *port) {
    throw_invalid(fmt::format("{} is {}; {} has {} for process {}", kPort, *port, kAddresses,
                              all[place], number.process));
  }
}

// Numbers of chips count on each host from 0.
void check_chips(const Variable& variable, const ProcessNumber& number,
                 const spec::BoardParams& board) {
  const auto text = value_of(variable, kVisibleChips);
  if (!text || number.process >= number.processes) {
    return;
  }
  const DeviceOwners owners = read_owners(variable, board, number.processes);
  std::vector<int> own;
  for (const int device : devices_of_process(owners, number.process)) {
    own.push_back(static_cast<int>(chip_on_host(device / board.board.cores_per_chip, board)));
  }
  std::ranges::sort(own);
  own.erase(std::ranges::unique(own).begin(), own.end());
  std::vector<int> asked = numbers_of(kVisibleChips, *text);
  std::ranges::sort(asked);
  if (asked != own) {
    throw_invalid(fmt::format("{} is {}; process {} of {} has chip {} of its host", kVisibleChips,
                              *text, number.process, number.processes, fmt::join(own, ",")));
  }
}

}  // namespace

std::optional<ProcessNumber> number_of_tpus(const Variable& variable,
                                            const spec::BoardParams& board) {
  std::optional<ProcessNumber> number = count_of(variable);
  if (!number) {
    return std::nullopt;
  }
  const auto chips = static_cast<int>(spec::chip_count(board));
  const bool by_chips = number->source == kProcessBounds;
  const int parts = by_chips ? chips : static_cast<int>(spec::core_count(board));
  if (number->processes > parts || parts % number->processes != 0) {
    throw_invalid(fmt::format("{} is {}: {} processes; the board has {} {}", number->source,
                              *variable(number->source.c_str()), number->processes, parts,
                              by_chips ? "chips" : "cores"));
  }
  number->process = task_of(variable, *number);
  check_address(variable, *number);
  if (by_chips) {
    static_cast<void>(read_owners(variable, board, number->processes));
  }
  check_chips(variable, *number, board);
  return number;
}

std::optional<ProcessNumber> number_of_launcher(const Variable& variable) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = value_of(variable, launcher.rank);
    const auto size = value_of(variable, launcher.size);
    if (rank && size) {
      return ProcessNumber{number_of(launcher.rank, *rank), number_of(launcher.size, *size),
                           launcher.size};
    }
  }
  return std::nullopt;
}

int number_by_launcher(const Variable& variable, int processes, const std::string& source) {
  const auto launched = number_of_launcher(variable);
  if (!launched) {
    return -1;
  }
  if (launched->processes != processes) {
    throw_invalid(fmt::format("{} says {} processes, {} says {}", source, processes,
                              launched->source, launched->processes));
  }
  return launched->process;
}

}  // namespace tpu::pjrt
