// A program that fails on the board in the middle of its step, as a stored executable: the event
// and what depends on the results say core, op and source line, and the client goes on.
#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "plugin_calls.hpp"
#include "tests/driver/copy_program.hpp"

namespace tpu::test {
namespace {

constexpr size_t kElements = 1024;
// CompileOptionsProto {executable_build_options {device_ordinal: 3}}
constexpr std::string_view kOnDevice3 = "\x1a\x02\x08\x03";

void put_part(std::string& to, std::string_view part) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    to.push_back(static_cast<char>(part.size() >> shift & 0xff));
  }
  to += part;
}

// The copy of f32[1024] on device 3; `from` in its text is replaced by `to`.
PJRT_LoadedExecutable* load_copy(PJRT_Client* client, const std::string& from = {},
                                 const std::string& to = {}) {
  std::string text = driver::test::copy_program();
  for (size_t at; (at = text.find("elem=i32")) != std::string::npos;) {
    text.replace(at, 8, "elem=f32");
  }
  text.replace(text.find("  dma_in"), 0, ".op \"copy\" file=\"model.py\" line=42\n");
  if (!from.empty()) {
    text.replace(text.find(from), from.size(), to);
  }
  const auto program = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
  const std::vector<std::byte> container = exe::write_executable(program);
  std::string bytes = "TPUPJRT1";
  put_part(bytes, kOnDevice3);
  put_part(bytes, "");
  put_part(bytes, {reinterpret_cast<const char*>(container.data()), container.size()});
  auto load = args_of<PJRT_Executable_DeserializeAndLoad_Args>();
  load.client = client;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  EXPECT_EQ(outcome_of(api().PJRT_Executable_DeserializeAndLoad(&load)).text, "");
  return load.loaded_executable;
}

// Its result, and how the launch ended.
std::pair<PJRT_Buffer*, Outcome> launch(PJRT_LoadedExecutable* program, PJRT_Buffer* argument) {
  auto options = args_of<PJRT_ExecuteOptions>();
  PJRT_Buffer* const* const arguments = &argument;
  PJRT_Buffer* result = nullptr;
  PJRT_Buffer** const results = &result;
  PJRT_Event* done = nullptr;
  auto args = args_of<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = program;
  args.options = &options;
  args.argument_lists = &arguments;
  args.num_devices = 1;
  args.num_args = 1;
  args.output_lists = &results;
  args.device_complete_events = &done;
  const Outcome submitted = outcome_of(api().PJRT_LoadedExecutable_Execute(&args));
  EXPECT_EQ(submitted.text, "");
  return {result, await(done)};
}

void expect_place(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INTERNAL);
  for (const char* part : {"SLOT_RANGE", "TPU:3", "[op copy]", "model.py:42"}) {
    EXPECT_NE(outcome.text.find(part), std::string::npos) << part << " is not in " << outcome.text;
  }
}

TEST(PjrtFault, NamesCoreOpAndLineAndTheClientGoesOn) {
  PJRT_Client* client = make_client();
  const std::vector<float> values(kElements, 7.0F);
  PJRT_Buffer* argument = upload(client, device_of(client, 3), values, {kElements}).first;
  PJRT_LoadedExecutable* good = load_copy(client);
  PJRT_LoadedExecutable* bad = load_copy(client, "dst=hbm[1]+0", "dst=hbm[1]+64");
  for (int i = 0; i < 3; ++i) {
    const auto [lost, ended] = launch(bad, argument);
    expect_place(ended);
    auto read = args_of<PJRT_Buffer_ReadyEvent_Args>();
    read.buffer = lost;
    TPU_PJRT_OK(PJRT_Buffer_ReadyEvent, read);
    expect_place(await(read.event));
    destroy(lost);
    EXPECT_EQ(download(argument), values);
    const auto [result, done] = launch(good, argument);
    EXPECT_EQ(done.text, "");
    EXPECT_EQ(download(result), values);
    destroy(result);
  }
}

}  // namespace
}  // namespace tpu::test
