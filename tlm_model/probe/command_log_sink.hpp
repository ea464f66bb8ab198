// Every command of the engines with its times and the ranges of its operands, kept until it is
// taken, and a look into a memory at the end of one of them: for a debugger, which runs a program
// once for the log and again for each look, with the same cycles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "probe/probe_set.hpp"
#include "tpu/command_log.hpp"

namespace tpu::model {

class CommandLogSink final : public ProbeSink {
 public:
  // False: there is no such memory.
  using ReadMemory = std::function<bool(const spec::MemoryRange& range, std::span<uint8_t> data)>;

  // Begins with no command under way.
  CommandLogSink(size_t cores, std::optional<spec::MemoryLook> look, ReadMemory read)
      : issued_before_(cores), look_(look), read_(std::move(read)) {}

  void listen(ProbeSet& probes) {
    probes.add(*this,
               {ProbeEvent::kIssue, ProbeEvent::kAccess, ProbeEvent::kStart, ProbeEvent::kDone});
  }
  void issue(const IssueEvent& event) override;
  void access(const AccessEvent& event) override;
  void start(const StartEvent& event) override;
  void done(const DoneEvent& event) override;

  spec::CommandLog take_log();

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // core, sequence

  std::vector<std::optional<uint64_t>> issued_before_;  // by core: commands before the log
  const std::optional<spec::MemoryLook> look_;
  const ReadMemory read_;
  std::map<Key, std::vector<spec::OperandRange>> operands_;  // of commands about to start
  std::map<Key, size_t> under_way_;                          // indices into the log
  spec::CommandLog log_;
};

}  // namespace tpu::model
