#include "transport/worker/worker_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {

WorkerLink::WorkerLink(const OpenOptions& options, HostMemory& memory, size_t chips)
    : memory_(memory),
      chips_(chips),
      connector_(options),
      channel_(connector_.open(), [this](const std::string& why, uint64_t received) {
        return recover(why, received);
      }) {}

void WorkerLink::interrupt() {
  channel_.post(Kind::kInterrupt, {});
  channel_.flush();
}

void WorkerLink::give_up() {
  gives_up_ = true;
  channel_.shut_down();
}

template <class Call>
auto WorkerLink::of_channel(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (lost()) {
      throw;
    }
    lose(fmt::format("{}: {}", connector_.name(), error.message()));
  }
}

void WorkerLink::find_end() {
  if (closed_) {
    return;
  }
  if (lost()) {
    throw Error(ErrorCode::kUnavailable, lost_);
  }
  const std::optional<Frame> last = of_channel([&] { return channel_.find_end(); });
  if (!last) {
    return;
  }
  if (last->kind == Kind::kFailure) {
    throw error_of(unpack<Failure>(last->payload));
  }
  refuse(last->kind);
}

void WorkerLink::note_launch(uint32_t launch, const std::string* name) {
  if (name == nullptr) {
    launches_.erase(launch);
  } else {
    launches_.emplace(launch, *name);
  }
}

void WorkerLink::begin(Kind kind, std::span<const std::byte> request) {
  if (lost()) {
    throw Error(ErrorCode::kUnavailable, lost_);
  }
  closed_ = closed_ || kind == Kind::kClose;
  channel_.post(kind, request);
}

std::vector<std::byte> WorkerLink::ask(Kind kind, std::span<const std::byte> request) {
  const Lends lends(channel_);
  begin(kind, request);
  Message message = await_answer();
  if (message.kind != Kind::kAnswer) {
    lose(fmt::format("{} reports an interrupt outside of a run", connector_.name()));
  }
  return std::move(message.bytes);
}

Stopped WorkerLink::run(const Run& run, const Transport::InterruptHandler* handler) {
  const Lends lends(channel_);
  begin(Kind::kRun, pack(run));
  for (;;) {
    const Message message = await_answer();
    if (message.kind == Kind::kAnswer) {
      return unpack<Stopped>(message.bytes);
    }
    Msi msi = unpack<Msi>(message.bytes);
    if (!handle(msi, handler) && msi.complete) {
      return {{msi.quiescent, false, std::move(msi.vectors), {}}, msi.now};
    }
  }
}

// An answer, or an interrupt.
Message WorkerLink::await_answer() {
  for (;;) {
    Message message = receive();
    switch (message.kind) {
      case Kind::kAnswer:
      case Kind::kMsi:
        return message;
      case Kind::kFailure:
        throw error_of(unpack<Failure>(message.bytes));
      case Kind::kDmaRead:
        send_memory(unpack<Range>(message.bytes));
        break;
      case Kind::kDmaWrite:
        take_memory(message.bytes);
        channel_.give_back(std::move(message.bytes));
        break;
      default:
        refuse(message.kind);
    }
  }
}

Message WorkerLink::receive() {
  return of_channel([&] { return channel_.receive(); });
}

void WorkerLink::refuse(Kind kind) {
  lose(fmt::format("{} sends a message of kind {}, which is not its part", connector_.name(),
                   static_cast<int>(kind)));
}

// True: the run goes on.
bool WorkerLink::handle(const Msi& msi, const Transport::InterruptHandler* handler) {
  const bool done = handler != nullptr && *handler && msi.vectors.size() <= chips_ &&
                    (*handler)({msi.vectors, msi.now, msi.quiescent, !msi.complete});
  channel_.post(Kind::kHandled, pack(Flag{done}));
  return done;
}

void WorkerLink::send_memory(const Range& range) {
  const std::span<const std::byte> bytes = memory_.span(range.iova, range.bytes, range.write);
  const bool there = bytes.size() >= range.bytes && range.bytes != 0;
  if (range.ask) {
    channel_.post(Kind::kDmaData, pack(Flag{there}));
  } else {
    channel_.post_lent(Kind::kDmaData, there ? bytes.first(range.bytes) : bytes.first(0));
  }
}

void WorkerLink::take_memory(std::span<const std::byte> bytes) {
  uint64_t iova = 0;
  if (bytes.size() <= sizeof iova) {
    refuse_message("bytes of a transfer are missing");
  }
  const std::span<const std::byte> data = bytes.subspan(sizeof iova);
  std::copy_n(bytes.begin(), sizeof iova, std::as_writable_bytes(std::span(&iova, 1)).begin());
  const std::span<std::byte> to = memory_.span(iova, data.size(), true);
  if (to.size() >= data.size()) {
    std::copy(data.begin(), data.end(), to.begin());
  }
}

NextConnection WorkerLink::recover(const std::string& why, uint64_t received) {
  if (!gives_up_) {  // else that is why the connection broke
    try {
      return connector_.open_again(why, received, gives_up_);
    } catch (const Error& error) {
      lose(error.message());
    }
  }
  lost_ = "another process of the pod has failed, and " + connector_.name() + " does not answer";
  throw Error(ErrorCode::kUnavailable, lost_);
}

void WorkerLink::lose(const std::string& why) {
  constexpr size_t kMostNames = 4;
  std::string names;
  for (const auto& [id, name] : launches_) {
    if (!names.empty() && static_cast<size_t>(std::ranges::count(names, ',')) + 1 >= kMostNames) {
      names += ", ..";
      break;
    }
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", id, name);
  }
  lost_ = fmt::format(
      "the board was lost at cycle {}: {}; {}", now_, why,
      names.empty() ? std::string("no launch was under way") : "launches under way: " + names);
  throw Error(ErrorCode::kUnavailable, lost_);
}

}  // namespace tpu::driver::worker
