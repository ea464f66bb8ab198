// Launches that wait, and the order of those on a device.
#include "runtime/launch_queue.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tpu::pjrt {

driver::RunResult run_on_board(const driver::Executable& executable, const LaunchRequest& request) {
  std::vector<driver::Array> arguments;
  for (size_t i = 0; i < executable.arguments().size(); ++i) {
    const driver::ParameterInfo& info = executable.arguments()[i];
    std::vector<driver::Buffer> parts;
    for (const DeviceShare& share : request.shares) {
      parts.push_back(static_cast<const LocalArray&>(*share.arguments.at(i)).buffer().value());
    }
    arguments.emplace_back(info.dtype, info.shape, info.layout, std::move(parts));
  }
  driver::RunOptions run;
  run.keep = request.keep;
  run.on_host_call = request.on_host_call;
  run.trace_context = request.trace_context;
  return executable.run(arguments, run);
}

WaitingLaunch::WaitingLaunch(const driver::Board& board, std::string name, size_t partitions,
                             Program program)
    : board_(board),
      name_(std::move(name)),
      program_(std::move(program)),
      made_(board.make_event()),
      made_event_(made_.event()),
      parts_(partitions) {}

WaitingLaunch::~WaitingLaunch() { release(); }

std::vector<DeviceArrayPtr> WaitingLaunch::add(size_t partition, const exe::ExecutableT& program,
                                               const LaunchRequest& request, size_t place) {
  const DeviceShare& share = request.shares.at(place);
  Part part{share, {}, {}, request.keep, {}, request.on_host_call, place};
  for (size_t i = 0; i < program.args.size(); ++i) {
    if (program.args[i]->donated_to >= 0 && std::ranges::find(part.keep, i) == part.keep.end()) {
      part.taken.push_back(i);
    }
  }
  std::vector<DeviceArrayPtr> results;
  for (const auto& result : program.results) {
    part.results.push_back(
        std::make_shared<const LocalArray>(share.device, static_cast<driver::DType>(result->elem),
                                           result->local_dims, board_, made_event_));
    results.push_back(part.results.back());
  }
  part.arguments.reserve(share.arguments.size());  // nothing throws once an argument is held
  for (const DeviceArrayPtr& argument : share.arguments) {
    part.arguments.push_back(std::static_pointer_cast<const LocalArray>(argument));
    part.arguments.back()->hold();
  }
  if (trace_context_ == 0) {
    trace_context_ = request.trace_context;
  }
  parts_[partition] = std::move(part);
  return results;
}

bool WaitingLaunch::ready() const {
  return std::ranges::all_of(parts_, [](const std::optional<Part>& part) {
    return part && std::ranges::all_of(part->arguments, &LocalArray::settled);
  });
}

const WaitingLaunch::Part* WaitingLaunch::part_of(int device) const {
  const auto at = std::ranges::find_if(parts_, [&](const std::optional<Part>& part) {
    return part && part->share.device == device;
  });
  return at != parts_.end() ? &**at : nullptr;
}

bool WaitingLaunch::needs(const WaitingLaunch& other, int device) const {
  const Part* const own = part_of(device);
  const Part* const from = other.part_of(device);
  return own != nullptr && from != nullptr &&
         std::ranges::any_of(own->arguments, [&](const LocalArrayPtr& argument) {
           return std::ranges::find(from->results, argument) != from->results.end();
         });
}

bool WaitingLaunch::takes_from(const WaitingLaunch& other, int device) const {
  const Part* const own = part_of(device);
  const Part* const reader = other.part_of(device);
  return own != nullptr && reader != nullptr && std::ranges::any_of(own->taken, [&](size_t i) {
           return std::ranges::find(reader->arguments, own->arguments.at(i)) !=
                  reader->arguments.end();
         });
}

// An argument that one of the shares keeps is copied on all: the program has one way for it.
LaunchRequest WaitingLaunch::request(const BoardProgram& program) const {
  LaunchRequest all;
  std::set<size_t> keep;
  std::vector<std::pair<driver::HostCallHandler, size_t>> handlers;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = *parts_[p];
    DeviceShare share = part.share;
    if (program.arguments) {
      share.arguments.clear();
      const std::vector<GivenArgument>& given = program.arguments->at(p);
      for (size_t i = 0; i < given.size(); ++i) {
        share.arguments.push_back(given[i].constant ? given[i].constant
                                                    : part.share.arguments.at(given[i].own));
        if (given[i].constant || std::ranges::find(part.keep, given[i].own) != part.keep.end()) {
          keep.insert(i);
        }
      }
    } else {
      keep.insert(part.keep.begin(), part.keep.end());
    }
    all.shares.push_back(std::move(share));
    handlers.emplace_back(part.on_host_call, part.place);
  }
  all.keep.assign(keep.begin(), keep.end());
  all.trace_context = trace_context_;
  if (std::ranges::any_of(handlers, [](const auto& each) { return each.first != nullptr; })) {
    all.on_host_call = [handlers](const driver::HostCallInfo& call, size_t partition,
                                  std::span<std::byte> bytes) {
      const auto& [handler, place] = handlers.at(partition);
      if (!handler) {
        throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                            "partition " + std::to_string(partition) +
                                " has no callbacks for the calls of the host",
                            {.device = -1, .op = call.op, .source = call.source});
      }
      handler(call, place, bytes);
    };
  }
  return all;
}

// Also what the launch has copied, since another share keeps it, or has not read.
void WaitingLaunch::give_back_taken() const {
  for (const std::optional<Part>& part : parts_) {
    for (const size_t i : part->taken) {
      part->arguments.at(i)->discard();
    }
  }
}

void WaitingLaunch::submit() {
  driver::RunResult result;
  try {
    const BoardProgram program = program_();
    result = run_on_board(program.loaded, request(program));
  } catch (const driver::Error& error) {
    return fail(error);
  } catch (const std::exception& error) {
    return fail(driver::Error(driver::ErrorCode::kInternal, error.what()));
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    for (size_t r = 0; r < parts_[p]->results.size(); ++r) {
      parts_[p]->results[r]->settle(result.outputs.at(r).parts().at(p));
    }
  }
  give_back_taken();
  release();
  pass_on(result.done, made_);
}

void WaitingLaunch::fail(const driver::Error& error) {
  for (const std::optional<Part>& part : parts_) {
    for (size_t r = 0; part && r < part->results.size(); ++r) {
      part->results[r]->fail(error);
    }
  }
  release();
  fail_event(made_, error);
}

void WaitingLaunch::release() {
  for (std::optional<Part>& part : parts_) {
    if (part) {
      for (const LocalArrayPtr& argument : std::exchange(part->arguments, {})) {
        argument->release();
      }
      part->share.arguments.clear();
    }
  }
}

bool LaunchQueue::busy(const std::vector<DeviceShare>& shares) const {
  const base::MutexLock lock(mutex_);
  for (size_t i = 0; !waiting_.empty() && i < shares.size(); ++i) {
    if (waiting_.contains(shares[i].device)) {
      return true;
    }
  }
  return false;
}

LaunchQueue::EntryPtr LaunchQueue::entry_of(const WaitingLaunch& launch) const {
  for (const auto& [device, queue] : waiting_) {
    for (const EntryPtr& entry : queue) {
      if (entry->launch.get() == &launch) {
        return entry;
      }
    }
  }
  return nullptr;
}

bool LaunchQueue::add(const std::shared_ptr<WaitingLaunch>& launch, const std::vector<int>& devices,
                      size_t missing, Order order) {
  const base::MutexLock lock(mutex_);
  EntryPtr entry = entry_of(*launch);
  if (!entry) {
    entry = std::make_shared<Entry>();
    entry->launch = launch;
  }
  entry->missing = missing;
  entry->devices.reserve(entry->devices.size() + devices.size());
  for (const int device : devices) {
    waiting_[device].push_back(entry);
    entry->devices.push_back(device);
  }
  if (!waits_for(entry, entry)) {
    return true;
  }
  return order == kAsOthers && std::ranges::all_of(devices, [&](int device) TPU_REQUIRES(mutex_) {
           return go_in_front(entry, device);
         });
}

// On a device where the launch is the last one: in front of those that wait for it elsewhere, with
// what it needs of those between them.
bool LaunchQueue::go_in_front(const EntryPtr& entry, int device) {
  auto& queue = waiting_.at(device);
  const auto as_asked = queue;
  const auto first = std::ranges::find_if(
      queue, [&](const EntryPtr& front) TPU_REQUIRES(mutex_) { return waits_for(front, entry); });
  std::deque<EntryPtr> moved, passed;
  for (auto at = queue.end(); at != first;) {
    const EntryPtr& each = *--at;
    // What is taken is being ended: nothing waits for that.
    if (!each->taken && (each == entry || std::ranges::any_of(moved, [&](const EntryPtr& other) {
                           return other->launch->needs(*each->launch, device);
                         }))) {
      moved.push_front(each);
      continue;
    }
    if (!each->taken && std::ranges::any_of(moved, [&](const EntryPtr& other) {
          return other->launch->takes_from(*each->launch, device);
        })) {
      return false;
    }
    passed.push_front(each);
  }
  queue.erase(first, queue.end());
  queue.insert(queue.end(), moved.begin(), moved.end());
  queue.insert(queue.end(), passed.begin(), passed.end());
  if (std::ranges::none_of(moved, [&](const EntryPtr& each)
                                      TPU_REQUIRES(mutex_) { return waits_for(each, each); })) {
    return true;
  }
  queue = as_asked;
  return false;
}

void LaunchQueue::complete(const WaitingLaunch& launch) {
  const base::MutexLock lock(mutex_);
  if (const EntryPtr entry = entry_of(launch)) {
    entry->missing = 0;
  }
}

// Follows what is in front of a launch on each of its devices.
bool LaunchQueue::waits_for(const EntryPtr& entry, const EntryPtr& wanted) const {
  std::set<const Entry*> seen;
  std::vector<EntryPtr> work{entry};
  while (!work.empty()) {
    const EntryPtr behind = std::move(work.back());
    work.pop_back();
    for (const int device : behind->devices) {
      const auto& queue = waiting_.at(device);
      const auto at = std::ranges::find(queue, behind);
      if (at == queue.begin()) {
        continue;
      }
      const EntryPtr& front = *std::prev(at);
      if (front == wanted) {
        return true;
      }
      if (seen.insert(front.get()).second) {
        work.push_back(front);
      }
    }
  }
  return false;
}

bool LaunchQueue::first_everywhere(const EntryPtr& entry) const {
  for (const int device : entry->devices) {
    if (waiting_.at(device).front() != entry) {
      return false;
    }
  }
  return true;
}

LaunchQueue::EntryPtr LaunchQueue::next() {
  for (const auto& [device, queue] : waiting_) {
    const EntryPtr& entry = queue.front();
    if (!entry->taken && entry->missing == 0 && first_everywhere(entry) && entry->launch->ready()) {
      entry->taken = true;
      return entry;
    }
  }
  return nullptr;
}

void LaunchQueue::remove(const EntryPtr& entry) {
  const base::MutexLock lock(mutex_);
  for (const int device : entry->devices) {
    auto& queue = waiting_.at(device);
    std::erase(queue, entry);
    if (queue.empty()) {
      waiting_.erase(device);
    }
  }
}

void LaunchQueue::run() {
  for (;;) {
    EntryPtr entry;
    {
      const base::MutexLock lock(mutex_);
      entry = next();
    }
    if (!entry) {
      return;
    }
    entry->launch->submit();  // without the lock: it calls the board, and work of arrays
    remove(entry);
  }
}

void LaunchQueue::drop(const std::shared_ptr<WaitingLaunch>& launch, const driver::Error& error) {
  EntryPtr entry;
  {
    const base::MutexLock lock(mutex_);
    entry = entry_of(*launch);
    if (!entry || std::exchange(entry->taken, true)) {
      return;
    }
  }
  launch->fail(error);
  remove(entry);
  run();
}

}  // namespace tpu::pjrt
