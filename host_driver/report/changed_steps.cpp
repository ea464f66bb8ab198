// Replays of changes, in whole and in part.
#include "report/changed_steps.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "report/replay.hpp"

namespace tpu::driver {
namespace {

using Lean = Replay<false>;

constexpr uint64_t kMoments = 400;

// What a change is about: commands that others run beside of, or all of the step.
enum class About : uint8_t { kCommands, kLinks, kLocalCopies, kAll };

About about(const CostChange& change, const spec::BoardParams& board) {
  const auto others_are = [&](const spec::BoardParams& same) {
    return spec::board_texts(change.board) == spec::board_texts(same);
  };
  if (change.sequencer != 1) {
    return About::kAll;
  }
  spec::BoardParams same = board;
  if (others_are(same)) {
    return About::kCommands;
  }
  same.ici.link_gbps = change.board.ici.link_gbps;
  same.ici.core_port_gbps = change.board.ici.core_port_gbps;
  if (others_are(same)) {
    return About::kLinks;
  }
  same = board;
  same.dma.local_bytes_per_cycle = change.board.dma.local_bytes_per_cycle;
  return others_are(same) ? About::kLocalCopies : About::kAll;
}

bool is_changed(const spec::RecordedCommand& command, const CostChange& change, About about) {
  if (command.op_id == change.op && change.op_factor != 1) {
    return true;
  }
  if (about == About::kLinks && command.transfers() && command.remote()) {
    return true;
  }
  if (about == About::kLocalCopies && command.transfers() && !command.remote() &&
      command.from != spec::RecordedMemory::kHbm && command.to != spec::RecordedMemory::kHbm) {
    return true;
  }
  switch (spec::kQueues[command.queue].engine) {
    case spec::Engine::kMxu:
      return change.mxu != 1;
    case spec::Engine::kVpu:
      return change.vpu != 1;
    case spec::Engine::kXlu:
      return change.xlu != 1;
    default:
      return false;
  }
}

struct Span {
  uint64_t begin = UINT64_MAX, last_begin = 0, end = 0;

  void add(const Lean::Core& core) {
    begin = std::min(begin, core.begin());
    last_begin = std::max(last_begin, core.begin());
  }
  ChangedSteps::Times times() const { return {end - begin, last_begin - begin}; }
};

// Ends of cores, as they come to be known.
struct Ends {
  explicit Ends(size_t cores) : known(cores) {}

  std::vector<std::optional<uint64_t>> known;
  int64_t shift = 0;  // of the replay's times, to those of the step

  void add(Lean& replay) {
    for (size_t i = 0; i < known.size(); ++i) {
      if (!known[i] && replay.cores()[i].ended()) {
        known[i] = shifted(replay.cores()[i].end());
      }
    }
  }
  uint64_t of(size_t core, uint64_t unchanged) const {
    return known[core] ? *known[core] : shifted(unchanged);
  }
  uint64_t shifted(uint64_t at) const {
    return static_cast<uint64_t>(static_cast<int64_t>(at) + shift);
  }
};

}  // namespace

struct ChangedSteps::Shared {
  Shared(const spec::StepRecord& of, const StepTiming& unchanged)
      : record(of), timing(unchanged), program(of) {}

  const spec::StepRecord& record;
  const StepTiming& timing;
  ReplayProgram program;
  CostChange none;
  std::vector<Lean::Moment> moments{};  // of the replay without a change, the first at its begin

  void find_moments();
  std::vector<bool> changed_behind(const CostChange& change, About about) const;
  Times whole(const CostChange& change) const;
  Times in_part(const CostChange& change, About about) const;
};

void ChangedSteps::Shared::find_moments() {
  uint64_t all = 0;
  for (const spec::RecordedCore& core : record.cores) {
    all += core.items.size() + 2 * core.commands.size();
  }
  const uint64_t distance = all / kMoments + 1;
  none = no_change(record);
  Lean replay(program, none);
  moments.push_back(replay.moment());
  replay.run([&](const Lean& at) {
    if (at.progress() >= moments.back().pulse.progress + distance) {
      moments.push_back(at.moment());
    }
    return false;
  });
}

// By moment: whether a changed command starts, or is under way, between it and the next one.
std::vector<bool> ChangedSteps::Shared::changed_behind(const CostChange& change,
                                                       About about) const {
  std::vector<bool> changed(moments.size());
  const auto before = [&](uint64_t at) {
    const auto next = std::ranges::lower_bound(moments, at, {}, &Lean::Moment::now);
    return static_cast<size_t>(std::max<ptrdiff_t>(next - moments.begin(), 1) - 1);
  };
  for (size_t c = 0; c < record.cores.size(); ++c) {
    const auto& commands = record.cores[c].commands;
    for (size_t i = 0; i < commands.size(); ++i) {
      if (is_changed(commands[i], change, about)) {
        const CommandTimes& times = timing.cores[c].commands[i];
        for (size_t k = before(times.start); k <= before(times.done); ++k) {
          changed[k] = true;
        }
      }
    }
  }
  return changed;
}

ChangedSteps::Times ChangedSteps::Shared::whole(const CostChange& change) const {
  Lean replay(program, change);
  replay.run([](const Lean&) { return false; });
  Span span;
  for (const Lean::Core& core : replay.cores()) {
    span.add(core);
    span.end = std::max(span.end, core.end());
  }
  return span.times();
}

// Times of the replay are those of the unchanged one, from which it goes on; what has come about by
// then shifts them.
ChangedSteps::Times ChangedSteps::Shared::in_part(const CostChange& change, About about) const {
  const std::vector<bool> changed = changed_behind(change, about);
  const auto next_changed = [&](size_t from) {
    return static_cast<size_t>(
        std::find(changed.begin() + static_cast<ptrdiff_t>(from), changed.end(), true) -
        changed.begin());
  };
  Lean replay(program, change);
  Ends ends(replay.cores().size());
  size_t at = next_changed(0);
  while (at < moments.size()) {
    replay.go_on_from(moments[at]);
    ends.add(replay);
    size_t next = at + 1;
    const bool over = replay.run([&](const Lean& now) {
      const uint64_t progress = now.progress();
      while (next < moments.size() && moments[next].pulse.progress < progress) {
        ++next;
      }
      return next < moments.size() && moments[next].pulse.progress == progress && !changed[next] &&
             now.same(moments[next]);
    });
    if (replay.stuck()) {
      return whole(change);
    }
    ends.add(replay);
    if (over) {
      break;
    }
    ends.shift += static_cast<int64_t>(replay.now() - moments[next].now);
    at = next_changed(next);
  }
  Span span;
  for (size_t i = 0; i < replay.cores().size(); ++i) {
    span.add(replay.cores()[i]);
    span.end = std::max(span.end, ends.of(i, timing.cores[i].end));
  }
  return span.times();
}

ChangedSteps::ChangedSteps(const spec::StepRecord& record, const StepTiming& timing) {
  auto shared = std::make_unique<Shared>(record, timing);
  shared->find_moments();
  shared_ = std::move(shared);
}

ChangedSteps::~ChangedSteps() = default;

ChangedSteps::Times ChangedSteps::with(const CostChange& change) const {
  const About what = about(change, shared_->program.board);
  return shared_->timing.stuck || what == About::kAll ? shared_->whole(change)
                                                      : shared_->in_part(change, what);
}

}  // namespace tpu::driver
