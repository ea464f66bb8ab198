// A record: length, its checksum, the message, its checksum; checksums are CRC-32C, rotated and
// moved by a constant.
#include "report/event_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "event.pb.h"
#include "file/crc32c.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint32_t masked_crc(std::span<const std::byte> bytes) {
  constexpr uint32_t kDelta = 0xa282ead8u;
  const uint32_t crc = spec::crc32c(bytes);
  return (crc >> 15 | crc << 17) + kDelta;
}

template <typename Number>
void append(std::string& record, Number number) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));  // little-endian
  record.append(bytes, sizeof(number));
}

report::Event event_at(int64_t step) {
  report::Event event;
  event.set_wall_time(wall_time());
  event.set_step(step);
  return event;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, int64_t step) {
  const std::string path =
      (folder / fmt::format("events.out.tfevents.{}.tpuboard", static_cast<int64_t>(wall_time())))
          .string();
  file_.reset(std::fopen(path.c_str(), "wb"));
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
  std::string bytes;
  append(bytes, static_cast<uint64_t>(message.size()));
  append(bytes, masked_crc(std::as_bytes(std::span(bytes))));
  bytes += message;
  append(bytes, masked_crc(std::as_bytes(std::span(message))));
  std::fwrite(bytes.data(), 1, bytes.size(), file_.get());
}

}  // namespace tpu::training
