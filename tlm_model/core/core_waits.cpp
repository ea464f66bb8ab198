// Who waits for whom, as far as one core knows: for reports of hangs.
#include <algorithm>
#include <span>

#include "core/core.hpp"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {
namespace {

bool signals(const spec::Signal& signal, uint32_t semaphore, bool remote) {
  return signal.valid() && signal.sem == semaphore && signal.remote() == remote;
}

// The first word of the outermost loop that `pc` is in: the farthest that a branch ahead goes back.
uint32_t loop_begin(const Program& program, uint32_t pc) {
  uint32_t begin = pc;
  const ProgramItem* item = program.item(pc);
  while (item != nullptr) {
    if (item->kind == ProgramItem::Kind::kScalar &&
        spec::scalar_class(static_cast<spec::ScalarOp>(item->insn.op)) ==
            spec::ScalarClass::kBranch) {
      begin = std::min(begin, static_cast<uint32_t>(item->insn.imm));
    }
    item = program.item(item->next);
  }
  return begin;
}

}  // namespace

spec::CommandPlace Core::place_of(const DecodedCommand& command) const {
  return {core_id_, std::string(spec::kQueueNames[command.queue]), command.pc, command.op_id};
}

std::vector<spec::UnitWait> Core::waits() const {
  std::vector<spec::UnitWait> all;
  if (std::optional<spec::UnitWait> wait = seq_->waits()) {
    all.push_back(std::move(*wait));
  }
  for (const CommandQueueIf* queue : queues_) {
    const QueueHead head = queue != nullptr ? queue->head() : QueueHead{};
    if (head.command == nullptr) {
      continue;
    }
    spec::UnitWait& wait = all.emplace_back(spec::UnitWait{.at = place_of(*head.command)});
    if (head.waiting) {
      wait.what = spec::UnitWait::For::kSemaphore;
      wait.index = head.semaphore;
      wait.wanted = head.wanted;
      wait.value = sem_->value(head.semaphore);
    }
  }
  return all;
}

// The core that a command will signal is in a register: of commands that are not issued, its
// present value counts.
std::optional<Core::Signaller> Core::signaller(uint32_t of, uint32_t semaphore, bool issued) const {
  const bool remote = of != core_id_;
  const auto would_signal = [&](const QueuedCommand& queued) {
    for (size_t i = 0; i < queued.command->signal.size(); ++i) {
      if (signals(queued.command->signal[i], semaphore, remote) &&
          (!remote || queued.signal_peer[i] == of)) {
        return true;
      }
    }
    return false;
  };
  for (const CommandQueueIf* queue : queues_) {
    if (!issued || queue == nullptr) {
      continue;
    }
    uint32_t before = 0;  // in its queue
    for (size_t at = 0; const QueuedCommand* command = queue->started(at); ++at, ++before) {
      if (would_signal(*command)) {
        return Signaller{place_of(*command->command), before};
      }
    }
    for (size_t at = 0; const QueuedCommand* command = queue->queued(at); ++at, ++before) {
      if (would_signal(*command)) {
        return Signaller{place_of(*command->command), before};
      }
    }
  }
  if (issued || seq_->program() == nullptr || seq_->state() != spec::seq::kStateRunning) {
    return std::nullopt;
  }
  const uint32_t pc = seq_->pc();
  std::optional<spec::CommandPlace> next = signaller_from(pc, UINT32_MAX, of, semaphore);
  if (!next && signaller_from(0, pc, of, semaphore)) {  // of a loop's next iteration
    next = signaller_from(loop_begin(*seq_->program(), pc), pc, of, semaphore);
  }
  return next ? std::optional(Signaller{*next, std::nullopt}) : std::nullopt;
}

// In the program's text, words [first, last).
std::optional<spec::CommandPlace> Core::signaller_from(uint32_t first, uint32_t last, uint32_t of,
                                                       uint32_t semaphore) const {
  const Program& program = *seq_->program();
  const bool remote = of != core_id_;
  const std::span<const uint32_t> words = program.signallers(semaphore);
  for (auto word = std::ranges::lower_bound(words, first); word != words.end() && *word < last;
       ++word) {
    const ProgramItem& item = *program.item(*word);
    if (item.kind == ProgramItem::Kind::kCommand) {
      const DecodedCommand& command = program.command(item.command);
      for (const spec::Signal& signal : command.signal) {
        if (command.queue < queues_.size() && signals(signal, semaphore, remote) &&
            (!remote || seq_->core_in_register(signal.peer_reg) == of)) {
          return place_of(command);
        }
      }
    } else if (!remote) {
      return spec::CommandPlace{core_id_, "sequencer", *word, program.op_at(*word)};
    }
  }
  return std::nullopt;
}

}  // namespace tpu::model
