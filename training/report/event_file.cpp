// The file is a TFRecord file: each message is a record.
#include "report/event_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "event.pb.h"
#include "input/records/record_format.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

report::Event event_at(int64_t step) {
  report::Event event;
  event.set_wall_time(wall_time());
  event.set_step(step);
  return event;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, int64_t step) {
  const auto second = static_cast<int64_t>(wall_time());
  std::string path;
  // One of the same second is that of a run that was ended and goes on: it keeps its events.
  for (int number = 0; file_ == nullptr && (number == 0 || errno == EEXIST); ++number) {
    path = (folder / fmt::format("events.out.tfevents.{}.{}tpuboard", second,
                                 number == 0 ? "" : fmt::format("{}.", number)))
               .string();
    file_.reset(std::fopen(path.c_str(), "wbxe"));
  }
  if (file_ == nullptr) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
  report::Event version = event_at(0);
  version.set_file_version("brain.Event:2");
  record(version.SerializeAsString());
  report::Event start = event_at(step + 1);
  start.mutable_session_log()->set_status(report::SessionLog::START);
  record(start.SerializeAsString());
}

void EventFile::add(int64_t step, const std::vector<Metric>& values) {
  report::Event event = event_at(step);
  for (const Metric& metric : values) {
    report::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(metric.name);
    value->set_simple_value(static_cast<float>(metric.value));
  }
  record(event.SerializeAsString());
}

bool EventFile::flush() { return std::fflush(file_.get()) == 0 && std::ferror(file_.get()) == 0; }

void EventFile::record(const std::string& message) {
  std::vector<std::byte> bytes;
  input::append_record(bytes, std::as_bytes(std::span(message)));
  std::fwrite(bytes.data(), 1, bytes.size(), file_.get());
}

}  // namespace tpu::training
