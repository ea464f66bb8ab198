// Texts of the debugger.
#include "cli/debug/debug_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "check/refuse.hpp"
#include "exe/code_text.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kRows = 8;
constexpr size_t kColumns = 8;

double number_of(uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case DType::kBf16:
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    case DType::kF64:
      return std::bit_cast<double>(bits);
    case DType::kI8:
      return static_cast<int8_t>(bits);
    case DType::kI16:
      return static_cast<int16_t>(bits);
    case DType::kI32:
      return static_cast<int32_t>(bits);
    case DType::kI64:
      return static_cast<double>(static_cast<int64_t>(bits));
    default:
      return static_cast<double>(bits);
  }
}

std::string row_text(const std::vector<double>& all, size_t first, size_t count, bool more) {
  std::string text;
  for (size_t i = first; i < first + count; ++i) {
    text += fmt::format(" {:.6g}", all[i]);
  }
  return text + (more ? " ..." : "");
}

// "[1,0,:]": where row `row` of the last dimension lies.
std::string row_place(const Shape& shape, size_t row) {
  std::string text = ":]";
  for (size_t d = shape.size() - 1; d-- > 0;) {
    const auto dim = static_cast<size_t>(shape[d]);
    text = fmt::format("{},{}", row % dim, text);
    row /= dim;
  }
  return "[" + text;
}

constexpr std::array<std::string_view, 3> kMemories = {"vmem", "smem", "hbm"};

std::string operand_text(const spec::OperandRange& operand) {
  return fmt::format(" {}{}:{:#x}..{:#x}{}", operand.write ? "-> " : "",
                     kMemories.at(static_cast<size_t>(operand.range.memory)), operand.range.low,
                     operand.range.low + operand.range.bytes - 1,
                     operand.write ? fmt::format(" of core {}", operand.range.core) : "");
}

std::string_view opcode_name(uint8_t opcode) {
  const auto* const found =
      std::find_if(spec::kCommands.begin(), spec::kCommands.end(),
                   [&](const auto& info) { return static_cast<uint8_t>(info.opcode) == opcode; });
  return found == spec::kCommands.end() ? "?" : std::string_view(found->name);
}

}  // namespace

std::vector<double> numbers_of(const HostArray& array) {
  const size_t size = dtype_bytes(array.dtype);
  std::vector<double> all;
  for (size_t at = 0; at + size <= array.bytes.size(); at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, array.bytes.data() + at, std::min(size, sizeof bits));
    all.push_back(number_of(bits, array.dtype));
  }
  return all;
}

namespace {

// Complex numbers as pairs of their parts.
HostArray parts_of(const HostArray& array) {
  HostArray parts = array;
  parts.dtype = DType::kF32;
  parts.shape.push_back(2);
  return parts;
}

}  // namespace

std::string array_text(const HostArray& array) {
  if (array.dtype == DType::kC64) {
    return type_text(array.dtype, array.shape) + " as " + array_text(parts_of(array));
  }
  const std::vector<double> all = numbers_of(array);
  if (all.empty()) {
    return type_text(array.dtype, array.shape) + ": no elements\n";
  }
  const auto bad =
      std::count_if(all.begin(), all.end(), [](double x) { return !std::isfinite(x); });
  std::vector<double> finite;
  std::copy_if(all.begin(), all.end(), std::back_inserter(finite),
               [](double x) { return std::isfinite(x); });
  std::string text = type_text(array.dtype, array.shape);
  if (!finite.empty()) {
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    text += fmt::format(", {:.6g} to {:.6g}", *low, *high);
  }
  text += bad != 0 ? fmt::format(", {} not finite\n", bad) : "\n";
  const size_t columns = array.shape.empty() ? 1 : static_cast<size_t>(array.shape.back());
  const size_t rows = all.size() / columns;
  for (size_t row = 0; row < std::min(rows, kRows); ++row) {
    text +=
        fmt::format("  {}{}\n", array.shape.empty() ? "" : row_place(array.shape, row),
                    row_text(all, row * columns, std::min(columns, kColumns), columns > kColumns));
  }
  return rows > kRows ? text + fmt::format("  ... {} rows\n", rows) : text;
}

std::string elements_text(const HostArray& array, size_t first, size_t count) {
  if (array.dtype == DType::kC64) {
    return elements_text(parts_of(array), 2 * first, 2 * count);
  }
  const std::vector<double> all = numbers_of(array);
  if (first >= all.size()) {
    refuse(fmt::format("{}: the array has {} elements", first, all.size()));
  }
  const size_t end = first + std::min(count, all.size() - first);
  std::string text;
  for (size_t at = first; at < end; at += kColumns) {
    text += fmt::format("  {:>6}:{}\n", at, row_text(all, at, std::min(kColumns, end - at), false));
  }
  return text;
}

std::string value_text(const compiler::KeptValues& kept, size_t value) {
  const compiler::KeptValue& info = kept.values[value];
  return fmt::format("%{} = {} {} : {} at {}", value, info.op, fmt::join(info.operands, " "),
                     to_string(info.type), info.where);
}

std::string command_text(const spec::LoggedCommand& command, const exe::ExecutableT& program) {
  std::string text =
      fmt::format("core {} {} {} at word {}", command.core,
                  command.unit < spec::kQueueNames.size() ? spec::kQueueNames[command.unit] : "?",
                  opcode_name(command.opcode), command.pc);
  if (command.op_id < program.ops.size()) {
    const exe::OpInfoT& op = *program.ops[command.op_id];
    text += " for " + op.name;
    text += op.file.empty() ? "" : fmt::format(" ({}:{})", op.file, op.line);
  }
  text += command.done == 0 ? fmt::format(", started in cycle {}, not completed", command.start)
                            : fmt::format(", cycles {} to {}", command.start, command.done);
  for (const exe::CodeLine& line : exe::code_around(program, command.pc, 0)) {
    text += "\n      " + line.text;
  }
  text += command.operands.empty() ? "" : "\n     ";
  for (const spec::OperandRange& operand : command.operands) {
    text += operand_text(operand);
  }
  return text;
}

uint64_t parse_number(const std::string& text, uint64_t limit) {
  const bool hex = text.starts_with("0x");
  const char* const end = text.data() + text.size();
  uint64_t value = 0;
  const auto [rest, error] =
      std::from_chars(text.data() + (hex ? 2 : 0), end, value, hex ? 16 : 10);
  if (error != std::errc() || rest != end) {
    refuse(text + ": expected a number");
  }
  if (value >= limit) {
    refuse(fmt::format("{}: expected a number below {}", text, limit));
  }
  return value;
}

spec::MemoryRange parse_range(const std::string& text, uint32_t core) {
  const size_t colon = text.find(':');
  const auto* const memory =
      std::find(kMemories.begin(), kMemories.end(), std::string_view(text).substr(0, colon));
  if (colon == std::string::npos || memory == kMemories.end()) {
    refuse(text + ": expected vmem:LOW..HIGH, smem:LOW..HIGH or hbm:LOW..HIGH");
  }
  const std::string places = text.substr(colon + 1);
  const size_t dots = places.find("..");
  const uint64_t low = parse_number(places.substr(0, dots));
  const uint64_t high = dots == std::string::npos ? low : parse_number(places.substr(dots + 2));
  if (high < low) {
    refuse(text + ": the end is before the begin");
  }
  return {core, static_cast<spec::CoreMemory>(memory - kMemories.begin()), low, high - low + 1};
}

DType parse_dtype(const std::string& text) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    if (text == dtype_name(static_cast<DType>(i))) {
      return static_cast<DType>(i);
    }
  }
  refuse(text + ": no element type; f32, bf16, i32, ui32, i8, ui8, i1, i16, ui16, i64, ui64 are");
}

}  // namespace tpu::driver
