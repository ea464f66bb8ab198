#include "transport/worker/pod_meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "tpu/error.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/tls_context.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

// The file can have keys as well, which are nobody else's business.
std::string certificates_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text = certificates_in({std::istreambuf_iterator<char>(in), {}});
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
    all_.trusted = certificates_of(ca);
    for (const std::string& worker : workers_) {
      all_.names.push_back(read_address(worker).host);
    }
  }
}

void PodMeeting::add(size_t rank, const std::string& listens, bool is_loopback) {
  all_.all[rank] = listens;
  is_loopback_[rank] = is_loopback;
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
