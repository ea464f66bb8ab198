// The profile: which steps are in it, and that taking it forgets them. What XProf reads from one:
// tests/cli/xprof_test.py.
#include "timeline/xprof_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"

namespace tpu::model {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

void run_step(XprofSink& sink, uint64_t step) {
  const ProbeSource source{.core = 2,
                           .unit = static_cast<uint32_t>(spec::Queue::kMxu0),
                           .sequence = step + 1,
                           .step = step,
                           .op_id = 41,
                           .opcode = static_cast<uint8_t>(spec::Opcode::kMatmul)};
  const uint64_t at = 1000 * step;
  sink.program(
      {.cycle = at, .core = 2, .gang = spec::CoreSet(4), .launch = 1, .step = step, .begin = true});
  sink.start({.cycle = at + 10, .source = source, .flops = 2000});
  sink.done({.cycle = at + 500, .source = source, .start = at + 10});
  sink.program({.cycle = at + 900, .core = 2, .gang = spec::CoreSet(4), .launch = 1, .step = step});
}

TEST(XprofSink, TakesWhatIsOverAndForgetsIt) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 0);
  const std::string space = sink.take_xspace();
  EXPECT_THAT(space, HasSubstr("/device:TPU:2"));
  EXPECT_THAT(space, Not(HasSubstr("/device:TPU:1")));  // ran nothing
  EXPECT_THAT(space, HasSubstr("%op 41.41"));
  EXPECT_THAT(space, HasSubstr("matrix_unit_utilization_percent"));
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 1);
  // The same again but for the number of the step: times begin with the first step.
  EXPECT_EQ(sink.take_xspace().size(), space.size());
}

TEST(XprofSink, StepsBehindAFullProfileAreLeftOut) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs, 2);
  for (uint64_t step = 0; step < 5; ++step) {
    run_step(sink, step);  // one span
  }
  EXPECT_THAT(sink.take_xspace(), HasSubstr("3 steps of cores were left out: the profile is full"));
  run_step(sink, 5);
  EXPECT_THAT(sink.take_xspace(), Not(HasSubstr("left out")));  // there is room again
}

TEST(XprofSink, NamesTheKindOfTheChip) {
  const LaunchPrograms programs;
  for (const auto& [board, kind, other] :
       {std::tuple{"v3_8", "TPU v3", "TPU v2"}, std::tuple{"v2_8", "TPU v2", "TPU v3"}}) {
    XprofSink sink(spec::load_board(board), 0, UINT64_MAX, programs);
    run_step(sink, 0);
    const std::string space = sink.take_xspace();
    EXPECT_THAT(space, HasSubstr(kind));
    EXPECT_THAT(space, Not(HasSubstr(other)));
  }
}

// Fields of a message, for what no other test's reader shows: the type of a number.
std::multimap<uint32_t, std::string> fields_of(std::string_view bytes) {
  const auto varint = [&bytes] {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  };
  std::multimap<uint32_t, std::string> fields;
  while (!bytes.empty()) {
    const uint64_t tag = varint();
    std::string text;
    if ((tag & 7) == 0) {
      text = std::to_string(varint());
    } else {
      const uint64_t size = (tag & 7) == 1 ? 8 : varint();
      text = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
    fields.emplace(tag >> 3, text);
  }
  return fields;
}

std::string first(const std::multimap<uint32_t, std::string>& fields, uint32_t number) {
  const auto found = fields.find(number);
  return found == fields.end() ? "" : found->second;
}

using Stats = std::multimap<std::string, std::pair<uint32_t, std::string>>;  // name: field, value

std::vector<std::string> all_of(const std::multimap<uint32_t, std::string>& fields,
                                uint32_t number) {
  std::vector<std::string> values;
  for (auto [field, end] = fields.equal_range(number); field != end; ++field) {
    values.push_back(field->second);
  }
  return values;
}

// The first device's plane.
std::multimap<uint32_t, std::string> device_of(const std::string& space) {
  for (const std::string& plane : all_of(fields_of(space), 1)) {
    const auto fields = fields_of(plane);
    if (first(fields, 2).starts_with("/device")) {
      return fields;
    }
  }
  return {};
}

Stats stats_of(const std::multimap<uint32_t, std::string>& plane,
               const std::vector<std::string>& messages) {
  std::map<std::string, std::string> names;
  for (const std::string& entry : all_of(plane, 5)) {
    names[first(fields_of(entry), 1)] = first(fields_of(first(fields_of(entry), 2)), 2);
  }
  Stats stats;
  for (const std::string& message : messages) {
    const auto parts = fields_of(message);
    stats.emplace(names.at(first(parts, 1)), *parts.upper_bound(1));
  }
  return stats;
}

// Of all events on a line.
Stats stats_on(const std::string& space, std::string_view line) {
  const auto plane = device_of(space);
  Stats stats;
  for (const std::string& each : all_of(plane, 3)) {
    const auto fields = fields_of(each);
    for (const std::string& event : all_of(fields, 4)) {
      if (first(fields, 2) == line) {
        stats.merge(stats_of(plane, all_of(fields_of(event), 4)));
      }
    }
  }
  return stats;
}

// Of an operation.
Stats op_stats(const std::string& space, std::string_view name) {
  const auto plane = device_of(space);
  for (const std::string& entry : all_of(plane, 4)) {
    const auto fields = fields_of(first(fields_of(entry), 2));
    if (first(fields, 2) == name) {
      return stats_of(plane, all_of(fields, 5));
    }
  }
  return {};
}

constexpr uint32_t kUnsigned = 3, kSigned = 4;  // fields of an XStat

// XProf reads an unsigned group as group 0, and shows no step.
TEST(XprofSink, GroupsAreSignedNumbers) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  run_step(sink, 7);
  const std::string space = sink.take_xspace();
  for (const char* line : {"Steps", "XLA Modules", "XLA Ops"}) {
    EXPECT_THAT(stats_on(space, line), Contains(Pair("group_id", Pair(kSigned, "7")))) << line;
  }
}

TEST(XprofSink, ALaunchOfAnEventOfTheCallerLeavesGroupsToXprof) {
  LaunchPrograms programs;
  programs.name(1, std::make_shared<exe::ExecutableT>(), 99);
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  run_step(sink, 7);
  const std::string space = sink.take_xspace();
  EXPECT_THAT(stats_on(space, "Steps"), UnorderedElementsAre(Pair("_ct", Pair(kSigned, "14")),
                                                             Pair("_c", Pair(kUnsigned, "99"))));
  EXPECT_THAT(space, Not(HasSubstr("group_id")));  // XProf would not group the host's events
  programs.name(1, nullptr);
  run_step(sink, 8);
  EXPECT_THAT(sink.take_xspace(), HasSubstr("group_id"));
}

TEST(XprofSink, OperationsTellTheirCategoryAndWhatTheySend) {
  LaunchPrograms programs;
  auto program = std::make_shared<exe::ExecutableT>();
  program->name = "jit_step";
  for (int i = 0; i < 42; ++i) {
    program->ops.push_back(std::make_unique<exe::OpInfoT>());
    program->ops.back()->name = "all_reduce";
  }
  programs.name(1, program);
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  sink.program({.cycle = 0, .core = 2, .gang = spec::CoreSet(4), .launch = 1, .begin = true});
  const ProbeSource source{.core = 2,
                           .unit = static_cast<uint32_t>(spec::Queue::kDmaRemote),
                           .sequence = 1,
                           .op_id = 41,
                           .opcode = static_cast<uint8_t>(spec::Opcode::kDma)};
  sink.flow({.cycle = 10, .source = source, .bytes = 4096, .from = {2}, .to = {3}});
  sink.start({.cycle = 10, .source = source});
  sink.done({.cycle = 500, .source = source, .start = 10});
  sink.program({.cycle = 900, .core = 2, .gang = spec::CoreSet(4), .launch = 1});
  const std::string space = sink.take_xspace();
  EXPECT_THAT(space, HasSubstr("all-reduce"));
  EXPECT_THAT(space, HasSubstr("jit_step/all_reduce:all_reduce"));
  EXPECT_THAT(op_stats(space, "%all_reduce.41"),
              Contains(Pair("bytes_accessed", Pair(kUnsigned, "4096"))));
}

TEST(XprofSink, AStepThatIsNotOverIsLeftOut) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 0, UINT64_MAX, programs);
  sink.program({.cycle = 5, .core = 1, .gang = spec::CoreSet(2), .launch = 1, .begin = true});
  EXPECT_THAT(sink.take_xspace(), Not(HasSubstr("/device:TPU:1")));
}

TEST(XprofSink, AWindowOfSteps) {
  const LaunchPrograms programs;
  XprofSink sink(spec::load_board("v3_8"), 3, 2, programs);
  run_step(sink, 0);
  EXPECT_EQ(sink.take_xspace(), "");
  run_step(sink, 4);
  EXPECT_NE(sink.take_xspace(), "");
  run_step(sink, 5);
  EXPECT_EQ(sink.take_xspace(), "");
}

}  // namespace
}  // namespace tpu::model
