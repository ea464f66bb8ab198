// Where --record puts a step, and how it is read back.
#pragma once

#include <string>

#include "record/step_record.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

/// Writes the step that the board has recorded; nothing where `path` is empty. Throws as
/// write_file(), and FailedPrecondition when that step did not run to its end.
void write_record_file(const std::string& path, const Board& board);

bool is_record_file(const std::string& path);
/// Throws InvalidArgument for a file that is none or damaged.
spec::StepRecord read_record_file(const std::string& path);

}  // namespace tpu::driver
