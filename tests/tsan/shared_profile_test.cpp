// Which steps each of several processes has in its profile, on a runtime that writes them down.
#include "processes/shared_profile.hpp"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "processes/profile_calls.hpp"

namespace tpu::pjrt {
namespace {

// A profile is the letters of the steps in it.
class Recorder : public Runtime {
 public:
  void step(char name) {
    if (on_) {
      steps_ += name;
    }
  }
  void steps(const std::string& names) { steps_ += names; }
  bool is_on() const { return on_; }
  void fail_next() { fails_ = true; }

  driver::DeviceInfo device_info(int /*device*/) const override { return {}; }
  DeviceArrayPtr put(int /*device*/, const driver::HostView& /*host*/) const override {
    return nullptr;
  }
  DeviceArrayPtr put(int /*device*/, driver::DType /*dtype*/, const driver::Shape& /*shape*/,
                     std::shared_ptr<const std::vector<std::byte>> /*bytes*/,
                     const driver::Event& /*after*/) const override {
    return nullptr;
  }
  DeviceArrayPtr zeros(int /*device*/, driver::DType /*dtype*/,
                       const driver::Shape& /*shape*/) const override {
    return nullptr;
  }
  DeviceArrayPtr copy(const DeviceArray& /*source*/, int /*device*/) const override {
    return nullptr;
  }
  std::shared_ptr<const DeviceProgram> load(
      std::shared_ptr<const client::CompiledProgram> /*program*/,
      const std::vector<int>& /*devices*/) const override {
    return nullptr;
  }
  driver::HostEvent make_event() const override { return driver::HostEvent::of_no_board(); }
  void refuse(const std::string& /*name*/, const std::vector<int>& /*members*/,
              const std::vector<int>& /*devices*/, const std::string& /*meets*/,
              const driver::Error& /*error*/) const override {}
  void leave(const std::vector<int>& /*devices*/, const driver::Error& /*error*/) const override {}
  std::shared_ptr<void> host_work() const override { return nullptr; }
  void begin_profile() const override {
    fail_if_asked();
    on_ = true;
  }
  std::string take_profile(bool goes_on) const override {
    fail_if_asked();
    on_ = goes_on;
    return std::exchange(steps_, {});
  }

 private:
  void fail_if_asked() const {
    if (std::exchange(fails_, false)) {
      throw driver::Error(driver::ErrorCode::kTimeout, "the board is busy");
    }
  }

  mutable bool on_ = false, fails_ = false;
  mutable std::string steps_;
};

TEST(SharedProfile, EachHasTheStepsBetweenItsOwnBeginAndEnd) {
  Recorder board;
  SharedProfile profile;
  const int who[3] = {};
  board.step('a');
  profile.begin(&who[0], board);
  board.step('b');
  profile.begin(&who[1], board);
  board.step('c');
  profile.begin(&who[2], board);
  EXPECT_EQ(profile.take(&who[0], board, false), "bc");
  board.step('d');
  EXPECT_EQ(profile.take(&who[1], board, true), "cd");
  board.step('e');
  EXPECT_EQ(profile.take(&who[1], board, false), "e");
  EXPECT_TRUE(board.is_on());
  profile.drop(&who[2], board);
  EXPECT_FALSE(board.is_on());
  EXPECT_EQ(profile.take(&who[2], board, false), "");
  EXPECT_FALSE(board.is_on());
}

TEST(SharedProfile, ACallThatFailsCanBeRepeated) {
  Recorder board;
  SharedProfile profile;
  const int who[2] = {};
  board.fail_next();
  EXPECT_THROW(profile.begin(&who[0], board), driver::Error);
  EXPECT_EQ(profile.take(&who[0], board, false), "");  // it has not begun
  profile.begin(&who[0], board);
  board.step('a');
  board.fail_next();
  EXPECT_THROW(profile.begin(&who[1], board), driver::Error);
  board.fail_next();
  EXPECT_THROW(profile.take(&who[0], board, false), driver::Error);
  board.step('b');
  EXPECT_EQ(profile.take(&who[0], board, false), "ab");
  EXPECT_FALSE(board.is_on());
}

TEST(SharedProfile, ASecondBeginStartsAnewForItsOwn) {
  Recorder board;
  SharedProfile profile;
  const int who[2] = {};
  profile.begin(&who[0], board);
  profile.begin(&who[1], board);
  board.step('a');
  profile.begin(&who[0], board);
  board.step('b');
  EXPECT_EQ(profile.take(&who[0], board, false), "b");
  EXPECT_EQ(profile.take(&who[1], board, false), "ab");
}

// Of a process that has ended while the board could not be stopped: the others go on.
TEST(SharedProfile, OneThatIsDroppedByAnErrorIsGone) {
  Recorder board;
  SharedProfile profile;
  const int who[2] = {};
  profile.begin(&who[0], board);
  profile.begin(&who[1], board);
  board.step('a');
  board.fail_next();
  profile.drop(&who[0], board);
  EXPECT_EQ(profile.take(&who[0], board, false), "");
  board.step('b');
  EXPECT_EQ(profile.take(&who[1], board, false), "ab");
  EXPECT_FALSE(board.is_on());
}

// Of a profile that is larger than a frame, only the first part waits for the board.
TEST(ProfileCalls, TellFurtherPartsAtOnce) {
  Recorder board;
  SharedProfile profile;
  ProfileCalls calls;
  const auto answer = [](const auto& ask) {
    std::promise<std::pair<std::thread::id, wire::AnswerT>> told;
    ask([&told](wire::AnswerT made) {
      told.set_value({std::this_thread::get_id(), std::move(made)});
    });
    return told.get_future().get();
  };
  const auto part = [&](uint64_t first) {
    return answer([&](const auto& tell) {
      wire::EndProfileT call;
      call.first = first;
      calls.take(profile, board, call, tell);
    });
  };
  answer([&](const auto& tell) { calls.begin(profile, board, tell); });
  const std::string all = std::string(kMostFrameBytes / 2, 'a') + "b";
  board.steps(all);
  const auto [first_thread, first] = part(0);
  EXPECT_NE(first_thread, std::this_thread::get_id());
  EXPECT_EQ(first.number, all.size());
  EXPECT_EQ(first.bytes.size(), kMostFrameBytes / 2);
  const auto [second_thread, second] = part(first.bytes.size());
  EXPECT_EQ(second_thread, std::this_thread::get_id());
  EXPECT_EQ(second.bytes, (std::vector<uint8_t>{'b'}));
}

}  // namespace
}  // namespace tpu::pjrt
