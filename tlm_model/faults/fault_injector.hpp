// Lets the faults of a script happen: waits for their times, draws what they leave open, logs and
// counts them. What a fault does to a unit is the board's (FaultTargets). Without a fault file
// no injector is made. Kernel thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <systemc>
#include <utility>
#include <vector>

#include "faults/fault_log.hpp"
#include "faults/fault_script.hpp"
#include "probe/launch_programs.hpp"
#include "probe/probe_set.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

using FaultWords = std::array<uint32_t, 4>;

class FaultTargets {
 public:
  virtual ~FaultTargets() = default;
  // Lets it happen now; what it does, for people: "nothing: WHY" where it found nothing to damage.
  // `words`: random. `command`: number of the command of its core (ProbeSource::sequence) that it
  // is of; 0: of none.
  virtual std::string upset(const FaultEntry& entry, const FaultWords& words, uint64_t command) = 0;
};

class FaultInjector : public sc_core::sc_module, public ProbeSink {
 public:
  SC_HAS_PROCESS(FaultInjector);
  // `log`: path, "-" for standard error. `here`: whether an entry is of this process. `probes` and
  // `programs` outlive it. Throws std::runtime_error when the log cannot be written.
  FaultInjector(sc_core::sc_module_name name, FaultScript script, const std::string& log,
                uint32_t cores_per_chip, FaultTargets& targets,
                const std::function<bool(const FaultEntry&)>& here, const ProbeSet& probes,
                const LaunchPrograms& programs);

  bool ecc() const { return script_.ecc; }
  void listen(ProbeSet& probes);
  // The board meets damage that a fault has left; `board`: another one than that of the unit.
  void met(FaultKind kind, uint32_t unit, const std::string& text,
           std::optional<uint32_t> board = {});
  const std::vector<FaultEntry>& entries() const { return script_.entries; }
  uint32_t board_of_chip(uint32_t chip) const { return script_.boards[chip]; }
  // A line of the log that counts neither as a fault nor as damage; `word`: a literal, "back" or
  // "nothing".
  void note(std::string_view word, FaultKind kind, uint32_t unit, std::string_view text,
            std::optional<uint32_t> board = {});
  // Does something in so many cycles, behind all else of that cycle.
  void later(uint64_t cycles, std::function<void()> work);
  // By names of kinds and places.
  std::vector<spec::FaultTally> tallies() const;
  // Logs what never came and closes the log. Empty, or what went wrong.
  std::string finish();

  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override;
  void start(const StartEvent& event) override;

 private:
  struct State {
    bool here = true;
    bool done = false;   // happened, or waits in `due_`, or is of another process
    uint64_t count = 0;  // draws; of an op its commands
    uint64_t last = 0;   // of a rate: step + 1 or launch that was drawn for last
    uint64_t fired = 0;
  };
  using Key = std::pair<FaultKind, uint32_t>;

  void due_method();
  void schedule(size_t entry, uint64_t cycle);
  void at(uint64_t cycle, size_t order, std::function<void()> work);
  void fire(size_t index, uint64_t command = 0);
  bool is_time(size_t index, const ProbeSource& source);
  void begin(size_t index, const ProgramEvent& event);
  bool on_core(const FaultEntry& entry, uint32_t core) const;
  uint32_t first_core(FaultKind kind, uint32_t unit) const;
  uint32_t board_of(FaultKind kind, uint32_t unit) const;
  std::string place(FaultKind kind, uint32_t unit) const;
  void tell(FaultKind kind, uint32_t unit, bool fires, const std::string& text,
            std::optional<uint32_t> board = {});

  const FaultScript script_;
  const uint32_t cores_per_chip_;
  FaultTargets& targets_;
  const ProbeSet& probes_;
  const LaunchPrograms& programs_;
  const size_t boards_;
  FaultLog log_;
  std::vector<State> states_;              // by entry
  std::map<uint32_t, uint32_t> launches_;  // that a core runs, for op names
  std::map<Key, spec::FaultTally> tallies_;
  // By cycle; of a cycle, what later() has, then entries by number.
  std::multimap<std::pair<uint64_t, size_t>, std::function<void()>> due_;
  uint32_t deltas_ = 0;  // that what is due has waited for
  sc_core::sc_event due_event_{"due_event"};
};

}  // namespace tpu::model
