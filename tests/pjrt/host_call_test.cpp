// Host calls by the callbacks of PJRT, as no framework makes them: streams that are filled later,
// in pieces, too much or too little; errors; callbacks that wait for the board.
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "board/board_loader.hpp"
#include "stored_program.hpp"
#include "tests/driver/copy_program.hpp"

namespace tpu::test {
namespace {

constexpr size_t kElements = 1024;
constexpr size_t kBytes = kElements * sizeof(float);
constexpr int64_t kSend = 10, kReceive = 11;  // channels

exe::ExecutableT calling_program() {
  std::string text = std::string(".program \"calls\"") + driver::test::kCopySlots +
                     ".op \"send\" file=\"model.py\" line=3\n"
                     ".op \"recv\" file=\"model.py\" line=4\n"
                     "  hcall 0\n  hcall 1\n  halt\n";
  for (size_t at; (at = text.find("elem=i32")) != std::string::npos;) {
    text.replace(at, 8, "elem=f32");
  }
  exe::ExecutableT program = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
  for (uint32_t i = 0; i < 2; ++i) {
    auto call = std::make_unique<exe::HostCallT>();
    call->channel = i == 0 ? kSend : kReceive;
    call->to_host = i == 0;
    call->elem = exe::Elem::f32;
    call->dims = {kElements};
    call->slot = call->op = i;
    program.host_calls.push_back(std::move(call));
  }
  return program;
}

PJRT_Error* send(PJRT_Chunk* chunk, PJRT_CallbackError* error, size_t total, bool done, void* user);
void receive(PJRT_CopyToDeviceStream* stream, void* user);

void add(PJRT_CopyToDeviceStream* stream, const std::byte* from, size_t bytes,
         const std::string& trouble = "") {
  PJRT_Chunk chunk{};
  chunk.data = new std::byte[bytes];
  std::memcpy(chunk.data, from, bytes);
  chunk.size = bytes;
  chunk.deleter = [](void* data, void*) { delete[] static_cast<std::byte*>(data); };
  auto args = args_of<PJRT_CopyToDeviceStream_AddChunk_Args>();
  args.stream = stream;
  args.chunk = &chunk;
  const Outcome outcome = outcome_of(api().PJRT_CopyToDeviceStream_AddChunk(&args));
  EXPECT_NE(outcome.text.find(trouble), std::string::npos) << outcome.text;
  if (trouble.empty()) {
    EXPECT_EQ(outcome.text, "");
    EXPECT_EQ(await(args.transfer_complete).text, "");
  }
}

void end(PJRT_CopyToDeviceStream* stream) {
  auto args = args_of<PJRT_CopyToDeviceStream_Destroy_Args>();
  args.stream = stream;
  EXPECT_EQ(api().PJRT_CopyToDeviceStream_Destroy(&args), nullptr);
}

class PjrtHostCall : public ::testing::Test {
 protected:
  // How the launch ended; `result` is what it made.
  Outcome launch() {
    auto options = args_of<PJRT_ExecuteOptions>();
    PJRT_SendCallbackInfo send_info{send_channel, this, &tpu::test::send};
    PJRT_RecvCallbackInfo recv_info{kReceive, this, &tpu::test::receive};
    PJRT_SendCallbackInfo* sends = &send_info;
    PJRT_RecvCallbackInfo* receives = &recv_info;
    options.send_callbacks = &sends;
    options.recv_callbacks = &receives;
    options.num_send_ops = options.num_recv_ops = callbacks;
    const Launch launched = submit(program, {{argument}}, 1, options);
    if (!launched.outcome.text.empty()) {
      return launched.outcome;
    }
    PJRT_Buffer* const output = launched.results[0][0];
    Outcome ended = await(launched.ends[0]);
    if (ended.text.empty()) {
      result = download(output);
    }
    destroy(output);
    return ended;
  }
  // Bad launches leave the client as it was.
  void expect_good() {
    send_channel = kSend;
    callbacks = 1;
    on_send = [](std::vector<float>&) { return Outcome{}; };
    on_receive = [this](PJRT_CopyToDeviceStream* stream) {
      add(stream, bytes_of(sent), kBytes);
      end(stream);
    };
    EXPECT_EQ(launch().text, "");
    EXPECT_EQ(result, values);
  }
  static const std::byte* bytes_of(const std::vector<float>& from) {
    return reinterpret_cast<const std::byte*>(from.data());
  }

 public:
  PJRT_Client* client = make_client();
  PJRT_LoadedExecutable* program = load_stored(client, calling_program());
  std::vector<float> values = [] {
    std::vector<float> counted(kElements);
    std::iota(counted.begin(), counted.end(), 1.0F);
    return counted;
  }();
  PJRT_Buffer* argument = upload(client, device_of(client, 3), values, {kElements}).first;
  int64_t send_channel = kSend;
  size_t callbacks = 1;
  std::vector<float> sent, result;
  std::function<Outcome(std::vector<float>&)> on_send = [](std::vector<float>&) {
    return Outcome{};
  };
  std::function<void(PJRT_CopyToDeviceStream*)> on_receive;
};

PJRT_Error* send(PJRT_Chunk* chunk, PJRT_CallbackError* error, size_t total, bool done,
                 void* user) {
  auto& test = *static_cast<PjrtHostCall*>(user);
  EXPECT_EQ(chunk->size, kBytes);
  EXPECT_EQ(total, kBytes);
  EXPECT_TRUE(done);
  test.sent.resize(kElements);
  std::memcpy(test.sent.data(), chunk->data, kBytes);
  chunk->deleter(chunk->data, chunk->deleter_arg);
  const Outcome outcome = test.on_send(test.sent);
  return outcome.text.empty() ? nullptr
                              : (*error)(outcome.code, outcome.text.data(), outcome.text.size());
}

void receive(PJRT_CopyToDeviceStream* stream, void* user) {
  static_cast<PjrtHostCall*>(user)->on_receive(stream);
}

TEST_F(PjrtHostCall, StreamIsFilledInPiecesByAnotherThreadLater) {
  std::thread filler;
  on_receive = [&](PJRT_CopyToDeviceStream* stream) {
    filler = std::thread([this, stream] {
      auto total = args_of<PJRT_CopyToDeviceStream_TotalBytes_Args>();
      total.stream = stream;
      TPU_PJRT_OK(PJRT_CopyToDeviceStream_TotalBytes, total);
      EXPECT_EQ(total.total_bytes, kBytes);
      const size_t first = 100;
      add(stream, bytes_of(sent), first);
      auto current = args_of<PJRT_CopyToDeviceStream_CurrentBytes_Args>();
      current.stream = stream;
      TPU_PJRT_OK(PJRT_CopyToDeviceStream_CurrentBytes, current);
      EXPECT_EQ(current.current_bytes, first);
      add(stream, bytes_of(sent), kBytes, "4096 bytes, the program waits for 3996");
      add(stream, bytes_of(sent) + first, kBytes - first);
      add(stream, bytes_of(sent), 1, "1 bytes, the program waits for 0");
      end(stream);
    });
  };
  EXPECT_EQ(launch().text, "");
  filler.join();
  EXPECT_EQ(result, values);
}

TEST_F(PjrtHostCall, StreamThatEndsEarlyIsTheErrorOfTheLaunch) {
  on_receive = [&](PJRT_CopyToDeviceStream* stream) {
    add(stream, bytes_of(sent), 100);
    end(stream);
  };
  const Outcome ended = launch();
  EXPECT_EQ(ended.code, PJRT_Error_Code_INTERNAL);
  EXPECT_NE(ended.text.find("the callback of channel 11 gave 100 of 4096 bytes [op recv]"),
            std::string::npos)
      << ended.text;
  EXPECT_NE(ended.text.find("model.py:4"), std::string::npos) << ended.text;
  expect_good();
}

TEST_F(PjrtHostCall, ErrorOfACallbackKeepsItsCode) {
  on_send = [](std::vector<float>&) {
    return Outcome{PJRT_Error_Code_INVALID_ARGUMENT, "no such row"};
  };
  const Outcome ended = launch();
  EXPECT_EQ(ended.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_NE(ended.text.find("no such row [op send] [at model.py:3]"), std::string::npos)
      << ended.text;
  expect_good();
}

TEST_F(PjrtHostCall, WhoHasNoCallbackForAChannelIsTold) {
  send_channel = 7;
  const Outcome ended = launch();
  EXPECT_EQ(ended.code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_NE(ended.text.find("no callback was given for channel 10"), std::string::npos)
      << ended.text;
  callbacks = 0;
  const Outcome refused = launch();
  EXPECT_EQ(refused.code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_NE(refused.text.find("has no host callback"), std::string::npos) << refused.text;
  expect_good();
}

// What waits for the board in a callback is refused there; what is ready is not.
TEST_F(PjrtHostCall, WaitingInACallbackIsAnError) {
  PJRT_Event* later = nullptr;
  PJRT_Event* there = nullptr;
  on_send = [&](std::vector<float>&) {
    PJRT_Buffer* const fresh = upload(client, device_of(client, 3), values, {kElements}).first;
    for (const auto& [buffer, event] : {std::pair(fresh, &later), std::pair(argument, &there)}) {
      auto ready = args_of<PJRT_Buffer_ReadyEvent_Args>();
      ready.buffer = buffer;
      EXPECT_EQ(outcome_of(api().PJRT_Buffer_ReadyEvent(&ready)).text, "");
      *event = ready.event;
    }
    const auto on_ready = [](PJRT_Error* error, void* user) {
      EXPECT_EQ(outcome_of(error).text, "");
      ++*static_cast<int*>(user);
    };
    int called = 0;
    auto register_later = args_of<PJRT_Event_OnReady_Args>();
    register_later.event = later;
    register_later.callback = on_ready;
    register_later.user_arg = &called;
    const char* const text = "a callback must not read arrays of the board or wait for them";
    EXPECT_NE(outcome_of(api().PJRT_Event_OnReady(&register_later)).text.find(text),
              std::string::npos);
    register_later.event = there;
    EXPECT_EQ(outcome_of(api().PJRT_Event_OnReady(&register_later)).text, "");
    EXPECT_EQ(called, 1);
    EXPECT_EQ(await(there).text, "");
    return await(later);
  };
  const Outcome ended = launch();
  EXPECT_EQ(ended.code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_NE(ended.text.find("must not read arrays of the board or wait"), std::string::npos)
      << ended.text;
  expect_good();
}

}  // namespace
}  // namespace tpu::test
