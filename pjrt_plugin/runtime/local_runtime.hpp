// The runtime of a process that has the board itself. It outlives its programs.
#pragma once

#include <map>
#include <utility>

#include "runtime/gangs.hpp"
#include "runtime/launch_queue.hpp"
#include "runtime/runtime.hpp"

namespace tpu::pjrt {

class LocalRuntime : public Runtime {
 public:
  /// `limit`: how long launches wait for a replica that does nothing; zero: for ever.
  /// `join`: makes one program of those of replicas that differ. `owner`: who works with a device.
  explicit LocalRuntime(const driver::Board& board,
                        std::chrono::duration<double> limit = std::chrono::duration<double>(0),
                        Gangs::JoinPrograms join = {}, OwnerText owner = {})
      : board_(board), gangs_(board, queue_, limit, std::move(join), std::move(owner)) {}

  driver::DeviceInfo device_info(int device) const override;
  DeviceArrayPtr put(int device, const driver::HostView& host) const override;
  DeviceArrayPtr put(int device, driver::DType dtype, const driver::Shape& shape,
                     std::shared_ptr<const std::vector<std::byte>> bytes,
                     const driver::Event& after) const override;
  DeviceArrayPtr zeros(int device, driver::DType dtype, const driver::Shape& shape) const override;
  DeviceArrayPtr copy(const DeviceArray& source, int device) const override;
  std::shared_ptr<const DeviceProgram> load(std::shared_ptr<const client::CompiledProgram> program,
                                            const std::vector<int>& devices) const override;
  driver::HostEvent make_event() const override { return board_.make_event(); }
  void refuse(const std::string& name, const std::vector<int>& members,
              const std::vector<int>& devices, const std::string& meets,
              const driver::Error& error) const override;
  void leave(const std::vector<int>& devices, const driver::Error& error) const override;
  std::shared_ptr<void> host_work() const override;
  void begin_profile() const override;
  std::string take_profile(bool goes_on) const override;

 private:
  friend class LocalProgram;
  struct SharedLoad;

  void switch_profile(bool on) const;
  void check_devices(const std::string& program, size_t count,
                     const std::vector<int>& devices) const;
  std::shared_ptr<SharedLoad> shared_load(
      const std::shared_ptr<const client::CompiledProgram>& program,
      const std::vector<int>& devices) const;

  const driver::Board board_;
  mutable LaunchQueue queue_;
  mutable Gangs gangs_;
  // What the devices of a program that ask one by one run together.
  using LoadKey = std::pair<const client::CompiledProgram*, std::vector<int>>;
  mutable base::Mutex loads_mutex_;
  mutable std::map<LoadKey, std::weak_ptr<SharedLoad>> loads_ TPU_GUARDED_BY(loads_mutex_);
};

}  // namespace tpu::pjrt
