// The re-timing model and the accounts of a step, on records made by hand. Steps of compiled
// programs: tests/analysis/report_test.py.
#include "analysis/step_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "analysis/accounts.hpp"
#include "analysis/changed_steps.hpp"
#include "analysis/op_class.hpp"
#include "analysis/retime.hpp"
#include "analysis/what_if.hpp"
#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = uint64_t{1} << 20;
constexpr uint64_t kMatmul = 5000, kMatmulFree = 4000;

// Two cores of a chip that begin 10 cycles apart. Each copies from HBM; core 0 then multiplies and
// signals core 1 by a command without work, for which core 1 halts. Times of the record are those
// that the model gives, so that only its formulas are needed to make it.
class StepReport : public ::testing::Test {
 protected:
  void SetUp() override {
    record_.program = "p";
    record_.board = spec::board_texts(board_);
    record_.ops = {{"load", "m.py", 1}, {"dot", "m.py", 2}};
    for (uint32_t i = 0; i < 2; ++i) {
      spec::RecordedCore core{.core = i, .begin = 100 + 10 * i};
      add(core, spec::Queue::kDmaIn, spec::Opcode::kDma, 0);
      spec::RecordedCommand& copy = core.commands.back();
      copy.bytes = kBytes;
      copy.from = spec::RecordedMemory::kHbm;
      copy.to = spec::RecordedMemory::kVmem;
      copy.from_core = copy.to_core = static_cast<uint16_t>(i);
      copy.signal[0] = {.amount = 1, .core = static_cast<uint16_t>(i), .semaphore = 1};
      if (i == 0) {
        add(core, spec::Queue::kMxu0, spec::Opcode::kMatmul, 1);
        core.commands.back().free_at = core.commands.back().start + kMatmulFree;
        core.commands.back().done = core.commands.back().start + kMatmul;
        core.commands.back().flops = 1000;
        core.commands.back().wait[0] = {.amount = 1, .core = 0, .semaphore = 1, .takes = 1};
        core.commands.back().signal[0] = {.amount = 1, .core = 0, .semaphore = 2};
        add(core, spec::Queue::kDmaRemote, spec::Opcode::kNop, spec::kNoRecordedOp);
        core.commands.back().wait[0] = {.amount = 1, .core = 0, .semaphore = 2, .takes = 1};
        core.commands.back().signal[0] = {.amount = 1, .core = 1, .semaphore = 3};
      } else {
        item(core, spec::SequencerItem::Kind::kTake, 1, 1);
        item(core, spec::SequencerItem::Kind::kTake, 3, 1);
      }
      item(core, spec::SequencerItem::Kind::kHalt, 0, 0);
      record_.cores.push_back(core);
    }
    take_times(retime(record_, no_change(record_)));
  }

  static void item(spec::RecordedCore& core, spec::SequencerItem::Kind kind, uint32_t index,
                   uint32_t amount) {
    const uint64_t before = core.items.empty() ? core.begin : core.items.back().went;
    core.items.push_back({before + 4, before + 4, index, amount, kind});
  }
  static void add(spec::RecordedCore& core, spec::Queue queue, spec::Opcode opcode, uint32_t op) {
    item(core, spec::SequencerItem::Kind::kIssue, static_cast<uint32_t>(core.commands.size()), 0);
    const uint64_t issued = core.items.back().went;
    core.commands.push_back({.issued = issued,
                             .start = issued,
                             .free_at = issued + 1,
                             .done = issued + 1,
                             .op_id = op,
                             .queue = static_cast<uint8_t>(queue),
                             .opcode = static_cast<uint8_t>(opcode)});
  }
  static void transfer(spec::RecordedCore& core, spec::Queue queue, uint16_t to) {
    add(core, queue, spec::Opcode::kDma, 1);
    spec::RecordedCommand& copy = core.commands.back();
    copy.bytes = kBytes / 4;
    copy.from = copy.to = spec::RecordedMemory::kVmem;
    copy.from_core = static_cast<uint16_t>(core.core);
    copy.to_core = to;
  }
  void take_times(const StepTiming& timing) {
    ASSERT_FALSE(timing.stuck);
    for (size_t i = 0; i < timing.cores.size(); ++i) {
      spec::RecordedCore& core = record_.cores[i];
      core.end = timing.cores[i].end;
      for (size_t k = 0; k < core.commands.size(); ++k) {
        spec::RecordedCommand& command = core.commands[k];
        const CommandTimes& times = timing.cores[i].commands[k];
        command.free_at = times.start + (command.free_at - command.start);
        command.start = times.start;
        command.flow_end = times.flow_end;
        command.done = times.done;
      }
      for (size_t k = 0; k < core.items.size(); ++k) {
        core.items[k].arrived = timing.cores[i].items[k].ready;
        core.items[k].went = timing.cores[i].items[k].went;
      }
    }
  }
  uint64_t cycles(const CostChange& change) const { return retime(record_, change).cycles(); }

  const spec::BoardParams board_ = spec::load_board("v3_8");
  spec::StepRecord record_;
};

TEST_F(StepReport, ARecordIsTimedAsItWas) {
  const StepTiming timing = retime(record_, no_change(record_));
  EXPECT_EQ(timing.begin(), record_.begin());
  EXPECT_EQ(timing.end(), record_.end());
  for (size_t i = 0; i < 2; ++i) {
    for (size_t k = 0; k < record_.cores[i].commands.size(); ++k) {
      EXPECT_EQ(timing.cores[i].commands[k].start, record_.cores[i].commands[k].start);
      EXPECT_EQ(timing.cores[i].commands[k].done, record_.cores[i].commands[k].done);
    }
  }
}

TEST_F(StepReport, BandwidthIsShared) {
  const spec::RecordedCommand& copy = record_.cores[0].commands[0];
  const double rate = static_cast<double>(board_.hbm.gbps_per_chip) * 1e3 *
                      static_cast<double>(board_.hbm.efficiency_percent) / 100 /
                      static_cast<double>(board_.core.clock_mhz);
  // But for the 10 cycles in which it is alone, half of the chip's.
  EXPECT_NEAR(static_cast<double>(copy.flow_end - copy.start), 2 * kBytes / rate, 12);
  EXPECT_EQ(copy.done - copy.flow_end, spec::transfer_fixed_cycles(board_, true, false, false));
}

TEST_F(StepReport, KindsSumToTheStepOnEveryCore) {
  StepAccount step = account(record_, 1);
  EXPECT_GT(step.cores[0].cycles[static_cast<size_t>(TimeKind::kWait)], 0u);
  find_causes(record_, retime(record_, no_change(record_)), step);
  EXPECT_EQ(step.cores[0].cycles[static_cast<size_t>(TimeKind::kWait)], 0u);
  for (const CoreAccount& core : step.cores) {
    EXPECT_EQ(std::accumulate(core.cycles.begin(), core.cycles.end(), uint64_t{0}), step.cycles);
  }
  const auto of = [&](size_t core, TimeKind kind) {
    return step.cores[core].cycles[static_cast<size_t>(kind)];
  };
  EXPECT_EQ(of(0, TimeKind::kMxu), kMatmul);
  EXPECT_EQ(of(1, TimeKind::kMxu), 0u);
  EXPECT_EQ(of(1, TimeKind::kSkew), 10u);
  EXPECT_GE(of(1, TimeKind::kPeer), kMatmul);  // core 1 waits for what core 0 does
  EXPECT_GT(of(0, TimeKind::kHbmBytes), 0u);
  EXPECT_EQ(of(0, TimeKind::kHbmLatency), spec::transfer_fixed_cycles(board_, true, false, false));
  EXPECT_EQ(step.ops.at(1).flops, 1000u);
  EXPECT_EQ(step.ops.at(0).hbm_read, 2 * kBytes);
  EXPECT_EQ(step.chip_hbm_bytes.at(0), 2 * kBytes);
}

TEST(OpClass, IsOfTheFirstOpThatIsMoreThanAMove) {
  const std::map<std::string, OpClass> classes = {
      {"dot_general+add+maximum", OpClass::kMatmul},
      {"multiply+rsqrt+subtract+7 more", OpClass::kElementwise},
      {"transpose+convert", OpClass::kElementwise},
      {"convert", OpClass::kElementwise},
      {"all_reduce+all_reduce+30 more", OpClass::kCollective},
      {"collective_permute", OpClass::kCollective},
      {"transpose+pad", OpClass::kDataFormatting},
      {"result 12", OpClass::kDataFormatting},
      {"indexed_read", OpClass::kDataFormatting},
      {"recv", OpClass::kHost},
      {"while", OpClass::kOther},
      {"", OpClass::kOther}};
  for (const auto& [name, expected] : classes) {
    EXPECT_EQ(class_of_op(name), expected) << name;
  }
}

TEST_F(StepReport, ClassesSumToTheStepAndToItsCriticalPath) {
  record_.ops[1].name = "dot_general+add";
  record_.ops[0].name = "transpose";
  const auto report = step_report(record_, 0, 1);
  double cycles = 0, path = 0;
  for (const auto& each : report["classes"]) {
    cycles += each["cycles"].get<double>();
    path += each["critical_path"].get<double>();
  }
  const auto step = static_cast<double>(record_.end() - record_.begin());
  EXPECT_NEAR(cycles, step, step / 1e6);
  EXPECT_NEAR(path, step, step / 1e6);
  EXPECT_EQ(report["classes"]["matmul"]["critical_path"], static_cast<double>(kMatmul));
  EXPECT_EQ(report["classes"]["matmul"]["cycles"], kMatmul / 2.0);  // on one of two cores
  EXPECT_GT(report["classes"]["data formatting"]["cycles"].get<double>(), 0);
  EXPECT_GT(report["classes"]["idle"]["cycles"].get<double>(), 0);
}

TEST_F(StepReport, ExchangesSayWhatRunsBesideThem) {
  constexpr uint64_t kBeside = 3000, kBehind = 700;
  spec::RecordedCore& core = record_.cores[0];
  const uint64_t computed = core.commands[1].done;
  transfer(core, spec::Queue::kDmaRemote, 1);
  spec::RecordedCommand& copy = core.commands.back();
  copy.op_id = 0;
  copy.start = computed - kBeside;
  copy.flow_end = copy.done = computed + kBehind;
  core.end = std::max(core.end, copy.done);
  const StepAccount step = account(record_, 1);
  EXPECT_EQ(step.ops.at(0).link_busy, kBeside + kBehind);
  EXPECT_EQ(step.ops.at(0).link_hidden, kBeside);
  EXPECT_EQ(step.ops.at(1).link_busy, 0u);
}

TEST_F(StepReport, ExchangesAreInTheReport) {
  EXPECT_TRUE(step_report(record_, 0, 1)["exchanges"].empty());
  transfer(record_.cores[0], spec::Queue::kDmaRemote, 1);
  take_times(retime(record_, no_change(record_)));
  const auto exchanges = step_report(record_, 0, 1)["exchanges"];
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_EQ(exchanges[0]["name"], "dot");
  EXPECT_EQ(exchanges[0]["hidden"].get<double>() + exchanges[0]["beside_transfers"].get<double>() +
                exchanges[0]["exposed"].get<double>(),
            exchanges[0]["cycles"].get<double>());
  EXPECT_GT(exchanges[0]["cycles"].get<double>(), 0);
}

TEST_F(StepReport, TransfersWithTheHostSayWhatRunsBesideThem) {
  EXPECT_TRUE(step_report(record_, 0, 1)["host_transfers"].is_null());
  constexpr uint64_t kBeside = 3000, kAlone = 700;
  spec::RecordedCore& core = record_.cores[0];
  ASSERT_EQ(core.commands[1].queue, static_cast<uint8_t>(spec::Queue::kMxu0));
  const uint64_t computed = core.commands[1].done;
  core.end = std::max(core.end, computed + kAlone);
  core.host = {{computed - kBeside, computed - kBeside / 3, 4096, 1},
               {computed - kBeside / 3, computed + kAlone, 512, 0}};
  const HostAccount host = account(record_, 1).cores[0].host;
  EXPECT_EQ(host.to_host_bytes, 4096u);
  EXPECT_EQ(host.from_host_bytes, 512u);
  EXPECT_EQ(host.busy, kBeside + kAlone);
  EXPECT_EQ(host.hidden, kBeside);
  EXPECT_EQ(host.beside, 0u);
}

TEST_F(StepReport, TransfersWithTheHostBesideCopiesAreNotHidden) {
  spec::RecordedCore& core = record_.cores[0];
  const spec::RecordedCommand& copy = core.commands[0];
  ASSERT_TRUE(copy.transfers());
  core.host = {{copy.start, copy.done, 64, 0}};
  const HostAccount host = account(record_, 1).cores[0].host;
  EXPECT_EQ(host.busy, copy.done - copy.start);
  EXPECT_EQ(host.hidden, 0u);
  EXPECT_EQ(host.beside, host.busy);
}

TEST_F(StepReport, TheCriticalPathIsTheWholeStep) {
  const auto path = critical_path(record_, retime(record_, no_change(record_)));
  uint64_t at = record_.begin();
  bool multiplies = false;
  for (const PathPiece& piece : path) {
    EXPECT_EQ(piece.begin, at);
    at = piece.end;
    multiplies |= piece.kind == TimeKind::kMxu && piece.end - piece.begin == kMatmul;
  }
  EXPECT_EQ(at, record_.end());
  EXPECT_TRUE(multiplies);
}

TEST_F(StepReport, WithoutACostTheStepIsShorterByWhatWaitedForIt) {
  const uint64_t whole = cycles(no_change(record_));
  CostChange change = no_change(record_);
  change.mxu = 0;
  EXPECT_EQ(cycles(change), whole - kMatmul + 1);
  change.mxu = 0.5;
  EXPECT_EQ(cycles(change), whole - kMatmul / 2);
  change = no_change(record_);
  change.op = 1;
  change.op_factor = 0;
  EXPECT_EQ(cycles(change), whole - kMatmul + 1);
  change = no_change(record_);
  change.vpu = 0;  // nothing waits for it
  EXPECT_EQ(cycles(change), whole);
  change.board.dma.in_fixed_ns = 0;
  EXPECT_EQ(cycles(change), whole - spec::transfer_fixed_cycles(board_, true, false, false));
}

TEST_F(StepReport, TheBestChangesDoNotDependOnThreads) {
  const StepTiming timing = retime(record_, no_change(record_));
  const StepAccount step = account(record_, 1);
  const ReplayProgram program(record_);
  const auto one = best_changes(record_, program, step, timing, 10, 1, [](double) {});
  const auto four = best_changes(record_, program, step, timing, 10, 4, [](double) {});
  ASSERT_EQ(one.size(), four.size());
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(one[0].name, "matrix units");
  EXPECT_EQ(one[1].op, 1u);  // the same commands
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].name, four[i].name);
    EXPECT_EQ(one[i].cycles_without, four[i].cycles_without);
    EXPECT_EQ(one[i].cycles_at_half, four[i].cycles_at_half);
    EXPECT_LT(one[i].cycles_without, timing.cycles());
    EXPECT_LE(one[i].cycles_without, one[i].cycles_at_half);
  }
}

TEST_F(StepReport, OperationsWithoutSourceLinesHaveNone) {
  record_.ops.clear();
  record_.program.clear();
  const auto report = step_report(record_, 10, 1);
  for (const auto& op : report["ops"]) {
    EXPECT_EQ(op["source"], "");
  }
  EXPECT_THAT(report_page(report), HasSubstr("op 1"));
}

TEST_F(StepReport, FaultsAreInTheReport) {
  record_.faults = {{.cycle = record_.begin() + 7,
                     .core = 1,
                     .damage = 1,
                     .kind = "hbm",
                     .place = "core 1",
                     .text = "the word is read"}};
  const auto figures = step_report(record_, 0, 1);
  ASSERT_EQ(figures["faults"].size(), 1U);
  const auto& fault = figures["faults"][0];
  EXPECT_EQ(fault["cycle"], 7);
  EXPECT_EQ(fault["core"], 1);
  EXPECT_EQ(fault["damage"], true);
  EXPECT_EQ(fault["kind"], "hbm");
  EXPECT_EQ(fault["place"], "core 1");
  EXPECT_EQ(fault["text"], "the word is read");
}

TEST_F(StepReport, NothingInAPageEndsItsScript) {
  record_.ops[0].name = "</script><b>";
  EXPECT_THAT(report_page(step_report(record_, 10, 1)), ::testing::Not(HasSubstr("</script><b>")));
}

TEST_F(StepReport, AStepThatDidNotFitIsRefused) {
  record_.left_out = 5'000'000;
  try {
    step_report(record_, 10, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("5000000 commands"));
  }
}

// A record whose signals are not all there.
TEST_F(StepReport, ACoreThatWaitsForEverEndsTheModel) {
  record_.cores[0].commands[2].signal[0].amount = 0;
  EXPECT_TRUE(retime(record_, no_change(record_)).stuck);
}

// Of a longer step, with a command of a rare operation here and there: most of it is as without the
// change, and not replayed.
TEST_F(StepReport, ChangedStepsAreWhatAReplayFromTheBeginTells) {
  record_.ops.push_back({"rare", "m.py", 3});
  for (spec::RecordedCore& core : record_.cores) {
    const spec::SequencerItem halt = core.items.back();
    core.items.pop_back();
    const auto me = static_cast<uint16_t>(core.core);
    for (uint32_t i = 0; i < 300; ++i) {
      const uint32_t op = (i + 40 * core.core) % 120 == 0 ? 2 : i % 2;
      add(core, spec::Queue::kDmaIn, spec::Opcode::kDma, op);
      spec::RecordedCommand& copy = core.commands.back();
      copy.bytes = kBytes / (1 + i % 7);
      copy.from = spec::RecordedMemory::kHbm;
      copy.to = spec::RecordedMemory::kVmem;
      copy.from_core = copy.to_core = me;
      copy.signal[0] = {.amount = 1, .core = me, .semaphore = 8};
      if (i % 60 == 7) {  // a write to the other core, and a copy on the chip
        transfer(core, spec::Queue::kDmaRemote, static_cast<uint16_t>(1 - me));
        transfer(core, spec::Queue::kDmaIn, me);
      }
      add(core, i % 3 == 0 ? spec::Queue::kVpu : spec::Queue::kMxu0,
          i % 3 == 0 ? spec::Opcode::kVpuKernel : spec::Opcode::kMatmul, op);
      spec::RecordedCommand& work = core.commands.back();
      work.free_at = work.start + 100 + 13 * (i % 11);
      work.done = work.free_at + 50;
      work.wait[0] = {.amount = 1, .core = me, .semaphore = 8, .takes = 1};
      if (i % 50 == 49) {  // the cores meet
        work.signal[0] = {.amount = 1, .core = static_cast<uint16_t>(1 - me), .semaphore = 9};
        item(core, spec::SequencerItem::Kind::kTake, 9, 1);
      }
    }
    core.items.push_back(halt);
  }
  take_times(retime(record_, no_change(record_)));
  const StepTiming timing = retime(record_, no_change(record_));
  const ReplayProgram program(record_);
  const ChangedSteps steps(record_, program, timing);
  const auto compare = [&](const auto& apply) {
    CostChange change = no_change(record_);
    apply(change);
    const StepTiming whole = retime(record_, change);
    EXPECT_EQ(steps.with(change).cycles, whole.cycles());
    EXPECT_EQ(steps.with(change).skew, whole.skew());
    return whole.cycles();
  };
  for (const double factor : {0.0, 0.5, 2.0}) {
    for (const uint32_t op : {0U, 1U, 2U, 77U}) {
      const uint64_t cycles = compare([&](CostChange& c) {
        c.op = op;
        c.op_factor = factor;
      });
      if (op == 77) {
        EXPECT_EQ(cycles, timing.cycles());
      }
    }
    compare([&](CostChange& c) { c.mxu = factor; });
    compare([&](CostChange& c) { c.vpu = factor; });
    compare([&](CostChange& c) { c.xlu = factor; });
    compare([&](CostChange& c) { c.sequencer = factor; });
  }
  compare([](CostChange& c) { c.board.hbm.gbps_per_chip *= 2; });
  compare([](CostChange& c) { c.board.ici.link_gbps *= 2; });
  compare([](CostChange& c) { c.board.dma.local_bytes_per_cycle *= 4; });
  compare([](CostChange& c) { c.board.dma.in_flight = 7; });
  compare([](CostChange& c) { c.board.core.queue_depth = 2; });
}

TEST_F(StepReport, TellsWhatThereIsBeforeTheChanges) {
  std::vector<nlohmann::ordered_json> all;
  std::vector<double> parts;
  const auto report =
      step_report(record_, 10, 1,
                  {.early = [&](const nlohmann::ordered_json& figures) { all.push_back(figures); },
                   .done = [&](double part) { parts.push_back(part); }});
  ASSERT_EQ(all.size(), 2u);
  const nlohmann::ordered_json& first = all[0];
  EXPECT_EQ(first["causes_to_come"], true);
  EXPECT_FALSE(first.contains("retimed") || first.contains("critical_path"));
  EXPECT_EQ(first["ops"], report["ops"]);
  EXPECT_EQ(first["memory"], report["memory"]);
  EXPECT_EQ(first["kinds"].back(), "waits");
  const auto kinds = report["kinds"].get<std::vector<std::string>>();
  EXPECT_EQ(kinds.back(), "gang starts or ends");
  for (size_t i = 0; i < 2; ++i) {
    double waits = 0, busy = 0, known = 0;
    for (const auto& [kind, cycles] : report["cores"][i]["cycles"].items()) {
      const auto at = std::ranges::find(kinds, kind) - kinds.begin();
      (at < report["idle_kinds_from"].get<ptrdiff_t>() ? busy : known) += cycles.get<double>();
    }
    for (const auto& [kind, cycles] : first["cores"][i]["cycles"].items()) {
      waits += kind == "waits" || kind == "gang starts or ends" ? cycles.get<double>() : 0;
      busy -= kind == "waits" || kind == "gang starts or ends" ? 0 : cycles.get<double>();
    }
    EXPECT_EQ(waits, known);
    EXPECT_EQ(busy, 0);
  }
  nlohmann::ordered_json& early = all[1];
  EXPECT_EQ(early["changes_to_come"], true);
  EXPECT_TRUE(early["changes"].empty());
  EXPECT_FALSE(report["changes"].empty());
  EXPECT_FALSE(report.contains("changes_to_come"));
  EXPECT_TRUE(std::ranges::is_sorted(parts));
  EXPECT_GT(parts.size(), 5u);
  early.erase("changes_to_come");
  early["changes"] = report["changes"];
  EXPECT_EQ(early, report);
}

}  // namespace
}  // namespace tpu::driver
