// What can be checked without the board is checked before the call enters it.
#include "src/facets/program_calls.hpp"

#include "src/handles/access.hpp"

namespace tpu::driver {

std::shared_ptr<LoadedProgram> ProgramCalls::load(
    std::shared_ptr<const exe::ExecutableT> executable, const std::string& file,
    const std::vector<int>& devices, bool wait) {
  const auto program = loader_.make(std::move(executable), file, devices);
  const Door::Entry entry(door_);
  health_.check_usable();
  loader_.load(program, wait);
  return program;
}

RunResult ProgramCalls::launch(const std::shared_ptr<LoadedProgram>& program,
                               const std::vector<Array>& arguments, const RunOptions& options) {
  const Door::Entry entry(door_);
  health_.check_usable();
  launcher_.check(*program, arguments, options);
  host_.dispatch();
  return launcher_.launch(program, arguments, options);
}

Event ProgramCalls::feed(StepFeedState& feed, const std::vector<HostView>& batch) {
  const uint64_t bytes = Feeds::check_batch(feed, batch);
  const Door::Entry entry(door_);
  health_.check_usable();
  host_.prepare(bytes);  // may let others in: what follows does not
  return Access::event(feeds_.give(feed, batch));
}

Event ProgramCalls::step_ready(StepFeedState& feed, uint32_t step) {
  Feeds::check_step(feed, step);
  const Door::Entry entry(door_, EntryKind::kLook);
  const auto event = feeds_.ready(feed, step);
  return event ? Access::event(event) : Event();
}

std::vector<HostArray> ProgramCalls::take_step(StepFeedState& feed, uint32_t number) {
  const Door::Entry entry(door_, EntryKind::kLook);
  return Feeds::take(feed, number);
}

}  // namespace tpu::driver
