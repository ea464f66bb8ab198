// Sessions and links of processes that share a board: transfers and launches of two of them at a
// time, one that ends in the middle, calls that must be refused, and few open files.
#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <random>
#include <thread>

#include "process_harness.hpp"

namespace tpu::pjrt {
namespace {

using driver::DType;
using driver::ErrorCode;
using driver::HostView;

constexpr size_t kLarge = 50000;  // bytes of an array go through shared memory: four times as many

// Lets the program open a few more files than it has open.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{200, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int file = 0; (file = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
      filling_.emplace_back(file);
    }
    EXPECT_EQ(errno, EMFILE);
    for (; more > 0; --more) {
      filling_.pop_back();
    }
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
  std::vector<Descriptor> filling_;
};

TEST(ProcessThreads, TwoLaunchTogetherAndTransfer) {
  FakeServer server;
  const auto program = taking_program();
  const Process processes[] = {{server, 0}, {server, 1}};
  std::vector<std::thread> threads;
  for (const Process& process : processes) {
    threads.emplace_back([&process, &program] {
      const auto loaded = process.load(program);
      LaunchRequest request = process.request();
      std::vector<std::byte> large(4 * kLarge, static_cast<std::byte>(process.first + 3));
      for (int step = 0; step < 10; ++step) {
        const LaunchResult result = loaded->launch(request);
        for (size_t d = 0; d < request.shares.size(); ++d) {
          request.shares[d].arguments = result.outputs[d];
        }
        const auto array = process.runtime->put(
            process.first, HostView{DType::kI32, {static_cast<int64_t>(kLarge)}, large});
        std::vector<std::byte> back(large.size());
        array->read(0, back).wait();
        EXPECT_EQ(back, large);
        EXPECT_EQ(result.done[0].wait_for_error(), nullptr);
      }
      for (const DeviceShare& share : request.shares) {
        std::vector<std::byte> read(256);
        share.arguments[0]->read(0, read).wait();
        EXPECT_EQ(read, std::vector<std::byte>(256, static_cast<std::byte>(share.device + 1)));
      }
      EXPECT_GT(process.runtime->device_info(process.first).hbm_used, 0U);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Also where the launch waits for an array that the process has promised.
TEST(ProcessThreads, WhatWaitsForAProcessThatEndsHasItsName) {
  FakeServer server;
  const auto program = taking_program();
  const Process stays(server, 0);
  const Process ends(server, 1);
  const driver::HostEvent never = ends.runtime->make_event();
  LaunchRequest theirs = ends.request();
  theirs.shares[1].arguments = {ends.runtime->put(ends.first + 1, DType::kI32, {64},
                                                  std::make_shared<std::vector<std::byte>>(256),
                                                  never.event())};
  const auto loaded = ends.load(program);
  static_cast<void>(loaded->launch(theirs));
  const LaunchResult submitted = stays.load(program)->launch(stays.request());
  ends.end();
  const auto error = submitted.done[0].wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_NE(error->message().find("process 1 has ended"), std::string::npos) << error->message();
  const auto next = stays.load(program)->launch(stays.request()).done[0].wait_for_error();
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->message().find("process 1 has ended"), std::string::npos) << next->message();
}

TEST(ProcessThreads, SharedMemoryNeedsNoOpenFiles) {
  FakeServer server;
  const Process process(server, 0);
  const std::vector<std::byte> large(4 * kLarge, std::byte{5});
  const auto array =
      process.runtime->put(0, HostView{DType::kI32, {static_cast<int64_t>(kLarge)}, large});
  const FewFiles few(6);
  std::vector<std::shared_ptr<SegmentPool::Segment>> held;
  for (int i = 0; i < 40; ++i) {
    held.push_back(process.link->segments().take(4 * kLarge));
    static_cast<void>(process.runtime->device_info(0));  // the other end has it
  }
  std::vector<std::byte> back(large.size());
  array->read(0, back).wait();
  EXPECT_EQ(back, large);
}

// A promised array whose bytes cannot be sent fails, and with it what waits for it.
TEST(ProcessThreads, AnArrayWhoseBytesCannotComeFails) {
  FakeServer server;
  const Process process(server, 0);
  const driver::HostEvent there = process.runtime->make_event();
  const auto array =
      process.runtime->put(0, DType::kI32, {static_cast<int64_t>(kLarge)},
                           std::make_shared<std::vector<std::byte>>(4 * kLarge), there.event());
  {
    const FewFiles none(0);
    there.set();
  }
  const auto error = array->ready().wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted) << error->message();
}

TEST(ProcessThreads, APromisedArrayThatNoDeviceCanHoldIsRefused) {
  FakeServer server;
  const Process process(server, 0);
  const std::string error = error_of_call([&] {
    process.runtime->put(0, DType::kI32, {int64_t{1} << 38}, nullptr,
                         process.runtime->make_event().event());
  });
  EXPECT_NE(error.find("an array of 1099511627776 bytes on TPU:0"), std::string::npos) << error;
}

// A call that nobody waits for, and that cannot be done.
TEST(ProcessThreads, WhyAConnectionEndsReachesItsProcess) {
  FakeServer server;
  const Process process(server, 0);
  const auto array = process.state(0);
  const auto waiting = process.load(taking_program())->launch(process.request()).done[0];
  wire::DiscardT discard;
  discard.array = 987654321;
  process.link->tell(std::move(discard));
  for (const std::string& error : {waiting.wait_for_error()->message(),
                                   error_of_call([&] { static_cast<void>(array->address()); })}) {
    EXPECT_NE(error.find("it ended the connection: a process names array 987654321"),
              std::string::npos)
        << error;
  }
}

TEST(ProcessThreads, ProgramsAreLoadedOnTheirDevicesAlone) {
  FakeServer server;
  const Process process(server, 0);
  const auto program = taking_program();
  for (const std::vector<int>& devices : {std::vector<int>{0, 1, 2, 3, 4, 5, 6, 99},
                                          {0, 1, 2, 3, 4, 5, 6, -1},
                                          {0, 1, 2, 3, 4, 5, 6, 6},
                                          {0, 1},
                                          {}}) {
    const std::string error =
        error_of_call([&] { static_cast<void>(process.runtime->load(program, devices)); });
    EXPECT_NE(error.find("expected 8 different devices of 0 to 7"), std::string::npos) << error;
  }
}

// What is wrong with a launch is found before it counts: the next one meets those of the others.
TEST(ProcessThreads, ALaunchThatIsRefusedDoesNotCount) {
  FakeServer server;
  const auto program = taking_program();
  const Process good(server, 0);
  const Process bad(server, 1);
  wire::LoadT load;
  load.program = bad.link->new_number();
  load.devices = {0, 1, 2, 3, 4, 5, 6, 7};
  load.executable = std::make_unique<wire::BytesT>();
  for (const std::byte each : exe::write_executable(*program->executable)) {
    load.executable->in_frame.push_back(static_cast<uint8_t>(each));
  }
  const uint64_t number = load.program;
  bad.link->call(std::move(load));
  const auto launch = [&](std::vector<int> devices, const std::vector<uint64_t>& outputs) {
    wire::LaunchT call;
    call.program = number;
    call.event = bad.link->new_number();
    for (const int device : devices) {
      auto share = std::make_unique<wire::ShareT>();
      share->device = device;
      share->outputs = outputs;
      call.shares.push_back(std::move(share));
    }
    return error_of_call([&] { bad.link->call(std::move(call)); });
  };
  const uint64_t once = bad.link->new_number();
  EXPECT_NE(launch({4}, {}), "");         // a result too few
  EXPECT_NE(launch({4, 5}, {once}), "");  // a number twice
  EXPECT_NE(launch({4}, {0}), "");        // no number
  EXPECT_NE(launch({}, {}), "");          // no device
  EXPECT_NE(launch({0}, {once}), "");     // the other process has it
  const auto loaded = bad.load(program);
  EXPECT_NE(error_of_call([&] {
              LaunchRequest twice = bad.request();
              twice.shares[2].device = twice.shares[1].device;
              loaded->launch(twice);
            }),
            "");
  const LaunchResult theirs = loaded->launch(bad.request());
  const LaunchResult ours = good.load(program)->launch(good.request());
  EXPECT_EQ(ours.done[0].wait_for_error(), nullptr);
  EXPECT_EQ(theirs.done[0].wait_for_error(), nullptr);
}

TEST(ProcessThreads, DevicesThatALaunchCannotHaveAreRefused) {
  FakeServer server;
  const Process process(server, 0);
  for (const std::vector<int>& members :
       {std::vector<int>{}, std::vector<int>{0, 0}, std::vector<int>{0, 8}, std::vector<int>{-1}}) {
    try {
      process.runtime->refuse("step", members, process.devices(), "", {ErrorCode::kInternal, "no"});
      ADD_FAILURE() << members.size();
    } catch (const driver::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.message().find("different devices of 0 to 7"), std::string::npos)
          << error.message();
    }
  }
}

// Without the program on the board.
TEST(ProcessThreads, ALaunchThatAProcessCannotMakeFailsForAllAndCounts) {
  FakeServer server;
  const auto program = taking_program();
  const Process good(server, 0);
  const Process bad(server, 1);
  bad.runtime->refuse("step", {0, 1, 2, 3, 4, 5, 6, 7}, bad.devices(), "",
                      {ErrorCode::kResourceExhausted, "no memory"});
  const auto loaded = good.load(program);
  const auto error = loaded->launch(good.request()).done[0].wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error->message().find("launch 1 of step on TPU:0"), 0U) << error->message();
  EXPECT_NE(error->message().find("TPU:4 could not launch it: no memory"), std::string::npos)
      << error->message();
  const LaunchResult ours = loaded->launch(good.request());
  const LaunchResult theirs = bad.load(program)->launch(bad.request());
  EXPECT_EQ(ours.done[0].wait_for_error(), nullptr);
  EXPECT_EQ(theirs.done[0].wait_for_error(), nullptr);
}

// Calls of a process that sends what it likes, in frames that are as they should be.
class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed) : random_(seed) {}

  wire::FrameT frame() {
    wire::FrameT made;
    switch (random_() % 16) {
      case 0:
        made = array_call<wire::PutT>([&](auto& put) { put.bytes = bytes(); });
        break;
      case 1:
        made = array_call<wire::PutLaterT>([](auto& /*put*/) {});
        break;
      case 2:
        made = array_call<wire::ZerosT>([](auto& /*zeros*/) {});
        break;
      case 3:
        made = call<wire::FillT>([&](auto& fill) {
          fill.array = number();
          fill.bytes = bytes();
        });
        break;
      case 4:
        made = call<wire::CopyT>([&](auto& copy) {
          copy.array = number();
          copy.source = number();
          copy.device = device();
        });
        break;
      case 5:
        made = call<wire::ReadT>([&](auto& read) {
          read.array = number();
          read.first = size();
          read.size = size();
          read.segment = random_() % 3;
          read.event = number();
        });
        break;
      case 6:
        made = call<wire::WatchT>([&](auto& watch) {
          watch.array = number();
          watch.event = number();
        });
        break;
      case 7:
        made = call<wire::DiscardT>([&](auto& discard) { discard.array = number(); });
        break;
      case 8:
        made = call<wire::DropArrayT>([&](auto& drop) { drop.array = number(); });
        break;
      case 9:
        made = call<wire::LoadT>([&](auto& load) {
          load.program = number();
          load.devices = devices();
          load.executable = program();
        });
        break;
      case 10:
      case 11:
        made = launch();
        break;
      case 12:
        made = call<wire::RefuseT>([&](auto& refuse) {
          refuse.members = devices();
          refuse.devices = devices();
        });
        break;
      case 13:
        made = call<wire::LeaveT>([&](auto& leave) { leave.devices = devices(); });
        break;
      case 14:
        made = random_() % 2 == 0 ? call<wire::BeginProfileT>([](auto& /*begin*/) {})
                                  : call<wire::EndProfileT>([&](auto& end) { end.first = size(); });
        break;
      default:
        made = call<wire::SegmentT>([&](auto& segment) {  // no descriptor comes along
          segment.segment = number();
          segment.bytes = size();
        });
    }
    made.number = random_() % 50 == 0 ? 0 : 1 + random_() % 1000;
    return made;
  }

 private:
  template <class CallT, class Fill>
  wire::FrameT call(const Fill& fill) {
    CallT made;
    fill(made);
    return frame_of(std::move(made));
  }
  template <class CallT, class Fill>
  wire::FrameT array_call(const Fill& fill) {
    return call<CallT>([&](auto& made) {
      made.array = number();
      made.device = device();
      made.dtype = static_cast<uint8_t>(random_() % 16);
      for (size_t rank = random_() % 4; rank > 0; --rank) {
        made.dims.push_back(random_() % 20 == 0 ? size() : random_() % 9);
      }
      fill(made);
    });
  }
  wire::FrameT launch() {
    return call<wire::LaunchT>([&](auto& made) {
      made.program = number();
      made.event = number();
      for (size_t shares = random_() % 9; shares > 0; --shares) {
        auto share = std::make_unique<wire::ShareT>();
        share->device = device();
        share->arguments.assign(random_() % 3, number());
        share->outputs.assign(random_() % 3, number());
        made.shares.push_back(std::move(share));
      }
      made.keep.assign(random_() % 2, static_cast<uint32_t>(random_() % 3));
    });
  }
  uint64_t number() { return random_() % 8; }
  int device() { return static_cast<int>(random_() % 11) - 1; }
  std::vector<int> devices() {
    if (random_() % 2 == 0) {
      return {0, 1, 2, 3, 4, 5, 6, 7};
    }
    std::vector<int> made(random_() % 5);
    for (int& each : made) {
      each = device();
    }
    return made;
  }
  int64_t size() { return static_cast<int64_t>(uint64_t{1} << (random_() % 64)); }
  std::unique_ptr<wire::BytesT> bytes() {
    auto made = std::make_unique<wire::BytesT>();
    made->in_frame.assign(random_() % 600, 7);
    made->segment = random_() % 3 == 0 ? number() : 0;
    made->size = static_cast<uint64_t>(size());
    return random_() % 10 == 0 ? nullptr : std::move(made);
  }
  std::unique_ptr<wire::BytesT> program() {
    auto made = std::make_unique<wire::BytesT>();
    for (const std::byte each : exe::write_executable(*taking_program()->executable)) {
      made->in_frame.push_back(static_cast<uint8_t>(each));
    }
    return made;
  }

  std::mt19937 random_;
};

TEST(ProcessThreads, RandomCallsOfOneDisturbNoOther) {
  FakeServer server;
  const Process good(server, 0);
  for (unsigned round = 0; round < 40; ++round) {
    int end = 0;
    FrameSocket socket = server.connect(end);
    RandomCalls calls(round);
    if (round % 8 != 7) {  // else it says nothing of itself
      wire::HelloT hello;
      hello.process = 1;
      hello.processes = 2;
      greet(socket, hello);
    }
    std::thread reader([&socket] {
      while (socket.receive()) {
      }
    });
    for (int i = 0; i < 60 && socket.send(write_frame(calls.frame())); ++i) {
    }
    socket.shut_down();
    reader.join();
  }
  const std::vector<std::byte> large(4 * kLarge, std::byte{9});
  const auto array =
      good.runtime->put(0, HostView{DType::kI32, {static_cast<int64_t>(kLarge)}, large});
  std::vector<std::byte> back(large.size());
  array->read(0, back).wait();
  EXPECT_EQ(back, large);
}

// At any moment of a training of two.
TEST(ProcessThreads, AProcessMayEndAtAnyMoment) {
  const auto program = taking_program();
  for (int round = 0; round < 8; ++round) {
    FakeServer server;
    const Process stays(server, 0);
    const Process ends(server, 1);
    std::thread other([&] {
      const std::string error = error_of_call([&] {
        const auto loaded = ends.load(program);
        for (;;) {
          loaded->launch(ends.request()).done[0].wait();
        }
      });
      EXPECT_NE(error.find("the process that has the board"), std::string::npos) << error;
    });
    const auto loaded = stays.load(program);
    std::shared_ptr<const driver::Error> error;
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
      ends.end();
    });
    while (error == nullptr) {
      error = loaded->launch(stays.request()).done[0].wait_for_error();
    }
    EXPECT_NE(error->message().find("process 1 has ended"), std::string::npos) << error->message();
    killer.join();
    other.join();
  }
}

}  // namespace
}  // namespace tpu::pjrt
