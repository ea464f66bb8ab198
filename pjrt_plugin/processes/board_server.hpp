// BoardServer: the process that has the board for others. It ends when none of them is left.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "processes/owners.hpp"
#include "processes/session.hpp"

namespace tpu::pjrt {

class BoardServer : public SessionHost {
 public:
  /// `listening`: the socket in `folder` to which processes connect.
  BoardServer(Descriptor listening, int processes, std::string folder);
  ~BoardServer() override = default;

  /// Opens the board, and serves until the last process has gone.
  void run();

  std::vector<int> greet(const wire::HelloT& hello) override;
  const Runtime& runtime() const override { return *runtime_; }
  std::shared_ptr<const client::CompiledProgram> program(
      std::span<const std::byte> container, std::span<const std::byte> artifact,
      const compiler::ImportOptions& import) override;
  void end_lost(const std::vector<int>& devices) override;
  SharedProfile& profile() override { return profile_; }
  driver::Error lose(const wire::HelloT& hello, const std::vector<int>& devices,
                     const std::string& why) override;
  void leave(const wire::HelloT& hello) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    bool is_there = false;
    std::optional<wire::HelloT> last;  // of those with its number
  };
  // A process that has ended.
  struct Lost {
    int process;
    std::vector<int> devices;
    driver::Error error;
  };

  std::string owner_text(int device) const;
  void accept_one();
  void wait_for_room(const std::string& why);
  /// How long nobody may be there until the server ends.
  std::chrono::seconds patience() const;
  bool is_empty() const;
  bool folder_is_gone() const;
  /// Nobody is connecting, and from here on nobody can.
  bool close_door();

  const Descriptor listening_;
  const std::string folder_;
  const Descriptor opened_folder_;  // by its name there may be another one
  const DeviceOwners owners_;
  wire::HelloT host_;
  const Runtime* runtime_ = nullptr;
  SharedProfile profile_;
  std::optional<driver::Error> not_open_;  // why the board is not
  std::list<Session> sessions_;            // of the thread in run()
  bool said_no_room_ = false;

  mutable base::Mutex mutex_;
  std::vector<Member> members_ TPU_GUARDED_BY(mutex_);
  std::vector<Lost> lost_ TPU_GUARDED_BY(mutex_);  // the first is why others ended
  std::map<std::string, std::weak_ptr<const client::CompiledProgram>, std::less<>> programs_
      TPU_GUARDED_BY(mutex_);  // by hash of container and artifact
};

}  // namespace tpu::pjrt
