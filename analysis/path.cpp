// From effects to causes.
#include "analysis/path.hpp"

#include <algorithm>

namespace tpu::driver {

TimeKind kind_of(const spec::RecordedCommand& command, bool latency) {
  if (!command.works()) {
    return TimeKind::kControl;
  }
  switch (spec::kQueues[command.queue].engine) {
    case spec::Engine::kMxu:
      return TimeKind::kMxu;
    case spec::Engine::kVpu:
      return TimeKind::kVpu;
    case spec::Engine::kXlu:
      return TimeKind::kXlu;
    default:
      break;
  }
  if (command.remote()) {
    return latency ? TimeKind::kLinkLatency : TimeKind::kLinkBytes;
  }
  if (command.from != spec::RecordedMemory::kHbm && command.to != spec::RecordedMemory::kHbm) {
    return TimeKind::kLocal;
  }
  return latency ? TimeKind::kHbmLatency : TimeKind::kHbmBytes;
}

PathWalk::PathWalk(const spec::StepRecord& record, const StepTiming& timing)
    : record_(record), timing_(timing) {
  for (const spec::RecordedCore& core : record.cores) {
    std::vector<uint32_t> items(core.commands.size()), front(core.commands.size());
    for (uint32_t i = 0; i < core.items.size(); ++i) {
      if (core.items[i].kind == spec::SequencerItem::Kind::kIssue) {
        items[core.items[i].index] = i;
      }
    }
    std::array<uint32_t, spec::kQueueCount> last{};
    for (uint32_t i = 0; i < core.commands.size(); ++i) {
      front[i] = last[core.commands[i].queue];
      last[core.commands[i].queue] = i;
    }
    item_of_.push_back(std::move(items));
    front_of_.push_back(std::move(front));
  }
}

Cause PathWalk::end_of(uint32_t core) const {
  return {Cause::Kind::kItem, core, static_cast<uint32_t>(record_.cores[core].items.size() - 1)};
}

uint64_t PathWalk::time_of(const Cause& at) const {
  const CoreTiming& core = timing_.cores[at.core];
  switch (at.kind) {
    case Cause::Kind::kBegin:
      return core.begin;
    case Cause::Kind::kQueue:
    case Cause::Kind::kStart:
      return core.commands[at.index].start;
    case Cause::Kind::kDone:
      return core.commands[at.index].done;
    case Cause::Kind::kIssue:
      return core.items[item_of_[at.core][at.index]].went;
    case Cause::Kind::kItem:
      return core.items[at.index].went;
  }
  return core.begin;
}

// A command has ended: its own time, in one piece or two.
PathWalk::Step PathWalk::done_step(const Cause& at) const {
  const spec::RecordedCommand& command = record_.cores[at.core].commands[at.index];
  const CommandTimes& times = timing_.cores[at.core].commands[at.index];
  if (times.behind) {
    return {{}, {Cause::Kind::kDone, at.core, front_of_[at.core][at.index]}, times.done};
  }
  return {{at.core, times.start, times.done, kind_of(command, false), command.op_id},
          {Cause::Kind::kStart, at.core, at.index},
          times.start};
}

PathWalk::Step PathWalk::item_step(const Cause& at) const {
  const CoreTiming& core = timing_.cores[at.core];
  const ItemTimes& item = core.items[at.index];
  const spec::SequencerItem& recorded = record_.cores[at.core].items[at.index];
  if (item.went > item.ready && item.cause.kind != Cause::Kind::kBegin) {
    return {{}, item.cause, item.went};
  }
  const uint64_t before = at.index == 0 ? core.begin : core.items[at.index - 1].went;
  const TimeKind kind =
      recorded.kind == spec::SequencerItem::Kind::kHost ? TimeKind::kHost : TimeKind::kIssue;
  const uint32_t op = recorded.kind == spec::SequencerItem::Kind::kIssue
                          ? record_.cores[at.core].commands[recorded.index].op_id
                          : spec::kNoRecordedOp;
  return {{at.core, before, item.went, kind, op},
          at.index == 0 ? Cause{Cause::Kind::kBegin, at.core, 0}
                        : Cause{Cause::Kind::kItem, at.core, at.index - 1},
          before};
}

PathWalk::Step PathWalk::step(const Cause& at, uint64_t time) const {
  const CoreTiming& core = timing_.cores[at.core];
  switch (at.kind) {
    case Cause::Kind::kBegin:
      return {{at.core, 0, core.begin, TimeKind::kSkew, spec::kNoRecordedOp}, at, 0, true};
    case Cause::Kind::kIssue:
      return {{}, {Cause::Kind::kItem, at.core, item_of_[at.core][at.index]}, time};
    case Cause::Kind::kStart:
      return {{}, core.commands[at.index].start_cause, time};
    case Cause::Kind::kQueue: {
      const spec::RecordedCommand& front = record_.cores[at.core].commands[at.index];
      return {{at.core, core.commands[at.index].start, time, kind_of(front, false), front.op_id},
              {Cause::Kind::kStart, at.core, at.index},
              core.commands[at.index].start};
    }
    case Cause::Kind::kDone:
      return done_step(at);
    case Cause::Kind::kItem:
      return item_step(at);
  }
  return {};
}

void PathWalk::back(const Cause& from, uint64_t time, uint64_t not_before,
                    const std::function<void(const PathPiece&)>& take) const {
  const auto give = [&](PathPiece piece) {
    piece.begin = std::max(piece.begin, not_before);
    if (piece.begin < piece.end) {
      take(piece);
    }
  };
  Cause at = from;
  while (time > not_before) {
    const uint64_t moment = at.kind == Cause::Kind::kQueue ? time : std::min(time, time_of(at));
    if (moment < time) {  // between a signal and who waited for it
      give({at.core, moment, time, TimeKind::kSemaphore, spec::kNoRecordedOp});
      time = moment;
      continue;
    }
    const Step next = step(at, time);
    const PathPiece& piece = next.piece;
    if (at.kind == Cause::Kind::kDone && piece.begin < piece.end) {
      const spec::RecordedCommand& command = record_.cores[at.core].commands[at.index];
      const CommandTimes& times = timing_.cores[at.core].commands[at.index];
      const uint64_t flow_end = command.transfers() ? times.flow_end : times.done;
      give({at.core, flow_end, piece.end, kind_of(command, true), piece.op});
      give({at.core, piece.begin, flow_end, kind_of(command, false), piece.op});
    } else {
      give({piece.core, piece.begin, std::min(piece.end, time), piece.kind, piece.op});
    }
    if (next.ended) {
      return;
    }
    at = next.next;
    time = std::min(time, next.time);
  }
}

}  // namespace tpu::driver
