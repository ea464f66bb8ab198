// A trace in Perfetto's format (protobuf), for https://ui.perfetto.dev and its trace processor: the
// packets that the timeline needs. Field numbers: protos/perfetto/trace of that project. Written as
// it goes, through a buffer; a string is written once and then known by its number.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "file/file_lock.hpp"
#include "format/proto_writer.hpp"

namespace tpu::model {

class PerfettoFile {
 public:
  using Track = uint64_t;
  // Interned texts and places; 0: none.
  using Text = uint64_t;
  using Place = uint64_t;
  struct Note {  // shown with a slice
    Text name = 0;
    uint64_t value = 0;
  };
  struct Slice {
    uint64_t begin = 0, end = 0;  // cycles
    Text name = 0;
    Text category = 0;
    Place place = 0;
    std::span<const Note> notes{};
    std::span<const uint64_t> flows_in{};   // end here
    std::span<const uint64_t> flows_out{};  // go on from here
  };

  // Times are core cycles of `clock_mhz`. Throws std::runtime_error when the file cannot be
  // created, or another run writes it.
  PerfettoFile(const std::string& path, uint64_t clock_mhz);
  ~PerfettoFile();
  PerfettoFile(const PerfettoFile&) = delete;
  PerfettoFile& operator=(const PerfettoFile&) = delete;

  // `parent` 0: at the top. Tracks of one parent are shown by rank.
  Track add_track(Track parent, std::string_view name, int rank, std::string_view description = {});
  Track add_counter(Track parent, std::string_view name, int rank, std::string_view unit);

  Text name(std::string_view text) { return intern(names_, kEventNames, text); }
  Text category(std::string_view text) { return intern(categories_, kCategories, text); }
  Text note_name(std::string_view text) { return intern(note_names_, kNoteNames, text); }
  Place place(std::string_view file, uint32_t line);

  // Slices of a track nest or follow each other.
  void slice(Track track, const Slice& slice);
  void begin(Track track, uint64_t cycle, Text name);
  void end(Track track, uint64_t cycle);
  void instant(Track track, uint64_t cycle, Text name);
  void count(Track track, uint64_t cycle, double value);

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish();

 private:
  using Texts = std::unordered_map<std::string, uint64_t>;
  static constexpr uint32_t kCategories = 1, kEventNames = 2, kNoteNames = 3, kPlaces = 4;

  Text intern(Texts& texts, uint32_t field, std::string_view text);
  template <class Fill>
  void packet(const Fill& fill);
  template <class Fill>
  void event(Track track, uint64_t cycle, uint64_t type, const Fill& fill);
  template <class Fill>
  Track describe(Track parent, std::string_view name, int rank, const Fill& fill);
  void write_out();

  const std::string path_;
  const uint64_t clock_mhz_;
  FileLock lock_;
  std::FILE* file_;
  spec::ProtoWriter out_;
  Texts names_, categories_, note_names_, places_;
  uint64_t tracks_ = 0;
  bool begun_ = false;
  int write_error_ = 0;  // as in errno
  std::string error_;
};

}  // namespace tpu::model
