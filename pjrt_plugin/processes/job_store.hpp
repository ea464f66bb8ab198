// The key-value store of a framework's job (jax.distributed): its processes agree there on the
// folder in which they meet, so that it does not matter how each of them names their coordinator,
// or in which session it was started.
#pragma once

#include <optional>
#include <string>

#include "pjrt_abi.h"
#include "processes/place.hpp"

namespace tpu::pjrt {

class JobStore {
 public:
  /// Nothing: the framework passes none.
  static std::optional<JobStore> of(const PJRT_Client_Create_Args& args, const ProcessPlace& place);

  /// What the first process has put under the key, which this one may be. Throws driver::Error.
  std::string first_value(const std::string& key, const std::string& value) const;

 private:
  explicit JobStore(const PJRT_Client_Create_Args& args) : args_(args) {}

  const PJRT_Client_Create_Args args_;  // of the call that lasts as long
};

/// That of the process that came first. Throws driver::Error (FailedPrecondition) when that one is
/// on another host or of another user, when TPUBOARD_PROCESS_DIR names different folders, and when
/// this process sees another folder of that name, or none.
std::string agreed_folder(const JobStore& store, const ProcessPlace& place);

}  // namespace tpu::pjrt
