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

const HostCallInfo& info_of(const Operation& op, size_t part) {
  return op.program->info->host_calls[op.calls[part].number];
}

// Bytes that the program keeps in the host's memory, as they lie in HBM.
ErrorPtr keep_or_give(Operation& op, const HostCallInfo& call, size_t part,
                      std::span<std::byte> array) {
  try {
    Operation::Kept& kept = op.kept[{call.channel, part}];
    if (call.index) {  // the low word stands first
      std::memcpy(&kept.next, array.data(), sizeof kept.next);
      return nullptr;
    }
    std::vector<std::byte>& bytes = kept.arrays[kept.next];
    if (call.to_host) {
      bytes.assign(array.begin(), array.end());
      return nullptr;
    }
    bytes.resize(array.size());
    std::ranges::copy(bytes, array.begin());
    return nullptr;
  } catch (...) {
    return as_error(std::current_exception(), call, op.commands[part]->device);
  }
}

// It is over, or being taken off the board: nobody waits for an answer.
bool gone(const Operation& op, size_t part) {
  return op.finished || op.verdict || op.status[part] != kStatusOpen;
}

}  // namespace

void HostCallServer::add(const Command& command, uint32_t number, uint32_t ticket) {
  HostCallState& state = command.op->calls[command.index];
  state.number = number;
  state.ticket = ticket;
  told_.emplace_back(command.op, command.index);
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
    const auto [op, part] = told_.front();
    told_.pop_front();
    any = true;
    if (!gone(*op, part)) {
      call_told(op, part);
    }
  }
  return any;
}

void HostCallServer::call_told(const std::shared_ptr<Operation>& op, size_t part) {
  const HostCallInfo& info = info_of(*op, part);
  HostCallState& state = op->calls[part];
  if (std::exchange(state.moving, false)) {
    if (info.to_host) {
      return answer_call(op, part);
    }
    state.staged.reset();
    return request(*op, part, core_page::kCallGoOn);
  }
  const auto own = static_cast<size_t>(info.partition);
  const bool for_all = info.partition >= 0;
  if (info.to_host) {
    if (for_all && part != own) {
      return request(*op, part, core_page::kCallGoOn);
    }
    const uint64_t bytes = byte_count(info.dtype, info.shape);
    if (bytes == 0) {
      return answer_call(op, part);
    }
    if (stage_call(*op, part, bytes)) {
      ask_transfer(*op, part);
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

// False when the host has no room: that ends the launch.
bool HostCallServer::stage_call(Operation& op, size_t part, uint64_t bytes) {
  try {
    op.calls[part].staged = memory_.stage_now(bytes);
    return true;
  } catch (const std::exception&) {
    const int device = op.commands[part]->device;
    fail_call(op, part, as_error(std::current_exception(), info_of(op, part), device));
    return false;
  }
}

// Takes the launch off the board.
void HostCallServer::fail_call(Operation& op, size_t part, const ErrorPtr& error) {
  op.verdict = error;
  const Device& device = devices_[op.commands[part]->device];
  registers_.write(device, core_page::kAbort, op.launch_id);
}

// Between the staged bytes and HBM.
void HostCallServer::ask_transfer(Operation& op, size_t part) {
  const exe::HostCallT& call = *op.program->exe.host_calls[op.calls[part].number];
  const HostCallInfo& info = info_of(op, part);
  const Device& device = devices_[op.commands[part]->device];
  HostCallState& state = op.calls[part];
  const auto put64 = [&](uint64_t low, uint64_t value) TPU_REQUIRES(board_lock) {
    registers_.write(device, low, static_cast<uint32_t>(value));
    registers_.write(device, low + 4, static_cast<uint32_t>(value >> 32));
  };
  put64(core_page::kCallHostLo, state.staged->iova());
  put64(core_page::kCallHbmLo, state.slots[call.slot]->address() + call.offset);
  registers_.write(device, core_page::kCallBytes,
                   static_cast<uint32_t>(byte_count(info.dtype, info.shape)));
  state.moving = true;
  request(op, part, info.to_host ? core_page::kCallToHost : core_page::kCallFromHost);
}

void HostCallServer::request(const Operation& op, size_t part, uint32_t kind) {
  const Device& device = devices_[op.commands[part]->device];
  registers_.write(device, core_page::kCallRequest,
                   op.calls[part].ticket << core_page::kCallRequestTicketShift | kind);
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
  if (!staged && !stage_call(*op, part, std::max<uint64_t>(1, bytes))) {
    return;
  }
  const std::shared_ptr<StagingRange> range = staged;
  const auto array = range->bytes().first(bytes);
  const ErrorPtr error = info.memory ? keep_or_give(*op, info, part, array)
                                     : ask_handler(op->on_host_call, info, device, part, array);
  if (gone(*op, part)) {
    return;
  }
  if (error) {
    return fail_call(*op, part, error);
  }
  if (info.to_host) {
    staged.reset();
    return request(*op, part, core_page::kCallGoOn);
  }
  for (size_t p = 0; p < op->calls.size(); ++p) {
    if (p == part || info.partition >= 0) {
      op->calls[p].open = false;
      op->calls[p].staged = bytes > 0 ? range : nullptr;
      bytes > 0 ? ask_transfer(*op, p) : request(*op, p, core_page::kCallGoOn);
    }
  }
}

}  // namespace tpu::driver
