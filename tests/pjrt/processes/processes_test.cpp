// Several processes on one board: the bits of one process, processes that end or stop in the middle
// of it, and those that may not take part.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "members.hpp"
#include "tests/pjrt/plugin_calls.hpp"

namespace tpu::test {
namespace {

constexpr int kCores = 8;
constexpr size_t kLength = 1021;

std::vector<PJRT_Device*> local_devices(PJRT_Client* client) {
  auto args = args_of<PJRT_Client_AddressableDevices_Args>();
  args.client = client;
  EXPECT_EQ(outcome_of(api().PJRT_Client_AddressableDevices(&args)).text, "");
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

int id_of(PJRT_Device* device) {
  auto description = args_of<PJRT_Device_GetDescription_Args>();
  description.device = device;
  EXPECT_EQ(outcome_of(api().PJRT_Device_GetDescription(&description)).text, "");
  auto args = args_of<PJRT_DeviceDescription_Id_Args>();
  args.device_description = description.device_description;
  EXPECT_EQ(outcome_of(api().PJRT_DeviceDescription_Id(&args)).text, "");
  return args.id;
}

std::vector<float> values_of(int device) {
  std::mt19937 random(static_cast<unsigned>(device));
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> made(kLength);
  for (float& value : made) {
    value = values(random);
  }
  return made;
}

// The program that sums over all cores, with arguments on the devices of this process.
struct Sum {
  PJRT_Client* client = make_client();
  std::vector<PJRT_Device*> devices = local_devices(client);
  PJRT_LoadedExecutable* program =
      compile(client, graph("golden/graphs/sum_small.mlirbc"), "mlir", partitions(kCores)).first;
  std::vector<std::vector<PJRT_Buffer*>> arguments;

  Sum() {
    for (PJRT_Device* device : devices) {
      arguments.push_back({upload(client, device, values_of(id_of(device)), {1, kLength}).first});
    }
  }

  /// Launches once; the error of the launch, or of its event.
  std::string run() {
    const Launch launch = submit(program, arguments, 1);
    std::string error = launch.outcome.text;
    for (PJRT_Event* event : launch.ends) {
      if (event != nullptr) {
        error = await(event).text;
      }
    }
    for (const auto& list : launch.results) {
      if (list[0] != nullptr) {
        destroy(list[0]);
      }
    }
    return error;
  }
};

// The bits of all results, a line a device.
void say_sums(int /*process*/, const Reporter& reporter) {
  Sum sum;
  const auto outputs = execute(sum.program, sum.arguments, 1);
  for (size_t d = 0; d < outputs.size(); ++d) {
    const std::vector<float> values = download(outputs[d][0]);
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
    reporter.say(std::to_string(id_of(sum.devices[d])) + " " +
                 std::to_string(std::hash<std::string>()(bytes)));
  }
}

std::string sums_of(int processes) {
  Job job(processes);
  job.start_all(say_sums);
  std::string all;
  for (size_t i = 0; i < job.size(); ++i) {
    all += job.at(i).rest();
  }
  return all;
}

TEST(PjrtProcesses, TwoFourAndEightHaveTheBitsOfOne) {
  const std::string alone = sums_of(1);
  EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), kCores);
  for (const int processes : {2, 4, 8}) {
    EXPECT_EQ(sums_of(processes), alone) << processes;
  }
}

// Through the frame and through shared memory, dense and with strides.
TEST(PjrtProcesses, ArraysOfAnySizeComeBack) {
  Job job(2);
  job.start_all([](int process, const Reporter&) {
    PJRT_Client* const client = make_client();
    PJRT_Device* const device = local_devices(client).at(static_cast<size_t>(process));
    for (const size_t size : {size_t{1}, size_t{16384}, size_t{16385}, size_t{3000000}}) {
      std::vector<float> values(size);
      for (size_t i = 0; i < size; ++i) {
        values[i] = static_cast<float>(i + static_cast<size_t>(process));
      }
      PJRT_Buffer* const there = upload(client, device, values, {static_cast<int64_t>(size)}).first;
      EXPECT_EQ(download(there), values) << size;
      destroy(there);
    }
    const std::vector<float> values = {0, 1, 2, 3, 4, 5};
    EXPECT_EQ(download(upload(client, device, values, {3, 2}, {4, 12}).first),
              (std::vector<float>{0, 3, 1, 4, 2, 5}));
  });
  for (size_t i = 0; i < job.size(); ++i) {
    EXPECT_EQ(job.at(i).rest(), "");
  }
}

// Launches until one fails, and says its error.
void run_until_error(int /*process*/, const Reporter& reporter) {
  Sum sum;
  reporter.say(sum.run());
  std::string error;
  while (error.empty()) {
    error = sum.run();
  }
  reporter.say(error);
}

TEST(PjrtProcesses, AKilledProcessIsNamedAtAnyMoment) {
  std::mt19937 random(20261128);
  for (int round = 0; round < 20; ++round) {
    Job job(4);
    job.start_all(run_until_error);
    for (size_t i = 0; i < job.size(); ++i) {
      EXPECT_EQ(job.at(i).line(), "");
    }
    const size_t victim = random() % job.size();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    job.at(victim).send_signal(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    for (size_t i = 0; i < job.size(); ++i) {
      if (i != victim) {
        const std::string error = job.at(i).rest(std::chrono::seconds(20));
        EXPECT_NE(error.find("process " + std::to_string(victim) + " (pid "), std::string::npos)
            << "round " << round << ": " << error;
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

TEST(PjrtProcesses, WithoutTheServerEventsFailInWords) {
  Job job(2);
  job.start_all(run_until_error);
  EXPECT_EQ(job.at(0).line(), "");
  EXPECT_EQ(job.at(1).line(), "");
  const int server = job.server();
  ASSERT_NE(server, 0);
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  for (size_t i = 0; i < 2; ++i) {
    const std::string error = job.at(i).rest(std::chrono::seconds(20));
    EXPECT_NE(error.find("the process that has the board (pid " + std::to_string(server) +
                         "): it has ended"),
              std::string::npos)
        << error;
  }
}

// A process that is stopped keeps nobody from what does not need it.
TEST(PjrtProcesses, AStoppedProcessDoesNotStopOthers) {
  Job job(2);
  job.start(0, [](int, const Reporter& reporter) {
    PJRT_Client* const client = make_client();
    reporter.say("there");
    std::this_thread::sleep_for(std::chrono::seconds(60));
    static_cast<void>(client);
  });
  EXPECT_EQ(job.at(0).line(), "there");
  job.at(0).send_signal(SIGSTOP);
  job.start(1, [](int, const Reporter& reporter) {
    PJRT_Client* const client = make_client();
    PJRT_Device* const device = local_devices(client)[0];
    for (int i = 0; i < 20; ++i) {
      const std::vector<float> values(100000, static_cast<float>(i));
      PJRT_Buffer* const there = upload(client, device, values, {100000}).first;
      EXPECT_EQ(download(there), values);
      destroy(there);
    }
    reporter.say("done");
  });
  EXPECT_EQ(job.at(1).line(), "done");
  EXPECT_EQ(job.at(1).rest(), "");
  job.at(0).send_signal(SIGKILL);
}

// The error that a process has when it wants to take part.
void say_client_error(int /*process*/, const Reporter& reporter) {
  auto args = args_of<PJRT_Client_Create_Args>();
  reporter.say(outcome_of(api().PJRT_Client_Create(&args)).text);
}

void stay(int /*process*/, const Reporter& reporter) {
  PJRT_Client* const client = make_client();
  reporter.say(client == nullptr ? "" : "there");
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

TEST(PjrtProcesses, WhoDoesNotFitIsRefusedWithBothValues) {
  Job job(2);
  EXPECT_EQ(job.start(0, stay, {{"TPUBOARD_SET", "core.clock_mhz=700"}}).line(), "there");
  const auto refused = [&job](int process, const Variables& variables) {
    return job.start(process, say_client_error, variables).line();
  };
  const Variables fits = {{"TPUBOARD_SET", "core.clock_mhz=700"}};
  const std::string twice = refused(0, fits);
  EXPECT_NE(twice.find("is there already"), std::string::npos) << twice;
  EXPECT_NE(twice.find("(pid " + std::to_string(job.at(0).pid())), std::string::npos) << twice;
  const std::string board = refused(1, {});
  EXPECT_NE(board.find("core.clock_mhz=940"), std::string::npos) << board;
  EXPECT_NE(board.find("core.clock_mhz=700"), std::string::npos) << board;
  const std::string option =
      refused(1, {{"TPUBOARD_SET", "core.clock_mhz=700"}, {"TPUBOARD_THREADS", "1"}});
  EXPECT_NE(option.find("TPUBOARD_THREADS is '1' there and not set"), std::string::npos) << option;
  const std::string count =
      refused(1, {{"TPUBOARD_SET", "core.clock_mhz=700"}, {"TPUBOARD_PROCESS_COUNT", "4"}});
  EXPECT_NE(count.find("one of 4 processes, the board was opened for 2"), std::string::npos)
      << count;
  EXPECT_EQ(job.start(1, stay, fits).line(), "there");
}

TEST(PjrtProcesses, ABadPlaceIsRefusedWithBothValues) {
  const auto error_with = [](const Variables& variables) {
    Member member(variables, [](const Reporter& reporter) { say_client_error(0, reporter); });
    return member.line();
  };
  const Variables bounds = {{"TPU_PROCESS_BOUNDS", "2,2,1"}};
  const auto with = [&bounds](Variables more) {
    more.insert(bounds.begin(), bounds.end());
    return more;
  };
  const std::pair<Variables, std::string> cases[] = {
      {{{"TPUBOARD_PROCESS_ID", "0"}}, "TPUBOARD_PROCESS_COUNT go together"},
      {{{"TPUBOARD_PROCESS_ID", "0"}, {"TPUBOARD_PROCESS_COUNT", "3"}}, "process 0 of 3"},
      {{{"TPUBOARD_PROCESS_ID", "2"}, {"TPUBOARD_PROCESS_COUNT", "2"}}, "process 2 of 2"},
      {bounds, "CLOUD_TPU_TASK_ID or TPU_WORKER_ID"},
      {{{"TPUBOARD_PROCESS_COUNT", "2"}}, "TPUBOARD_PROCESS_COUNT go together"},
      // The number of the host is 0 in all processes of a host.
      {with({{"CLOUD_TPU_TASK_ID", "1"}, {"TPU_WORKER_ID", "0"}, {"TPU_VISIBLE_CHIPS", "3"}}),
       "TPU_VISIBLE_CHIPS is 3; process 1 of 4"},
      {with({{"CLOUD_TPU_TASK_ID", "1"}, {"TPU_VISIBLE_CHIPS", "3"}}),
       "TPU_VISIBLE_CHIPS is 3; process 1 of 4"},
      {with({{"CLOUD_TPU_TASK_ID", "1"}, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"}}),
       "4x4 chips; the board has 2x2"},
      {with({{"CLOUD_TPU_TASK_ID", "1"},
             {"TPUBOARD_PROCESS_ID", "0"},
             {"TPUBOARD_PROCESS_COUNT", "2"}}),
       "process 0 of 2, TPU_PROCESS_BOUNDS says process 1 of 4"},
      {{{"TPU_PROCESS_BOUNDS", "two"}}, "found 'two'"},
      {{{"TPU_PROCESS_BOUNDS", "2,1,2"}, {"CLOUD_TPU_TASK_ID", "0"}}, "expected X,Y,1"},
      {{{"TPU_PROCESS_BOUNDS", "4,1,1"}, {"CLOUD_TPU_TASK_ID", "0"}},
       "4x2 chips; the board has 2x2"},
      {with({{"CLOUD_TPU_TASK_ID", "1"}, {"TPU_PROCESS_ADDRESSES", "a:1,a:2"}}),
       "TPU_PROCESS_BOUNDS is 2,2,1: 4 processes; TPU_PROCESS_ADDRESSES has 2: a:1,a:2"},
      {{{"TPU_PROCESS_ADDRESSES", "a:8476,a:8477,a:8478"}}, "3 processes; the board has 8 cores"},
      {{{"TPU_PROCESS_ADDRESSES", "a:8476,b:8476"}, {"TPU_WORKER_ID", "0"}},
       "on the hosts a and b"},
      {{{"TPU_WORKER_HOSTNAMES", "localhost,b"}, {"TPU_WORKER_ID", "0"}},
       "TPU_WORKER_HOSTNAMES names processes on the hosts localhost and b"},
      {{{"TPU_PROCESS_ADDRESSES", "a:8476,a:8477"},
        {"TPU_WORKER_ID", "1"},
        {"TPU_PROCESS_PORT", "8476"}},
       "TPU_PROCESS_PORT is 8476; TPU_PROCESS_ADDRESSES has a:8477 for process 1"},
      {{{"TPU_PROCESS_ADDRESSES", "a:8476,a:8477"}},
       "TPU_PROCESS_ADDRESSES is a:8476,a:8477; CLOUD"},
      {{{"TPUBOARD_PROCESS_COUNT", "2"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "4"}},
       "TPUBOARD_PROCESS_COUNT says 2 processes, OMPI_COMM_WORLD_SIZE says 4"},
      {{{"TPUBOARD_PROCESS_ID", "0"},
        {"TPUBOARD_PROCESS_COUNT", "2"},
        {"TPUBOARD_PROCESS_DIR", "/dev/null/no"}},
       "TPUBOARD_PROCESS_DIR names another folder"},
  };
  for (const auto& [variables, text] : cases) {
    const std::string error = error_with(variables);
    EXPECT_NE(error.find(text), std::string::npos) << text << "\n" << error;
  }
  EXPECT_EQ(error_with({{"TPUBOARD_PROCESS_COUNT", "1"}}), "") << "the only one needs no number";
}

// Others of the user may send what they like.
TEST(PjrtProcesses, DamagedFramesEndOneConnection) {
  Job job(2);
  const std::string go = testing::TempDir() + "tpuboard-go-" + std::to_string(::getpid());
  job.start(0, [&go](int, const Reporter& reporter) {
    PJRT_Client* const client = make_client();
    reporter.say("there");
    while (!std::filesystem::exists(go)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::vector<float> values(100000, 3);
    EXPECT_EQ(download(upload(client, local_devices(client)[0], values, {100000}).first), values);
    reporter.say("works");
    std::this_thread::sleep_for(std::chrono::seconds(60));
  });
  EXPECT_EQ(job.at(0).line(), "there");
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int raw = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (job.folder() + "/board.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(raw, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::string bytes = round % 2 == 0 ? "" : std::string("TPUP\1\0\0\0\x10\0\0\0", 12);
    for (size_t i = random() % 64; i-- > 0;) {
      bytes.push_back(static_cast<char>(random()));
    }
    static_cast<void>(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (bytes.size() >= 16 && bytes[0] != 'T') {  // a whole head, which cannot be good
      std::string answer(1 << 16, ' ');
      const timeval limit{10, 0};
      ::setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      ssize_t count = 0;
      do {
        count = ::recv(raw, answer.data(), answer.size(), 0);
      } while (count > 0);
      EXPECT_TRUE(count == 0 || errno == ECONNRESET) << "the connection lasts";
    }
    ::close(raw);
  }
  EXPECT_EQ(job.start(1, stay).line(), "there");
  std::ofstream(go) << "go";
  EXPECT_EQ(job.at(0).line(), "works");
  std::filesystem::remove(go);
}

TEST(PjrtProcesses, AForkedChildIsToldSo) {
  Job job(2);
  job.start(0, [](int, const Reporter& reporter) {
    PJRT_Client* const client = make_client();
    PJRT_Device* const device = local_devices(client)[0];
    const pid_t child = ::fork();
    if (child == 0) {
      reporter.say(upload(client, device, {1}, {1}).second.text);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(download(upload(client, device, {2}, {1}).first), std::vector<float>{2});
    reporter.say("parent goes on");
  });
  const std::string error = job.at(0).line();
  EXPECT_NE(error.find("was forked"), std::string::npos) << error;
  EXPECT_EQ(job.at(0).line(), "parent goes on");
  EXPECT_EQ(job.at(0).rest(), "");
}

// Its connection is that of its parent, which ends with the parent.
TEST(PjrtProcesses, AForkedChildDoesNotKeepItsParentInTheJob) {
  Job job(2);
  job.start(0, run_until_error);
  job.start(1, [](int, const Reporter& reporter) {
    Sum sum;
    EXPECT_EQ(sum.run(), "");
    const pid_t child = ::fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      ::_exit(0);
    }
    reporter.say(std::to_string(child));
    while (sum.run().empty()) {
    }
  });
  EXPECT_EQ(job.at(0).line(), "");
  const int child = std::stoi(job.at(1).line());
  job.at(1).send_signal(SIGKILL);
  const std::string error = job.at(0).rest(std::chrono::seconds(10));
  EXPECT_NE(error.find("process 1 (pid " + std::to_string(job.at(1).pid())), std::string::npos)
      << error;
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "the child was to last longer";
}

// Whoever waits for the end of what its first process writes does not wait for the server.
TEST(PjrtProcesses, TheServerKeepsNothingOpenOfTheProcessThatStartsIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // without FD_CLOEXEC, as shells open them
  Job job(2);
  job.start(0, stay);
  EXPECT_EQ(job.at(0).line(), "there");
  job.start(1, [&ends](int process, const Reporter& reporter) {
    ::close(ends[1]);
    stay(process, reporter);
  });
  EXPECT_EQ(job.at(1).line(), "there");
  ::close(ends[1]);
  job.at(0).send_signal(SIGKILL);
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 5000), 1) << "the server has the pipe";
  EXPECT_NE(job.server(), 0);
  ::close(ends[0]);
}

// A server whose folder was removed ends without processes, and leaves the one that has come after
// it alone.
TEST(PjrtProcesses, AServerOfARemovedFolderDoesNotSplitTheNextJob) {
  Job job(2);
  EXPECT_EQ(job.start(0, stay).line(), "there");
  job.at(0).send_signal(SIGKILL);
  std::filesystem::remove_all(job.folder());
  EXPECT_EQ(job.start(0, stay).line(), "there");
  // Less than a server's patience.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  while (job.servers() != 1 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(job.servers(), 1) << "the one of the removed folder stays";
  EXPECT_EQ(job.start(1, stay).line(), "there");
  EXPECT_EQ(job.servers(), 1);
}

TEST(PjrtProcesses, CoresThatNeverLaunchAreNamed) {
  Job job(2);
  const Variables limit = {{"TPUBOARD_REPLICA_LIMIT", "0.5"}};
  EXPECT_EQ(job.start(1, stay, limit).line(), "there");
  job.start(
      0, [](int, const Reporter& reporter) { reporter.say(Sum().run()); }, limit);
  const std::string error = job.at(1).line();
  EXPECT_NE(error.find("partition 4 (TPU:4), partition 5 (TPU:5), partition 6 (TPU:6), partition 7 "
                       "(TPU:7) did not launch it within 0.5 s"),
            std::string::npos)
      << error;
  const std::string owner = "they belong to process 1 (pid " + std::to_string(job.at(0).pid());
  EXPECT_NE(error.find(owner), std::string::npos) << error;
}

TEST(PjrtProcesses, AProcessThatNeverComesIsNamed) {
  Job job(2);
  job.start(0, [](int, const Reporter& reporter) { reporter.say(Sum().run()); },
            {{"TPUBOARD_REPLICA_LIMIT", "0.5"}});
  const std::string error = job.at(0).line();
  EXPECT_NE(error.find("they belong to process 1, which has never come"), std::string::npos)
      << error;
}

// A launch that a process cannot make counts, and fails for the others at once.
TEST(PjrtProcesses, ALaunchThatOneRefusesIsOverForAll) {
  Job job(2);
  job.start_all([](int process, const Reporter& reporter) {
    Sum sum;
    if (process == 1) {
      auto arguments = sum.arguments;
      for (auto& list : arguments) {
        list.push_back(list[0]);
      }
      reporter.say(submit(sum.program, arguments, 1).outcome.text);
    } else {
      reporter.say(sum.run());
    }
    reporter.say(sum.run());
  });
  const std::string text = "2 arguments, the program takes 1";
  EXPECT_NE(job.at(1).line().find(text), std::string::npos);
  const std::string error = job.at(0).line();
  EXPECT_NE(error.find("could not launch it: " + text), std::string::npos) << error;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(job.at(i).rest(), "\n") << "the next launch";
  }
}

// What the framework says of a task of its job; the error, or nothing.
std::string say_task(PJRT_Client* client, int task, PJRT_ProcessState state) {
  const std::string message = "heartbeat timeout";
  auto info = args_of<PJRT_ProcessInfo>();
  info.task_id = task;
  info.incarnation_id = 77;
  info.state = state;
  info.error_code = 14;
  info.error_message = message.data();
  info.error_message_size = message.size();
  auto args = args_of<PJRT_Client_UpdateGlobalProcessInfo_Args>();
  args.client = client;
  args.process_infos = &info;
  args.num_process_infos = 1;
  return outcome_of(api().PJRT_Client_UpdateGlobalProcessInfo(&args)).text;
}

// Until another one has its place.
TEST(PjrtProcesses, ATaskInAnErrorStateIsNamedByLaunches) {
  Job job(2);
  job.start_all([](int process, const Reporter& reporter) {
    Sum sum;
    if (process == 0) {
      reporter.say(say_task(sum.client, 2, PJRT_ProcessState_kConnected));
      reporter.say(say_task(sum.client, 1, static_cast<PJRT_ProcessState>(7)));
      for (const PJRT_ProcessState state :
           {PJRT_ProcessState_kError, PJRT_ProcessState_kConnected}) {
        const std::string told = say_task(sum.client, 1, state);
        reporter.say(told + sum.run());
      }
    } else {
      reporter.say(sum.run());
      reporter.say(sum.run());
    }
  });
  const auto expect_text = [](const std::string& line, const std::string& text) {
    EXPECT_NE(line.find(text), std::string::npos) << line;
  };
  expect_text(job.at(0).line(), "task 2 of the job: expected one of the 2 processes");
  expect_text(job.at(0).line(), "task 1 of the job: 7 is not a state of a process");
  const std::string error =
      "task 1 of the job (incarnation 77) is in an error state, as the framework reports: "
      "heartbeat timeout (code 14)";
  expect_text(job.at(0).line(), error);
  expect_text(job.at(1).line(), "could not launch it: " + error);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(job.at(i).rest(), "\n") << "the next launch";
  }
}

}  // namespace
}  // namespace tpu::test
