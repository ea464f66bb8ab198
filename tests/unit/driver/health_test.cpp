// Health of a board, and what it leaves to be delivered without its lock.
#include "src/health/health.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/events/outbox.hpp"

namespace tpu::driver {
namespace {

std::optional<ErrorCode> code_of(Health& health) {
  try {
    health.check_usable();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

TEST(Health, WhatBrokeTheBoardIsToldOnceAndThenThatItIsUnavailable) {
  Health health;
  EXPECT_EQ(code_of(health), std::nullopt);
  EXPECT_TRUE(
      health.break_by(std::make_shared<Error>(ErrorCode::kTimeout, "the board does not answer")));
  EXPECT_FALSE(health.break_by(std::make_shared<Error>(ErrorCode::kCancelled, "later")));
  EXPECT_EQ(health.broken()->code(), ErrorCode::kTimeout);
  EXPECT_EQ(code_of(health), ErrorCode::kTimeout);
  EXPECT_EQ(code_of(health), ErrorCode::kUnavailable);
  EXPECT_THROW(health.check_unbroken(), Error);
}

TEST(Health, AClosedBoardIsClosedBeforeItIsBroken) {
  Health health;
  health.begin_closing();
  EXPECT_TRUE(health.closing());
  health.break_by(std::make_shared<Error>(ErrorCode::kCancelled, "the board is closed"));
  EXPECT_EQ(code_of(health), ErrorCode::kFailedPrecondition);
  health.end_closing();
  EXPECT_FALSE(health.closing());
  EXPECT_TRUE(health.closed());
}

TEST(Outbox, DeliversLinesThenCallbacksWithTheirErrors) {
  Outbox outbox;
  std::vector<std::string> seen;
  outbox.set_console([&](int device, const std::string& line) {
    seen.push_back(std::to_string(device) + " " + line);
  });
  EventState event;
  event.callbacks.push_back(
      [&](const ErrorPtr& error) { seen.push_back(error ? error->message() : "ready"); });
  outbox.set_event(event, std::make_shared<Error>(ErrorCode::kInternal, "lost"));
  outbox.set_event(event, nullptr);  // is set already
  outbox.add_console({{3, "a\x1b[2Jb"}});
  outbox.tell(1, "died");
  EXPECT_TRUE(event.failed());
  EXPECT_TRUE(seen.empty()) << "nothing is called under the lock";
  outbox.take_all_but_callbacks().deliver();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].find('\x1b'), std::string::npos) << "what a terminal would obey is written out";
  EXPECT_EQ(seen[1], "1 died");
  outbox.take().deliver();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2], "lost");
  outbox.take().deliver();
  EXPECT_EQ(seen.size(), 3u) << "each is delivered once";
}

TEST(Outbox, HandlersGoAwayWithWhatWasTaken) {
  Outbox outbox;
  const auto owned = std::make_shared<int>(0);
  outbox.drop([owned](const HostCallInfo&, size_t, std::span<std::byte>) {});
  EXPECT_EQ(owned.use_count(), 2);
  {
    const auto contents = outbox.take();
    EXPECT_EQ(owned.use_count(), 2);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace tpu::driver
