// NumPy files to arrays on the board.
#include "cli/program_inputs.hpp"

#include <fmt/format.h>

#include <charconv>

#include "cli/options.hpp"
#include "format/npy.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

std::map<size_t, std::string> input_files(const std::vector<std::string>& texts) {
  std::map<size_t, std::string> files;
  for (const std::string& text : texts) {
    const auto [number, path] = split_assignment(text, "--in");
    size_t index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error != std::errc() || end != number.data() + number.size()) {
      throw UsageError(fmt::format("--in {}: expected NUMBER=FILE.npy", text));
    }
    if (!files.emplace(index, path).second) {
      throw UsageError(fmt::format("--in {}: argument {} is given twice", text, index));
    }
  }
  return files;
}

namespace {

void check_inputs(const Executable& program, const std::map<size_t, std::string>& files,
                  bool zeros) {
  const auto& parameters = program.arguments();
  for (const auto& [index, path] : files) {
    if (index >= parameters.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--in {}={}: {} takes {} arguments, numbered from 0", index, path,
                              program.name(), parameters.size()));
    }
  }
  for (size_t i = 0; i < parameters.size() && !zeros; ++i) {
    const ParameterInfo& info = parameters[i];
    if (!files.contains(i)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("argument {} ({}{}{}) of {} is not given; use --in {}=FILE.npy", i,
                              info.name, info.name.empty() ? "" : ", ",
                              type_text(info.dtype, info.shape), program.name(), i));
    }
  }
}

}  // namespace

// Files are mapped, not read, so that the host holds no array twice. The cores make the zeros.
std::vector<Array> place_inputs(const Executable& program,
                                const std::map<size_t, std::string>& files, bool zeros) {
  check_inputs(program, files, zeros);
  const auto& parameters = program.arguments();
  std::vector<Array> placed;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters[i];
    const auto file = files.find(i);
    if (file == files.end()) {
      placed.push_back(program.zeros(i));
      continue;
    }
    const NpyFile npy(file->second);
    const HostView& array = npy.view();
    if (array.dtype != info.dtype || array.shape != info.shape) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: argument {} must be {}, the file holds {}", file->second, i,
                      type_text(info.dtype, info.shape), type_text(array.dtype, array.shape)));
    }
    placed.push_back(program.put(i, array));
    npy.check();
  }
  for (const Array& array : placed) {
    array.wait();
  }
  return placed;
}

}  // namespace tpu::driver
