// The report of a recorded step: as JSON, and as one HTML page that shows it and needs no network.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "record/step_record.hpp"

namespace tpu::driver {

/// Keys: docs/report.md. Throws Error FailedPrecondition for a record that holds no step (more
/// commands than a record can have).
/// `changes`: how many of the best are told.
nlohmann::ordered_json step_report(const spec::StepRecord& record, size_t changes,
                                   unsigned threads);

std::string report_page(const nlohmann::ordered_json& report);

}  // namespace tpu::driver
