// Whatever ends an operation before all of it is sent leaves nothing behind: no memory, no open
// command, no donated buffer.
#include "src/operations/operations.hpp"

#include <algorithm>
#include <utility>

#include "src/operations/buffer_state.hpp"
#include "src/rings/status.hpp"

namespace tpu::driver {
namespace {

// A command whose core died with it is sent again this often.
constexpr int kMaxLosses = 2;
constexpr int kMostLinkRetries = 3;

// A command that is over gives back what it holds, long before a large transfer is over.
void release(Operation& op, Command& command) {
  command.on_ok = nullptr;
  command.keep.clear();
  command.reads.clear();
  command.writes.clear();
  command.op.reset();
  op.commands[command.index].reset();
}

// Commands of the window may outlive their operation; ranges must not.
void release_all(Operation& op) {
  op.inputs.clear();
  op.after.clear();
  op.reads.clear();
  op.writes.clear();
  op.program.reset();
  op.feed.reset();
  op.residence.reset();
  op.calls.clear();
  const auto commands = std::exchange(op.commands, {});
  for (const auto& command : commands) {
    if (!command) {
      continue;
    }
    command->reads.clear();
    command->writes.clear();
    command->keep.clear();
    command->on_ok = nullptr;
  }
  for (const auto& command : commands) {
    if (command) {
      command->op.reset();
    }
  }
}

}  // namespace

std::shared_ptr<Operation> Operations::begin(const std::string& what) {
  auto op = std::make_shared<Operation>();
  put_last(*op);
  op->what = what;
  op->event = hooks_.make_event();
  return op;
}

void Operations::attach(const std::shared_ptr<Operation>& op,
                        const std::shared_ptr<Command>& command) {
  command->index = op->commands.size();
  op->commands.push_back(command);
  op->status.push_back(kStatusOpen);
  command->op = op;
}

// Backpressure is the only reason to wait here.
void Operations::add(const std::shared_ptr<Operation>& op,
                     const std::shared_ptr<Command>& command) {
  const Device& device = devices_.at(command->device);
  while (!health_.broken() && !device.ring.has_room(false)) {
    hooks_.pump();
  }
  if (!op->error) {
    op->error = health_.broken() ? health_.broken() : op->failed_input();
  }
  if (op->error) {
    return;
  }
  registers_.make_room(1);
  attach(op, command);
  append(command);
  ++op->open;
  ring(*command);
}

void Operations::add_all(const std::shared_ptr<Operation>& op,
                         const std::vector<std::shared_ptr<Command>>& commands) {
  registers_.make_room(commands.size());
  for (const auto& command : commands) {
    attach(op, command);
    append(command);
    ++op->open;
  }
  for (const auto& command : commands) {
    ring(*command);
  }
  seal(op);
}

void Operations::seal(const std::shared_ptr<Operation>& op) {
  op->sealed = true;
  if (op->open == 0) {
    finish(*op, op->error);
  }
}

void Operations::abandon(const std::shared_ptr<Operation>& op) {
  for (const auto& command : op->commands) {
    if (command) {
      command->on_ok = nullptr;
    }
  }
  op->error = op->error ? op->error : given_up();
  seal(op);
}

void Operations::submit_gang(const std::shared_ptr<Operation>& op) {
  op->status.assign(op->commands.size(), kStatusOpen);
  op->open = op->commands.size();
  op->sealed = true;
  for (size_t i = 0; i < op->commands.size(); ++i) {
    op->commands[i]->op = op;
    op->commands[i]->index = i;
  }
  const auto all_have_room = [&] {
    return std::all_of(op->commands.begin(), op->commands.end(),
                       [&](const auto& command) TPU_REQUIRES(board_lock) {
                         return devices_[command->device].ring.has_room(true);
                       });
  };
  while (!health_.broken() && !all_have_room()) {
    hooks_.pump();
  }
  if (const ErrorPtr error = health_.broken() ? health_.broken() : op->failed_input()) {
    finish(*op, error);
    return;
  }
  registers_.make_room(op->commands.size());
  size_t places = 0;
  try {
    for (; places < op->commands.size(); ++places) {
      devices_[op->commands[places]->device].ring.make_place();
    }
  } catch (...) {
    while (places > 0) {
      devices_[op->commands[--places]->device].ring.drop_place();
    }
    throw;
  }
  for (const auto& command : op->commands) {
    enter(command);
  }
  for (const auto& command : op->commands) {
    ring(*command);
  }
}

void Operations::append(const std::shared_ptr<Command>& command) {
  devices_[command->device].ring.make_place();
  enter(command);
}

// The ring has a place for it already, so that nothing here can fail half-way.
void Operations::enter(const std::shared_ptr<Command>& command) {
  devices_[command->device].ring.enter(command);
  if (command->opcode == TPU_OP_LAUNCH) {
    command->op->on_board = true;
  }
}

void Operations::ring(const Command& command) {
  Device& device = devices_[command.device];
  registers_.ring(device, device.ring);
}

void Operations::report(const std::shared_ptr<Command>& command, uint16_t status) {
  const auto op = command->op;
  if (!op || op->finished) {
    return;
  }
  op->status[command->index] = status;
  if (op->launch()) {
    report_launch(op);
    return;
  }
  const bool corrupt = status == TPU_STATUS_BAD_CRC || status == TPU_STATUS_BAD_SEQ;
  const bool lost = status == kStatusLost && command->losses++ < kMaxLosses;
  const bool link = status_of_link(status) && command->attempts < kMostLinkRetries;
  if (status == TPU_STATUS_FLUSHED || lost || link || (corrupt && command->attempts == 0)) {
    command->attempts += corrupt || link ? 1 : 0;
    retries_.push_back(command);
    return;
  }
  if (status == TPU_STATUS_OK) {
    if (command->on_ok) {
      command->on_ok();
    }
  } else if (!op->error) {
    const ErrorPtr& trap = devices_.at(command->device).trap;
    op->error =
        status == kStatusLost && trap ? trap : status_error(status, op->what, command->device);
  }
  end_piece(*op, *command);
}

void Operations::report_launch(const std::shared_ptr<Operation>& op) {
  if (--op->open > 0) {
    return;
  }
  const bool ok = std::all_of(op->status.begin(), op->status.end(),
                              [](uint16_t status) { return status == TPU_STATUS_OK; });
  if (ok) {
    finish(*op, nullptr);
  } else {
    failed_launches_.push_back(op);
  }
}

void Operations::end_piece(Operation& op, Command& command) {
  --op.open;
  release(op, command);
  if (op.open == 0 && op.sealed) {
    finish(op, op.error);
  }
}

void Operations::finish(Operation& op, const ErrorPtr& why) {
  if (op.finished) {
    return;
  }
  const ErrorPtr error = why;  // may be that of the operation
  op.finished = true;
  op.error = error;  // more pieces of it are not sent
  const bool never_ran = error && !op.on_board;
  for (const auto& weak : std::exchange(op.donated, {})) {
    if (const auto buffer = weak.lock()) {
      never_ran ? buffer->give_back() : buffer->settle();
    }
  }
  if (op.launch()) {
    hooks_.launch_over(op, error);
  }
  outbox_.set_event(*op.event, error);
  if (op.on_host_call) {
    outbox_.drop(std::exchange(op.on_host_call, nullptr));
  }
  op.kept.clear();
  release_all(op);
}

void Operations::fail_all(const ErrorPtr& error) {
  for (Device& device : devices_) {
    for (const auto& command : device.ring.take_all()) {
      if (const auto op = command->op) {
        finish(*op, error);
      }
    }
  }
  for (const auto& command : take_retries()) {
    if (const auto op = command->op) {
      finish(*op, error);
    }
  }
  for (const auto& op : take_failed_launches()) {
    finish(*op, error);
  }
}

std::vector<std::shared_ptr<Operation>> Operations::take_failed_launches() {
  return std::exchange(failed_launches_, {});
}

std::vector<std::shared_ptr<Command>> Operations::take_retries(uint64_t before) {
  const auto rest = std::stable_partition(
      retries_.begin(), retries_.end(),
      [&](const auto& command) { return !command->op || command->op->number < before; });
  std::vector<std::shared_ptr<Command>> taken(retries_.begin(), rest);
  retries_.erase(retries_.begin(), rest);
  return taken;
}

bool Operations::being_sent(uint64_t last) const {
  return std::any_of(sending_.begin(), sending_.end(),
                     [&](const Operation* op) { return op->number <= last; });
}

bool Operations::behind_one_being_sent(const Operation& op) const {
  return std::any_of(sending_.begin(), sending_.end(), [&](const Operation* before) {
    return before->number < op.number && conflict(*before, op);
  });
}

Operations::Sending::~Sending() {
  all_.sending_.erase(std::find(all_.sending_.begin(), all_.sending_.end(), &op_));
  all_.news_.add();
}

Operations::Submission::~Submission() {
  if (std::uncaught_exceptions() > exceptions_) {
    all_.abandon(op_);
  } else {
    all_.seal(op_);
  }
}

}  // namespace tpu::driver
