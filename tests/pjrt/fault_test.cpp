// Programs in assembler as stored executables. One fails on the board in the middle of its step:
// the event and what depends on the results say core, op and source line, and the client goes on.
// One takes over its argument, unless the call keeps it.
#include "board/board_loader.hpp"
#include "stored_program.hpp"
#include "tests/driver/copy_program.hpp"

namespace tpu::test {
namespace {

constexpr size_t kElements = 1024;

using Changes = std::vector<std::pair<std::string, std::string>>;

// The copy of f32[1024] on device 3, with changes of its text: what is replaced, and by what.
PJRT_LoadedExecutable* load_copy(PJRT_Client* client, const Changes& changes = {}) {
  std::string text = driver::test::copy_program();
  for (size_t at; (at = text.find("elem=i32")) != std::string::npos;) {
    text.replace(at, 8, "elem=f32");
  }
  text.replace(text.find("  dma_in"), 0, ".op \"copy\" file=\"model.py\" line=42\n");
  for (const auto& [from, to] : changes) {
    text.replace(text.find(from), from.size(), to);
  }
  return load_stored(client, compiler::assemble(text, "test.s", spec::load_board("v3_8")));
}

// Its result, and how the launch ended. `kept`: arguments that are not donated.
std::pair<PJRT_Buffer*, Outcome> launch(PJRT_LoadedExecutable* program, PJRT_Buffer* argument,
                                        const std::vector<int64_t>& kept = {}) {
  auto options = args_of<PJRT_ExecuteOptions>();
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  const Launch launched = submit(program, {{argument}}, 1, options);
  EXPECT_EQ(launched.outcome.text, "");
  return {launched.results[0][0], await(launched.ends[0])};
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
  PJRT_LoadedExecutable* bad = load_copy(client, {{"dst=hbm[1]+0", "dst=hbm[1]+64"}});
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

bool is_deleted(PJRT_Buffer* buffer) {
  auto args = args_of<PJRT_Buffer_IsDeleted_Args>();
  args.buffer = buffer;
  EXPECT_EQ(outcome_of(api().PJRT_Buffer_IsDeleted(&args)).text, "");
  return args.is_deleted;
}

TEST(PjrtDonation, AnArgumentThatTheCallKeepsStays) {
  PJRT_Client* client = make_client();
  const std::vector<float> values(kElements, 7.0F);
  PJRT_Buffer* argument = upload(client, device_of(client, 3), values, {kElements}).first;
  PJRT_LoadedExecutable* program = load_copy(client, {{"slot=0\n", "slot=0 donated_to=0\n"},
                                                      {".slot result bytes=4096\n", ""},
                                                      {"slot=1\n", "slot=0\n"},
                                                      {"dst=hbm[1]+0", "dst=hbm[0]+0"}});
  const auto [copy, kept] = launch(program, argument, {0});
  EXPECT_EQ(kept.text, "");
  EXPECT_FALSE(is_deleted(argument));
  EXPECT_EQ(download(argument), values);
  EXPECT_EQ(download(copy), values);
  const auto [result, taken] = launch(program, argument);
  EXPECT_EQ(taken.text, "");
  EXPECT_TRUE(is_deleted(argument));
  EXPECT_EQ(download(result), values);
  EXPECT_EQ(download(copy), values) << "a copy of its own";
}

}  // namespace
}  // namespace tpu::test
