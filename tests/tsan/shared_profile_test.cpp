// Which steps each of several processes has in its profile, on a runtime that writes them down.
#include "processes/shared_profile.hpp"

#include <gtest/gtest.h>

#include <utility>

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
  bool is_on() const { return on_; }

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
              const std::vector<int>& /*devices*/, const driver::Error& /*error*/) const override {}
  void leave(const std::vector<int>& /*devices*/, const driver::Error& /*error*/) const override {}
  std::shared_ptr<void> host_work() const override { return nullptr; }
  void begin_profile() const override { on_ = true; }
  std::string take_profile(bool goes_on) const override {
    on_ = goes_on;
    return std::exchange(steps_, {});
  }

 private:
  mutable bool on_ = false;
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

}  // namespace
}  // namespace tpu::pjrt
