#include "client_version.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tpu/error.hpp"

namespace tpu::tensorflow {
namespace {

struct Client {
  const char* version;
  size_t more_in_layout;
};
// abi_test.py compares each with the headers of that version.
constexpr std::array kClients = {Client{"2.20", 0}, Client{"2.19", 3 * sizeof(TpuList<int>)}};

const Client* find_client(const std::string& version) {
  const auto* const found = std::ranges::find_if(
      kClients, [&](const Client& client) { return minor_version(version) == client.version; });
  return found != kClients.end() ? found : nullptr;
}

}  // namespace

std::string client_version() {
  void* const handle = ::dlopen(kTensorFlowLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) {
    return "";
  }
  auto* const version = reinterpret_cast<const char* (*)()>(::dlsym(handle, "TF_Version"));
  return version != nullptr ? version() : "";
}

std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

void check_interface() {
  const std::string running = client_version();
  if (running.empty() || find_client(running) != nullptr) {
    return;
  }
  std::string known;
  for (const Client& client : kClients) {
    known += (known.empty() ? "" : " or ") + std::string(client.version);
  }
  throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                      fmt::format("TensorFlow {}: expected {}, whose TPU interfaces this library "
                                  "has; install tensorflow-tpu of such a version",
                                  running, known));
}

size_t more_in_layout() {
  static const size_t more = [] {
    const Client* const client = find_client(client_version());
    return client != nullptr ? client->more_in_layout : 0;
  }();
  return more;
}

}  // namespace tpu::tensorflow
