// What a program that brings its own framework can say about the board: environment variables
// TPUBOARD_*, since such a program has no command line for us. Names and meanings: docs/jax.md.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "entry/compile.hpp"
#include "tpu/board.hpp"

namespace tpu::client {

struct ClientOptions {
  std::string platform = "tpu";  // name under which frameworks see the board: tpu | tpuboard
  driver::OpenOptions open;
  std::string call_log;  // "stderr", a file, or empty: none
  compiler::Style style = compiler::Style::kBest;
  bool fit = true;  // a program that is too large for HBM computes values again
  compiler::RollLayers roll_layers = compiler::RollLayers::kAuto;
  bool cache = true;          // keep executables on disk
  std::string cache_folder;   // empty: none can be named (no home folder)
  uint64_t cache_mib = 1024;  // most that the folder is to hold
  // How long a launch waits for replicas that do nothing, in seconds; 0: for any time.
  double replica_seconds = 600;
  bool monitor = true;         // publish metrics of the process (docs/monitor.md)
  int process = -1;            // among those that share the board; -1: not said
  int processes = 0;           // that share the board; 0: not said
  std::string process_folder;  // where they meet; empty: not said
};

// All variables that exist with TPUBOARD_ in front of their name.
using Environment = std::map<std::string, std::string>;
Environment environment_of_process();

// `environment` with other values of variables that an open board can change: MXU, TRACE, WAVES and
// those of its window, TIMELINE, TIMELINE_STEPS, RECORD, RECORD_STEPS, OP_TIMES; an empty value
// takes one away. Without WAVES_STEPS, WAVES_TRIGGER and WAVES_BEFORE waves that begin so are of
// all steps. Throws driver::Error (FailedPrecondition) for any other.
Environment changed_environment(Environment environment, const Environment& changes);

// What an error says to users of a framework, who know options as variables of the environment.
std::string text_of(const std::exception& error);

// Throws driver::Error (InvalidArgument) for an unknown TPUBOARD_* variable and for a value that
// cannot be used; the text lists what there is.
ClientOptions read_client_options(const Environment& environment);

}  // namespace tpu::client
