// Options of the board from environment variables: what each sets, and what is said of bad ones.
#include "client_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "board/chip_lease.hpp"
#include "tpu/error.hpp"
#include "visible_chips.hpp"

namespace tpu::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// What is said of `environment`, which must be refused.
std::string refusal(const Environment& environment) {
  try {
    read_client_options(environment);
  } catch (const driver::Error& error) {
    EXPECT_EQ(error.code(), driver::ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "no error";
}

TEST(ClientOptions, ChipsOfATpuHostAreThoseOfAProgramOfOneProcess) {
  const auto chips = [](Environment environment) {
    environment.emplace("TPU_VISIBLE_CHIPS", "0,1");
    return visible_chips([&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(chips({}), "0,1");
  EXPECT_EQ(chips({{"TPU_PROCESS_BOUNDS", "1,1,1"}, {"TPU_PROCESS_ADDRESSES", "a:1,b:2"}}), "0,1");
  EXPECT_EQ(chips({{"TPUBOARD_PROCESS_COUNT", "1"}, {"TPU_PROCESS_ADDRESSES", "a:1"}}), "0,1");
  EXPECT_EQ(chips({{"TPU_PROCESS_BOUNDS", "2,2,1"}}), "");
  EXPECT_EQ(chips({{"TPUBOARD_PROCESS_COUNT", "2"}}), "");
  EXPECT_EQ(chips({{"TPU_PROCESS_ADDRESSES", "a:1,b:2"}}), "");
  EXPECT_EQ(visible_chips([](const char*) { return nullptr; }), "");
}

TEST(ClientOptions, ChipsOfATpuHostHaveTheShapeThatAnotherVariableNames) {
  // What is said of chips with these bounds.
  const auto said = [](const std::string& chips, const char* bounds) -> std::string {
    try {
      check_shape(spec::load_chips("v3_8", {}, chips), chips, [&](const char* name) {
        return name == std::string("TPU_CHIPS_PER_PROCESS_BOUNDS") ? bounds : nullptr;
      });
    } catch (const driver::Error& error) {
      EXPECT_EQ(error.code(), driver::ErrorCode::kInvalidArgument);
      return error.message();
    }
    return "";
  };
  for (const char* const bounds : {"1,2,1", "1,2", "", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(said("0,2", bounds), "");
  }
  EXPECT_EQ(said("", "1,1,1"), "") << "no chips are named";
  EXPECT_EQ(said("0,2", "2,1,1"),
            "TPU_VISIBLE_CHIPS=0,2 names 1 x 2 chips, TPU_CHIPS_PER_PROCESS_BOUNDS=2,1,1: expected "
            "1,2,1; take one of them away");
  EXPECT_THAT(said("0", "2,2,1"), HasSubstr("names 1 x 1 chips"));
  EXPECT_THAT(said("0,1,2,3", "2,2,2"), HasSubstr("expected 2,2,1"));
  EXPECT_THAT(said("0,1", "two"), HasSubstr("TPU_CHIPS_PER_PROCESS_BOUNDS=two: expected 2,1,1"));
}

TEST(ClientOptions, OfAnEmptyEnvironmentAreTheDefaults) {
  const ClientOptions options = read_client_options({});
  EXPECT_EQ(options.platform, "tpu");
  EXPECT_EQ(options.open.preset, driver::OpenOptions().preset);
  EXPECT_EQ(options.style, compiler::Style::kBest);
  EXPECT_TRUE(options.fit);
  EXPECT_EQ(options.roll_layers, compiler::RollLayers::kAuto);
  EXPECT_TRUE(options.cache);
  EXPECT_EQ(options.call_log, "");
  EXPECT_TRUE(options.monitor);
}

TEST(ClientOptions, SayWhatTheVariablesSay) {
  const ClientOptions options = read_client_options({{"TPUBOARD_PLATFORM", "tpuboard"},
                                                     {"TPUBOARD_BOARD", "v2_8"},
                                                     {"TPUBOARD_SET", ";core.clock_mhz=700;;a=b;"},
                                                     {"TPUBOARD_STYLE", "xla2023"},
                                                     {"TPUBOARD_FIT", "off"},
                                                     {"TPUBOARD_ROLL_LAYERS", "on"},
                                                     {"TPUBOARD_THREADS", "3"},
                                                     {"TPUBOARD_SIMD", "avx2"},
                                                     {"TPUBOARD_TIME_LIMIT", "0.5"},
                                                     {"TPUBOARD_PROGRESS", "2.5"},
                                                     {"TPUBOARD_CHECK", "1"},
                                                     {"TPUBOARD_TRACE", "t.txt"},
                                                     {"TPUBOARD_FIRMWARE", "own.elf"},
                                                     {"TPUBOARD_FIRMWARE_LOG", "-"},
                                                     {"TPUBOARD_TRACE_MMIO", "m.txt"},
                                                     {"TPUBOARD_GDB", ":1234"},
                                                     {"TPUBOARD_GDB_WAIT", "1"},
                                                     {"TPUBOARD_LOG", "stderr"},
                                                     {"TPUBOARD_CACHE", "/tmp/cache"},
                                                     {"TPUBOARD_MONITOR", "0"},
                                                     {"TPUBOARD_CONNECT", "unix:/board"},
                                                     {"TPUBOARD_BOARD_PROCESSES", "2"},
                                                     {"TPUBOARD_CONNECT_TOKEN", "token"},
                                                     {"TPUBOARD_CONNECT_WAIT", "1.5"},
                                                     {"TPUBOARD_CHIPS", "2,3"},
                                                     {"TPUBOARD_PROCESS_ID", "3"},
                                                     {"TPUBOARD_PROCESS_COUNT", "4"},
                                                     {"TPUBOARD_PROCESS_DIR", "/tmp/meet"}});
  EXPECT_EQ(options.platform, "tpuboard");
  EXPECT_EQ(options.open.preset, "v2_8");
  EXPECT_THAT(options.open.overrides, ElementsAre("core.clock_mhz=700", "a=b"));
  EXPECT_EQ(options.style, compiler::Style::kXla2023);
  EXPECT_FALSE(options.fit);
  EXPECT_EQ(options.roll_layers, compiler::RollLayers::kOn);
  EXPECT_EQ(options.open.sim.threads, 3);
  EXPECT_EQ(options.open.sim.simd, "avx2");
  EXPECT_EQ(options.open.time_limit, 0.5);
  EXPECT_EQ(options.open.progress_seconds, 2.5);
  EXPECT_TRUE(options.open.sim.check);
  EXPECT_EQ(options.open.sim.trace_path, "t.txt");
  EXPECT_EQ(options.open.firmware_file, "own.elf");
  EXPECT_EQ(options.open.sim.firmware_log, "-");
  EXPECT_EQ(options.open.sim.mmio_trace_path, "m.txt");
  EXPECT_EQ(options.open.sim.gdb, ":1234");
  EXPECT_TRUE(options.open.sim.gdb_wait);
  EXPECT_EQ(options.open.connect, "unix:/board");
  EXPECT_EQ(options.open.board_processes, 2);
  EXPECT_EQ(options.open.connect_token, "token");
  EXPECT_EQ(options.open.connect_wait, 1.5);
  EXPECT_EQ(options.open.connect_chips, "2,3");
  EXPECT_EQ(options.process, 3);
  EXPECT_EQ(options.processes, 4);
  EXPECT_EQ(options.process_folder, "/tmp/meet");
  EXPECT_EQ(options.call_log, "stderr");
  EXPECT_TRUE(options.cache);
  EXPECT_EQ(options.cache_folder, "/tmp/cache");
  EXPECT_FALSE(options.monitor);
}

TEST(ClientOptions, TheTimeLimitLetsTrainingsInALoopEnd) {
  EXPECT_EQ(read_client_options({}).open.time_limit, 3600);
  EXPECT_EQ(read_client_options({}).open.progress_seconds, 60);
  EXPECT_EQ(read_client_options({{"TPUBOARD_PROGRESS", "0"}}).open.progress_seconds, 0);
  EXPECT_EQ(driver::OpenOptions().progress_seconds, 0) << "who embeds a board has not asked";
  EXPECT_EQ(read_client_options({{"TPUBOARD_TIME_LIMIT", "0"}}).open.time_limit, 0);
  EXPECT_FALSE(read_client_options({{"TPUBOARD_GDB", ":0"}}).open.time_limit);
  EXPECT_FALSE(
      read_client_options({{"TPUBOARD_MXU", "board.chip0.core0.mxu0=rtl"}}).open.time_limit);
}

TEST(ClientOptions, TheCacheCanBeOff) {
  EXPECT_FALSE(read_client_options({{"TPUBOARD_CACHE", "off"}}).cache);
}

TEST(ClientOptions, AnUnknownVariableIsRefusedWithTheListOfAll) {
  const std::string text = refusal({{"TPUBOARD_BORD", "v3_8"}});
  for (const char* part :
       {"unknown environment variable TPUBOARD_BORD; the closest name is TPUBOARD_BOARD: expected",
        "TPUBOARD_PLATFORM", "TPUBOARD_CACHE"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(refusal({{"TPUBOARD_OPTIME", "1"}}),
              HasSubstr("the closest name is TPUBOARD_OP_TIMES"));
  EXPECT_THAT(refusal({{"TPUBOARD_SOMETHING_ELSE", "1"}}), Not(HasSubstr("closest")));
}

TEST(ClientOptions, SettingsBehindACommaAreRefused) {
  EXPECT_THAT(
      refusal({{"TPUBOARD_SET", "hbm.gbps_per_chip=1800,mxu.rows=64"}}),
      HasSubstr("environment variable TPUBOARD_SET: 'hbm.gbps_per_chip=1800,mxu.rows=64' is "
                "more than one setting: separate settings by ; as in "
                "\"hbm.gbps_per_chip=1800;mxu.rows=64\""));
  EXPECT_THAT(refusal({{"TPUBOARD_MXU", "*.mxu0=rtl,*.mxu1=rtl"}}),
              HasSubstr("separate settings by ; as in \"*.mxu0=rtl;*.mxu1=rtl\""));
  EXPECT_THAT(refusal({{"TPUBOARD_SET", "board.name=a,b,mxu.rows=64,mxu.cols=64"}}),
              HasSubstr("by ; as in \"board.name=a,b;mxu.rows=64;mxu.cols=64\""));
  EXPECT_EQ(read_client_options({{"TPUBOARD_SET", "board.name=a,b"}}).open.overrides,
            std::vector<std::string>{"board.name=a,b"});
}

TEST(ClientOptions, BadValuesAreRefusedWithTheirVariable) {
  const std::pair<const char*, const char*> bad[] = {
      {"PLATFORM", "gpu"},  {"THREADS", "-1"},     {"THREADS", "2.5"}, {"THREADS", "many"},
      {"THREADS", ""},      {"THREADS", "1025"},   {"SIMD", "sse4"},   {"TIME_LIMIT", "nan"},
      {"TIME_LIMIT", "-1"}, {"TIME_LIMIT", "1 s"}, {"CHECK", "yes"},   {"CHECK", ""}};
  for (const auto& [name, value] : bad) {
    const std::string variable = std::string("TPUBOARD_") + name;
    const std::string text = refusal({{variable, value}});
    EXPECT_THAT(text, HasSubstr(variable)) << value;
    EXPECT_THAT(text, HasSubstr("'" + std::string(value) + "'"));
  }
}

TEST(ClientOptions, TextsOfTheCommandLineAreRefusedAsThere) {
  EXPECT_THAT(refusal({{"TPUBOARD_MXU", "board.chip0.core0.mxu0=verilog"}}),
              HasSubstr("environment variable TPUBOARD_MXU: invalid value"));
}

TEST(ChangedEnvironment, TakesWhatAnOpenBoardCanChange) {
  const Environment now = {{"TPUBOARD_MXU", "board.*=rtl"}, {"TPUBOARD_THREADS", "2"}};
  const Environment wanted = {{"TPUBOARD_OP_TIMES", "1"}, {"TPUBOARD_THREADS", "2"}};
  EXPECT_EQ(changed_environment(now, {{"TPUBOARD_MXU", ""}, {"TPUBOARD_OP_TIMES", "1"}}), wanted);
  EXPECT_TRUE(read_client_options(wanted).open.sim.op_times);
}

TEST(ClientOptions, ARecordIsOfTheLongestStepOfAllOrOfSome) {
  const auto sim_of = [](const Environment& environment) {
    return read_client_options(environment).open.sim;
  };
  EXPECT_TRUE(sim_of({}).record_path.empty());
  const spec::SimOptions all = sim_of({{"TPUBOARD_RECORD", "a.tpurec"}});
  EXPECT_EQ(all.record_path, "a.tpurec");
  EXPECT_EQ(all.record_path_first_step, 0U);
  EXPECT_EQ(all.record_path_steps, UINT64_MAX);
  const spec::SimOptions some =
      sim_of({{"TPUBOARD_RECORD", "a.tpurec"}, {"TPUBOARD_RECORD_STEPS", "7..8"}});
  EXPECT_EQ(some.record_path_first_step, 7U);
  EXPECT_EQ(some.record_path_steps, 2U);
  EXPECT_THAT(refusal({{"TPUBOARD_RECORD_STEPS", "7..7"}}), HasSubstr("TPUBOARD_RECORD"));
  EXPECT_THAT(refusal({{"TPUBOARD_RECORD", "a"}, {"TPUBOARD_RECORD_STEPS", "8..7"}}),
              HasSubstr("TPUBOARD_RECORD_STEPS"));
  const Environment changed = changed_environment({}, {{"TPUBOARD_RECORD", "b.tpurec"}});
  EXPECT_EQ(sim_of(changed).record_path, "b.tpurec");
}

TEST(ChangedEnvironment, WavesAreOfAllStepsUnlessSomeAreNamed) {
  const auto sim_of = [](const Environment& changes) {
    return read_client_options(changed_environment({{"TPUBOARD_WAVES_STEPS", "3..4"}}, changes))
        .open.sim;
  };
  const spec::SimOptions all = sim_of({{"TPUBOARD_WAVES", "a.fst"}});
  EXPECT_EQ(all.waves_path, "a.fst");
  EXPECT_EQ(all.waves_first_step, 0U);
  EXPECT_EQ(all.waves_steps, UINT64_MAX);
  const spec::SimOptions some =
      sim_of({{"TPUBOARD_WAVES", "a.fst"}, {"TPUBOARD_WAVES_STEPS", "7..9"}});
  EXPECT_EQ(some.waves_first_step, 7U);
  EXPECT_EQ(some.waves_steps, 3U);
  EXPECT_TRUE(sim_of({{"TPUBOARD_WAVES", ""}}).waves_path.empty());
}

TEST(ClientOptions, WavesHaveTheWindowThatTheyHaveOnTheCommandLine) {
  const spec::SimOptions sim = read_client_options({{"TPUBOARD_WAVES", "a.fst"},
                                                    {"TPUBOARD_WAVES_SCOPE", "*.hart;*.sem"},
                                                    {"TPUBOARD_WAVES_TRIGGER", "line=a.py:3"},
                                                    {"TPUBOARD_WAVES_FOR", "500cycles"},
                                                    {"TPUBOARD_WAVES_BEFORE", "70"}})
                                   .open.sim;
  EXPECT_THAT(sim.waves_scopes, ::testing::ElementsAre("*.hart", "*.sem"));
  EXPECT_EQ(sim.waves_trigger, "line=a.py:3");
  EXPECT_EQ(sim.waves_for_cycles, 500U);
  EXPECT_EQ(sim.waves_before_cycles, 70U);
  const auto refused = [](Environment environment) {
    environment["TPUBOARD_WAVES"] = "a.fst";
    return refusal(environment);
  };
  EXPECT_THAT(refused({{"TPUBOARD_WAVES_STEPS", "1..2"}, {"TPUBOARD_WAVES_TRIGGER", "nan"}}),
              HasSubstr("TPUBOARD_WAVES_TRIGGER and TPUBOARD_WAVES_STEPS exclude each other"));
  EXPECT_THAT(refused({{"TPUBOARD_WAVES_STEPS", "1..2"}, {"TPUBOARD_WAVES_BEFORE", "9"}}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refused({{"TPUBOARD_WAVES_FOR", "3steps"}}),
              HasSubstr("TPUBOARD_WAVES_FOR needs TPUBOARD_WAVES_TRIGGER"));
  EXPECT_THAT(
      refused({{"TPUBOARD_WAVES_TRIGGER", "nan"}, {"TPUBOARD_WAVES_FOR", "3"}}),
      HasSubstr("TPUBOARD_WAVES_FOR: invalid value '3': expected a number of cycles or steps"));
  EXPECT_THAT(refused({{"TPUBOARD_WAVES_BEFORE", "-1"}}),
              HasSubstr("TPUBOARD_WAVES_BEFORE: invalid value '-1'"));
  EXPECT_THAT(refusal({{"TPUBOARD_WAVES_STEPS", "1..2"}}),
              HasSubstr("TPUBOARD_WAVES_STEPS needs TPUBOARD_WAVES"));
}

TEST(ChangedEnvironment, WavesOfAnEventAreNotOfAllSteps) {
  const spec::SimOptions sim =
      read_client_options(
          changed_environment({{"TPUBOARD_WAVES_STEPS", "3..4"}},
                              {{"TPUBOARD_WAVES", "a.fst"}, {"TPUBOARD_WAVES_TRIGGER", "nan"}}))
          .open.sim;
  EXPECT_EQ(sim.waves_trigger, "nan");
  EXPECT_EQ(sim.waves_first_step, 0U);
  EXPECT_EQ(sim.waves_steps, 1U);
}

TEST(ChangedEnvironment, WhatTheBoardWasBuiltWithIsRefused) {
  for (const char* name : {"TPUBOARD_BOARD", "TPUBOARD_THREADS", "TPUBOARD_NONSENSE", "MXU"}) {
    try {
      changed_environment({}, {{name, "1"}});
      FAIL() << name;
    } catch (const driver::Error& error) {
      EXPECT_EQ(error.code(), driver::ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.message(), ::testing::HasSubstr(name));
      EXPECT_THAT(error.message(), ::testing::HasSubstr("TPUBOARD_WAVES, TPUBOARD_WAVES_STEPS"));
    }
  }
}

}  // namespace
}  // namespace tpu::client
