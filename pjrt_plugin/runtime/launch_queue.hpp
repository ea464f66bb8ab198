// LaunchQueue: launches that cannot be submitted yet. A launch waits for replicas that have not
// asked for it, for arrays that come later, and for the launches in front of it on its devices:
// each device does what is asked of it in the order of the calls. No call waits. What can be
// submitted is submitted by the thread whose call made that possible.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/local_array.hpp"

namespace tpu::pjrt {

/// Submits a launch of all shares to the board.
driver::RunResult run_on_board(const driver::Executable& executable, const LaunchRequest& request);

/// What a device gives as an argument of a program that was made of those of several replicas.
struct GivenArgument {
  size_t own = 0;           ///< number of its own argument
  DeviceArrayPtr constant;  ///< not null: this in place of an argument
};

struct BoardProgram {
  driver::Executable loaded;
  /// By partition and argument; empty: every device gives its arguments as they are.
  std::shared_ptr<const std::vector<std::vector<GivenArgument>>> arguments = nullptr;
};

/// A launch whose results are promised. Its shares come one by one.
class WaitingLaunch {
 public:
  /// Gives the program, when the launch is submitted.
  using Program = std::function<BoardProgram()>;
  WaitingLaunch(const driver::Board& board, std::string name, size_t partitions, Program program);
  ~WaitingLaunch();
  WaitingLaunch(const WaitingLaunch&) = delete;
  WaitingLaunch& operator=(const WaitingLaunch&) = delete;

  const std::string& name() const { return name_; }
  const driver::Event& made() const { return made_event_; }

  /// The arrays that a device will have of it. `place`: of its share in the request.
  std::vector<DeviceArrayPtr> add(size_t partition, const exe::ExecutableT& program,
                                  const LaunchRequest& request, size_t place);
  /// All shares are there, and their arrays there or lost.
  bool ready() const;
  /// An argument on this device is a result of the other launch.
  bool needs(const WaitingLaunch& other, int device) const;
  /// It takes over an argument on this device that the other launch reads.
  bool takes_from(const WaitingLaunch& other, int device) const;
  /// In place of the program of the first share. Before the launch is submitted.
  void set_program(Program program) { program_ = std::move(program); }

  /// One of the two ends it, once, when no more shares come.
  void submit();
  void fail(const driver::Error& error);

 private:
  struct Part {
    DeviceShare share;
    std::vector<LocalArrayPtr> arguments, results;
    std::vector<size_t> keep, taken;  // by its program, of what it may take over
    driver::HostCallHandler on_host_call;
    size_t place = 0;  // for the handler
  };

  LaunchRequest request(const BoardProgram& program) const;
  const Part* part_of(int device) const;
  void give_back_taken() const;
  void release();

  const driver::Board board_;
  const std::string name_;
  Program program_;
  const driver::HostEvent made_;
  const driver::Event made_event_;
  std::vector<std::optional<Part>> parts_;  // by partition
  uint64_t trace_context_ = 0;
};

class LaunchQueue {
 public:
  /// Something waits on one of these devices.
  bool busy(const std::vector<DeviceShare>& shares) const;

  /// What is done where devices ask for the same launches in different orders: nothing, or a device
  /// does them in the order of the others, as long as none of them uses what another one changes.
  enum Order { kAsAsked, kAsOthers };
  /// Puts the launch behind all that waits on these devices. `missing`: of its devices that have
  /// not asked yet. False: it can never run, because devices have the same launches in different
  /// orders; it is there all the same, and to be dropped.
  bool add(const std::shared_ptr<WaitingLaunch>& launch, const std::vector<int>& devices,
           size_t missing, Order order = kAsAsked);
  /// Nothing is missing any more.
  void complete(const WaitingLaunch& launch);
  /// Submits what waits for nothing.
  void run();
  /// Ends a launch with an error, and runs what waited behind it. Nothing happens to one that is
  /// being submitted.
  void drop(const std::shared_ptr<WaitingLaunch>& launch, const driver::Error& error);

 private:
  struct Entry {
    std::shared_ptr<WaitingLaunch> launch;
    std::vector<int> devices;
    size_t missing = 0;
    bool taken = false;  // by the thread that ends it
  };
  using EntryPtr = std::shared_ptr<Entry>;

  EntryPtr entry_of(const WaitingLaunch& launch) const TPU_REQUIRES(mutex_);
  EntryPtr next() TPU_REQUIRES(mutex_);
  bool first_everywhere(const EntryPtr& entry) const TPU_REQUIRES(mutex_);
  bool waits_for(const EntryPtr& entry, const EntryPtr& wanted) const TPU_REQUIRES(mutex_);
  bool go_in_front(const EntryPtr& entry, int device) TPU_REQUIRES(mutex_);
  void remove(const EntryPtr& entry);

  mutable base::Mutex mutex_;
  std::map<int, std::deque<EntryPtr>> waiting_ TPU_GUARDED_BY(mutex_);  // by device
};

}  // namespace tpu::pjrt
