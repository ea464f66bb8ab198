// How the simulated board simulates: with no_data it computes no values, with schedule_seed
// programs take other times; nothing else here changes what a program computes or when. One record
// from the command line and the public interface through the transport to the model, which takes it
// as it is. Public: installed as tpu/sim_options.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tpu::spec {

/// Options of the simulated board; see `tpuboard run --help`. Steps are counted from 0 since the
/// board was opened, those of all launches together.
struct SimOptions {
  /// Engine of matrix units by instance path, later entries win: {"board.chip0.core0.mxu*",
  /// "lockstep:1/1000"}. Mode: fast | scalar | rtl | lockstep[:1/N], with "@A..B" only in steps A
  /// to B (fast elsewhere).
  std::vector<std::pair<std::string, std::string>> mxu;
  /// Other blocks by instance path, later entries win: {"board.chip0.core0.sem", "lockstep"}: the
  /// semaphores (sem) and the DMA queues (dma_in, dma_out, dma_remote). Mode: model | rtl |
  /// lockstep.
  std::vector<std::pair<std::string, std::string>> verilog;
  int threads = 0;       ///< host threads that do data work; 0: one per host core
  std::string simd;      ///< auto | scalar | avx2 | avx512 | avx512_bf16 | amx; empty: the best
  bool no_data = false;  ///< timing only: no command's data are computed
  bool check = false;    ///< look for accesses that nothing orders
  uint64_t schedule_seed = 0;  ///< engines start commands later by seeded random delays; 0: at once
  bool profile = false;        ///< count the host's time
  bool op_times = false;       ///< count where cores spend their time, by operation
  bool xprof = false;          ///< keep a profile of operations for XProf (Board::take_xspace())
  uint64_t xprof_first_step = 0;      ///< that is in it
  uint64_t xprof_steps = UINT64_MAX;  ///< how many are
  bool record = false;                ///< keep the graph of a step (Board::take_record())
  uint64_t record_step = 0;           ///< which one
  std::string trace_path;             ///< one text line an engine command; empty: none
  std::string mmio_trace_path;        ///< registers and rings, a text line an access; empty: none
  std::string firmware_log;           ///< what control harts log; "-": standard error; empty: none
  std::string waves_path;             ///< FST of board-level signals; empty: none
  uint64_t waves_first_step = 0;      ///< that is in it
  uint64_t waves_steps = 1;           ///< how many are
  /// Globs of the instances in it, such as "board.chip0.core1.*"; none: all of the board.
  std::vector<std::string> waves_scopes;
  /// Event that opens it in place of the steps: "op=7", "fault"; docs/debugging.md has the list.
  std::string waves_trigger;
  uint64_t waves_for_cycles = UINT64_MAX;  ///< that are in it from the trigger on
  uint64_t waves_for_steps = UINT64_MAX;   ///< or steps, the one of the trigger included
  /// Cycles in it from before the trigger; without one the last before the run ends or fails.
  uint64_t waves_before_cycles = 0;
  std::string timeline_path;             ///< Perfetto trace of all cores; empty: none
  uint64_t timeline_first_step = 0;      ///< that is in it
  uint64_t timeline_steps = UINT64_MAX;  ///< how many are
  std::string mxu_waves_path;            ///< FST of the first Verilog matrix unit; empty: none
  uint64_t mxu_waves_first_tile = 0;     ///< of that unit, counted over all launches
  uint64_t mxu_waves_tiles = 4;          ///< how many of them
  std::string gdb;                       ///< [ADDRESS]:PORT where GDB can connect; empty: none
  bool gdb_wait = false;                 ///< nothing runs before a debugger lets it
  std::string tile_folder;  ///< for tiles of lockstep mismatches; empty: the working directory
};

}  // namespace tpu::spec
