// Replays of changes, in whole and in part.
#include "analysis/changed_steps.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "analysis/replay.hpp"

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

// By moment: whether a command starts, or is under way, between it and the next one.
using UnderWay = std::vector<char>;

// The same of commands that a change may be about.
struct Stretches {
  std::map<uint32_t, UnderWay> ops{};
  UnderWay mxu{}, vpu{}, xlu{}, remote{}, local{};

  // Null: not of an engine that a change is about.
  UnderWay* of_engine(const spec::RecordedCommand& command) {
    switch (spec::kQueues[command.queue].engine) {
      case spec::Engine::kMxu:
        return &mxu;
      case spec::Engine::kVpu:
        return &vpu;
      case spec::Engine::kXlu:
        return &xlu;
      default:
        break;
    }
    if (!command.transfers()) {
      return nullptr;
    }
    const bool hbm =
        command.from == spec::RecordedMemory::kHbm || command.to == spec::RecordedMemory::kHbm;
    return command.remote() ? &remote : hbm ? nullptr : &local;
  }
};

struct Span {
  uint64_t begin = UINT64_MAX, last_begin = 0, end = 0;

  void add(uint64_t core_begin, uint64_t core_end) {
    begin = std::min(begin, core_begin);
    last_begin = std::max(last_begin, core_begin);
    end = std::max(end, core_end);
  }
  ChangedSteps::Times times() const { return {end - begin, last_begin - begin}; }
};

// Ends of cores, as they come to be known.
struct Ends {
  explicit Ends(size_t cores) : known(cores) {}

  std::vector<std::optional<uint64_t>> known;
  int64_t shift = 0;  // of the replay's times, to those of the step

  void add(const Lean& replay) {
    for (size_t i = 0; i < known.size(); ++i) {
      if (!known[i] && replay.ended(i)) {
        known[i] = shifted(replay.end(i));
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
  Shared(const spec::StepRecord& of, const ReplayProgram& its_program, const StepTiming& unchanged)
      : record(of), program(its_program), timing(unchanged) {}

  const spec::StepRecord& record;
  const ReplayProgram& program;
  const StepTiming& timing;
  CostChange none;
  std::vector<Lean::Moment> moments{};  // of the replay without a change, the first at its begin
  Stretches stretches;

  void find_moments();
  void find_stretches();
  UnderWay changed_behind(const CostChange& change, About about) const;
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

void ChangedSteps::Shared::find_stretches() {
  const auto mark = [&](UnderWay& under_way, size_t first, size_t last) {
    under_way.resize(moments.size());
    std::fill(under_way.begin() + static_cast<ptrdiff_t>(first),
              under_way.begin() + static_cast<ptrdiff_t>(last) + 1, 1);
  };
  for (size_t c = 0; c < record.cores.size(); ++c) {
    const auto& commands = record.cores[c].commands;
    size_t near = 0;  // the moment of the command before
    const auto before = [&](uint64_t at) {
      while (near + 1 < moments.size() && moments[near + 1].now < at) {
        ++near;
      }
      while (near > 0 && moments[near].now >= at) {
        --near;
      }
      return near;
    };
    for (size_t i = 0; i < commands.size(); ++i) {
      const CommandTimes& times = timing.cores[c].commands[i];
      const size_t first = before(times.start), last = before(times.done);
      mark(stretches.ops[commands[i].op_id], first, last);
      if (UnderWay* engine = stretches.of_engine(commands[i]); engine != nullptr) {
        mark(*engine, first, last);
      }
    }
  }
}

UnderWay ChangedSteps::Shared::changed_behind(const CostChange& change, About about) const {
  UnderWay changed(moments.size());
  const auto add = [&](bool is_changed, const UnderWay& under_way) {
    for (size_t i = 0; is_changed && i < under_way.size(); ++i) {
      changed[i] |= under_way[i];
    }
  };
  if (const auto op = stretches.ops.find(change.op); op != stretches.ops.end()) {
    add(change.op_factor != 1, op->second);
  }
  add(change.mxu != 1, stretches.mxu);
  add(change.vpu != 1, stretches.vpu);
  add(change.xlu != 1, stretches.xlu);
  add(about == About::kLinks, stretches.remote);
  add(about == About::kLocalCopies, stretches.local);
  return changed;
}

ChangedSteps::Times ChangedSteps::Shared::whole(const CostChange& change) const {
  Lean replay(program, change);
  replay.run([](const Lean&) { return false; });
  Span span;
  for (size_t i = 0; i < replay.size(); ++i) {
    span.add(replay.begin(i), replay.end(i));
  }
  return span.times();
}

// Times of the replay are those of the unchanged one, from which it goes on; what has come about by
// then shifts them.
ChangedSteps::Times ChangedSteps::Shared::in_part(const CostChange& change, About about) const {
  const UnderWay changed = changed_behind(change, about);
  const auto next_changed = [&](size_t from) {
    return static_cast<size_t>(
        std::find(changed.begin() + static_cast<ptrdiff_t>(from), changed.end(), 1) -
        changed.begin());
  };
  Lean replay(program, change);
  Ends ends(replay.size());
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
  for (size_t i = 0; i < replay.size(); ++i) {
    span.add(replay.begin(i), ends.of(i, timing.cores[i].end));
  }
  return span.times();
}

ChangedSteps::ChangedSteps(const spec::StepRecord& record, const ReplayProgram& program,
                           const StepTiming& timing) {
  auto shared = std::make_unique<Shared>(record, program, timing);
  shared->find_moments();
  shared->find_stretches();
  shared_ = std::move(shared);
}

ChangedSteps::~ChangedSteps() = default;

ChangedSteps::Times ChangedSteps::with(const CostChange& change) const {
  const About what = about(change, shared_->program.board);
  return shared_->timing.stuck || what == About::kAll ? shared_->whole(change)
                                                      : shared_->in_part(change, what);
}

}  // namespace tpu::driver
