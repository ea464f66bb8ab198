// Topology: the cores of a board as frameworks describe them, known without opening it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pjrt_abi.h"
#include "tpu/spec/board_params.hpp"

struct PJRT_DeviceDescription {
  int id = 0;
  int process = 0;
  std::string kind;   // "TPU v3"
  std::string text;   // "TPU:3"
  std::string debug;  // with chip and coordinates
  int64_t coords[3] = {0, 0, 0};
  std::vector<PJRT_NamedValue> attributes;
};

namespace tpu::pjrt {

struct Topology {
  std::string platform;  // "tpu"
  std::string version;   // of this software, and the board
  std::string bytes;     // serialized: platform and numbers of the board, a line each
  std::vector<std::unique_ptr<PJRT_DeviceDescription>> owned;
  std::vector<PJRT_DeviceDescription*> devices;
  std::vector<PJRT_NamedValue> attributes;
};

/// `owners`: the processes that share the board, by device; empty: one has it.
std::shared_ptr<const Topology> make_topology(const std::string& platform,
                                              const spec::BoardParams& board,
                                              const std::vector<int>& owners = {});

PJRT_NamedValue named_integer(const char* name, int64_t value);
PJRT_NamedValue named_integers(const char* name, const int64_t* values, size_t count);
PJRT_NamedValue named_float(const char* name, float value);

}  // namespace tpu::pjrt
