#include "transport/worker/pod_meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "tpu/error.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("OpenOptions::connect_ca: {}: expected certificates in PEM", file));
  }
  return text;
}

}  // namespace

PodMeeting::PodMeeting(const std::string& ca, std::vector<std::string> workers)
    : workers_(std::move(workers)), is_loopback_(workers_.size()) {
  all_.all.resize(workers_.size());
  all_.secret = random_secret();
  if (!ca.empty()) {
    all_.trusted = text_of(ca);
  }
}

void PodMeeting::add(size_t rank, const std::string& listens, bool is_loopback) {
  all_.all[rank] = listens;
  is_loopback_[rank] = is_loopback;
  if (!all_.trusted.empty()) {
    all_.all[rank] = tcp_address(read_address(workers_[rank]).host, read_address(listens).port);
  }
}

WorkerPart::Addresses PodMeeting::all() const {
  const auto near = std::ranges::find(is_loopback_, true);
  if (near != is_loopback_.end() && std::ranges::count(is_loopback_, false) != 0) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{}: the other workers of the pod cannot connect to a loopback address; "
                    "name this worker by an address that all of them reach",
                    workers_[static_cast<size_t>(near - is_loopback_.begin())]));
  }
  return all_;
}

}  // namespace tpu::driver::worker
