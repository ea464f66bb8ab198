// Bodies of messages from another process: what a board of the pod sends is read back, and a field
// that does not fit the pod is found before anything uses it.
#include "ici/cut_message.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "board/board_loader.hpp"
#include "command/bandwidth_share.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kFrom = 0, kTo = 31;  // from board 0 over board 1 to board 3
constexpr uint32_t kLast = 3;

class CutMessages : public ::testing::Test {
 protected:
  CutMessages() {
    write_.from_core = kFrom;
    write_.to_core = kTo;
    write_.levels = 2;
    write_.count = {3, 2};
    write_.stride = {-64, 16};
    write_.run_bytes = 8;
    write_.low = -128;
    write_.high = 24;
    write_.bytes = 48;
    open_.write = write_;
    open_.bytes = 64;
    open_.section = 1;
    delivery_.from_core = kFrom;
    delivery_.to_core = kTo;
    delivery_.flow = 5;
    delivery_.write = write_;
    delivery_.signals = {{.from = {}, .to_core = kTo, .semaphore = 7, .value = 1}};
  }

  CutMessage read(CutBody body, uint32_t to = kLast) const {
    PodFrame frame = cut_frame({.at = 9, .board = 0, .core = kFrom, .number = 5}, body);
    frame.to = to;
    return cut_message(frame, links_, static_cast<uint32_t>(params_.core.semaphores));
  }
  template <class Body>
  void expect_lost(const Body& good, const std::vector<std::function<void(Body&)>>& changes,
                   uint32_t to = kLast) const {
    EXPECT_NO_THROW(read(good, to));
    for (size_t i = 0; i < changes.size(); ++i) {
      Body bad = good;
      changes[i](bad);
      EXPECT_THROW(read(bad, to), PodLost) << "change " << i;
    }
  }

  const spec::BoardParams params_ = spec::load_board("v3_32", {});
  spec::BandwidthShare share_;
  const spec::Links links_ = spec::Links::with_cuts(params_, share_);
  RemoteWrite write_;
  CutOpen open_;
  CutDelivery delivery_;
};

TEST_F(CutMessages, ComeBackAsTheyWereSent) {
  const CutMessage message = read(open_);
  const auto& open = std::get<CutOpen>(message.body);
  EXPECT_EQ(open.section, 1);
  EXPECT_EQ(open.write.bytes, 48);
  EXPECT_EQ(message.key.number, 5);
  const CutMessage down = read(CutLinkDown{{.fault = 3, .until = 77}});
  EXPECT_EQ(std::get<CutLinkDown>(down.body).news.fault, 3);
  EXPECT_EQ(std::get<CutLinkDown>(down.body).news.until, 77);
}

TEST_F(CutMessages, OfTransfersFitTheirWayAndTheirBox) {
  expect_lost<CutOpen>(
      open_,
      {[](CutOpen& open) { open.section = 2; },
       [](CutOpen& open) { open.section = 0; },  // of another board
       [](CutOpen& open) { open.write.to_core = 1; },
       [](CutOpen& open) { open.write.to_core = 32; },
       [](CutOpen& open) { open.write.from_core = 2; },
       [](CutOpen& open) { open.write.levels = 6; }, [](CutOpen& open) { open.write.levels = 1; },
       [](CutOpen& open) { open.write.count[0] = 0; },
       [](CutOpen& open) { open.write.count[1] = UINT64_MAX; },
       [](CutOpen& open) { open.write.stride[0] = -65; },
       [](CutOpen& open) { open.write.stride[1] = INT64_MAX; },
       [](CutOpen& open) { open.write.run_bytes = 9; },
       [](CutOpen& open) { open.write.bytes = 47; }, [](CutOpen& open) { open.write.low = -127; },
       [](CutOpen& open) { open.write.high = 23; }});
}

TEST_F(CutMessages, OfDeliveriesFitTheirReceiver) {
  expect_lost<CutDelivery>(
      delivery_,
      {[](CutDelivery& d) { d.from_core = 1; }, [](CutDelivery& d) { d.to_core = 0; },
       [](CutDelivery& d) { d.write.to_core = 30; }, [](CutDelivery& d) { d.write.from_core = 1; },
       [](CutDelivery& d) { d.write.run_bytes = 16; },
       [](CutDelivery& d) { d.signals[0].semaphore = 128; },
       [](CutDelivery& d) { d.signals[0].to_core = 30; },
       [](CutDelivery& d) { d.range.bytes = UINT64_MAX; }});
}

TEST_F(CutMessages, OfAnswersAndQuestionsAreOfThePod) {
  expect_lost<CutAsk>({kTo},
                      {[](CutAsk& ask) { ask.core = 32; }, [](CutAsk& ask) { ask.core = 0; }});
  CutAnswer answer;
  expect_lost<CutAnswer>(
      answer, {[](CutAnswer& a) { a.answer.status = static_cast<RemoteAnswer::Status>(6); }});
}

TEST_F(CutMessages, HaveNoMissingOrFurtherBytes) {
  CutBody body = CutTell{{.done = 1, .in_flight = true}};
  PodFrame frame = cut_frame({.at = 9, .board = 0, .core = kFrom, .number = 5}, body);
  frame.to = kLast;
  frame.body.push_back(std::byte{0});
  EXPECT_THROW(cut_message(frame, links_, 128), PodLost);
  frame.body.resize(frame.body.size() - 2);
  EXPECT_THROW(cut_message(frame, links_, 128), PodLost);
}

}  // namespace
}  // namespace tpu::model
