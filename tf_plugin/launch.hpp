// Programs of TensorFlow on the board, and their launches by addresses.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiled_program.hpp"
#include "lowering/lowered.hpp"
#include "stream.hpp"
#include "sync/mutex.hpp"
#include "system.hpp"

namespace tpu::tensorflow {

class Program {
 public:
  explicit Program(std::shared_ptr<const client::CompiledProgram> compiled)
      : compiled_(std::move(compiled)) {}

  const client::CompiledProgram& compiled() const { return *compiled_; }
  const exe::ExecutableT& executable() const { return *compiled_->executable; }

  struct Launch {
    std::vector<int> devices;         ///< of the program, by replica
    std::vector<uint64_t> arguments;  ///< addresses
    std::vector<uint64_t> results;    ///< addresses; those of donated arguments take them over
    /// Address of what another core has: an argument of zeros, a result that nobody reads.
    static constexpr uint64_t kElsewhere = ~uint64_t{0};
    std::vector<bool> given_away = {};  ///< arguments that nobody uses afterwards; empty: none
    /// Of the results; the program has their sizes behind those that have an address.
    std::span<const DynamicResult> dynamic = {};
    /// Addresses of the last results, behind those sizes: Lowered::embedding_results.
    std::vector<uint64_t> embedding_results = {};
    std::optional<uint32_t> seed = {};          ///< the last argument of the program
    std::string meets = {};                     ///< name for the shares of the other cores (Steps)
    driver::HostCallHandler on_host_call = {};  ///< of a program with host calls
    /// Called when the launch fails after it has been accepted, by any thread.
    std::function<void(const driver::Error&)> on_failure = {};
  };
  /// The share of the stream's core. It meets those of the other cores, for which it does not
  /// wait. The failure of the launch is the stream's, and that of reads of its results.
  void launch(Stream& stream, const Launch& launch) const;
  /// The stream's core cannot bring its share, because of the exception that is being handled: the
  /// launch fails for the others, too.
  void refuse(const Stream& stream, const Launch& launch) const;

  void unload() const;

 private:
  std::shared_ptr<const pjrt::DeviceProgram> loaded_on(const std::vector<int>& devices) const;

  const std::shared_ptr<const client::CompiledProgram> compiled_;
  mutable base::Mutex mutex_;
  mutable std::map<std::vector<int>, std::shared_ptr<const pjrt::DeviceProgram>> loaded_
      TPU_GUARDED_BY(mutex_);
};

}  // namespace tpu::tensorflow
