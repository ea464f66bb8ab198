// The whole public interface of the driver, with its names in namespace tpu.
#pragma once

#include "tpu/board.hpp"
#include "tpu/buffer.hpp"
#include "tpu/error.hpp"
#include "tpu/event.hpp"
#include "tpu/executable.hpp"
#include "tpu/types.hpp"

namespace tpu {

using driver::Array;
using driver::Board;
using driver::Buffer;
using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::Event;
using driver::Executable;
using driver::HostArray;
using driver::HostView;
using driver::OpenOptions;
using driver::RunOptions;
using driver::Shape;

}  // namespace tpu
