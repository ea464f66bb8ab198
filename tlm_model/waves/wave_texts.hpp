// What the units of a core do, in words: the operation of a command with its source line, or what
// it waits for. Each text has a number in the wave file, told to it when it is first needed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "probe/events.hpp"
#include "probe/launch_programs.hpp"
#include "waves/fst_process.hpp"

namespace tpu::model {

class WaveTexts {
 public:
  // Of the file: nothing is under way.
  static constexpr uint32_t kNothing = 0;

  // `programs` outlives this; null: operations are known by their numbers alone.
  WaveTexts(const LaunchPrograms* programs, size_t cores) : programs_(programs), cores_(cores) {}

  // The core begins a step of the launch.
  void begin(uint32_t core, uint32_t launch);
  // "dot_general.3 train.py:42": the command is in flight; of the sequencer: this is issued.
  uint32_t runs(FstProcess& fst, const ProbeSource& source);
  // "waits sem5>=2 dot_general.3 train.py:42"
  uint32_t waits(FstProcess& fst, const WaitEvent& event);
  // "hbm core 3: two bits flip in the word at 0x30100"
  uint32_t upset(FstProcess& fst, const UpsetEvent& event);
  // Commands are in the queue, and the head of it has not been looked at.
  uint32_t queued(FstProcess& fst);

 private:
  using Program = std::shared_ptr<const exe::ExecutableT>;
  // Of one program, or of all that nobody named.
  struct Texts {
    Program program{};
    std::unordered_map<uint32_t, uint32_t> runs{};        // by op id
    std::map<std::array<uint32_t, 4>, uint32_t> waits{};  // by what, its index, wanted, op id
  };

  Texts& of(uint32_t core);
  static std::string operation(const Program& program, uint32_t op_id);
  uint32_t number(FstProcess& fst, const std::string& text, WaveTone tone);

  const LaunchPrograms* programs_;
  std::vector<Texts*> cores_;  // what they run; null: nothing yet
  std::map<const exe::ExecutableT*, Texts> texts_;
  std::map<std::pair<std::string, WaveTone>, uint32_t> numbers_;
  uint32_t queued_ = kNothing;
};

}  // namespace tpu::model
