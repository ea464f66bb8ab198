// The report of a recorded step: as JSON, and as one HTML page that shows it and needs no network.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "record/step_record.hpp"

namespace tpu::driver {

/// Who looks at a report while it is made.
struct ReportWatch {
  /// What there is so far: without what the waits were for, the critical path and the changes that
  /// would shorten the step ("causes_to_come"); then without the changes, which take most of the
  /// time ("changes_to_come"). The page says so.
  std::function<void(const nlohmann::ordered_json&)> early = [](const nlohmann::ordered_json&) {};
  /// The share of the changes that is worked out; by any thread, one at a time.
  std::function<void(double)> done = [](double) {};
};

/// Keys: docs/report.md. Throws Error FailedPrecondition for a record that holds no step (more
/// commands than a record can have).
/// `changes`: how many of the best are told.
nlohmann::ordered_json step_report(const spec::StepRecord& record, size_t changes, unsigned threads,
                                   const ReportWatch& watch = {});

std::string report_page(const nlohmann::ordered_json& report);

}  // namespace tpu::driver
