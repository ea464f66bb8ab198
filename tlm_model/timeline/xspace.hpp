// A profile in the format of XProf and TensorBoard (XSpace, protobuf): planes of lines of events,
// whose names and statistics are numbered in each plane. Field numbers and the names of statistics:
// tsl/profiler/protobuf/xplane.proto and xla/tsl/profiler/utils of the XLA project.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "format/proto_writer.hpp"

namespace tpu::model {

class XPlane {
 public:
  // A text, a message's bytes, a number or a real number. XProf reads some numbers only as signed
  // ones, such as "group_id".
  struct Bytes {
    std::string value;
  };
  struct Stat {
    std::string_view name;
    std::variant<uint64_t, int64_t, double, std::string, Bytes> value;
  };
  using Stats = std::vector<Stat>;

  XPlane(uint64_t id, std::string_view name);

  void add_stat(const Stat& stat) { put_stat(plane_, 6, stat); }
  // An event that can happen: its number.
  uint64_t add_metadata(std::string_view name, std::string_view shown, const Stats& stats);

  // Lines one after the other, each followed by its events in the order of their begin.
  void begin_line(std::string_view name);
  void add_event(uint64_t metadata, uint64_t begin_ps, uint64_t duration_ps, const Stats& stats);
  void end_line();

  // Ends the plane.
  std::string take();

 private:
  void put_stat(spec::ProtoWriter& to, uint32_t field, const Stat& stat);

  spec::ProtoWriter plane_;
  spec::ProtoWriter line_;
  uint64_t lines_ = 0;
  uint64_t metadata_ = 0;
  std::map<std::string, uint64_t, std::less<>> stat_ids_;
};

}  // namespace tpu::model
