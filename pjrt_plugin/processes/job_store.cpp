#include "processes/job_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>
#include <sstream>

#include "errors.hpp"
#include "processes/meeting.hpp"

namespace tpu::pjrt {
namespace {

constexpr const char* kKey = "tpuboard/meeting";
constexpr int kMilliseconds = 30000;  // for a value that is there

using OwnError = std::unique_ptr<PJRT_Error>;

PJRT_Error* made_error(PJRT_Error_Code code, const char* message, size_t size) {
  return new PJRT_Error{code, std::string(message, size)};
}

// Who meets where. Another boot of the system is another host, whatever its name is. Containers on
// one host may have a folder of that name each.
struct Meeting {
  std::string process, host, boot, user, identity, folder;

  std::string text() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", process, host, boot, user, identity, folder);
  }
};

Meeting meeting_of(const ProcessPlace& place) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return {std::to_string(place.process),
          host.data(),
          boot,
          std::to_string(::geteuid()),
          identity_of(private_folder(place.folder)),
          place.folder};
}

Meeting meeting_in(const std::string& text) {
  Meeting meeting;
  std::istringstream lines(text);
  for (std::string* part :
       {&meeting.process, &meeting.host, &meeting.boot, &meeting.user, &meeting.identity}) {
    std::getline(lines, *part);
  }
  std::getline(lines, meeting.folder, '\0');  // may have any character but this one
  return meeting;
}

[[noreturn]] void refuse(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kFailedPrecondition, text);
}

[[noreturn]] void give_up(const PJRT_Error& error) {
  throw driver::Error(driver::ErrorCode::kUnavailable,
                      "the key-value store of the processes: " + error.message);
}

}  // namespace

std::optional<JobStore> JobStore::of(const PJRT_Client_Create_Args& args,
                                     const ProcessPlace& place) {
  if (!place.has_store || args.kv_get_callback == nullptr || args.kv_put_callback == nullptr) {
    return std::nullopt;
  }
  return JobStore(args);
}

// The store keeps the first value of a key, and says of others that there is one.
std::string JobStore::first_value(const std::string& key, const std::string& value) const {
  PJRT_CallbackError make_error = made_error;
  PJRT_KeyValuePutCallback_Args put{};
  put.struct_size = kPjrtStructSize<PJRT_KeyValuePutCallback_Args>;
  put.key = key.data();
  put.key_size = key.size();
  put.value = value.data();
  put.value_size = value.size();
  put.callback_error = &make_error;
  put.user_arg = args_.kv_put_user_arg;
  const OwnError refused(args_.kv_put_callback(&put));
  if (refused && refused->code != PJRT_Error_Code_ALREADY_EXISTS) {
    give_up(*refused);
  }
  PJRT_KeyValueGetCallback_Args get{};
  get.struct_size = kPjrtStructSize<PJRT_KeyValueGetCallback_Args>;
  get.key = key.data();
  get.key_size = key.size();
  get.timeout_in_ms = kMilliseconds;
  get.callback_error = &make_error;
  get.user_arg = args_.kv_get_user_arg;
  if (const OwnError missing(args_.kv_get_callback(&get)); missing) {
    give_up(*missing);
  }
  std::string first(get.value, get.value_size);
  if (get.value_deleter_callback != nullptr) {
    get.value_deleter_callback(get.value);
  }
  return first;
}

std::string agreed_folder(const JobStore& store, const ProcessPlace& place) {
  const Meeting own = meeting_of(place);
  const Meeting first = meeting_in(store.first_value(kKey, own.text()));
  if (first.boot != own.boot || (own.boot.empty() && first.host != own.host)) {
    refuse(
        fmt::format("process {} is on host {}, process {} on {}: the processes that share a "
                    "board run on one host",
                    own.process, own.host, first.process, first.host));
  }
  if (first.user != own.user) {
    refuse(
        fmt::format("process {} is of user {}, process {} of {}: the processes that share a "
                    "board have one user",
                    own.process, own.user, first.process, first.user));
  }
  if (place.is_own_folder && first.folder != own.folder) {
    refuse(fmt::format("TPUBOARD_PROCESS_DIR of process {} is {}, process {} waits in {}",
                       own.process, own.folder, first.process, first.folder));
  }
  if (identity_of(open_folder(first.folder)) != first.identity) {
    refuse(fmt::format(
        "process {} on {} waits in a folder {} that process {} on {} does not see (it may be in "
        "another container): the processes that share a board see one file system; "
        "TPUBOARD_PROCESS_DIR names a folder that they have in common",
        first.process, first.host, first.folder, own.process, own.host));
  }
  return first.folder;
}

}  // namespace tpu::pjrt
