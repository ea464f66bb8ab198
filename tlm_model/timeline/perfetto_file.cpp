// Packets of a Perfetto trace. All are of one sequence, whose first packet begins the numbering of
// texts.
#include "timeline/perfetto_file.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "file/write_failure.hpp"

namespace tpu::model {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr uint64_t kSequence = 1;
constexpr uint64_t kShownByRank = 3;  // TrackDescriptor.ChildTracksOrdering.EXPLICIT

namespace packet_field {
enum : uint32_t {
  kTimestamp = 8,
  kSequenceId = 10,
  kTrackEvent = 11,
  kInterned = 12,
  kSequenceFlags = 13,
  kTrackDescriptor = 60,
};
}  // namespace packet_field

// TracePacket.SequenceFlags
constexpr uint64_t kStateCleared = 1;
constexpr uint64_t kNeedsState = 2;

namespace event_field {
enum : uint32_t {
  kCategoryIids = 3,
  kNotes = 4,
  kType = 9,
  kNameIid = 10,
  kTrack = 11,
  kPlaceIid = 34,
  kCounterValue = 44,
  kFlows = 47,
  kEndingFlows = 48,
};
}  // namespace event_field

// TrackEvent.Type
constexpr uint64_t kBegin = 1;
constexpr uint64_t kEnd = 2;
constexpr uint64_t kInstant = 3;
constexpr uint64_t kCounter = 4;

}  // namespace

PerfettoFile::PerfettoFile(const std::string& path, uint64_t clock_mhz)
    : path_(path), clock_mhz_(clock_mhz), lock_(path), file_(lock_.open_stream()) {
  if (file_ == nullptr) {
    throw std::runtime_error("cannot write timeline " + path + ": " + std::strerror(errno));
  }
}

PerfettoFile::~PerfettoFile() { finish(); }

void PerfettoFile::write_out() {
  const std::string& bytes = out_.bytes();
  // After a failure nothing more is tried: the file is incomplete anyway.
  if (file_ != nullptr && std::ferror(file_) == 0) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
      write_error_ = errno;
    }
  }
  out_.clear();
}

std::string PerfettoFile::finish() {
  if (file_ != nullptr) {
    write_out();
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(file_) != 0 || failed) {
      error_ = write_failure("timeline", path_, failed ? write_error_ : errno);
    }
    file_ = nullptr;
  }
  return error_;
}

template <class Fill>
void PerfettoFile::packet(const Fill& fill) {
  out_.message(1, [&] {
    out_.number(packet_field::kSequenceId, kSequence);
    out_.number(packet_field::kSequenceFlags, begun_ ? kNeedsState : kStateCleared | kNeedsState);
    fill();
  });
  begun_ = true;
  if (out_.bytes().size() > kBufferBytes) {
    write_out();
  }
}

template <class Fill>
PerfettoFile::Track PerfettoFile::describe(Track parent, std::string_view name, int rank,
                                           const Fill& fill) {
  const Track track = ++tracks_;
  packet([&] {
    out_.message(packet_field::kTrackDescriptor, [&] {
      out_.number(1, track);
      out_.text(2, name);
      if (parent != 0) {
        out_.number(5, parent);
      }
      out_.number(11, kShownByRank);
      out_.number(12, static_cast<uint64_t>(rank));
      fill();
    });
  });
  return track;
}

PerfettoFile::Track PerfettoFile::add_track(Track parent, std::string_view name, int rank,
                                            std::string_view description) {
  return describe(parent, name, rank, [&] {
    if (!description.empty()) {
      out_.text(14, description);
    }
  });
}

PerfettoFile::Track PerfettoFile::add_counter(Track parent, std::string_view name, int rank,
                                              std::string_view unit) {
  return describe(parent, name, rank, [&] { out_.message(8, [&] { out_.text(6, unit); }); });
}

PerfettoFile::Text PerfettoFile::intern(Texts& texts, uint32_t field, std::string_view text) {
  const auto [place, fresh] = texts.try_emplace(std::string(text), texts.size() + 1);
  const Text id = place->second;
  if (fresh) {
    packet([&] {
      out_.message(packet_field::kInterned, [&] {
        out_.message(field, [&] {
          out_.number(1, id);
          out_.text(2, text);
        });
      });
    });
  }
  return id;
}

PerfettoFile::Place PerfettoFile::place(std::string_view file, uint32_t line) {
  const auto [place, fresh] =
      places_.try_emplace(std::string(file) + ":" + std::to_string(line), places_.size() + 1);
  const Place id = place->second;
  if (fresh) {
    packet([&] {
      out_.message(packet_field::kInterned, [&] {
        out_.message(kPlaces, [&] {
          out_.number(1, id);
          out_.text(2, file);
          out_.number(4, line);
        });
      });
    });
  }
  return id;
}

// Time is nanoseconds, rounded down: with clocks up to 1 GHz each cycle has its own.
template <class Fill>
void PerfettoFile::event(Track track, uint64_t cycle, uint64_t type, const Fill& fill) {
  packet([&] {
    out_.number(packet_field::kTimestamp, cycle * 1000 / clock_mhz_);
    out_.message(packet_field::kTrackEvent, [&] {
      out_.number(event_field::kType, type);
      out_.number(event_field::kTrack, track);
      fill();
    });
  });
}

void PerfettoFile::slice(Track track, const Slice& slice) {
  event(track, slice.begin, kBegin, [&] {
    out_.number(event_field::kNameIid, slice.name);
    if (slice.category != 0) {
      out_.number(event_field::kCategoryIids, slice.category);
    }
    if (slice.place != 0) {
      out_.number(event_field::kPlaceIid, slice.place);
    }
    for (const Note& note : slice.notes) {
      out_.message(event_field::kNotes, [&] {
        out_.number(1, note.name);
        out_.number(3, note.value);
      });
    }
    for (const uint64_t flow : slice.flows_in) {
      out_.fixed64(event_field::kEndingFlows, flow);
    }
    for (const uint64_t flow : slice.flows_out) {
      out_.fixed64(event_field::kFlows, flow);
    }
  });
  end(track, slice.end);
}

void PerfettoFile::begin(Track track, uint64_t cycle, Text name) {
  event(track, cycle, kBegin, [&] { out_.number(event_field::kNameIid, name); });
}

void PerfettoFile::end(Track track, uint64_t cycle) {
  event(track, cycle, kEnd, [] {});
}

void PerfettoFile::instant(Track track, uint64_t cycle, Text name) {
  event(track, cycle, kInstant, [&] { out_.number(event_field::kNameIid, name); });
}

void PerfettoFile::count(Track track, uint64_t cycle, double value) {
  event(track, cycle, kCounter, [&] { out_.real(event_field::kCounterValue, value); });
}

}  // namespace tpu::model
