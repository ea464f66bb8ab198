// Two steps are watched: a gradient that is not finite shows in the loss of the step behind it.
// Where the state was bad before these, all steps are watched.
#include "cli/train/not_finite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cli/compile_file.hpp"
#include "cli/stop_signals.hpp"
#include "import/file.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

using compiler::Finite;
using compiler::finite_of;
using compiler::FiniteWatch;
using compiler::WatchedValue;
using training::Checkpoint;
using training::Place;
using training::Role;
using training::Signature;

namespace {

bool stopped() { return StopSignals::received() != 0; }

std::string leaf_text(const Signature& signature, const Executable& program, size_t leaf) {
  const std::string& name = program.arguments()[*signature.argument({Role::kState, leaf})].name;
  return name.empty() ? fmt::format("state leaf {}", leaf)
                      : fmt::format("state leaf {} ({})", leaf, name);
}

}  // namespace

struct NotFiniteSearch::Watched {
  FiniteWatch watch;
  Executable program;
  std::vector<int32_t> told;    // of the step that was run last; a row for each core
  std::vector<size_t> leaves;   // that are not finite behind it
  std::optional<size_t> value;  // where what is not finite began in it
};

std::string NotFiniteSearch::explain(const training::NotFinite& error) {
  if (!compiler::is_program_file(config_.train)) {
    return fmt::format(
        "\nwhich operation it came from is told for a program.train of type .mlirbc, not for {}",
        config_.train);
  }
  try {
    return "\n" + search(error.step());
  } catch (const std::exception& problem) {
    return fmt::format("\nwhich operation it came from is not known: {}", problem.what());
  }
}

std::string NotFiniteSearch::search(int64_t step) {
  std::optional<Checkpoint> from;
  if (checkpoints_.saved_step()) {
    from = checkpoints_.resume();
  }
  // The steps have ended within the limit before; watched ones take longer.
  trainer_.board().change_time_limit(0);
  WatchedFile file =
      compile_watched(config_.train, options_.preset, options_.overrides, data_parallel_);
  Watched watched{.watch = std::move(file.watch),
                  .program = trainer_.board().load(file.executable),
                  .told = {},
                  .leaves = {},
                  .value = {}};
  std::string before;
  for (int64_t first = step - 1;; first = 0) {
    const int64_t start = from ? from->step : 0;
    spec::print(
        stderr,
        "tpuboard: step {}: the loss is not finite; steps {} to {} are run again to find the "
        "operation (Ctrl-C leaves it out)\n",
        step, start + 1, step);
    trainer_.restart(from ? &*from : nullptr);
    const std::optional<std::string> text = look(watched, std::max(first, start + 1), step);
    if (text) {
      return before + *text;
    }
    if (first <= start + 1) {
      before = fmt::format("the checkpoint of step {} holds a state that is not finite\n", start);
      from.reset();
    }
  }
}

// Watches steps first..last; nothing when the state was not finite before them, and they are not
// the first of the training.
std::optional<std::string> NotFiniteSearch::look(Watched& watched, int64_t first, int64_t last) {
  const Signature& signature = trainer_.signature();
  if (!trainer_.replay(first - 1, stopped)) {
    return "the search was stopped";
  }
  for (int64_t step = first; step <= last; ++step) {
    if (stopped()) {
      return "the search was stopped";
    }
    const HostArray told = trainer_.watched_step(watched.program);
    watched.told.resize(told.bytes.size() / sizeof(int32_t));
    std::memcpy(watched.told.data(), told.bytes.data(), told.bytes.size());
    watched.leaves.clear();
    watched.value =
        compiler::origin_of(watched.watch, watched.told, *signature.result({Role::kLoss}));
    const bool loss = watched.value.has_value();  // it is what the run has ended for
    for (size_t leaf = 0; leaf < signature.count(Role::kState); ++leaf) {
      const auto value =
          compiler::origin_of(watched.watch, watched.told, *signature.result({Role::kState, leaf}));
      if (value) {
        watched.leaves.push_back(leaf);
        watched.value = loss ? watched.value : std::min(watched.value.value_or(*value), *value);
      }
    }
    if (!watched.value) {
      continue;
    }
    const WatchedValue& value = watched.watch.values[*watched.value];
    const bool state = value.source == WatchedValue::Source::kArgument &&
                       signature.arguments[value.argument].role == Role::kState;
    if (state && step == first && first > 1) {
      return std::nullopt;
    }
    return found(watched, step, *watched.value);
  }
  return fmt::format(
      "steps {} to {} were run again with every operation watched, and all values were finite: a "
      "value close to the largest number was rounded differently in the second run",
      first, last);
}

std::string NotFiniteSearch::found(const Watched& watched, int64_t step, size_t value) const {
  const WatchedValue& origin = watched.watch.values[value];
  const size_t count = watched.watch.values.size();
  Finite worst = Finite::kFinite;
  for (size_t at = value; at < watched.told.size(); at += count) {
    worst = std::max(worst, finite_of(watched.told[at]));
  }
  std::vector<int> cores;
  for (size_t at = value; at < watched.told.size(); at += count) {
    if (finite_of(watched.told[at]) == worst) {
      cores.push_back(trainer_.program().devices()[at / count]);
    }
  }
  const char* what = worst == Finite::kNan ? "NaN" : "infinite values";
  std::string text =
      origin.source == WatchedValue::Source::kArgument
          ? argument_text(origin.argument, step)
          : fmt::format("step {}: {} at {} makes {}", step, origin.op, origin.where, what);
  text += fmt::format(" ({} of {} cores: {})", cores.size(), watched.told.size() / count,
                      fmt::join(cores, ", "));
  if (!watched.leaves.empty()) {
    std::vector<std::string> names;
    for (const size_t leaf : watched.leaves) {
      names.push_back(leaf_text(trainer_.signature(), trainer_.program(), leaf));
    }
    text += fmt::format("\nnot finite behind step {}: {}", step, fmt::join(names, ", "));
  }
  return text;
}

std::string NotFiniteSearch::argument_text(size_t argument, int64_t step) const {
  const Place place = trainer_.signature().arguments[argument];
  if (place.role == Role::kInput) {
    return fmt::format("step {}: the {} of its examples are not finite", step,
                       config_.inputs[place.index].name);
  }
  if (place.role == Role::kLearningRate) {
    return fmt::format("step {}: the learning rate is not finite", step);
  }
  return fmt::format("{} is not finite from the start",
                     leaf_text(trainer_.signature(), trainer_.program(), place.index));
}

}  // namespace tpu::driver
