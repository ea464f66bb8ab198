// The whole board with the real firmware: boot, copies, launches of hand-made programs on one core
// and as gangs, several steps, faults and what survives them, deadlock, idle harts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "board_bench.hpp"
#include "fst_reader.hpp"

namespace tpu::model {
namespace {

namespace core_page = spec::core_page;
using Image = ProgramImage;

// out = in, through VMEM, with a semaphore between the two queues.
std::vector<std::byte> copy_program(uint32_t words, uint32_t cores) {
  Image image(2, cores);
  spec::DmaCommand in = Image::dma(Image::hbm(0), Image::vmem(256), words);
  in.head.signal[0] = Image::signal(3);
  image.command(in, spec::Opcode::kDma, spec::Queue::kDmaIn, 1);
  spec::DmaCommand out = Image::dma(Image::vmem(256), Image::hbm(1), words);
  out.head.wait[0] = Image::wait(3);
  image.command(out, spec::Opcode::kDma, spec::Queue::kDmaOut, 2);
  image.scalar(spec::ScalarOp::kHalt);
  return image.bytes();
}

void expect_all_ok(BoardBench& bench, const std::map<uint32_t, uint32_t>& seqs) {
  for (const auto& [core, seq] : seqs) {
    EXPECT_EQ(bench.wait(core, seq).status, TPU_STATUS_OK) << "core " << core;
  }
}

TEST(Board, BootsAllCoresWithTheFirmware) {
  BoardBench bench;
  EXPECT_EQ(bench.host.read32(0, 0, spec::chip_page::kMagic), spec::chip_page::kMagicTpub);
  bench.boot();
  for (uint32_t core = 0; core < bench.cores(); ++core) {
    EXPECT_EQ(bench.state(core), core_page::kStateReady);
    EXPECT_EQ(bench.read(core, core_page::kFwBuild), firmware::image().build);
    EXPECT_EQ(bench.read(core, core_page::kFwAbi), TPU_RING_ABI);
  }
  EXPECT_TRUE(bench.host.run().quiescent);
}

TEST(Board, RefusesACorruptFirmwareImage) {
  BoardBench bench;
  const auto bytes = std::as_bytes(firmware::image().bytes);
  bench.host.write_block(0, 2, 0, bytes);
  bench.write(0, core_page::kBootEntry, TPU_HART_ITCM_BASE);
  bench.write(0, core_page::kBootLen, static_cast<uint32_t>(bytes.size()));
  bench.write(0, core_page::kBootCrc, firmware::image().crc32c ^ 1);
  bench.write(0, core_page::kCoreCtrl, core_page::kCoreCtrlHartRunMask);
  while (!bench.host.run().quiescent) {
  }
  EXPECT_EQ(bench.state(0), core_page::kStateBadImage);
}

TEST(Board, CopiesThroughTheRings) {
  BoardBench bench;
  bench.boot();
  constexpr uint32_t kBytes = 100'003;
  const uint64_t source = bench.arena.take(kBytes);
  const uint64_t target = bench.arena.take(kBytes);
  for (uint32_t i = 0; i < kBytes; ++i) {
    bench.arena.put<uint8_t>(source + i, static_cast<uint8_t>(i * 31));
  }
  EXPECT_EQ(bench.copy(2, TPU_COPY_H2D, source, 0x10000, kBytes).status, TPU_STATUS_OK);
  EXPECT_EQ(bench.copy(2, TPU_COPY_D2D, 0x10000, 0x80000, kBytes, 5).status, TPU_STATUS_OK);
  EXPECT_EQ(bench.copy(5, TPU_COPY_D2H, 0x80000, target, kBytes).status, TPU_STATUS_OK);
  for (uint32_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(bench.arena.get<uint8_t>(target + i), static_cast<uint8_t>(i * 31)) << i;
  }
}

TEST(Board, ForeignHostAddressFailsTheCommandOnly) {
  BoardBench bench;
  bench.boot();
  EXPECT_EQ(bench.copy(0, TPU_COPY_H2D, 0x10, 0, 64).status, TPU_STATUS_HOST_ADDR);
  EXPECT_EQ(bench.state(0), core_page::kStateHeld);
  bench.resume(0);
  const uint64_t source = bench.arena.take(64);
  EXPECT_EQ(bench.copy(0, TPU_COPY_H2D, source, 0, 64).status, TPU_STATUS_OK);
}

TEST(Board, RunsAProgramOnOneCore) {
  BoardBench bench;
  bench.boot();
  constexpr uint32_t kWords = 5000;
  const uint64_t source = bench.arena.take(kWords * 4);
  const uint64_t target = bench.arena.take(kWords * 4);
  for (uint32_t i = 0; i < kWords; ++i) {
    bench.arena.put(source + 4 * i, i * 2654435761U);
  }
  ASSERT_EQ(bench.load(6, 4, 0x200000, copy_program(kWords, 1)).status, TPU_STATUS_OK);
  ASSERT_EQ(bench.copy(6, TPU_COPY_H2D, source, 0x10000, kWords * 4).status, TPU_STATUS_OK);
  const auto seqs =
      bench.launch(1U << 6, 4, {fixed_slot(0x10000, kWords * 4), fixed_slot(0x40000, kWords * 4)});
  expect_all_ok(bench, seqs);
  ASSERT_EQ(bench.copy(6, TPU_COPY_D2H, 0x40000, target, kWords * 4).status, TPU_STATUS_OK);
  for (uint32_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(bench.arena.get<uint32_t>(target + 4 * i), i * 2654435761U) << i;
  }
}

// Core r sends its word to core (r + 1) mod 8 and waits for its neighbour's.
TEST(Board, GangOfEightPassesDataAround) {
  BoardBench bench;
  bench.boot();
  Image image(2, 8);
  spec::DmaCommand in = Image::dma(Image::hbm(0), Image::vmem(0), 1);
  in.head.signal[0] = Image::signal(1);
  image.command(in, spec::Opcode::kDma, spec::Queue::kDmaIn, 1);
  image.scalar(spec::ScalarOp::kRid, 4);
  image.scalar(spec::ScalarOp::kAddi, 4, 4, 0, 1);
  image.scalar(spec::ScalarOp::kLi, 5, 0, 0, 7);
  image.scalar(spec::ScalarOp::kAnd, 4, 4, 5);
  spec::DmaCommand send = Image::dma(Image::vmem(0), Image::vmem(4096), 1);
  send.peer_reg = 4;
  send.head.wait[0] = Image::wait(1);
  send.head.signal[0] = {
      .sem = 2, .flags = spec::Signal::kValid | spec::Signal::kRemote, .value = 1, .peer_reg = 4};
  image.command(send, spec::Opcode::kDma, spec::Queue::kDmaRemote, 2);
  spec::DmaCommand out = Image::dma(Image::vmem(4096), Image::hbm(1), 1);
  out.head.wait[0] = Image::wait(2);
  image.command(out, spec::Opcode::kDma, spec::Queue::kDmaOut, 3);
  image.scalar(spec::ScalarOp::kHalt);

  const uint64_t words = bench.arena.take(4096);
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.load(core, 0, 0x200000, image.bytes()).status, TPU_STATUS_OK);
    bench.arena.put(words + 64 * core, 100 + core);
    ASSERT_EQ(bench.copy(core, TPU_COPY_H2D, words + 64 * core, 0x1000, 4).status, TPU_STATUS_OK);
  }
  expect_all_ok(bench, bench.launch(0xFF, 0, {fixed_slot(0x1000, 4), fixed_slot(0x2000, 4)}));
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.copy(core, TPU_COPY_D2H, 0x2000, words + 2048, 4).status, TPU_STATUS_OK);
    EXPECT_EQ(bench.arena.get<uint32_t>(words + 2048), 100 + (core + 7) % 8);
  }
}

TEST(Board, LaunchCostsFewInstructions) {
  BoardBench bench;
  bench.boot();
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.load(core, 0, 0x200000, copy_program(64, 8)).status, TPU_STATUS_OK);
  }
  std::vector<tpu_slot_entry_t> slots(48, fixed_slot(0x40000, 256));
  slots[0] = fixed_slot(0x10000, 256);
  expect_all_ok(bench, bench.launch(0xFF, 0, slots));
  const BoardStats before = bench.host.stats();
  constexpr uint32_t kLaunches = 10;
  std::map<uint32_t, uint32_t> last;
  for (uint32_t i = 0; i < kLaunches; ++i) {
    last = bench.launch(0xFF, 0, slots);
  }
  expect_all_ok(bench, last);
  const BoardStats after = bench.host.stats();
  const uint64_t per_launch =
      (after.cores[3].hart_instructions - before.cores[3].hart_instructions) / kLaunches;
  RecordProperty("instructions_per_launch", static_cast<int>(per_launch));
  std::cout << "instructions per launch: " << per_launch << "\n";
  EXPECT_LT(per_launch, 3000U);
  EXPECT_GT(per_launch, 100U);
}

TEST(Board, RunsSeveralStepsInOneLaunch) {
  BoardBench bench;
  bench.boot();
  // Counts in HBM: step k writes k at slot 0 + 4 k.
  Image image(1, 1);
  image.scalar(spec::ScalarOp::kStep, 4);
  image.scalar(spec::ScalarOp::kMuli, 4, 4, 0, 4);
  spec::FillCommand fill{};
  fill.dst = Image::hbm(0);
  fill.dst.reg = 4;
  fill.elem_bytes = 4;
  fill.counts = {1, 1, 1, 1, 1};
  fill.pattern = 0x77;
  image.command(fill, spec::Opcode::kFill, spec::Queue::kDmaOut, 1);
  image.scalar(spec::ScalarOp::kHalt);
  ASSERT_EQ(bench.load(0, 0, 0x200000, image.bytes()).status, TPU_STATUS_OK);
  const auto seqs = bench.launch(1, 0, {fixed_slot(0x10000, 64)}, 11);
  const tpu_completion_t done = bench.wait(0, seqs.at(0));
  EXPECT_EQ(done.status, TPU_STATUS_OK);
  EXPECT_EQ(done.step, 11U);
  const uint64_t target = bench.arena.take(64);
  ASSERT_EQ(bench.copy(0, TPU_COPY_D2H, 0x10000, target, 64).status, TPU_STATUS_OK);
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(bench.arena.get<uint32_t>(target + 4 * i), i < 11 ? 0x77U : 0U);
  }
}

TEST(Board, FaultOfOneCoreAbortsTheGangAndTheBoardGoesOn) {
  BoardBench bench;
  bench.boot();
  constexpr uint32_t kWords = 64;
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.load(core, 0, 0x200000, copy_program(kWords, 8)).status, TPU_STATUS_OK);
  }
  Image bad(2, 8);  // core 5 leaves its slot
  bad.scalar(spec::ScalarOp::kRid, 4);
  bad.scalar(spec::ScalarOp::kLi, 5, 0, 0, 5);
  bad.scalar(spec::ScalarOp::kSub, 6, 4, 5);
  bad.scalar(spec::ScalarOp::kBne, 0, 6, 0, 4 + static_cast<int32_t>(sizeof(spec::DmaCommand) / 8));
  bad.command(Image::dma(Image::hbm(0), Image::vmem(0), kWords + 1), spec::Opcode::kDma,
              spec::Queue::kDmaIn, 9);
  spec::NopCommand nop{};  // the others wait for what never comes
  nop.head.wait[0] = Image::wait(9);
  bad.command(nop, spec::Opcode::kNop, spec::Queue::kVpu);
  bad.scalar(spec::ScalarOp::kHalt);
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.load(core, 1, 0x300000, bad.bytes()).status, TPU_STATUS_OK);
  }
  const std::vector<tpu_slot_entry_t> slots = {fixed_slot(0x10000, kWords * 4),
                                               fixed_slot(0x20000, kWords * 4)};
  const auto seqs = bench.launch(0xFF, 1, slots);
  for (const auto& [core, seq] : seqs) {
    EXPECT_EQ(bench.wait(core, seq).status, core == 5 ? TPU_STATUS_FAULT : TPU_STATUS_ABORTED)
        << core;
  }
  tpu_fault_record_t record{};
  for (uint32_t i = 0; i < sizeof record / 4; ++i) {
    const uint32_t word = bench.read(5, core_page::kFaultRecord + 4 * i);
    std::memcpy(reinterpret_cast<char*>(&record) + 4 * i, &word, 4);
  }
  EXPECT_EQ(record.code, TPU_FAULT_SLOT_RANGE);
  EXPECT_EQ(record.core, 5);
  EXPECT_EQ(record.op_id, 9U);
  EXPECT_EQ(record.engine, static_cast<uint8_t>(spec::Queue::kDmaIn));
  for (uint32_t core = 0; core < 8; ++core) {
    bench.resume(core);
  }
  expect_all_ok(bench, bench.launch(0xFF, 0, slots));
}

// Launch ids are the gangs' tags, all 32 bits of them, and wrap.
TEST(Board, LaunchOfALaterIdIsNotTakenForAnAbortedOne) {
  BoardBench bench;
  bench.boot();
  ASSERT_EQ(bench.load(0, 0, 0x200000, copy_program(16, 1)).status, TPU_STATUS_OK);
  const std::vector<tpu_slot_entry_t> good(2, fixed_slot(0x10000, 64));
  const std::vector<tpu_slot_entry_t> small(2, fixed_slot(0x10000, 32));
  constexpr uint32_t kFailed = 0xFFFFFFF0;
  bench.set_last_launch(kFailed - 1);
  EXPECT_EQ(bench.wait(0, bench.launch(1, 0, small).at(0)).status, TPU_STATUS_FAULT);
  bench.resume(0);
  for (const uint32_t id : {kFailed + 0x10000, kFailed + 0x20000, kFailed + 0x40000000,
                            kFailed + 0x80000000U, kFailed + 0xC0000000U, kFailed}) {
    bench.set_last_launch(id - 1);
    EXPECT_EQ(bench.wait(0, bench.launch(1, 0, good).at(0)).status, TPU_STATUS_OK) << id;
  }
}

TEST(Board, DeadlockIsQuiescenceWithAReport) {
  BoardBench bench;
  bench.boot();
  Image image(0, 1);
  spec::NopCommand nop{};
  nop.head.wait[0] = Image::wait(17);
  image.command(nop, spec::Opcode::kNop, spec::Queue::kVpu, 3);
  image.scalar(spec::ScalarOp::kHalt);
  ASSERT_EQ(bench.load(1, 0, 0x200000, image.bytes()).status, TPU_STATUS_OK);
  const auto seqs = bench.launch(2, 0, {});
  while (!bench.host.run().quiescent) {
  }
  EXPECT_FALSE(bench.drain(1));
  const std::vector<spec::UnitWait> waits = bench.host.waits();
  const auto head =
      std::ranges::find_if(waits, [](const spec::UnitWait& wait) { return wait.at.unit == "vpu"; });
  ASSERT_NE(head, waits.end());
  EXPECT_EQ(head->at.core, 1u);
  EXPECT_EQ(head->index, 17u);
  EXPECT_FALSE(head->ender) << "nobody signals it";
  bench.write(1, core_page::kAbort, 1);  // launch id
  EXPECT_EQ(bench.wait(1, seqs.at(1)).status, TPU_STATUS_ABORTED);
  bench.resume(1);
}

// What the simulation kernel has to do for a register read does not depend on idle harts.
TEST(Board, IdleHartsCostNoEvents) {
  BoardBench bench;
  bench.boot();
  const BoardStats before = bench.host.stats();
  const uint64_t cycle = bench.host.now();
  constexpr uint64_t kReads = 1000;
  constexpr uint64_t kDeltasPerRead = 8;
  for (uint64_t i = 0; i < kReads; ++i) {
    bench.read(0, core_page::kFwState);
  }
  EXPECT_GT(bench.host.now() - cycle, kReads * 900U);
  const BoardStats after = bench.host.stats();
  EXPECT_LT(after.delta_cycles - before.delta_cycles, kReads * kDeltasPerRead);
  for (uint32_t core = 0; core < 8; ++core) {
    EXPECT_EQ(after.cores[core].hart_instructions, before.cores[core].hart_instructions);
    EXPECT_TRUE(after.cores[core].hart_sleeping);
  }
}

TEST(Board, SameCallsGiveTheSameCycles) {
  // The number is fixed by the run itself: two boards cannot live in one process, so the test
  // compares with a copy of the figures that a second run of the same commands on this board gives
  // after a reset of all cores.
  BoardBench bench;
  std::array<uint64_t, 2> cycles{};
  for (uint64_t& taken : cycles) {
    const uint64_t start = bench.host.now();
    bench.boot();
    const uint64_t source = bench.arena.take(4096);
    bench.copy(3, TPU_COPY_H2D, source, 0x1000, 4096);
    taken = bench.host.now() - start;
    bench.forget();
  }
  EXPECT_EQ(cycles[0], cycles[1]);
}

// Loads, one matmul of one tile (8 x 8 x 8), halt.
std::vector<std::byte> matmul_program() {
  Image image(1, 1);
  spec::DmaCommand in = Image::dma(Image::hbm(0), Image::vmem(0), 128);
  in.head.signal[0] = Image::signal(1);
  image.command(in, spec::Opcode::kDma, spec::Queue::kDmaIn, 1);
  spec::MatmulCommand c{};
  c.out = Image::vmem(4096), c.lhs = Image::vmem(0), c.rhs = Image::vmem(256);
  c.m = {1, 1, 1, 8}, c.m_lhs = c.m_out = {0, 0, 0, 32};
  c.t = {1, 1, 1}, c.k = {1, 1, 8}, c.k_rhs = {0, 0, 32};
  c.n = {1, 8}, c.n_rhs = c.n_out = {0, 4};
  c.head.wait[0] = Image::wait(1);
  image.command(c, spec::Opcode::kMatmul, spec::Queue::kMxu0, 2);
  image.scalar(spec::ScalarOp::kHalt);
  return image.bytes();
}

// Three launches of two steps on core 0.
void run_six_steps(BoardBench& bench) {
  bench.boot();
  ASSERT_EQ(bench.load(0, 0, 0x200000, matmul_program()).status, TPU_STATUS_OK);
  for (int launch = 0; launch < 3; ++launch) {
    expect_all_ok(bench, bench.launch(1, 0, {fixed_slot(0x10000, 512)}, 2));
  }
}

TEST(Board, StepsOfAllLaunchesCountForLockstepAndTraces) {
  BoardOptions options = BoardBench::default_options();
  options.sim.mxu = {{"board.chip0.core0.mxu0", "lockstep@3..4"}};
  options.sim.trace_path = ::testing::TempDir() + "/steps.txt";
  BoardBench bench(options);
  run_six_steps(bench);
  EXPECT_EQ(bench.host.stats().lockstep_tiles, 2U);
  EXPECT_EQ(bench.host.stats().lockstep_mismatches, 0U) << bench.host.stats().lockstep_text;
  EXPECT_EQ(bench.host.close(), "");
  std::ifstream trace(options.sim.trace_path);
  std::vector<std::string> steps;
  for (std::string line; std::getline(trace, line);) {
    if (line.find("matmul") != std::string::npos) {
      const size_t at = line.find("step=");
      steps.push_back(line.substr(at, line.find(' ', at) - at));
    }
  }
  EXPECT_EQ(steps,
            (std::vector<std::string>{"step=0", "step=1", "step=2", "step=3", "step=4", "step=5"}));
}

TEST(Board, WindowsBehindTheRunAreTold) {
  BoardOptions options = BoardBench::default_options();
  options.sim.mxu = {{"board.chip0.core0.mxu0", "lockstep@6..9"}};
  options.sim.waves_path = ::testing::TempDir() + "/behind.fst";
  options.sim.waves_first_step = 6;
  options.sim.mxu_waves_path = ::testing::TempDir() + "/behind_mxu.fst";
  BoardBench bench(options);
  run_six_steps(bench);
  const std::string error = bench.host.close();
  EXPECT_NE(error.find("of the steps 6 to 6 none ran; the board ran 6 steps"), std::string::npos)
      << error;
  EXPECT_NE(error.find("of the tiles 0 to 3 none came"), std::string::npos) << error;
  EXPECT_NE(
      error.find("SimOptions::mxu board.chip0.core0.mxu0=lockstep@6..9: nothing was compared"),
      std::string::npos)
      << error;
}

// The Verilog runs while the window is open, compared with the fast engine, and its ports are in
// the same file.
TEST(Board, AWindowOfWavesSwitchesMatrixUnitsToVerilogAndBack) {
  BoardOptions options = BoardBench::default_options();
  options.sim.mxu = {{"board.chip0.core0.mxu0", "lockstep@waves"}};
  options.sim.waves_path = ::testing::TempDir() + "/board_verilog.fst";
  options.sim.waves_scopes = {"board.chip0.core0.mxu0"};
  options.sim.waves_trigger = "step=2";
  options.sim.waves_for_steps = 3;
  BoardBench bench(options);
  run_six_steps(bench);
  EXPECT_EQ(bench.host.stats().lockstep_tiles, 3U);
  EXPECT_EQ(bench.host.stats().lockstep_mismatches, 0U) << bench.host.stats().lockstep_text;
  EXPECT_EQ(bench.host.close(), "");
  const test::WaveChanges changes = test::read_fst(options.sim.waves_path);
  const std::string unit = "board.chip0.core0.mxu0.";
  std::vector<uint64_t> commands;  // when the engine began one
  for (const test::WaveChange& change : changes.at(unit + "busy")) {
    if (change.value == "1") {
      commands.push_back(change.time);
    }
  }
  ASSERT_EQ(commands.size(), 3U);
  size_t rows = 0;
  bool valid = false;
  uint64_t last = 0;
  for (const test::WaveChange& change : changes.at(unit + "rtl.x_valid")) {
    rows += valid ? ((change.time - last) * 940 + 500'000) / 1'000'000 : 0;  // cycles
    valid = change.value == "1";
    last = change.time;
    EXPECT_TRUE(!valid || change.time > commands[0]) << change.time;
  }
  EXPECT_EQ(rows, 3U * 8U);
}

TEST(Board, WavesInAWindowThatNobodyOpensAreRefused) {
  BoardOptions options = BoardBench::default_options();
  options.sim.mxu = {{"board.chip0.core0.mxu0", "rtl@waves"}};
  try {
    BoardBench bench(options);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(
        error.what(),
        "SimOptions::mxu board.chip0.core0.mxu0=rtl@waves: there are no waves; name their file by "
        "SimOptions::waves_path");
  }
}

TEST(Board, WavesShowHartsAndTransfers) {
  BoardOptions options = BoardBench::default_options();
  options.sim.waves_path = ::testing::TempDir() + "/board_harts.fst";
  options.sim.waves_first_step = 1;
  options.sim.waves_steps = 3;
  BoardBench bench(options);
  run_six_steps(bench);
  EXPECT_EQ(bench.host.close(), "");
  test::WaveChanges changes = test::read_fst(options.sim.waves_path);
  const std::string core = "board.chip0.core0.";
  std::vector<test::WaveChange>& transfers = changes[core + "dma_in.busy"];
  std::erase_if(transfers, [](const test::WaveChange& change) { return change.value == "x"; });
  ASSERT_EQ(transfers.size(), 7U);  // 0, then one transfer in each of three steps
  const uint64_t latency = static_cast<uint64_t>(options.params.dma.in_fixed_ns) * 1000;
  EXPECT_GE(transfers[2].time - transfers[1].time, latency);
  EXPECT_GE(changes[core + "hart.wfi"].size(), 6U);  // asleep in a step, awake between two
  EXPECT_GE(changes[core + "hart.pc"].size(), 4U);
}

TEST(Board, RefusesOptionsThatCannotBeAndThenOpens) {
  HostArena arena(4096);
  const auto error_of = [&](const std::string& pattern, const std::string& mode,
                            const std::string& simd, const std::string& mxu_waves = "",
                            bool no_data = false) {
    BoardOptions options = BoardBench::default_options();
    options.sim.mxu = {{pattern, mode}};
    options.sim.simd = simd;
    options.sim.mxu_waves_path = mxu_waves;
    options.sim.no_data = no_data;
    try {
      BoardHost host(options, arena);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of("board.chip9.core0.mxu0", "fast", "").find("matches no matrix unit"),
            std::string::npos);
  EXPECT_NE(error_of("board.*", "quick", "").find("quick"), std::string::npos);
  EXPECT_NE(error_of("board.*", "fast@x..2", "").find("steps"), std::string::npos);
  EXPECT_NE(error_of("board.*", "fast", "mmx"), "");
  EXPECT_NE(error_of("board.*", "fast", "", ::testing::TempDir() + "/none.fst")
                .find("no matrix unit runs the Verilog"),
            std::string::npos);
  EXPECT_NE(error_of("board.*", "lockstep:1/9", "", "", true).find("with SimOptions::no_data"),
            std::string::npos);
  BoardBench bench;
  EXPECT_EQ(bench.host.read32(0, 0, spec::chip_page::kMagic), spec::chip_page::kMagicTpub);
}

}  // namespace
}  // namespace tpu::model
