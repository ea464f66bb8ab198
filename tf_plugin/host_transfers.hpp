// Transfers between a program that runs and the operations of its step that run on the host
// ("outside compilation": tf.print, tf.py_function, tf.summary and others), and those with the
// feeds of its core.
#pragma once

#include <memory>
#include <vector>

#include "abi/types.h"
#include "lowering/lowered.hpp"
#include "tpu/executable.hpp"

namespace tpu::tensorflow {

/// Answers the host calls of a launch on one core, `device`. `host`: null if all are of feeds.
driver::HostCallHandler host_call_handler(
    const std::shared_ptr<HostSide>& host, int device,
    std::shared_ptr<const std::vector<HostTransfer>> transfers);

}  // namespace tpu::tensorflow
