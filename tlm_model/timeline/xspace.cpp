// Messages of an XSpace.
#include "timeline/xspace.hpp"

#include <utility>

namespace tpu::model {
namespace {

namespace plane_field {
enum : uint32_t { kId = 1, kName = 2, kLines = 3, kEventMetadata = 4, kStatMetadata = 5 };
}
namespace line_field {
enum : uint32_t { kId = 1, kName = 2, kEvents = 4, kDisplayId = 10 };
}
namespace event_field {
enum : uint32_t { kMetadata = 1, kOffset = 2, kDuration = 3, kStats = 4 };
}
namespace metadata_field {
enum : uint32_t { kId = 1, kName = 2, kDisplayName = 4, kStats = 5 };
}
namespace stat_field {
enum : uint32_t { kMetadata = 1, kReal = 2, kNumber = 3, kSigned = 4, kText = 5, kBytes = 6 };
}

// An entry of a map from a number to a message.
template <class Fill>
void put_entry(spec::ProtoWriter& to, uint32_t field, uint64_t id, const Fill& fill) {
  to.message(field, [&] {
    to.number(1, id);
    to.message(2, fill);
  });
}

}  // namespace

XPlane::XPlane(uint64_t id, std::string_view name) {
  plane_.number(plane_field::kId, id);
  plane_.text(plane_field::kName, name);
}

void XPlane::put_stat(spec::ProtoWriter& to, uint32_t field, const Stat& stat) {
  const auto [id, fresh] = stat_ids_.try_emplace(std::string(stat.name), stat_ids_.size() + 1);
  to.message(field, [&, number = id->second] {
    to.number(stat_field::kMetadata, number);
    if (const auto* value = std::get_if<uint64_t>(&stat.value)) {
      to.number(stat_field::kNumber, *value);
    } else if (const auto* number_with_sign = std::get_if<int64_t>(&stat.value)) {
      to.number(stat_field::kSigned, static_cast<uint64_t>(*number_with_sign));
    } else if (const auto* real = std::get_if<double>(&stat.value)) {
      to.real(stat_field::kReal, *real);
    } else if (const auto* text = std::get_if<std::string>(&stat.value)) {
      to.text(stat_field::kText, *text);
    } else {
      to.text(stat_field::kBytes, std::get<Bytes>(stat.value).value);
    }
  });
}

uint64_t XPlane::add_metadata(std::string_view name, std::string_view shown, const Stats& stats) {
  const uint64_t id = ++metadata_;
  put_entry(plane_, plane_field::kEventMetadata, id, [&] {
    plane_.number(metadata_field::kId, id);
    plane_.text(metadata_field::kName, name);
    plane_.text(metadata_field::kDisplayName, shown);
    for (const Stat& stat : stats) {
      put_stat(plane_, metadata_field::kStats, stat);
    }
  });
  return id;
}

void XPlane::begin_line(std::string_view name) {
  ++lines_;
  line_.number(line_field::kId, lines_);
  line_.number(line_field::kDisplayId, lines_);
  line_.text(line_field::kName, name);
}

void XPlane::add_event(uint64_t metadata, uint64_t begin_ps, uint64_t duration_ps,
                       const Stats& stats) {
  line_.message(line_field::kEvents, [&] {
    line_.number(event_field::kMetadata, metadata);
    line_.number(event_field::kOffset, begin_ps);
    line_.number(event_field::kDuration, duration_ps);
    for (const Stat& stat : stats) {
      put_stat(line_, event_field::kStats, stat);
    }
  });
}

void XPlane::end_line() {
  plane_.text(plane_field::kLines, line_.bytes());
  line_.clear();
}

std::string XPlane::take() {
  for (const auto& [name, id] : stat_ids_) {
    put_entry(plane_, plane_field::kStatMetadata, id, [&, number = id, &text = name] {
      plane_.number(1, number);
      plane_.text(2, text);
    });
  }
  return plane_.take();
}

}  // namespace tpu::model
