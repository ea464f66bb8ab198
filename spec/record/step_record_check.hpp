// What readers of a record rely on.
#pragma once

#include "record/step_record.hpp"

namespace tpu::spec {

/// Throws RecordError where an index is out of range or times do not follow each other.
void check_record(const StepRecord& record);

}  // namespace tpu::spec
