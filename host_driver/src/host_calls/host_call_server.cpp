// Host calls, from the completion that tells one to the request that lets the program go on.
#include "src/host_calls/host_call_server.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "src/memory/word_planes.hpp"
#include "src/residency/program.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

thread_local bool answers_call = false;

ErrorPtr as_error(const std::exception_ptr& thrown, const HostCallInfo& call, int device) {
  const ErrorPlace place{.device = device, .op = call.op, .source = call.source};
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const bool placed = !error.place().op.empty();
    return std::make_shared<Error>(error.code(), error.message(), placed ? error.place() : place);
  } catch (const std::exception& error) {
    return std::make_shared<Error>(ErrorCode::kInternal,
                                   std::string("a host call failed: ") + error.what(), place);
  } catch (...) {
    return std::make_shared<Error>(ErrorCode::kInternal, "a host call failed", place);
  }
}

const HostCallInfo& info_of(const Operation& op, const HostTransfer& transfer) {
  return op.program->info->host_calls[transfer.number];
}

// Of the call that the core stands at.
const HostCallInfo& info_of(const Operation& op, size_t part) {
  return op.program->info->host_calls[op.calls[part].number];
}

bool beside_program(const Operation& op, const HostTransfer& transfer) {
  return info_of(op, transfer).stage == HostCallStage::kStart;
}

// Bytes that the program keeps in the host's memory, as they lie in HBM.
void keep_or_give(Operation::Kept& kept, bool keep, int32_t number, std::span<std::byte> array) {
  std::vector<std::byte>& bytes = kept.arrays[number];
  if (keep) {
    bytes.assign(array.begin(), array.end());
    return;
  }
  bytes.resize(array.size());
  std::ranges::copy(bytes, array.begin());
}

ErrorPtr keep_or_give(Operation& op, const HostCallInfo& call, size_t part, int32_t number,
                      std::span<std::byte> array) {
  try {
    keep_or_give(op.kept[{call.channel, part}], call.to_host, number, array);
    return nullptr;
  } catch (...) {
    return as_error(std::current_exception(), call, op.commands[part]->device);
  }
}

// The answer to a call with the mark `memory`.
ErrorPtr answer_memory(Operation& op, const HostCallInfo& call, size_t part,
                       std::span<std::byte> array) {
  int32_t& next = op.kept[{call.channel, part}].next;
  if (call.index) {  // the low word stands first
    std::memcpy(&next, array.data(), sizeof next);
    return nullptr;
  }
  return keep_or_give(op, call, part, next, array);
}

// It is over, or being taken off the board: nobody waits for an answer.
bool gone(const Operation& op, size_t part) {
  return op.finished || op.verdict || op.status[part] != kStatusOpen;
}

}  // namespace

void HostCallServer::add(const Command& command, uint32_t number, uint32_t ticket) {
  told_.push_back({command.op, command.index, number, ticket});
}

bool HostCallServer::answers_here() const { return answering_ && answers_call; }

bool HostCallServer::await_answer(Deadline deadline) {
  if (!answering_) {
    return false;
  }
  if (answers_here()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "who answers a host call must not wait for the board: it waits for the answer");
  }
  turn_.leave_until(news_, news_.count(), deadline);
  return true;
}

bool HostCallServer::serve() {
  bool any = false;
  while (!health_.broken() && !answering_ && !told_.empty()) {
    const Told told = std::move(told_.front());
    told_.pop_front();
    any = true;
    if (gone(*told.op, told.part)) {
      continue;
    }
    HostCallState& state = told.op->calls[told.part];
    state.newest = told.ticket;
    if (told.number == core_page::kCallMoved) {
      if (!state.transfers.empty()) {
        call_moved(told.op, told.part);
      }
    } else {
      state.number = told.number;
      state.ticket = told.ticket;
      call_told(told.op, told.part);
    }
  }
  return any;
}

void HostCallServer::call_told(const std::shared_ptr<Operation>& op, size_t part) {
  const HostCallInfo& info = info_of(*op, part);
  HostCallState& state = op->calls[part];
  if (info.stage == HostCallStage::kStart) {
    return start_beside(op, part);
  }
  if (info.stage == HostCallStage::kFinish) {
    state.finishes = true;
    return finish_beside(*op, part);
  }
  const auto own = static_cast<size_t>(info.partition);
  const bool for_all = info.partition >= 0;
  if (info.to_host) {
    if (for_all && part != own) {
      return go_on(*op, part);
    }
    const uint64_t bytes = byte_count(info.dtype, info.shape);
    if (bytes == 0) {
      return answer_call(op, part);
    }
    state.staged = stage(*op, part, bytes);
    if (state.staged) {
      ask_transfer(*op, part, {state.number, state.staged});
    }
    return;
  }
  state.open = true;
  const auto here = [&](const HostCallState& each) {
    return each.open && each.number == state.number;
  };
  if (!for_all || std::all_of(op->calls.begin(), op->calls.end(), here)) {
    answer_call(op, for_all ? own : part);
  }
}

// The program goes on while the bytes travel.
void HostCallServer::start_beside(const std::shared_ptr<Operation>& op, size_t part) {
  const HostCallInfo& info = info_of(*op, part);
  if (const uint64_t bytes = byte_count(info.dtype, info.shape); bytes > 0) {
    HostTransfer transfer{op->calls[part].number, nullptr, op->kept[{info.channel, part}].next};
    if (info.to_host) {
      transfer.staged = stage(*op, part, bytes);
      if (!transfer.staged) {
        return;
      }
    }
    ask_transfer(*op, part, std::move(transfer));
    if (gone(*op, part)) {
      return;
    }
  }
  go_on(*op, part);
}

void HostCallServer::finish_beside(Operation& op, size_t part) {
  HostCallState& state = op.calls[part];
  const int64_t channel = info_of(op, part).channel;
  if (std::ranges::none_of(state.transfers, [&](const HostTransfer& transfer) {
        return beside_program(op, transfer) && info_of(op, transfer).channel == channel;
      })) {
    state.finishes = false;
    go_on(op, part);
  }
}

// The first of the core's transfers is over.
void HostCallServer::call_moved(const std::shared_ptr<Operation>& op, size_t part) {
  HostCallState& state = op->calls[part];
  const HostTransfer transfer = std::move(state.transfers.front());
  state.transfers.pop_front();
  const HostCallInfo& info = info_of(*op, transfer);
  if (beside_program(*op, transfer)) {
    const auto array = transfer.staged->bytes().first(byte_count(info.dtype, info.shape));
    const ErrorPtr error =
        info.to_host ? keep_or_give(*op, info, part, transfer.array, array) : nullptr;
    if (error) {
      return fail_call(*op, part, error);
    }
    if (state.finishes) {
      finish_beside(*op, part);
    }
  } else if (info.to_host) {
    answer_call(op, part);
  } else {
    state.staged.reset();
    go_on(*op, part);
  }
  if (!state.transfers.empty() && !gone(*op, part)) {
    begin_transfer(*op, part);
  }
}

// Null when the host has no room: that ends the launch.
std::shared_ptr<StagingRange> HostCallServer::stage(Operation& op, size_t part, uint64_t bytes) {
  try {
    return memory_.stage_now(bytes);
  } catch (const std::exception&) {
    const int device = op.commands[part]->device;
    fail_call(op, part, as_error(std::current_exception(), info_of(op, part), device));
    return nullptr;
  }
}

// Takes the launch off the board.
void HostCallServer::fail_call(Operation& op, size_t part, const ErrorPtr& error) {
  op.verdict = error;
  const Device& device = devices_[op.commands[part]->device];
  registers_.write(device, core_page::kAbort, op.launch_id);
}

// Between staged bytes and HBM, behind the core's other transfers.
void HostCallServer::ask_transfer(Operation& op, size_t part, HostTransfer transfer) {
  std::deque<HostTransfer>& transfers = op.calls[part].transfers;
  transfers.push_back(std::move(transfer));
  if (transfers.size() == 1) {
    begin_transfer(op, part);
  }
}

// A ticket is new for each transfer, as the end of the one before it was told.
void HostCallServer::begin_transfer(Operation& op, size_t part) {
  HostCallState& state = op.calls[part];
  HostTransfer& transfer = state.transfers.front();
  const exe::HostCallT& call = *op.program->exe.host_calls[transfer.number];
  const HostCallInfo& info = info_of(op, transfer);
  const uint64_t bytes = byte_count(info.dtype, info.shape);
  const Device& device = devices_[op.commands[part]->device];
  if (!transfer.staged) {
    transfer.staged = stage(op, part, bytes);
    const auto array =
        transfer.staged ? transfer.staged->bytes().first(bytes) : std::span<std::byte>{};
    const ErrorPtr error =
        transfer.staged ? keep_or_give(op, info, part, transfer.array, array) : nullptr;
    if (error) {
      fail_call(op, part, error);
    }
    if (gone(op, part)) {
      return;
    }
  }
  const auto put64 = [&](uint64_t low, uint64_t value) TPU_REQUIRES(board_lock) {
    registers_.write(device, low, static_cast<uint32_t>(value));
    registers_.write(device, low + 4, static_cast<uint32_t>(value >> 32));
  };
  put64(core_page::kCallHostLo, transfer.staged->iova());
  put64(core_page::kCallHbmLo, state.slots[call.slot]->address() + call.offset);
  registers_.write(device, core_page::kCallBytes, static_cast<uint32_t>(bytes));
  const uint32_t kind = info.to_host ? core_page::kCallToHost : core_page::kCallFromHost;
  registers_.write(device, core_page::kCallTransfer,
                   state.newest << core_page::kCallTransferTicketShift | kind);
}

void HostCallServer::go_on(const Operation& op, size_t part) {
  const Device& device = devices_[op.commands[part]->device];
  registers_.write(
      device, core_page::kCallRequest,
      op.calls[part].ticket << core_page::kCallRequestTicketShift | core_page::kCallGoOn);
}

// The handler runs without the lock; meanwhile no simulated time passes, so the launch stays as it
// is.
ErrorPtr HostCallServer::ask_handler(HostCallHandler handler, const HostCallInfo& info, int device,
                                     size_t part, std::span<std::byte> array) {
  const bool planes = in_planes(info.dtype);
  ErrorPtr error;
  answering_ = true;
  {
    const Turn::Left free(turn_);
    answers_call = true;
    try {
      if (planes && info.to_host) {
        to_elements(array);
      }
      run_in_callback([&] { handler(info, part, array); });
      if (planes && !info.to_host) {
        to_planes(array);
      }
    } catch (...) {
      error = as_error(std::current_exception(), info, device);
    }
    answers_call = false;
  }
  answering_ = false;
  outbox_.drop(std::move(handler));
  news_.add_event();
  return error;
}

void HostCallServer::answer_call(const std::shared_ptr<Operation>& op, size_t part) {
  const HostCallInfo info = info_of(*op, part);
  const int device = op->commands[part]->device;
  auto& staged = op->calls[part].staged;
  const uint64_t bytes = byte_count(info.dtype, info.shape);
  if (!staged) {
    staged = stage(*op, part, std::max<uint64_t>(1, bytes));
    if (!staged) {
      return;
    }
  }
  const std::shared_ptr<StagingRange> range = staged;
  const auto array = range->bytes().first(bytes);
  const ErrorPtr error = info.memory ? answer_memory(*op, info, part, array)
                                     : ask_handler(op->on_host_call, info, device, part, array);
  if (gone(*op, part)) {
    return;
  }
  if (error) {
    return fail_call(*op, part, error);
  }
  if (info.to_host) {
    staged.reset();
    return go_on(*op, part);
  }
  for (size_t p = 0; p < op->calls.size(); ++p) {
    if (p == part || info.partition >= 0) {
      op->calls[p].open = false;
      op->calls[p].staged = bytes > 0 ? range : nullptr;
      bytes > 0 ? ask_transfer(*op, p, {op->calls[p].number, range}) : go_on(*op, p);
    }
  }
}

}  // namespace tpu::driver
