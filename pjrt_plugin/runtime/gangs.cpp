// Who has asked for which launch, and for how long others have waited for it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "errors.hpp"
#include "runtime/gang.hpp"

namespace tpu::pjrt {
namespace {

// By device its place among the members.
std::vector<size_t> places_of(const std::vector<int>& devices, const std::vector<int>& members) {
  std::vector<size_t> places;
  for (const int device : devices) {
    const auto at = std::ranges::find(members, device);
    const auto place = static_cast<size_t>(at - members.begin());
    if (at == members.end() || std::ranges::find(places, place) != places.end()) {
      throw driver::Error(
          driver::ErrorCode::kInvalidArgument,
          fmt::format("a launch on TPU:{}: expected devices of the program, each once (TPU:{})",
                      fmt::join(devices, ", TPU:"), fmt::join(members, ", TPU:")));
    }
    places.push_back(place);
  }
  if (places.empty()) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        "a launch on no device: expected at least one device of the program");
  }
  return places;
}

std::vector<int> devices_of(const LaunchRequest& request) {
  std::vector<int> devices;
  for (const DeviceShare& share : request.shares) {
    devices.push_back(share.device);
  }
  return devices;
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

std::string name_of(const Gangs::Program& program) { return program.compiled->executable->name; }

driver::Error could_not_launch(const std::string& launch, int device, const driver::Error& why) {
  return {why.code(),
          fmt::format("{}: TPU:{} could not launch it: {}", launch, device, why.message()),
          why.place()};
}

// The arrays of a launch that has failed before this share came.
void give_failed(const driver::Board& board, const Gangs::Program& program,
                 const LaunchRequest& request, size_t place, const driver::Error& error,
                 LaunchResult& result) {
  WaitingLaunch alone(board, name_of(program), 1, nullptr);
  result.outputs[place] = alone.add(0, *program.compiled->executable, request, place);
  result.done[place] = alone.made();
  alone.fail(error);
}

}  // namespace

Gangs::Gangs(driver::Board board, LaunchQueue& queue, std::chrono::duration<double> limit,
             JoinPrograms join, OwnerText owner)
    : board_(std::move(board)),
      queue_(queue),
      limit_(limit),
      noted_(board_.devices().size()),
      join_(std::move(join)),
      owner_(std::move(owner)) {}

Gangs::~Gangs() {
  Failed failed;
  std::thread watch;
  {
    const base::MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    watch.swap(watch_);
    for (auto& [devices, group] : groups_) {
      for (Gang* gang : group->all()) {
        fail(*gang, {driver::ErrorCode::kCancelled, gang->text() + ": the runtime was closed"},
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

Gangs::Group& Gangs::group_of(const std::vector<int>& members) {
  std::unique_ptr<Group>& group = groups_[members];
  if (!group) {
    group = std::make_unique<Group>();
    group->asked.resize(members.size());
  }
  return *group;
}

template <class Work>
void Gangs::with_spare(const std::string& name, const Program& program,
                       const std::vector<size_t>& places, const std::string& meets, Work work) {
  Spare spare;
  for (;;) {
    {
      const base::MutexLock lock(mutex_);
      const Group& group = group_of(program.devices);
      if (spare ||
          std::ranges::none_of(places, [&](size_t place) { return group.lacks(place, meets); })) {
        return work(spare);
      }
    }
    spare = std::make_shared<WaitingLaunch>(board_, name, program.devices.size(), program.loaded);
  }
}

// The launch that comes next for a partition; it has asked for it from here on.
Gangs::Gang& Gangs::next_of(Group& group, size_t partition, const Program& program,
                            const std::string& meets, Spare& spare) {
  Gang& gang = meets.empty() ? group.with_next_number(partition, program, spare)
                             : group.with_name(meets, program, spare);
  if (gang.asked[partition]) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("{}: TPU:{} launches it again, expected one share of each "
                                    "device",
                                    gang.text(), program.devices[partition]));
  }
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

void Gangs::come(Gang& gang, size_t partition, const Program& program, const LaunchRequest& request,
                 size_t place, LaunchResult& result, Failed& failed) {
  const DeviceShare& share = request.shares[place];
  result.outputs[place] =
      gang.launch->add(partition, *program.compiled->executable, request, place);
  result.done[place] = gang.launch->made();
  if (const auto lost = lost_argument(share)) {
    fail(gang, *lost, failed);  // the others need not come for that
  }
  const bool joins = !gang.error && gang.all_asked() && gang.differs();
  const auto order = request.meets.empty() ? LaunchQueue::kAsAsked : LaunchQueue::kAsOthers;
  if (!queue_.add(gang.launch, {share.device}, gang.missing().size() + (joins ? 1 : 0), order)) {
    const char* const advice =
        order == LaunchQueue::kAsAsked
            ? ""
            : ", and they use the same arrays: launch one of them when the other one has returned";
    fail(gang,
         {driver::ErrorCode::kInvalidArgument,
          gang.text() +
              ": its devices launch this program and another one in different "
              "orders, so that each waits for the other" +
              advice},
         failed);
  } else if (joins) {
    join_later(gang);
  }
}

LaunchResult Gangs::join(const Program& program, const LaunchRequest& request) {
  const std::vector<size_t> places = places_of(devices_of(request), program.devices);
  LaunchResult result{std::vector<std::vector<DeviceArrayPtr>>(places.size()),
                      std::vector<driver::Event>(places.size())};
  Failed failed;
  std::vector<std::pair<size_t, driver::Error>> before;  // launches that have failed
  before.reserve(places.size());
  std::vector<std::shared_ptr<Joined>> forgotten;  // their end calls the board
  const auto join_all = [&](Spare& spare) TPU_REQUIRES(mutex_) {
    Group& group = group_of(program.devices);
    expect_watch();  // may fail, as long as no device has asked
    for (size_t place = 0; place < places.size(); ++place) {
      note(request.shares[place].device);
      Gang& gang = next_of(group, places[place], program, request.meets, spare);
      gang.programs[places[place]] = program.compiled;
      bool came = false;
      try {
        if (!gang.error) {
          come(gang, places[place], program, request, place, result, failed);
          came = true;
        }
      } catch (...) {  // it has asked: a refusal would be that of its next launch
        fail(gang,
             could_not_launch(gang.text(), request.shares[place].device, error_of_exception()),
             failed);
      }
      if (!came) {
        before.emplace_back(place, *gang.error);
      }
      group.forget_met();
    }
    forgotten.swap(forgotten_);
  };
  with_spare(name_of(program), program, places, request.meets, join_all);
  for (const auto& [place, error] : before) {
    give_failed(board_, program, request, place, error, result);
  }
  end(failed);
  queue_.run();
  return result;
}

void Gangs::refuse(const std::string& name, const std::vector<int>& members,
                   const std::vector<int>& devices, const std::string& meets,
                   const driver::Error& error) {
  const std::vector<size_t> places = places_of(devices, members);
  const Program nothing{nullptr, members, nullptr};  // a launch that fails runs no program
  Failed failed;
  with_spare(name, nothing, places, meets, [&](Spare& spare) TPU_REQUIRES(mutex_) {
    Group& group = group_of(members);
    for (size_t i = 0; i < places.size(); ++i) {
      Gang& gang = next_of(group, places[i], nothing, meets, spare);
      fail(gang, could_not_launch(gang.text(), devices[i], error), failed);
      group.forget_met();
    }
  });
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
      for (Gang* gang : group->all()) {
        fail(*gang, {error.code(), gang->text() + ": " + error.message(), error.place()}, failed);
      }
      group->count_anew();
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
    for (Gang* gang : group->all()) {
      if (!gang->is_late()) {
        continue;
      }
      const Clock::time_point end = waiting_since(*gang) + limit;
      if (end <= Clock::now()) {
        fail(*gang, {driver::ErrorCode::kTimeout, gang->late_text(limit_.count(), owner_)}, failed);
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
