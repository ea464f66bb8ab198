// Who has asked for which launch, and for how long others have waited for it.
#include "runtime/gangs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tpu::pjrt {

struct Gangs::Gang {
  Program program;  // of the first that asked
  uint64_t number;  // counts the launches of the group, from 1
  std::shared_ptr<WaitingLaunch> launch;
  std::vector<bool> asked;  // by partition
  Clock::time_point last;   // somebody has asked
  std::optional<driver::Error> error;
  Programs programs;  // by partition

  bool differs() const {
    return std::ranges::any_of(programs, [this](const auto& other) {
      return other->fingerprint != programs[0]->fingerprint;
    });
  }
  bool all_asked() const {
    return std::ranges::all_of(asked, [](bool has) { return has; });
  }
  std::vector<size_t> missing() const {
    std::vector<size_t> places;
    for (size_t p = 0; p < asked.size(); ++p) {
      if (!asked[p]) {
        places.push_back(p);
      }
    }
    return places;
  }
  // "launch 3 of jit_step on TPU:0, TPU:1"
  std::string text() const {
    std::vector<std::string> names;
    for (const int device : program.devices) {
      names.push_back(fmt::format("TPU:{}", device));
    }
    return fmt::format("launch {} of {} on {}", number, launch->name(), fmt::join(names, ", "));
  }
  std::string late_text(double limit) const {
    std::vector<std::string> names;
    for (const size_t p : missing()) {
      names.push_back(fmt::format("{} {} (TPU:{})",
                                  program.compiled->import.partitions > 1 ? "partition" : "replica",
                                  p, program.devices[p]));
    }
    return fmt::format(
        "{}: {} did not launch it within {:g} s, for which the others have waited; each of them "
        "must launch the same programs in the same order (TPUBOARD_REPLICA_LIMIT sets the time)",
        text(), fmt::join(names, ", "), limit);
  }
};

// One program of those of several replicas.
struct Gangs::Joined {
  std::vector<std::weak_ptr<const client::CompiledProgram>> sources;
  client::JoinedPrograms programs;
  std::shared_ptr<const std::vector<std::vector<GivenArgument>>> arguments;
  base::Mutex mutex;
  driver::Executable loaded TPU_GUARDED_BY(mutex);
};

struct Gangs::Group {
  std::vector<uint64_t> asked;  // launches by partition
  std::deque<Gang> gangs;       // those that somebody has not asked for yet
  uint64_t first = 0;           // number of launches in front of them

  void forget_met() {
    while (!gangs.empty() && gangs.front().all_asked()) {
      gangs.pop_front();
      ++first;
    }
  }
};

namespace {

size_t place_of(int device, const Gangs::Program& program) {
  const auto at = std::ranges::find(program.devices, device);
  if (at == program.devices.end()) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("TPU:{} does not belong to the devices of the program (TPU:{})",
                                    device, fmt::join(program.devices, ", TPU:")));
  }
  return static_cast<size_t>(at - program.devices.begin());
}

Gangs::Clock::rep now() { return Gangs::Clock::now().time_since_epoch().count(); }

Gangs::Clock::time_point time_of(Gangs::Clock::rep count) {
  return Gangs::Clock::time_point(Gangs::Clock::duration(count));
}

std::optional<driver::Error> lost_argument(const DeviceShare& share) {
  for (const DeviceArrayPtr& argument : share.arguments) {
    try {
      static_cast<void>(static_cast<const LocalArray&>(*argument).buffer());
    } catch (const driver::Error& error) {
      return error;
    }
  }
  return std::nullopt;
}

std::vector<const client::CompiledProgram*> key_of(
    const std::vector<std::shared_ptr<const client::CompiledProgram>>& programs) {
  std::vector<const client::CompiledProgram*> key;
  for (const auto& program : programs) {
    key.push_back(program.get());
  }
  return key;
}

std::string name_of(const Gangs::Program& program) { return program.compiled->executable->name; }

}  // namespace

Gangs::Gangs(driver::Board board, LaunchQueue& queue, std::chrono::duration<double> limit,
             JoinPrograms join)
    : board_(std::move(board)),
      queue_(queue),
      limit_(limit),
      noted_(board_.devices().size()),
      join_(std::move(join)) {}

Gangs::~Gangs() {
  Failed failed;
  std::thread watch;
  {
    const base::MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    watch.swap(watch_);
    for (auto& [devices, group] : groups_) {
      for (Gang& gang : group->gangs) {
        fail(gang, {driver::ErrorCode::kCancelled, gang.text() + ": the runtime was closed"},
             failed);
      }
    }
    while (joiners_ > 0 || !joining_.empty()) {
      changed_.wait(mutex_);
    }
  }
  end(failed);
  if (watch.joinable()) {
    watch.join();
  }
}

Gangs::Group& Gangs::group_of(const Program& program) {
  std::unique_ptr<Group>& group = groups_[program.devices];
  if (!group) {
    group = std::make_unique<Group>();
    group->asked.resize(program.devices.size());
  }
  return *group;
}

// The launch that comes next for a partition; it has asked for it from here on.
Gangs::Gang& Gangs::next_of(Group& group, size_t partition, const Program& program) {
  const uint64_t number = group.asked[partition]++;
  while (group.first + group.gangs.size() <= number) {
    const size_t devices = program.devices.size();
    group.gangs.push_back({.program = program,
                           .number = group.first + group.gangs.size() + 1,
                           .launch = std::make_shared<WaitingLaunch>(board_, name_of(program),
                                                                     devices, program.loaded),
                           .asked = std::vector<bool>(devices),
                           .last = Clock::now(),
                           .error = {},
                           .programs = Programs(devices)});
  }
  Gang& gang = group.gangs[number - group.first];
  gang.asked[partition] = true;
  gang.last = Clock::now();
  return gang;
}

void Gangs::fail(Gang& gang, const driver::Error& error, Failed& failed) {
  if (!gang.error) {
    gang.error = error;
    failed.emplace_back(gang.launch, error);
  }
}

void Gangs::end(const Failed& failed) {
  for (const auto& [launch, error] : failed) {
    queue_.drop(launch, error);
  }
}

LaunchResult Gangs::join(const Program& program, const LaunchRequest& request) {
  const exe::ExecutableT& exe = *program.compiled->executable;
  LaunchResult result;
  Failed failed;
  const auto give = [&](size_t place, WaitingLaunch& launch, size_t partition) {
    result.outputs.push_back(launch.add(partition, exe, request, place));
    result.done.push_back(launch.made());
  };
  {
    const base::MutexLock lock(mutex_);
    for (size_t place = 0; place < request.shares.size(); ++place) {
      const DeviceShare& share = request.shares[place];
      const size_t partition = place_of(share.device, program);
      note(share.device);
      Group& group = group_of(program);
      Gang& gang = next_of(group, partition, program);
      gang.programs[partition] = program.compiled;
      if (gang.error) {
        WaitingLaunch alone(board_, name_of(program), 1, nullptr);
        give(place, alone, 0);
        alone.fail(*gang.error);
      } else {
        give(place, *gang.launch, partition);
        if (const auto lost = lost_argument(share)) {
          fail(gang, *lost, failed);  // the others need not come for that
        }
        const bool joins = !gang.error && gang.all_asked() && gang.differs();
        if (!queue_.add(gang.launch, {share.device}, gang.missing().size() + (joins ? 1 : 0))) {
          fail(gang,
               {driver::ErrorCode::kInvalidArgument,
                gang.text() + ": its devices launch this program and another one in different "
                              "orders, so that each waits for the other"},
               failed);
        } else if (joins) {
          join_later(gang);
        }
      }
      group.forget_met();
    }
    expect_watch();
  }
  end(failed);
  queue_.run();
  return result;
}

WaitingLaunch::Program Gangs::program_of(const driver::Board& board,
                                         const std::vector<int>& devices,
                                         std::shared_ptr<Joined> joined) {
  return [board, devices, joined = std::move(joined)] {
    {
      const base::MutexLock lock(joined->mutex);
      if (joined->loaded.valid()) {
        return BoardProgram{joined->loaded, joined->arguments};
      }
    }
    driver::Executable made = board.load(joined->programs.executable, devices);
    const base::MutexLock lock(joined->mutex);
    joined->loaded = std::move(made);
    return BoardProgram{joined->loaded, joined->arguments};
  };
}

// Compiles, and brings the constants onto the devices.
std::shared_ptr<Gangs::Joined> Gangs::make_joined(const Programs& programs,
                                                  const std::vector<int>& devices) {
  if (!join_) {
    throw driver::Error(driver::ErrorCode::kUnimplemented,
                        "replicas launch different programs, expected one for all");
  }
  auto joined = std::make_shared<Joined>();
  joined->sources.assign(programs.begin(), programs.end());
  joined->programs = join_(programs, devices);
  std::vector<std::vector<GivenArgument>> arguments;
  for (size_t p = 0; p < devices.size(); ++p) {
    std::vector<GivenArgument>& own = arguments.emplace_back();
    for (const auto& argument : joined->programs.arguments.at(p)) {
      GivenArgument& given = own.emplace_back();
      given.own = argument.own;
      if (argument.constant) {
        const driver::HostArray& host = *argument.constant;
        given.constant = std::make_shared<const LocalArray>(
            board_.put(devices[p], driver::HostView{host.dtype, host.shape, host.bytes}));
      }
    }
  }
  joined->arguments =
      std::make_shared<const std::vector<std::vector<GivenArgument>>>(std::move(arguments));
  return joined;
}

void Gangs::join_later(const Gang& gang) {
  std::erase_if(joined_, [](const auto& entry) {
    return std::ranges::any_of(entry.second->sources,
                               [](const auto& program) { return program.expired(); });
  });
  const JoinedKey key = key_of(gang.programs);
  if (const auto known = joined_.find(key); known != joined_.end()) {
    gang.launch->set_program(program_of(board_, gang.program.devices, known->second));
    queue_.complete(*gang.launch);
    return;
  }
  auto& launches = joining_[key];
  launches.emplace_back(gang.launch, gang.text());
  if (launches.size() == 1) {
    std::thread([this, programs = gang.programs, devices = gang.program.devices] {
      join_now(programs, devices);
    }).detach();
  }
}

// All launches that have come meanwhile get the program.
void Gangs::join_now(const Programs& programs, const std::vector<int>& devices) {
  std::shared_ptr<Joined> joined;
  std::optional<driver::Error> error;
  {
    const HostWork working(*this);
    try {
      joined = make_joined(programs, devices);
    } catch (const driver::Error& refused) {
      error = refused;
    } catch (const std::exception& refused) {
      error = {driver::ErrorCode::kInternal, refused.what()};
    }
  }
  const JoinedKey key = key_of(programs);
  Failed failed;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [launch, text] : joining_.at(key)) {
      if (error) {
        failed.emplace_back(
            launch, driver::Error(error->code(), text + ": " + error->message(), error->place()));
        continue;
      }
      launch->set_program(program_of(board_, devices, joined));
      queue_.complete(*launch);
    }
    if (joined) {
      joined_[key] = joined;
    }
    ++joiners_;
    joining_.erase(key);
  }
  end(failed);
  queue_.run();
  const base::MutexLock lock(mutex_);
  --joiners_;
  changed_.notify_all();
}

void Gangs::refuse(const Program& program, const std::vector<int>& devices,
                   const driver::Error& error) {
  Failed failed;
  {
    const base::MutexLock lock(mutex_);
    for (const int device : devices) {
      Group& group = group_of(program);
      Gang& gang = next_of(group, place_of(device, program), program);
      fail(gang,
           {error.code(),
            fmt::format("{}: TPU:{} could not launch it: {}", gang.text(), device, error.message()),
            error.place()},
           failed);
      group.forget_met();
    }
  }
  end(failed);
}

void Gangs::leave(const std::vector<int>& devices, const driver::Error& error) {
  Failed failed;
  {
    const base::MutexLock lock(mutex_);
    const auto leaves = [&](int device) {
      return std::ranges::find(devices, device) != devices.end();
    };
    for (auto& [members, group] : groups_) {
      if (std::ranges::none_of(members, leaves)) {
        continue;
      }
      for (Gang& gang : group->gangs) {
        fail(gang, {error.code(), gang.text() + ": " + error.message(), error.place()}, failed);
      }
      *group = {.asked = std::vector<uint64_t>(members.size()), .gangs = {}, .first = 0};
    }
  }
  end(failed);
}

void Gangs::note(int device) { noted_.at(static_cast<size_t>(device)) = now(); }

Gangs::HostWork::~HostWork() {
  gangs_.host_work_ended_ = now();
  --gangs_.host_work_;
}

// Neither while the host compiles nor while it works with what is missing.
Gangs::Clock::time_point Gangs::waiting_since(const Gang& gang) const {
  if (host_work_ > 0) {
    return Clock::now();
  }
  Clock::time_point since = std::max(gang.last, time_of(host_work_ended_));
  for (const size_t p : gang.missing()) {
    since = std::max(since, time_of(noted_.at(static_cast<size_t>(gang.program.devices[p]))));
  }
  return since;
}

std::optional<Gangs::Clock::time_point> Gangs::look(Failed& failed) {
  const auto limit = std::chrono::duration_cast<Clock::duration>(limit_);
  std::optional<Clock::time_point> earliest;
  for (auto& [devices, group] : groups_) {
    for (Gang& gang : group->gangs) {
      if (gang.error || gang.all_asked()) {
        continue;
      }
      const Clock::time_point end = waiting_since(gang) + limit;
      if (end <= Clock::now()) {
        fail(gang, {driver::ErrorCode::kTimeout, gang.late_text(limit_.count())}, failed);
      } else {
        earliest = std::min(earliest.value_or(end), end);
      }
    }
  }
  return earliest;
}

void Gangs::expect_watch() {
  if (limit_.count() <= 0 || groups_.empty()) {
    return;
  }
  if (!watch_.joinable()) {
    watch_ = std::thread([this] { watch(); });
  } else if (idle_) {
    changed_.notify_all();
  }
}

void Gangs::watch() {
  for (;;) {
    Failed failed;
    {
      const base::MutexLock lock(mutex_);
      const auto next = look(failed);
      if (ending_) {
        return;
      }
      if (failed.empty() && next) {
        changed_.wait_until(mutex_, *next);
      } else if (failed.empty()) {
        idle_ = true;
        changed_.wait(mutex_);
        idle_ = false;
      }
    }
    end(failed);
  }
}

}  // namespace tpu::pjrt
