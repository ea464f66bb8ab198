// Records as files.
#include "cli/record_file.hpp"

#include <fmt/format.h>

#include <span>

#include "file/files.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

void write_record_file(const std::string& path, const Board& board) {
  if (path.empty()) {
    return;
  }
  const std::string bytes = board.take_record();
  if (bytes.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("--record: nothing was recorded: no step {} ran to its end; "
                            "--record-step counts steps from 0, those before a snapshot included",
                            board.sim().record_step));
  }
  write_file(path, std::as_bytes(std::span(bytes)));
}

bool is_record_file(const std::string& path) {
  const FileBytes file(path);
  return file.use([](auto bytes) { return spec::is_record(bytes); });
}

spec::StepRecord read_record_file(const std::string& path) {
  const FileBytes file(path);
  try {
    return file.use([](auto bytes) { return spec::read_record(bytes); });
  } catch (const spec::RecordError& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace tpu::driver
