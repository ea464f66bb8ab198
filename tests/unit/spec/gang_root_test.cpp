// The rules of a gang's root: complete barriers, mismatches, aborts and how long they are known.
#include "gang/gang_root.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tpu/spec/gsync_regs.hpp"

namespace tpu::spec {
namespace {

constexpr auto kStep = static_cast<uint8_t>(gsync::kKindStep);
constexpr auto kDrain = static_cast<uint8_t>(gsync::kKindDrain);
constexpr auto kFault = static_cast<uint8_t>(gsync::kCodeFault);
constexpr auto kHost = static_cast<uint8_t>(gsync::kCodeHost);

// "0: release 7.2" is core 0, tag 7, step 2; "0: abort 7 by 3" has the origin.
std::string text(const std::vector<GangMessage>& messages) {
  std::string all;
  for (const GangMessage& message : messages) {
    if (const auto* full = std::get_if<GangArrival>(&message.what)) {
      all += fmt::format("{}: release {}.{}; ", message.core, full->tag, full->step);
    } else {
      const auto& abort = std::get<GangAbort>(message.what);
      all += fmt::format("{}: abort {} by {}; ", message.core, abort.tag, abort.origin);
    }
  }
  return all;
}

TEST(GangRoot, ReleasesACompleteBarrierInTheOrderOfItsCores) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(5, {7, kStep, 2, CoreSet(0x31)})), "");
  EXPECT_EQ(text(root.arrive(0, {7, kStep, 2, CoreSet(0x31)})), "");
  EXPECT_EQ(text(root.arrive(4, {7, kStep, 2, CoreSet(0x31)})),
            "0: release 7.2; 4: release 7.2; 5: release 7.2; ");
  EXPECT_EQ(text(root.arrive(0, {7, kStep, 3, CoreSet(0x31)})), "") << "the next step starts anew";
}

TEST(GangRoot, CountsThirtyTwoCores) {
  GangRoot root;
  for (uint32_t core = 31; core > 0; --core) {
    EXPECT_EQ(text(root.arrive(core, {7, kStep, 0, CoreSet(~0U)})), "");
  }
  const std::vector<GangMessage> released = root.arrive(0, {7, kStep, 0, CoreSet(~0U)});
  ASSERT_EQ(released.size(), 32U);
  EXPECT_EQ(released.front().core, 0U);
  EXPECT_EQ(released.back().core, 31U);
}

TEST(GangRoot, CountsAsManyCoresAsAGangCanHave) {
  constexpr uint32_t kCores = 2048;
  CoreSet all;
  for (uint32_t core = 0; core < kCores; ++core) {
    all.insert(core);
  }
  GangRoot root;
  for (uint32_t core = kCores - 1; core > 0; --core) {
    EXPECT_EQ(text(root.arrive(core, {7, kStep, 0, all})), "");
    EXPECT_EQ(text(root.arrive(core, {7, kStep, 0, all})), "") << "again";
  }
  const std::vector<GangMessage> released = root.arrive(0, {7, kStep, 0, all});
  ASSERT_EQ(released.size(), kCores);
  EXPECT_EQ(released.back().core, kCores - 1);
}

// A core that has not read who its gang is: the root knows it from those who wait.
TEST(GangRoot, SpreadsAnAbortOfAnUnknownGang) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(5, {7, kStep, 0, CoreSet(0x31)})), "");
  EXPECT_EQ(text(root.abort({7, 4, kFault, {}})),
            "0: abort 7 by 4; 4: abort 7 by 4; 5: abort 7 by 4; ");
  EXPECT_EQ(text(root.abort({8, 4, kFault, {}})), "") << "nobody waits";
  EXPECT_EQ(text(root.arrive(0, {8, kStep, 0, CoreSet(0x31)})), "0: abort 8 by 4; ");
}

// Nobody was told because nobody had arrived: the cores wait for the host, which ends the gang.
TEST(GangRoot, TellsAnAbortOnceItKnowsTheGang) {
  GangRoot root;
  EXPECT_EQ(text(root.abort({8, 4, kFault, {}})), "");
  EXPECT_EQ(text(root.abort({8, 5, kFault, {}})), "") << "it refuses too";
  EXPECT_EQ(text(root.abort({8, 0, kHost, CoreSet(0x31)})),
            "0: abort 8 by 4; 4: abort 8 by 4; 5: abort 8 by 4; ");
  EXPECT_EQ(text(root.abort({8, 5, kHost, CoreSet(0x31)})), "5: abort 8 by 4; ");
  EXPECT_EQ(text(root.abort({8, 1, kHost, CoreSet(0x31)})), "") << "it is not in the gang";
}

TEST(GangRoot, DrainBarriersCountCoresOfAllSteps) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(0, {7, kDrain, 2, CoreSet(3)})), "");
  EXPECT_EQ(text(root.arrive(1, {7, kDrain, 5, CoreSet(3)})), "0: release 7.2; 1: release 7.2; ");
}

TEST(GangRoot, AbortsGangsThatWaitForEachOther) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(0, {7, kStep, 0, CoreSet(3)})), "");
  const std::vector<GangMessage> sent = root.arrive(1, {8, kStep, 0, CoreSet(7)});
  EXPECT_EQ(
      text(sent),
      "0: abort 7 by 1; 1: abort 7 by 1; 0: abort 8 by 1; 1: abort 8 by 1; 2: abort 8 by 1; ");
  EXPECT_EQ(std::get<GangAbort>(sent.back().what).code, gsync::kCodeMismatch);
  EXPECT_EQ(text(root.arrive(2, {8, kStep, 0, CoreSet(7)})), "2: abort 8 by 1; ")
      << "it comes later";
}

TEST(GangRoot, GangsThatShareNoWaitingCoreAreNoMismatch) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(0, {7, kStep, 0, CoreSet(3)})), "");
  EXPECT_EQ(text(root.arrive(2, {8, kStep, 0, CoreSet(0xC)})), "") << "core 2 is not in gang 7";
  EXPECT_EQ(text(root.arrive(1, {9, kStep, 0, CoreSet(6)})), "")
      << "core 0, which waits, is not in gang 9";
}

TEST(GangRoot, TheFirstAbortOfATagCounts) {
  GangRoot root;
  EXPECT_EQ(text(root.arrive(0, {7, kStep, 0, CoreSet(3)})), "");
  EXPECT_EQ(text(root.abort({7, 1, kFault, CoreSet(3)})), "0: abort 7 by 1; 1: abort 7 by 1; ");
  EXPECT_EQ(text(root.abort({7, 0, kHost, CoreSet(3)})), "0: abort 7 by 1; ")
      << "core 0 may have joined since";
  EXPECT_EQ(text(root.arrive(1, {7, kStep, 0, CoreSet(3)})), "1: abort 7 by 1; ");
  EXPECT_EQ(text(root.arrive(0, {7, kDrain, 0, CoreSet(3)})), "");
  EXPECT_EQ(text(root.arrive(1, {7, kDrain, 0, CoreSet(3)})), "0: release 7.0; 1: release 7.0; ")
      << "an aborted gang drains";
}

TEST(GangRoot, AResetForgetsBarriersAndKeepsAborts) {
  GangRoot root;
  root.arrive(0, {7, kStep, 0, CoreSet(3)});
  root.abort({6, 1, kFault, CoreSet(3)});
  root.reset();
  EXPECT_EQ(text(root.arrive(1, {7, kStep, 0, CoreSet(3)})), "");
  EXPECT_EQ(text(root.arrive(1, {6, kStep, 0, CoreSet(3)})), "1: abort 6 by 1; ");
}

TEST(GangRoot, RemembersTheLast64AbortsUntilTheirTagsAreOld) {
  GangRoot root;
  for (uint32_t tag = 0; tag <= 64; ++tag) {
    root.abort({tag, 1, kFault, CoreSet(3)});
  }
  EXPECT_EQ(text(root.arrive(1, {1, kStep, 0, CoreSet(2)})), "1: abort 1 by 1; ");
  EXPECT_EQ(text(root.arrive(1, {0, kStep, 0, CoreSet(2)})), "1: release 0.0; ")
      << "65 were too many";
  EXPECT_EQ(text(root.arrive(1, {63 + gsync::kForgetAge, kStep, 0, CoreSet(2)})),
            fmt::format("1: release {}.0; ", 63 + gsync::kForgetAge));
  EXPECT_EQ(text(root.arrive(1, {63, kStep, 0, CoreSet(2)})), "1: release 63.0; ");
  EXPECT_EQ(text(root.arrive(1, {64, kStep, 0, CoreSet(2)})), "1: abort 64 by 1; ")
      << "one younger";
}

TEST(GangRoot, ACoreStopsDrainsOrIgnores) {
  EXPECT_EQ(answer_to_abort(7, 7, true, false), AbortAnswer::kStop);
  EXPECT_EQ(answer_to_abort(7, 7, true, true), AbortAnswer::kIgnore) << "it has stopped";
  EXPECT_EQ(answer_to_abort(7, 7, false, false), AbortAnswer::kIgnore) << "it is in no gang";
  EXPECT_EQ(answer_to_abort(8, 7, true, false), AbortAnswer::kIgnore) << "it is not there yet";
  EXPECT_EQ(answer_to_abort(6, 7, true, false), AbortAnswer::kDrain) << "it is past the gang";
  EXPECT_EQ(answer_to_abort(UINT32_MAX, 0, true, false), AbortAnswer::kDrain) << "tags wrap";
}

}  // namespace
}  // namespace tpu::spec
