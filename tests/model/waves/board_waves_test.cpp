// Waves of the board: events become changes of the signals that were asked for, and the window
// opens and closes where it should.
#include "waves/board_waves.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "exe/executable.hpp"
#include "fst_reader.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::model {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Change = test::WaveChange;
using Changes = test::WaveChanges;
using test::read_fst;

std::string temp_file(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// What a board tells of one command of core 0; results come 10 cycles after the engine is free.
class Board {
 public:
  explicit Board(BoardWaves& waves) : waves_(waves) {}

  void program(uint64_t cycle, uint64_t step, bool begin, bool complete = true) {
    waves_.program({.cycle = cycle, .step = step, .begin = begin, .complete = complete});
    step_ = step;
  }
  void issue(uint64_t cycle, spec::Queue queue, spec::Opcode opcode, uint32_t op_id = 7) {
    waves_.issue({.cycle = cycle, .source = source(queue, opcode, op_id)});
  }
  void start(uint64_t cycle, spec::Queue queue, spec::Opcode opcode, uint32_t op_id = 7) {
    waves_.start({.cycle = cycle, .source = source(queue, opcode, op_id)});
  }
  void done(uint64_t cycle, spec::Queue queue, spec::Opcode opcode) {
    waves_.done({.cycle = cycle, .source = source(queue, opcode, 7)});
  }
  void hart(uint64_t cycle, uint32_t pc, bool sleeping) {
    waves_.hart({.cycle = cycle,
                 .kind = sleeping ? HartEvent::Kind::kSleep : HartEvent::Kind::kRun,
                 .pc = pc});
  }
  void semaphore(uint64_t cycle, uint32_t index, uint32_t value) {
    waves_.semaphore({.cycle = cycle, .semaphore = index, .value = value});
  }

 private:
  ProbeSource source(spec::Queue queue, spec::Opcode opcode, uint32_t op_id) const {
    return {.unit = static_cast<uint32_t>(queue),
            .step = step_,
            .pc = op_id * 10,
            .op_id = op_id,
            .opcode = static_cast<uint8_t>(opcode)};
  }

  BoardWaves& waves_;
  uint64_t step_ = 0;
};

BoardWavesOptions one_core(const std::string& name, uint64_t first_step = 0, uint64_t steps = 1) {
  BoardWavesOptions options;
  options.path = temp_file(name);
  options.board = {.chips = 1, .cores_per_chip = 1, .mxus = 2, .semaphores = 8};
  options.clock_mhz = 1000;
  options.first_step = first_step;
  options.step_count = steps;
  return options;
}

// From the first change at `from` on.
std::vector<Change> since(const Changes& changes, const std::string& name, uint64_t from) {
  std::vector<Change> list = changes.at(name);
  std::erase_if(list, [from](const Change& change) { return change.time < from; });
  return list;
}

std::vector<uint64_t> times(const std::vector<Change>& changes) {
  std::vector<uint64_t> list;
  for (const Change& change : changes) {
    list.push_back(change.time / 1000);
  }
  return list;
}

// Transfers are free to be followed at once, and done much later.
TEST(BoardWaves, BusyLastsUntilTheResultsAreThere) {
  BoardWaves waves(one_core("busy.fst"));
  Board board(waves);
  board.program(0, 0, true);
  board.issue(1, spec::Queue::kDmaIn, spec::Opcode::kDma);
  board.issue(2, spec::Queue::kDmaIn, spec::Opcode::kFill);
  board.start(10, spec::Queue::kDmaIn, spec::Opcode::kDma);
  board.start(11, spec::Queue::kDmaIn, spec::Opcode::kFill, 9);
  board.done(300, spec::Queue::kDmaIn, spec::Opcode::kDma);
  board.done(400, spec::Queue::kDmaIn, spec::Opcode::kFill);
  board.program(500, 0, false);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("busy.fst"));
  const std::string queue = "board.chip0.core0.dma_in.";
  EXPECT_EQ(since(changes, queue + "busy", 1000),
            (std::vector<Change>{{10000, "1"}, {400000, "0"}}));
  EXPECT_EQ(since(changes, queue + "opcode", 1000),
            (std::vector<Change>{{10000, "dma"}, {11000, "fill"}, {400000, "-"}}));
  EXPECT_EQ(since(changes, queue + "state", 1000),
            (std::vector<Change>{{1000, "queued"}, {10000, "runs"}, {400000, "idle"}}));
  EXPECT_THAT(times(since(changes, queue + "op_id", 1000)), ElementsAre(10, 11));
  EXPECT_THAT(times(since(changes, queue + "queued", 1000)), ElementsAre(1, 2, 10, 11));
  EXPECT_THAT(times(since(changes, queue + "in_flight", 1000)), ElementsAre(10, 11, 300, 400));
  EXPECT_THAT(times(since(changes, "board.chip0.core0.seq.pc", 1000)), ElementsAre(1));
}

TEST(BoardWaves, HartsAreShownAsTheyStandAndMove) {
  BoardWaves waves(one_core("hart.fst", 0, 2));
  Board board(waves);
  board.hart(5, 0x80, true);  // before the window: where it stands when it opens
  board.program(10, 0, true);
  board.hart(20, 0x80, false);
  board.hart(30, 0x92, true);
  board.program(40, 0, false);
  board.hart(45, 0x100, false);  // between two steps of the window
  board.program(50, 1, true);
  board.program(60, 1, false);
  board.hart(70, 0x200, true);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("hart.fst"));
  EXPECT_EQ(since(changes, "board.chip0.core0.hart.wfi", 10000),
            (std::vector<Change>{{10000, "1"}, {20000, "0"}, {30000, "1"}, {45000, "0"}}));
  const std::vector<Change> pc = since(changes, "board.chip0.core0.hart.pc", 10000);
  ASSERT_EQ(pc.size(), 3U);
  EXPECT_EQ(std::stoul(pc[0].value, nullptr, 2), 0x80U);
  EXPECT_EQ(pc[1].time, 30000U);
  EXPECT_EQ(std::stoul(pc[2].value, nullptr, 2), 0x100U);
  EXPECT_EQ(changes.at("board.chip0.core0.hart.mode").back().value, "machine");
}

TEST(BoardWaves, CommandsShowWhatTheyWaitForAndTouch) {
  BoardWaves waves(one_core("fields.fst"));
  Board board(waves);
  board.program(0, 0, true);
  const ProbeSource source = {.unit = static_cast<uint32_t>(spec::Queue::kDmaIn), .sequence = 3};
  waves.wait({.cycle = 4, .source = source, .index = 6, .wanted = 2, .begin = true});
  waves.wait({.cycle = 9, .source = source, .index = 6, .wanted = 2, .begin = false});
  const std::array<AccessRange, 2> ranges = {
      {{.memory = ProbeMemory::kHbm, .low = 0x4000, .bytes = 512},
       {.memory = ProbeMemory::kVmem, .low = 0x80, .bytes = 256, .write = true}}};
  const std::function<void(const RangeVisitor&)> walk = [](const RangeVisitor&) {};
  waves.access({.cycle = 9, .source = source, .extents = ranges, .walk = walk});
  FlowEvent flow{.cycle = 9,
                 .source = source,
                 .bytes = 512,
                 .left = 512,
                 .from = {0, ProbeMemory::kHbm},
                 .to = {0, ProbeMemory::kVmem}};
  waves.flow(flow);
  flow.phase = FlowEvent::Phase::kRate, flow.rate = uint64_t{64} << 20;
  waves.flow(flow);
  flow.phase = FlowEvent::Phase::kEnd, flow.cycle = 17, flow.left = 0;
  waves.flow(flow);
  board.semaphore(20, 6, 5);
  waves.device_register({.cycle = 21, .offset = 0x40, .value = 12});
  waves.device_register(
      {.cycle = 22, .block = RegisterEvent::Block::kIrq, .offset = 4, .value = 1});
  waves.device_register(
      {.cycle = 23, .block = RegisterEvent::Block::kIrq, .offset = 0, .value = 1});
  waves.device_register(
      {.cycle = 24, .block = RegisterEvent::Block::kChipPage, .offset = 0, .value = 3});
  board.program(30, 0, false);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("fields.fst"));
  const auto last = [&](const std::string& name, uint64_t cycle) {
    std::string value;
    for (const Change& change : changes.at("board.chip0." + name)) {
      value = change.time <= cycle * 1000 ? change.value : value;
    }
    return value;
  };
  const auto bits = [&](const std::string& name, uint64_t cycle) {
    return std::stoull(last(name, cycle), nullptr, 2);
  };
  EXPECT_EQ(last("core0.dma_in.state", 8), "waits");
  EXPECT_EQ(last("core0.dma_in.state", 9), "idle");
  EXPECT_EQ(bits("core0.dma_in.wait_semaphore", 8), 6U);
  EXPECT_EQ(bits("core0.dma_in.wait_value", 8), 2U);
  EXPECT_EQ(last("core0.dma_in.read0_memory", 9), "hbm");
  EXPECT_EQ(bits("core0.dma_in.read0_address", 9), 0x4000U);
  EXPECT_EQ(bits("core0.dma_in.write_bytes", 9), 256U);
  EXPECT_EQ(bits("core0.dma_in.flow_bytes_per_kcycle", 9), 64000U);
  EXPECT_EQ(bits("core0.hbm.read_bytes_per_kcycle", 16), 64000U);
  EXPECT_EQ(bits("core0.hbm.read_bytes_per_kcycle", 17), 0U);
  EXPECT_EQ(bits("core0.dma_in.flow_left", 17), 0U);
  EXPECT_EQ(bits("core0.sem.sem6", 20), 5U);
  EXPECT_EQ(bits("core0.page.cmd_tail", 21), 12U);
  EXPECT_EQ(last("core0.irq.line", 22), "0");
  EXPECT_EQ(last("core0.irq.line", 23), "1");
  EXPECT_EQ(bits("pcie.msi_pending", 24), 3U);
}

TEST(BoardWaves, AWindowBehindTheRunIsAnError) {
  BoardWaves waves(one_core("late.fst", 7, 2));
  Board board(waves);
  for (uint64_t step = 0; step < 3; ++step) {
    board.program(10 * step, step, true);
    board.program(10 * step + 5, step, false);
  }
  const std::string error = waves.finish();
  EXPECT_THAT(error, HasSubstr("nothing was recorded in"));
  EXPECT_THAT(error, HasSubstr("late.fst: of the steps 7 to 8 none ran; the board ran 3 steps"));
}

TEST(BoardWaves, ASecondRunOnTheFileIsToldWhy) {
  BoardWaves waves(one_core("shared.fst"));
  Board board(waves);
  board.program(0, 0, true);
  const auto second = [] { BoardWaves other(one_core("shared.fst")); };
  EXPECT_THROW(
      {
        try {
          second();
        } catch (const std::runtime_error& error) {
          EXPECT_THAT(error.what(), HasSubstr("shared.fst is already open for writing"));
          throw;
        }
      },
      std::runtime_error);
  board.program(10, 0, false);
  EXPECT_EQ(waves.finish(), "");
  EXPECT_EQ(read_fst(temp_file("shared.fst")).at("board.chip0.core0.program_running").size(), 2U);
  second();
}

TEST(BoardWaves, TheWindowHoldsItsStepsOnly) {
  BoardWaves waves(one_core("board.fst", 1, 1));
  Board board(waves);
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t t = 1000 * step;
    board.program(t, step, true);
    board.start(t + 10, spec::Queue::kMxu0, spec::Opcode::kMatmul);
    board.start(t + 50, spec::Queue::kVpu, spec::Opcode::kVpuKernel);
    board.done(t + 70, spec::Queue::kVpu, spec::Opcode::kVpuKernel);
    board.done(t + 100, spec::Queue::kMxu0, spec::Opcode::kMatmul);
    board.program(t + 200, step, false);
  }
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("board.fst"));
  const auto& busy = changes.at("board.chip0.core0.mxu0.busy");
  EXPECT_EQ(std::vector<Change>(busy.end() - 2, busy.end()),
            (std::vector<Change>{{1010000, "1"}, {1100000, "0"}}));
  const auto& opcode = changes.at("board.chip0.core0.vpu.opcode");
  EXPECT_EQ(opcode[opcode.size() - 2], (Change{1050000, "vpu_kernel"}));
  for (const auto& [name, list] : changes) {
    for (const Change& change : list) {
      EXPECT_TRUE(change.time >= 1000000 && change.time <= 1200000) << name << " " << change.time;
    }
  }
}

TEST(BoardWaves, AGlobTakesInstancesAndWhatIsBelowThem) {
  BoardWavesOptions options = one_core("scope.fst");
  options.scopes = {"*.hart", "board.chip0.core0.sem.sem3"};
  BoardWaves waves(options);
  Board board(waves);
  board.program(0, 0, true);
  board.program(10, 0, false);
  EXPECT_EQ(waves.finish(), "");
  std::vector<std::string> names;
  for (const auto& [name, list] : read_fst(temp_file("scope.fst"))) {
    names.push_back(name);
  }
  EXPECT_THAT(names, Contains("board.chip0.core0.hart.pc"));
  EXPECT_THAT(names, Contains("board.chip0.core0.sem.sem3"));
  EXPECT_THAT(names, Each(AnyOf(HasSubstr(".hart."), HasSubstr("sem.sem3"))));
}

TEST(BoardWaves, AGlobThatMatchesNothingListsNearNames) {
  BoardWavesOptions options = one_core("glob.fst");
  options.scopes = {"board.chip0.core0.vpu", "board.chip0.core7.hart"};
  try {
    BoardWaves waves(options);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("SimOptions::waves_scopes board.chip0.core7.hart: matches no instance of this "
                  "board; like it are board.chip0.core0.hart"));
  }
}

std::string text_of(const std::string& name) {
  std::ifstream file(temp_file(name));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(BoardWaves, FilesForViewersTakeThePlaceOfOldOnes) {
  const std::vector<std::string> ends = {".gtkw", ".sucl", ".ops.txt", ".chip0.core0.gtkw",
                                         ".chip0.core0.sucl"};
  for (const std::string& end : ends) {
    std::ofstream(temp_file("placed" + end)) << "old";
    std::filesystem::remove(temp_file("kept" + end));
    std::filesystem::create_hard_link(temp_file("placed" + end), temp_file("kept" + end));
  }
  BoardWaves waves(one_core("placed.fst"));
  Board board(waves);
  board.program(10, 0, true);
  board.program(90, 0, false);
  EXPECT_EQ(waves.finish(), "");
  for (const std::string& end : ends) {
    EXPECT_EQ(text_of("kept" + end), "old") << end;
    EXPECT_NE(text_of("placed" + end), "old") << end;
  }
}

TEST(BoardWaves, FilesForViewersShowAFewRowsAndTheRestInClosedGroups) {
  BoardWavesOptions options = one_core("views.fst");
  options.scopes = {"board.chip0.core0.vpu", "*.pcie"};
  BoardWaves waves(options);
  Board board(waves);
  board.program(10, 0, true);
  board.program(90, 0, false);
  EXPECT_EQ(waves.finish(), "");
  // A core alone: the file of the board shows it as its own file does, and what is on no core too.
  for (const std::string name : {"views.gtkw", "views.chip0.core0.gtkw"}) {
    const std::string text = text_of(name);
    EXPECT_THAT(text, HasSubstr("views.fst\"\n"));
    EXPECT_THAT(text, HasSubstr("[timestart] 10000\n")) << name;
    EXPECT_THAT(text, HasSubstr(" 10000 10000\n[markername] A          trigger\n"));
    EXPECT_THAT(text, HasSubstr("@100000028\n+{vpu state} board.chip0.core0.vpu.state[1:0]\n"));
    EXPECT_THAT(text,
                HasSubstr("views.ops.txt\n+{vpu op} board.chip0.core0.vpu.op_number[23:0]\n"));
    EXPECT_THAT(text, HasSubstr("+{vpu queued} board.chip0.core0.vpu.queued[15:0]\n"));
    EXPECT_THAT(text, HasSubstr("@c00200\n-vpu\n"));
    EXPECT_THAT(text, HasSubstr("@24\n+{op_id} board.chip0.core0.vpu.op_id[31:0]\n"));
    EXPECT_THAT(text,
                HasSubstr("@22\n+{read0_address} board.chip0.core0.vpu.read0_address[39:0]\n"));
    EXPECT_THAT(text, HasSubstr("@1401200\n-vpu\n"));
  }
  const std::string pcie = "@22\n+{msi_pending} board.chip0.pcie.msi_pending[31:0]\n";
  EXPECT_THAT(text_of("views.gtkw"), HasSubstr(pcie));
  EXPECT_THAT(text_of("views.chip0.core0.gtkw"), Not(HasSubstr("pcie")));
  EXPECT_THAT(text_of("views.sucl"), HasSubstr("\nvariable_add board.chip0.core0.vpu.op\n"));
  EXPECT_THAT(text_of("views.sucl"), HasSubstr("\ncursor_set 10000\nmarker_set trigger 10000\n"));
  EXPECT_THAT(text_of("views.sucl"), HasSubstr("\nscope_add_as_group board.chip0.core0.vpu\n"));
  EXPECT_THAT(text_of("views.sucl"),
              HasSubstr("\nitem_focus c\nitem_rename vpu queued\nitem_set_format Unsigned\n"));
}

TEST(BoardWaves, TheBoardHasARowForEachEngine) {
  BoardWavesOptions options = one_core("rows.fst");
  options.board.chips = 2;
  options.board.cores_per_chip = 2;
  BoardWaves waves(options);
  Board(waves).program(0, 0, true);
  EXPECT_EQ(waves.finish(), "");
  const std::string text = text_of("rows.gtkw");
  for (const std::string core : {"chip0.core0", "chip0.core1", "chip1.core0", "chip1.core1"}) {
    EXPECT_THAT(text, HasSubstr("@800200\n-" + core + "\n"));
    for (const std::string unit : {"seq", "mxu0", "mxu1", "vpu", "xlu", "dma_in", "dma_remote"}) {
      EXPECT_THAT(text, HasSubstr("+{" + unit + "} board." + core + "." + unit + ".op_number"));
    }
  }
  EXPECT_THAT(text, Not(HasSubstr("vpu.state")));
  EXPECT_THAT(text_of("rows.sucl"),
              HasSubstr("\ndivider_add chip1_core0\nvariable_add board.chip1.core0.seq.op\n"));
  EXPECT_THAT(text_of("rows.chip1.core0.gtkw"), HasSubstr("board.chip1.core0.vpu.state"));
}

// A run of two steps in which op 3 and op 4 run, a semaphore rises and core 0 faults at the end.
void faulting_run(BoardWaves& waves) {
  Board board(waves);
  for (uint64_t step = 0; step < 2; ++step) {
    const uint64_t t = 1000 * step;
    board.program(t, step, true);
    board.issue(t + 10, spec::Queue::kVpu, spec::Opcode::kVpuKernel, 3);
    board.start(t + 20, spec::Queue::kVpu, spec::Opcode::kVpuKernel, 3);
    board.semaphore(t + 25, 5, static_cast<uint32_t>(step) + 1);
    board.done(t + 30, spec::Queue::kVpu, spec::Opcode::kVpuKernel);
    const std::array<AccessRange, 1> range = {
        {{.memory = ProbeMemory::kHbm, .low = 0x1000 * step, .bytes = 16}}};
    const std::function<void(const RangeVisitor&)> walk = [](const RangeVisitor&) {};
    waves.access({.cycle = t + 40,
                  .source = {.unit = static_cast<uint32_t>(spec::Queue::kDmaOut), .step = step},
                  .extents = range,
                  .walk = walk});
    board.issue(t + 50, spec::Queue::kXlu, spec::Opcode::kTranspose, 4);
    if (step == 1) {
      waves.fault({.cycle = t + 60, .code = 11});  // the watchdog
    }
    board.program(t + 70, step, false, step == 0);
  }
}

struct TriggerCase {
  std::string trigger;
  uint64_t begin;  // cycle of the window
};

TEST(BoardWaves, TriggersOpenTheWindow) {
  const std::vector<TriggerCase> cases = {{"step=1", 1000},
                                          {"time=1us", 1000},
                                          {"time=1015cycles", 1015},
                                          {"op=4", 50},
                                          {"op=9,4", 50},
                                          {"dma=hbm:0x1000..0x1fff", 1040},
                                          {"dma=hbm:0x100f", 1040},
                                          {"sem=5>=2", 1025},
                                          {"sem=board.chip0.core0:5>=1", 25},
                                          {"fault", 1060},
                                          {"watchdog", 1060}};
  for (const TriggerCase& each : cases) {
    BoardWavesOptions options = one_core("trigger.fst");
    options.trigger = each.trigger;
    BoardWaves waves(options);
    faulting_run(waves);
    EXPECT_EQ(waves.finish(), "") << each.trigger;
    const Changes changes = read_fst(temp_file("trigger.fst"));
    EXPECT_EQ(changes.at("board.chip0.core0.program_running").front().time, each.begin * 1000)
        << each.trigger;
    EXPECT_EQ(changes.at("board.chip0.core0.program_running").back(), (Change{1070000, "0"}))
        << each.trigger;
  }
}

// Of a run, what no command brings with it.
void told_run(BoardWaves& waves) {
  Board board(waves);
  board.program(0, 0, true);
  waves.hart_pc({.cycle = 5, .pc = TPU_HART_ITCM_BASE + 0x40});
  waves.non_finite({.cycle = 20, .bits = 0x7F80'0000});
  waves.assertion({.cycle = 30, .path = "board.chip0.core0.mxu0"});
  waves.non_finite({.cycle = 40, .bits = 0x7FC0'0000, .nan = true});
  board.issue(50, spec::Queue::kVpu, spec::Opcode::kVpuKernel, 1);
  board.program(60, 0, false);
}

// A program of two operations.
void name_program(LaunchPrograms& programs, uint32_t launch) {
  auto program = std::make_shared<exe::ExecutableT>();
  for (const uint32_t line : {7U, 42U}) {
    auto op = std::make_unique<exe::OpInfoT>();
    op->name = "add";
    op->file = "models/train.py";
    op->line = line;
    program->ops.push_back(std::move(op));
  }
  programs.name(launch, program);
}

// Texts, as strings of the file and as names and colours of numbers for GTKWave.
TEST(BoardWaves, UnitsSayInWordsWhatTheyDo) {
  LaunchPrograms programs;
  name_program(programs, 0);
  BoardWavesOptions options = one_core("words.fst");
  options.programs = &programs;
  BoardWaves waves(options);
  Board board(waves);
  board.program(0, 0, true);
  board.issue(10, spec::Queue::kVpu, spec::Opcode::kVpuKernel, 1);
  const ProbeSource head = {.unit = static_cast<uint32_t>(spec::Queue::kVpu), .op_id = 1};
  waves.wait({.cycle = 11, .source = head, .index = 5, .wanted = 2, .begin = true});
  waves.wait({.cycle = 14, .source = head, .index = 5, .wanted = 2, .begin = false});
  board.start(14, spec::Queue::kVpu, spec::Opcode::kVpuKernel, 1);
  ProbeSource sequencer = {.unit = static_cast<uint32_t>(kSequencerUnit), .op_id = 9};
  waves.wait({.cycle = 15,
              .source = sequencer,
              .what = WaitEvent::For::kQueue,
              .index = static_cast<uint32_t>(spec::Queue::kVpu),
              .begin = true});
  waves.wait({.cycle = 18,
              .source = sequencer,
              .what = WaitEvent::For::kQueue,
              .index = static_cast<uint32_t>(spec::Queue::kVpu)});
  board.done(20, spec::Queue::kVpu, spec::Opcode::kVpuKernel);
  board.program(30, 0, false);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("words.fst"));
  EXPECT_EQ(since(changes, "board.chip0.core0.vpu.op", 1000),
            (std::vector<Change>{{10000, "queued"},
                                 {11000, "waits sem5>=2 add train.py:42"},
                                 {14000, "add train.py:42"},
                                 {20000, ""}}));
  EXPECT_EQ(
      since(changes, "board.chip0.core0.seq.op", 1000),
      (std::vector<Change>{
          {10000, "add train.py:42"}, {15000, "waits vpu op9"}, {18000, "op9"}, {30000, ""}}));
  const std::string tones = text_of("words.ops.txt");
  EXPECT_THAT(tones, HasSubstr("\n000000 -\n"));
  EXPECT_THAT(tones, HasSubstr(" ?SteelBlue4?queued\n"));
  EXPECT_THAT(tones, HasSubstr(" ?DarkOrange4?waits sem5>=2 add train.py:42\n"));
  EXPECT_THAT(tones, HasSubstr(" ?DarkGreen?add train.py:42\n"));
}

TEST(BoardWaves, FaultsOnPurposeAreShown) {
  BoardWavesOptions options = one_core("upsets.fst");
  options.board.faults = true;
  BoardWaves waves(options);
  Board board(waves);
  board.program(0, 0, true);
  const auto upset = [&](uint64_t cycle, bool fires, const char* text) {
    waves.upset({.cycle = cycle, .fires = fires, .kind = "hbm", .place = "core 0", .text = text});
  };
  upset(10, true, "a bit flips");
  upset(12, false, "it is read");
  upset(15, false, "it is read");
  board.program(30, 0, false);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("upsets.fst"));
  EXPECT_EQ(since(changes, "board.chip0.core0.fault.on_purpose", 1000),
            (std::vector<Change>{{10000, "hbm core 0: a bit flips"},
                                 {12000, "damage hbm core 0: it is read"}}));
  EXPECT_THAT(times(since(changes, "board.chip0.core0.fault.on_purpose_count", 1000)),
              ElementsAre(10));
  EXPECT_THAT(times(since(changes, "board.chip0.core0.fault.damage_count", 1000)),
              ElementsAre(12, 15));
}

TEST(BoardWaves, ValuesFirmwareVerilogAndSourceLinesOpenTheWindow) {
  const std::vector<TriggerCase> cases = {{"firmware=0x10000040", 5},
                                          {"firmware=board.chip0.*:0x10000040", 5},
                                          {"nonfinite", 20},
                                          {"assertion", 30},
                                          {"nan", 40},
                                          {"line=train.py:42", 50},
                                          {"line=models/train.py:42", 50}};
  LaunchPrograms programs;
  name_program(programs, 0);
  for (const TriggerCase& each : cases) {
    BoardWavesOptions options = one_core("told.fst");
    options.trigger = each.trigger;
    options.programs = &programs;
    options.other_verilog = true;
    BoardWaves waves(options);
    told_run(waves);
    EXPECT_EQ(waves.finish(), "") << each.trigger;
    const Changes changes = read_fst(temp_file("told.fst"));
    EXPECT_EQ(changes.at("board.chip0.core0.program_running").front().time, each.begin * 1000)
        << each.trigger;
  }
}

TEST(BoardWaves, ASourceLineWithoutOperationsListsThoseNearIt) {
  LaunchPrograms programs;
  const auto told = [&](const std::string& trigger) {
    BoardWavesOptions options = one_core("line.fst");
    options.trigger = trigger;
    options.programs = &programs;
    BoardWaves waves(options);
    told_run(waves);
    return waves.finish();
  };
  EXPECT_THAT(
      told("line=train.py:41"),
      HasSubstr("never came; no program that ran names source lines; the board ran 1 step,"));
  name_program(programs, 0);
  EXPECT_THAT(told("line=train.py:41"),
              HasSubstr("the trigger line=train.py:41 never came; of train.py there are operations "
                        "of the lines 42, 7; the board ran 1 step,"));
  EXPECT_THAT(told("line=rain.py:42"), HasSubstr("operations are of the files models/train.py"));
  EXPECT_THAT(told("line=train.py:7"), HasSubstr("its operations did not run"));
}

// What is asked of the probe: the kinds of event that the signals and the trigger live on, of the
// cores that are shown.
TEST(BoardWaves, OnlyCoresThatAreShownAreListenedTo) {
  BoardWavesOptions options = one_core("cores.fst");
  options.board.chips = 2;
  options.scopes = {"board.chip1.core0"};
  options.trigger = "firmware=0x10000040";
  BoardWaves waves(options);
  ProbeSet probes;
  waves.listen(probes);
  EXPECT_THAT(probes.watched_pcs(), ElementsAre(0x10000040U));
  for (const ProbeEvent event : {ProbeEvent::kStart, ProbeEvent::kFlow, ProbeEvent::kHart,
                                 ProbeEvent::kRegister, ProbeEvent::kSemaphore}) {
    EXPECT_FALSE(probes.wants(event, core_bit(0)));
    EXPECT_TRUE(probes.wants(event, core_bit(1)));
  }
  for (const ProbeEvent event : {ProbeEvent::kProgram, ProbeEvent::kHartPc}) {
    EXPECT_TRUE(probes.wants(event, core_bit(0)));
  }
  EXPECT_FALSE(probes.wants(ProbeEvent::kNonFinite, kAllCores));
}

TEST(BoardWaves, ADebuggerOpensAndClosesTheWindow) {
  BoardWavesOptions options = one_core("monitor.fst");
  options.trigger = "monitor";
  const std::string path = options.path;
  {
    BoardWaves waves(options);
    EXPECT_EQ(waves.switch_window(false, 0), "waves are off");
    EXPECT_EQ(waves.switch_window(true, 0), path + " begins at cycle 0");
    EXPECT_EQ(waves.switch_window(true, 0), "waves are on");
    faulting_run(waves);
    EXPECT_EQ(waves.switch_window(false, 2000), path + " ends at cycle 2000");
    EXPECT_EQ(waves.switch_window(true, 2000),
              "the window of " + path + " is over; a file has one");
    EXPECT_EQ(waves.finish(), "");
  }
  EXPECT_FALSE(times(read_fst(temp_file("monitor.fst")).at("board.chip0.core0.vpu.state")).empty());
  BoardWaves never(options);
  faulting_run(never);
  EXPECT_THAT(never.finish(), HasSubstr("the trigger monitor never came"));
}

TEST(BoardWaves, AWindowLastsAsLongAsAsked) {
  BoardWavesOptions options = one_core("length.fst");
  options.trigger = "op=3";
  options.for_cycles = 15;
  {
    BoardWaves waves(options);
    faulting_run(waves);
    EXPECT_EQ(waves.finish(), "");
  }
  EXPECT_THAT(times(read_fst(temp_file("length.fst")).at("board.chip0.core0.vpu.state")),
              ElementsAre(10, 20));
  options.for_cycles = UINT64_MAX;
  options.for_steps = 1;
  BoardWaves waves(options);
  faulting_run(waves);
  EXPECT_EQ(waves.finish(), "");
  EXPECT_EQ(read_fst(temp_file("length.fst")).at("board.chip0.core0.program_running").back(),
            (Change{70000, "0"}));
}

TEST(BoardWaves, ATriggerThatNeverComesIsSaid) {
  BoardWavesOptions options = one_core("never.fst");
  options.trigger = "op=77";
  {
    BoardWaves waves(options);
    faulting_run(waves);
    EXPECT_THAT(waves.finish(),
                HasSubstr("never.fst: the trigger op=77 never came; the board ran 2 steps"));
  }
  options.before_cycles = 30;
  BoardWaves waves(options);
  faulting_run(waves);
  EXPECT_THAT(waves.finish(), HasSubstr("the file has the last cycles of the run"));
  EXPECT_THAT(times(read_fst(temp_file("never.fst")).at("board.chip0.core0.program_running")),
              ElementsAre(1040, 1070));
}

TEST(BoardWaves, CyclesBeforeTheTriggerAreThereToo) {
  BoardWavesOptions options = one_core("last.fst");
  options.before_cycles = 55;  // the fault comes at 1060
  BoardWaves waves(options);
  faulting_run(waves);
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("last.fst"));
  EXPECT_THAT(times(since(changes, "board.chip0.core0.vpu.state", 1006000)),
              ElementsAre(1010, 1020, 1030));
  EXPECT_THAT(times(since(changes, "board.chip0.core0.fault.code", 1011000)), ElementsAre(1060));
}

TEST(BoardWaves, BadTriggersAreToldApart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"stop=1", "expected step=N"},
      {"step=x", "expected the number of a step"},
      {"time=5", "expected a time with its unit"},
      {"op=a", "expected numbers of operations"},
      {"dma=0x10", "expected addresses in hbm, vmem or smem"},
      {"dma=hbm:9..3", "expected addresses in hbm, vmem or smem"},
      {"sem=5", "expected a semaphore"},
      {"sem=board.chip9.*:5>=1", "board.chip9.* matches no core; this board has board.chip0.core0"},
      {"line=train.py", "expected a source line, such as line=train.py:42"},
      {"line=:3", "expected a source line"},
      {"line=train.py:3", "source lines are not known here"},
      {"firmware=", "expected a place in the firmware, such as firmware=0x100"},
      {"firmware=0x20000",
       "invalid address: expected an even address in the code, which is in 0x0..0x3ff and "
       "0x10000000"},
      {"firmware=0x101", "invalid address: expected an even address"},
      {"firmware=board.chip9.*:0x100", "board.chip9.* matches no core"},
      {"assertion=1", "assertion takes no value"},
      {"assertion", "no unit runs as Verilog"},
      {"nonfinite", "a run without data (SimOptions::no_data) computes no values"},
      {"fault=3", "fault takes no value"}};
  for (const auto& [trigger, message] : cases) {
    BoardWavesOptions options = one_core("bad.fst");
    options.trigger = trigger;
    options.no_data = true;
    try {
      BoardWaves waves(options);
      ADD_FAILURE() << trigger;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("SimOptions::waves_trigger " + trigger + ": " + message));
    }
  }
}

}  // namespace
}  // namespace tpu::model
