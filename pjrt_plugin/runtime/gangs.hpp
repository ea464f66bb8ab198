// Gangs: launches whose devices ask for them one by one, from threads or processes of their own, as
// PyTorch/XLA does. The launch number k of a device meets the launch number k of all others, as
// on a board whose cores meet in the program; or shares meet by a name, where the caller knows
// which belong together, as TensorFlow does. The first that asks gets promised arrays at once; the
// launch is submitted when the last has asked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/launch_queue.hpp"

namespace tpu::pjrt {

class Gangs {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes one program of those of the replicas, on these cores (client::join_programs).
  using JoinPrograms = std::function<client::JoinedPrograms(
      const std::vector<std::shared_ptr<const client::CompiledProgram>>& programs,
      const std::vector<int>& cores, const std::function<std::string(size_t partition)>& who)>;
  /// `limit`: how long launches wait for a device that does nothing; zero: for ever. `owner`: names
  /// in errors who works with a device; empty: nobody needs a name.
  Gangs(driver::Board board, LaunchQueue& queue, std::chrono::duration<double> limit,
        JoinPrograms join, OwnerText owner = {});
  Gangs(const Gangs&) = delete;
  Gangs& operator=(const Gangs&) = delete;
  /// Ends what waits.
  ~Gangs();

  /// What the devices of a program launch.
  struct Program {
    std::shared_ptr<const client::CompiledProgram> compiled;
    std::vector<int> devices;  ///< by partition
    WaitingLaunch::Program loaded;
  };
  /// The next launch of the devices whose shares these are. Never waits. Throws driver::Error
  /// (InvalidArgument), and has changed nothing, for no device, for one that the program does not
  /// have, and for one that comes twice, also to a launch with a name. What fails once a device has
  /// asked fails the launch of all, and the result has the error.
  LaunchResult join(const Program& program, const LaunchRequest& request);
  /// The next launch of these devices cannot be: it fails for all with this error. `name`: of the
  /// program; `members`: all its devices. Throws driver::Error as join().
  void refuse(const std::string& name, const std::vector<int>& members,
              const std::vector<int>& devices, const std::string& meets,
              const driver::Error& error);
  /// The devices have lost who works with them: launches that wait for others fail, also for shares
  /// that come by name later, and counting begins anew.
  void leave(const std::vector<int>& devices, const driver::Error& error);

  /// Somebody works with the device, so that launches may go on waiting for it.
  void note(int device);
  /// Somebody works on the host for any device, as long as this lives: compiles a program.
  class HostWork {
   public:
    explicit HostWork(Gangs& gangs) : gangs_(gangs) { ++gangs_.host_work_; }
    HostWork(const HostWork&) = delete;
    HostWork& operator=(const HostWork&) = delete;
    ~HostWork();

   private:
    Gangs& gangs_;
  };

 private:
  struct Gang;
  struct Group;
  struct Joined;
  using Programs = std::vector<std::shared_ptr<const client::CompiledProgram>>;
  using JoinedKey = std::vector<const client::CompiledProgram*>;
  using Failed = std::vector<std::pair<std::shared_ptr<WaitingLaunch>, driver::Error>>;

  using Spare = std::shared_ptr<WaitingLaunch>;

  /// Calls `work` with the lock, and with a launch that it can use up: the board makes one without
  /// the lock, as that call runs callbacks, which may launch.
  template <class Work>
  void with_spare(const std::string& name, const Program& program,
                  const std::vector<size_t>& places, const std::string& meets, Work work);
  Group& group_of(const std::vector<int>& members) TPU_REQUIRES(mutex_);
  Gang& next_of(Group& group, size_t partition, const Program& program, const std::string& meets,
                Spare& spare) TPU_REQUIRES(mutex_);
  /// A share comes to the launch; it gets the promised arrays.
  void come(Gang& gang, size_t partition, const Program& program, const LaunchRequest& request,
            size_t place, LaunchResult& result, Failed& failed) TPU_REQUIRES(mutex_);
  void fail(Gang& gang, const driver::Error& error, Failed& failed) TPU_REQUIRES(mutex_);
  /// Without the lock: it runs callbacks.
  void end(const Failed& failed);
  /// The launch has a program of each device: it gets one of all, at once or from a thread.
  void join_later(const Gang& gang) TPU_REQUIRES(mutex_);
  void join_now(const Programs& programs, const std::vector<int>& devices);
  std::shared_ptr<Joined> make_joined(const Programs& programs, const std::vector<int>& devices);
  Clock::time_point waiting_since(const Gang& gang) const TPU_REQUIRES(mutex_);
  /// Those whose time is over; else when the first of the others is to be looked at.
  std::optional<Clock::time_point> look(Failed& failed) TPU_REQUIRES(mutex_);
  void expect_watch() TPU_REQUIRES(mutex_);
  void watch();

  const driver::Board board_;
  LaunchQueue& queue_;
  const std::chrono::duration<double> limit_;
  mutable base::Mutex mutex_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_ TPU_GUARDED_BY(mutex_);  // by devices
  std::vector<std::atomic<Clock::rep>> noted_;                                        // by device
  std::atomic<int> host_work_{0};
  std::atomic<Clock::rep> host_work_ended_{0};

  const JoinPrograms join_;
  const OwnerText owner_;
  std::map<JoinedKey, std::shared_ptr<Joined>> joined_ TPU_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Joined>> forgotten_ TPU_GUARDED_BY(mutex_);  // for the call to drop
  // Launches whose program a thread makes, with their texts; and threads that have made one.
  std::map<JoinedKey, std::vector<std::pair<std::shared_ptr<WaitingLaunch>, std::string>>> joining_
      TPU_GUARDED_BY(mutex_);
  int joiners_ TPU_GUARDED_BY(mutex_) = 0;

  base::CondVar changed_;
  bool idle_ TPU_GUARDED_BY(mutex_) = false;  // the watch sleeps until a launch waits
  bool ending_ TPU_GUARDED_BY(mutex_) = false;
  std::thread watch_ TPU_GUARDED_BY(mutex_);  // of the time; from the first launch that waits on
};

}  // namespace tpu::pjrt
