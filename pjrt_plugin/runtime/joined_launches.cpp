// Launches whose devices have programs that differ: one program is made of them, by a thread, once
// for each combination.
#include "runtime/gang.hpp"

namespace tpu::pjrt {
namespace {

std::vector<const client::CompiledProgram*> key_of(
    const std::vector<std::shared_ptr<const client::CompiledProgram>>& programs) {
  std::vector<const client::CompiledProgram*> key;
  for (const auto& program : programs) {
    key.push_back(program.get());
  }
  return key;
}

}  // namespace

WaitingLaunch::Program Gangs::Joined::program_of(const driver::Board& board,
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
  joined->programs = join_(programs, devices, [&](size_t partition) {
    const int device = devices.at(partition);
    return owner_ ? fmt::format("{} (TPU:{})", owner_(device), device)
                  : fmt::format("partition {}", partition);
  });
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
  std::erase_if(joined_, [this](const auto& entry) TPU_REQUIRES(mutex_) {
    const bool gone = std::ranges::any_of(entry.second->sources,
                                          [](const auto& program) { return program.expired(); });
    if (gone) {
      forgotten_.push_back(entry.second);
    }
    return gone;
  });
  const JoinedKey key = key_of(gang.programs);
  if (const auto known = joined_.find(key); known != joined_.end()) {
    gang.launch->set_program(Joined::program_of(board_, gang.program.devices, known->second));
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
      launch->set_program(Joined::program_of(board_, devices, joined));
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

}  // namespace tpu::pjrt
