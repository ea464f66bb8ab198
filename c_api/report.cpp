// Reports of recorded steps.
#include <span>
#include <string>
#include <thread>

#include "analysis/step_report.hpp"
#include "file/files.hpp"
#include "handles.hpp"
#include "record/step_record.hpp"

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_write_report(const char* record, const char* page, uint32_t changes) {
  return guarded([&] {
    constexpr uint32_t kMostChanges = 100;
    need_most(changes, kMostChanges, "changes", "at most 100 changes are looked for");
    const std::string from = &need(record, "record");
    const std::string to = &need(page, "page");
    tpu::spec::StepRecord step;
    try {
      const tpu::driver::FileBytes file(from);
      step = file.use([](auto bytes) { return tpu::spec::read_record(bytes); });
    } catch (const tpu::spec::RecordError& error) {
      refuse(from + ": " + error.what());
    }
    const std::string text = tpu::driver::report_page(
        tpu::driver::step_report(step, changes, std::thread::hardware_concurrency()));
    tpu::driver::write_file(to, std::as_bytes(std::span(text)));
  });
}
