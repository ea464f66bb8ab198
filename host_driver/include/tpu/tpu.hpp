// The whole public interface of the driver, with its names in namespace tpu.
#pragma once

#include "tpu/board.hpp"
#include "tpu/buffer.hpp"
#include "tpu/commands.hpp"
#include "tpu/counters.hpp"
#include "tpu/error.hpp"
#include "tpu/event.hpp"
#include "tpu/executable.hpp"
#include "tpu/per_replica.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/step_feed.hpp"
#include "tpu/transport.hpp"
#include "tpu/types.hpp"
#include "tpu/version.hpp"
#include "tpu/vfio_user.hpp"
#include "tpu/worker.hpp"

namespace tpu {

// types.hpp
using driver::byte_count;
using driver::DType;
using driver::dtype_bytes;
using driver::dtype_name;
using driver::element_count;
using driver::HostArray;
using driver::HostView;
using driver::Shape;
using driver::type_text;
// error.hpp, version.hpp
using driver::Error;
using driver::error_code_name;
using driver::ErrorCode;
using driver::ErrorPlace;
using driver::kVersion;
// event.hpp, buffer.hpp
using driver::Array;
using driver::Buffer;
using driver::Event;
using driver::HostEvent;
using driver::Layout;
using driver::PieceSink;
// executable.hpp
using driver::Executable;
using driver::HostCallHandler;
using driver::HostCallInfo;
using driver::ParameterInfo;
using driver::ProgramCost;
using driver::RunOptions;
using driver::RunResult;
// per_replica.hpp
using driver::per_replica;
using driver::PerReplica;
using driver::reduce;
using driver::Reduction;
// step_feed.hpp
using driver::StepFeed;
// board.hpp, and its facets
using driver::Board;
using driver::BoardCounters;
using driver::BoardFacet;
using driver::CloseMode;
using driver::CoreCounters;
using driver::CoreTimes;
using driver::DebugFacet;
using driver::DeviceInfo;
using driver::HostWorkTime;
using driver::MemoryFacet;
using driver::OpenOptions;
using driver::OpTime;
using driver::ProfilingFacet;
using driver::ProgramFacet;
using driver::SimOptions;
using driver::SnapshotFacet;
using driver::SnapshotItems;
using driver::ThreadForecast;
using driver::TransportFactory;
// commands.hpp
using driver::log_commands;
using driver::take_commands;
// counters.hpp
using driver::counter_names;
// transport.hpp
using driver::ConsoleLine;
using driver::FaultWords;
using driver::HartPlace;
using driver::HostMemory;
using driver::make_null_transport;
using driver::make_sim_transport;
using driver::OpTally;
using driver::ProgramPlace;
using driver::RegisterWrite;
using driver::RunOutcome;
using driver::Transport;
using driver::TransportDebugPort;
using driver::TransportRequest;
using driver::TransportStats;
// vfio_user.hpp
using driver::serve_vfio_user;
using driver::VfioUserOptions;
// worker.hpp
using driver::serve_boards;
using driver::ServeOptions;

}  // namespace tpu
