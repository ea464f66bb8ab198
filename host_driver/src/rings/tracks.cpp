// Counts that wrap: a point is reached when the count is not before it.
#include "src/rings/tracks.hpp"

#include "file/archive.hpp"

namespace tpu::driver {
namespace {

// `a` is not before `b`, on counters that wrap.
bool reached(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) >= 0; }

void raise(Tracks::Counts& waits, const Allocation::TrackPoints& points, uint32_t resets) {
  if (points.reset != resets) {
    return;
  }
  for (size_t track = 0; track < kTracks; ++track) {
    if (points.set[track] && !reached(waits[track], points.count[track])) {
      waits[track] = points.count[track];
    }
  }
}

void set_point(Allocation::TrackPoints& points, uint32_t resets, size_t track, uint32_t point) {
  if (points.reset != resets) {
    points = {};
    points.reset = resets;
  }
  points.count[track] = point;
  points.set[track] = true;
}

}  // namespace

Tracks::Counts Tracks::send(const Command& command) {
  Counts waits = done_;
  for (const auto& range : command.reads) {
    raise(waits, range->writers, resets_);
  }
  for (const auto& range : command.writes) {
    raise(waits, range->writers, resets_);
    raise(waits, range->readers, resets_);
  }
  const size_t track = command.track;
  const uint32_t point = ++sent_[track];
  for (const auto& range : command.reads) {
    set_point(range->readers, resets_, track, point);
  }
  for (const auto& range : command.writes) {
    range->readers = {};
    range->writers = {};
    set_point(range->writers, resets_, track, point);
  }
  return waits;
}

void Tracks::reset() {
  ++resets_;
  sent_ = {};
  done_ = {};
}

void Tracks::visit_state(spec::Archive& archive) { archive(resets_, sent_, done_); }

}  // namespace tpu::driver
