#include "transport/mpi/mpi_people.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "file/crc32c.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"

namespace tpu::driver::worker {
namespace {

// What ranks of all versions send first: never changed.
struct Version {
  static constexpr char kMagic[] = "tpuboard";
  char magic[sizeof kMagic - 1]{};
  char text[56]{};
};

// Among ranks of one version.
struct Card {
  int32_t pid = 0;
  uint32_t arguments_crc = 0;
  uint64_t namespace_device = 0, namespace_file = 0;
  char host[64]{};
  char arguments[944]{};  // as many as fit
};

template <size_t kBytes>
void put(char (&to)[kBytes], std::string_view text) {
  std::memcpy(to, text.data(), std::min(kBytes - 1, text.size()));  // zeros follow
}

template <size_t kBytes>
std::string text_of(const char (&from)[kBytes]) {
  return {from, ::strnlen(from, kBytes)};
}

// Those behind the program: each rank may have another path to it.
std::string arguments_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), {});
  words.erase(0, std::min(words.size(), words.find('\0')) + 1);
  std::ranges::replace(words, '\0', ' ');
  words.erase(words.find_last_not_of(' ') + 1);
  return words;
}

Card card_of_this_process() {
  Card card;
  card.pid = ::getpid();
  const std::string arguments = arguments_of_this_process();
  card.arguments_crc = spec::crc32c(std::as_bytes(std::span(arguments)));
  put(card.arguments, arguments);
  struct stat pids {};
  if (::stat("/proc/self/ns/pid", &pids) == 0) {
    card.namespace_device = pids.st_dev;
    card.namespace_file = pids.st_ino;
  }
  ::gethostname(card.host, sizeof card.host - 1);
  return card;
}

// Each rank's, in all ranks.
template <class T>
std::vector<T> gather(MPI_Comm ranks, const T& own) {
  int count = 0;
  ::MPI_Comm_size(ranks, &count);
  std::vector<T> all(static_cast<size_t>(count));
  constexpr int kBytes = sizeof(T);
  if (::MPI_Allgather(&own, kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, ranks) != MPI_SUCCESS) {
    throw Error(ErrorCode::kUnavailable,
                "OpenOptions::connect: mpi: ranks of mpirun do not reach each other");
  }
  return all;
}

void check_versions(MPI_Comm ranks) {
  Version own;
  std::memcpy(own.magic, Version::kMagic, sizeof own.magic);
  put(own.text, kVersion);
  const std::vector<Version> all = gather(ranks, own);
  const std::string first = text_of(all.front().text);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (const std::string version = text_of(all[rank].text); version != first) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("OpenOptions::connect: mpi: rank {} of mpirun is tpuboard {}, rank 0 "
                              "{}; use one in all ranks",
                              rank, version, first));
    }
  }
}

}  // namespace

MpiPeople::MpiPeople(MPI_Comm ranks) {
  check_versions(ranks);
  const Card own = card_of_this_process();
  const std::vector<Card> all = gather(ranks, own);
  for (const Card& card : all) {
    const bool is_seen = std::memcmp(card.host, own.host, sizeof own.host) == 0 &&
                         card.namespace_device == own.namespace_device &&
                         card.namespace_file == own.namespace_file && own.namespace_file != 0;
    people_.push_back({card.pid, is_seen, text_of(card.host)});
    if (card.arguments_crc != all.front().arguments_crc) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          fmt::format("OpenOptions::connect: mpi: {} was started with '{}', rank 0 with '{}'; all "
                      "ranks need the same arguments",
                      name_of(static_cast<int>(people_.size()) - 1), text_of(card.arguments),
                      text_of(all.front().arguments)));
    }
  }
}

std::string MpiPeople::name_of(int rank) const {
  const Person& person = people_.at(static_cast<size_t>(rank));
  return fmt::format("rank {} of mpirun (pid {} on host {})", rank, person.pid, person.host);
}

bool MpiPeople::has_ended(int rank) const {
  const Person& person = people_.at(static_cast<size_t>(rank));
  return person.is_seen && ::kill(person.pid, 0) != 0 && errno == ESRCH;
}

}  // namespace tpu::driver::worker
