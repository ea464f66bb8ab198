// Executable: a core program on a group of devices. Loading checks it against the board; running it
// binds arrays and launches all its cores as one gang. There can be more of them than a core has
// program ids and memory for: those used longest ago leave the board and come back when they run.
// Handles are cheap to copy and may outlive their Board; all calls may come from any thread. Every
// call on an empty handle throws InvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tpu/buffer.hpp"
#include "tpu/step_feed.hpp"

namespace tpu::driver {

struct ExecutableState;

/// One argument or result of a program.
struct ParameterInfo {
  std::string name;           ///< as the graph has it
  DType dtype = DType::kF32;  ///< element type
  Shape shape;                ///< global
  Layout layout;              ///< on the cores of the program
  int donated_to = -1;        ///< arguments: the result that takes over the buffer; -1: none
};

/// What a program needs and does, of one core and one step. Known when it is compiled; what
/// commands do is counted as the estimate runs them (docs/host_driver.md).
struct ProgramCost {
  uint64_t matmul_flops = 0;       ///< logical 2*M*K*N, without padding
  uint64_t vector_ops = 0;         ///< of the vector unit, in elements of whole blocks
  uint64_t hbm_read_bytes = 0;     ///< by commands, in granules of the DMA engine
  uint64_t hbm_written_bytes = 0;  ///< as above
  uint64_t link_bytes = 0;         ///< sent to other cores
  uint64_t estimated_cycles = 0;   ///< the compiler's estimate of simulated time
  uint64_t code_bytes = 0;         ///< of the image in HBM
  uint64_t vmem_peak_bytes = 0;    ///< most of VMEM at a time
  uint64_t argument_bytes = 0;     ///< all arguments
  uint64_t result_bytes = 0;       ///< all results, those in the memory of arguments too
  uint64_t donated_bytes = 0;      ///< of results that take over the memory of an argument
  uint64_t constant_bytes = 0;     ///< on the core for as long as the program is loaded
  uint64_t scratch_bytes = 0;      ///< as above
  /// HBM while it runs: code, arguments, results of their own, constants and scratch memory.
  uint64_t hbm_bytes = 0;
};

/// How far a host call goes with its transfer.
enum class HostCallStage : uint8_t {
  kWhole,  ///< the program waits for it
  kStart,  ///< it begins, behind those before it, and the program continues
  kFinish  ///< the program waits for all that it has started on the channel
};

/// A point at which a program sends bytes to the host, or gets some, and waits for it.
struct HostCallInfo {
  int64_t channel = 0;        ///< names it in the graph
  bool to_host = true;        ///< else from the host
  int partition = -1;         ///< the one that speaks for all; -1: each for itself
  DType dtype = DType::kF32;  ///< of the array that travels
  Shape shape;                ///< on one core
  std::string op;             ///< the operation
  std::string source;         ///< its place in the program
  /// The program keeps bytes in the host's memory: the driver answers, and no handler sees it.
  bool memory = false;
  bool index = false;  ///< of `memory`: a number that says which array of the channel comes next
  HostCallStage stage = HostCallStage::kWhole;  ///< of `memory`
};

/// Answers host calls: takes `bytes` of a call to the host, or fills them. `partition` is the one
/// that calls (of a call that one makes for all: that one). Simulated time is paused meanwhile. It
/// runs on a thread that lets simulated time pass, one call at a time, with no lock held; it may
/// submit work, but not wait for the board. An exception ends the launch with it.
using HostCallHandler =
    std::function<void(const HostCallInfo& call, size_t partition, std::span<std::byte> bytes)>;

/// How Executable::run() launches.
struct RunOptions {
  uint32_t steps =
      1;  ///< of one launch; more than one needs a program whose state is donated, or a feed
  /// Arguments that keep their buffer although the program would take it over: they are copied
  /// first.
  std::vector<size_t> keep = {};
  /// The launch starts after these events and fails with the first of them that fails.
  std::vector<Event> after = {};
  /// Arguments of which each step takes a batch of its own from RunResult::feed; their Arrays in
  /// the call are empty. Not those that the program takes over.
  std::vector<size_t> infeed = {};
  /// Results that each step gives the host by RunResult::feed, while the launch runs; their Arrays
  /// in RunResult::outputs are empty. Not those that take over an argument.
  std::vector<size_t> outfeed = {};
  /// Of a program with host calls: what answers them. Kept until the launch is over.
  HostCallHandler on_host_call = {};
  /// The caller's own profile has an event for this launch, under this number (the context id of a
  /// TraceMe of XLA, type "PJRT library call"): the profile of the board (Board::take_xspace())
  /// names it, so that XProf joins both. 0: none.
  uint64_t trace_context = 0;
};

/// What a launch gives, before it has run.
struct RunResult {
  std::vector<Array> outputs;  ///< by result
  Event done;                  ///< all cores have finished the launch
  StepFeed feed;               ///< with RunOptions::infeed or outfeed; else empty
};

/// A program that is loaded on a group of devices, or an empty handle.
class Executable {
 public:
  Executable() = default;

  bool valid() const { return state_ != nullptr; }  ///< false for an empty handle

  // What the program is; stays readable after unload() and after the board is closed.
  const std::string& name() const;                      ///< of the graph
  const std::vector<ParameterInfo>& arguments() const;  ///< what run() takes
  const std::vector<ParameterInfo>& results() const;    ///< what run() gives
  uint32_t partitions() const;                          ///< cores that run it together
  const std::vector<int>& devices() const;              ///< these cores, by partition
  const ProgramCost& cost() const;                      ///< of one core and step
  const std::vector<HostCallInfo>& host_calls() const;  ///< what it asks of the host as it runs
  /// Logical 2*M*K*N of one core and step, without padding.
  uint64_t matmul_flops() const;

  /// Uploads a global array as argument `index` wants it. Throws InvalidArgument when there is no
  /// such argument or type, shape or bytes differ, FailedPrecondition after unload() or when the
  /// board is closed, ResourceExhausted when HBM has no room. Waits as Board::put() does.
  Array put(size_t index, const HostView& global) const;

  /// As put(), of zero bits that the cores make themselves: no host memory, no transfer.
  Array zeros(size_t index) const;

  /// Launches, and returns before it has run: outputs and `done` are futures. Donated arguments are
  /// deleted at once, and given back when the launch is refused or never starts. Inputs that are
  /// not ready, and RunOptions::after, are waited for on the board or in a queue of the driver,
  /// never in this call.
  ///
  /// The call itself waits only for other threads' calls and for room, which the board makes while
  /// it runs: at most 32 launches and 224 commands are open on a core, slot tables want staging
  /// memory, results want HBM that handles already gone are about to give back. A launch that comes
  /// after an event which is not ready waits for no room in the rings.
  ///
  /// Throws before the launch is sent, with no argument changed: InvalidArgument (number, type,
  /// shape or place of the arguments), FailedPrecondition (an argument was donated or discarded,
  /// the program unloaded, the board closed, nobody there for host calls), ResourceExhausted (HBM,
  /// memory of the host for it), Unavailable (the board has broken). A load that has not
  /// succeeded by then fails the launch with its error.
  RunResult run(const std::vector<Array>& arguments, const RunOptions& options = {}) const;

  /// Gives code, constants, scratch memory and program ids back, whatever handles there are: at
  /// once, or when the launches in flight are over, which are not disturbed. put() and run() are
  /// FailedPrecondition afterwards. Never waits for the board.
  void unload() const;

 private:
  friend struct Access;
  explicit Executable(std::shared_ptr<ExecutableState> state) : state_(std::move(state)) {}
  std::shared_ptr<ExecutableState> state_;
};

}  // namespace tpu::driver
