// What the debugger prints, and how it reads what is typed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "instrument/kept_values.hpp"
#include "tpu/command_log.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

/// Elements as numbers; integers of 64 bit beyond 2^53 lose bits.
std::vector<double> numbers_of(const HostArray& array);

/// Type, range, elements that are not finite, and the first rows and columns.
std::string array_text(const HostArray& array);
/// `count` elements from `first` on, in row-major order.
std::string elements_text(const HostArray& array, size_t first, size_t count);

/// "%3 = stablehlo.add %1 arg0 : f32[2] at a.py:3:1"
std::string value_text(const compiler::KeptValues& kept, size_t value);
/// Core, engine, what, for which op, when, and its operands.
std::string command_text(const spec::LoggedCommand& command, const exe::ExecutableT& program);

/// "12", "0x1000"; below `limit`. Throws Error (InvalidArgument).
uint64_t parse_number(const std::string& text, uint64_t limit = UINT64_MAX);
/// "vmem:0x1000..0x10ff", "hbm:0x4000" of a core. Throws Error (InvalidArgument).
spec::MemoryRange parse_range(const std::string& text, uint32_t core);
/// "f32". Throws Error (InvalidArgument).
DType parse_dtype(const std::string& text);

}  // namespace tpu::driver
