// BoardCalls: what one process asks of the board of this one, call by call, and what it has there.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "processes/frame_queue.hpp"
#include "processes/host_call_waits.hpp"
#include "processes/profile_calls.hpp"
#include "processes/segments.hpp"
#include "runtime/runtime.hpp"

namespace tpu::pjrt {

/// What sessions have in common.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  /// The process may use the board from here on; its devices. Throws driver::Error when it may not.
  virtual std::vector<int> greet(const wire::HelloT& hello) = 0;
  virtual const Runtime& runtime() const = 0;
  /// The program of these bytes, one object for all sessions.
  virtual std::shared_ptr<const client::CompiledProgram> program(
      std::span<const std::byte> container, std::span<const std::byte> artifact,
      const compiler::ImportOptions& import) = 0;
  virtual SharedProfile& profile() = 0;
  /// Launches that wait for devices whose process has ended fail: of these devices.
  virtual void end_lost(const std::vector<int>& devices) = 0;
  /// The process has ended, and its launches with it: with this error, which is also that of other
  /// work that waits for it. `why` if the process is not to blame for a plain end.
  virtual driver::Error lose(const wire::HelloT& hello, const std::vector<int>& devices,
                             const std::string& why) = 0;
  /// Nothing of it is left: a process with its number may come.
  virtual void leave(const wire::HelloT& hello) = 0;
};

class BoardCalls {
 public:
  BoardCalls(SessionHost& host, std::shared_ptr<FrameQueue> out,
             std::shared_ptr<HostCallWaits> host_calls)
      : host_(host), out_(std::move(out)), host_calls_(std::move(host_calls)) {}

  using Tell = ProfileCalls::Tell;
  /// Does a call, and tells the answer: in this call, or later for one that waits for the board.
  /// Throws driver::Error in place of the answer.
  void answer(ReceivedFrame& received, const Tell& tell);
  /// The process has ended: gives back what it had. `why`: SessionHost::lose().
  void end(const std::string& why);

 private:
  struct Program {
    std::shared_ptr<const DeviceProgram> loaded;
    std::vector<int> devices;
    size_t results;
  };
  struct Filling {
    driver::HostEvent filled;
    std::shared_ptr<std::vector<std::byte>> bytes;
  };

  wire::AnswerT greet(const wire::HelloT& hello);
  wire::AnswerT transfer(ReceivedFrame& received);
  wire::AnswerT control(ReceivedFrame& received);
  void put(const wire::PutT& call);
  void put_later(const wire::PutLaterT& call);
  void fill(const wire::FillT& call);
  void zeros(const wire::ZerosT& call);
  void copy(const wire::CopyT& call);
  void read(const wire::ReadT& call);
  void watch(const wire::WatchT& call);
  void load(const wire::LoadT& call);
  void launch(const wire::LaunchT& call);
  LaunchRequest request_of(const wire::LaunchT& call) const;
  void check_outputs(const wire::LaunchT& call, const Program& program) const;
  void refuse(const wire::RefuseT& call);
  void host_work(bool begins);
  wire::AnswerT device_use(const wire::DeviceUseT& call) const;

  void check_device(int device) const;
  void check_devices(const std::vector<int>& devices) const;
  void add_array(uint64_t number, DeviceArrayPtr array);
  const DeviceArrayPtr& array(uint64_t number) const;
  const Program& program(uint64_t number) const;
  void tell_when_ready(const driver::Event& event, uint64_t number) const;

  SessionHost& host_;
  const std::shared_ptr<FrameQueue> out_;
  const std::shared_ptr<HostCallWaits> host_calls_;
  wire::HelloT hello_;
  bool greeted_ = false;
  std::vector<int> devices_;
  std::unordered_map<uint64_t, DeviceArrayPtr> arrays_;
  std::unordered_map<uint64_t, Program> programs_;
  SegmentTable segments_;
  std::unordered_map<uint64_t, Filling> fillings_;
  std::vector<std::shared_ptr<void>> host_work_;
  ProfileCalls profile_;
};

}  // namespace tpu::pjrt
