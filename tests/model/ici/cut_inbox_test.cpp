// Messages in the order of their keys, and questions by their numbers.
#include "ici/cut_inbox.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace tpu::model {
namespace {

using ::testing::ElementsAre;

CutBody body_of(uint32_t value) { return CutPassed{value}; }
uint32_t value_of(CutInbox& inbox, CutInbox::Slot slot) {
  return std::get<CutPassed>(inbox.body(slot)).board;
}

// Against a set: messages come and go at random, some of them with equal cycles.
TEST(CutInbox, IsInTheOrderOfTheKeys) {
  CutInbox inbox;
  std::set<std::pair<CutKey, uint32_t>> expected;
  std::mt19937 random(1);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  uint32_t value = 0;
  for (int step = 0; step < 20000; ++step) {
    const CutKey key = {.at = below(50),
                        .board = below(3),
                        .core = below(3),
                        .number = below(1000),
                        .kind = below(4)};
    const bool is_new =
        std::ranges::none_of(expected, [&](const auto& message) { return message.first == key; });
    if (expected.size() < 200 && is_new && below(2) == 0) {
      expected.emplace(key, ++value);
      inbox.put(key, body_of(value));
    } else if (!expected.empty()) {
      const auto [first, wanted] = *expected.begin();
      expected.erase(expected.begin());
      EXPECT_EQ(inbox.first_at(), first.at);
      const CutInbox::Message message = inbox.take();
      EXPECT_EQ(message.key, first);
      EXPECT_EQ(value_of(inbox, message.slot), wanted);
      EXPECT_FALSE(message.twice);
      inbox.drop(message.slot);
    }
    ASSERT_EQ(inbox.empty(), expected.empty());
  }
}

TEST(CutInbox, FindsAMessageThatCameTwice) {
  CutInbox inbox;
  for (const uint64_t number : {7u, 8u, 7u}) {
    inbox.put({.at = 5, .board = 1, .core = 2, .number = number, .kind = 3}, body_of(0));
  }
  EXPECT_TRUE(inbox.take().twice);
  EXPECT_FALSE(inbox.take().twice);
  EXPECT_FALSE(inbox.take().twice);
  EXPECT_TRUE(inbox.empty());
}

// A body that is kept stays while others come and go.
TEST(CutInbox, KeepsBodiesUntilTheyAreDropped) {
  CutInbox inbox;
  const auto put = [&](uint64_t at, uint32_t value) {
    inbox.put({.at = at, .board = 0, .core = 0, .number = 0, .kind = 0}, body_of(value));
  };
  put(1, 11);
  const CutInbox::Slot kept = inbox.take().slot;
  for (uint32_t i = 0; i < 100; ++i) {
    put(2 + i, i);
    const CutInbox::Slot slot = inbox.take().slot;
    EXPECT_NE(slot, kept);
    inbox.drop(slot);
  }
  EXPECT_EQ(value_of(inbox, kept), 11u);
}

class Asked : public ::testing::Test {
 protected:
  uint64_t ask(uint32_t core) {
    const uint64_t number = questions.begin(core);
    questions.ask(core, number,
                  {.answered = [this, number](const RemoteAnswer&) { answered.push_back(number); },
                   .told = {},
                   .counts = true});
    return number;
  }
  void answer(uint32_t core, uint64_t number) {
    const auto question = questions.take(core, number);
    ASSERT_TRUE(question) << "core " << core << " number " << number;
    question->answered({});
  }

  CutQuestions questions;
  std::vector<uint64_t> answered;
};

TEST_F(Asked, CoresHaveNumbersOfTheirOwn) {
  EXPECT_EQ(questions.begin(4), 0u);
  EXPECT_EQ(questions.begin(4), 1u);
  EXPECT_EQ(questions.begin(9), 0u);
  EXPECT_EQ(questions.begin(4), 2u);
}

TEST_F(Asked, InAnyOrder) {
  const uint64_t first = ask(3);
  questions.begin(3);  // of which nobody asks
  const uint64_t second = ask(3);
  const uint64_t third = ask(3);
  answer(3, second);
  EXPECT_EQ(questions.find(3, second), nullptr);
  answer(3, first);
  const uint64_t fourth = ask(3);
  answer(3, third);
  answer(3, fourth);
  EXPECT_THAT(answered, ElementsAre(second, first, third, fourth));
  const uint64_t last = ask(3);
  answer(3, last);
}

TEST_F(Asked, WhatNobodyAskedIsNotFound) {
  EXPECT_EQ(questions.find(3, 0), nullptr);
  const uint64_t number = ask(3);
  for (const auto& [core, other] : {std::pair{3u, number + 1}, {3u, number - 1}, {4u, number}}) {
    EXPECT_EQ(questions.find(core, other), nullptr) << core << " " << other;
    EXPECT_FALSE(questions.take(core, other)) << core << " " << other;
  }
  answer(3, number);
  EXPECT_FALSE(questions.take(3, number)) << "an answer comes once";
}

// A question without an answer keeps its place, and those behind it are answered.
TEST_F(Asked, AnAnswerThatNeverComesHoldsUpNobody) {
  const uint64_t lost = ask(3);
  for (int i = 0; i < 1000; ++i) {
    answer(3, ask(3));
  }
  EXPECT_NE(questions.find(3, lost), nullptr);
  EXPECT_EQ(answered.size(), 1000u);
}

}  // namespace
}  // namespace tpu::model
