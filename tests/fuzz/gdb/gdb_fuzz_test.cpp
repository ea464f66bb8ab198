// Damaged packets and streams of GDB's remote protocol under sanitizers: every packet is answered
// with something that fits a frame, and what was set is gone when the debugger is.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "debug/gdb_session.hpp"
#include "debug/rsp.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/model/debug/bare_harts.hpp"

namespace tpu::model {
namespace {

constexpr int kSessions = 400;
constexpr int kPackets = 60;
constexpr uint32_t kSeed = 20240613;

const std::vector<std::string> kGood = {"?",
                                        "g",
                                        "G" + std::string(264, '0'),
                                        "p20",
                                        "pf55",
                                        "P20=00000010",
                                        "m10000000,10",
                                        "M10000000,2:0000",
                                        "X10000000,4:abcd",
                                        "Hg2",
                                        "Hc-1",
                                        "T1",
                                        "Z0,10000000,4",
                                        "z0,10000000,4",
                                        "Z1,10000002,2",
                                        "Z2,10000100,4",
                                        "z2,10000100,4",
                                        "Z3,10000100,8",
                                        "Z4,10000100,1",
                                        "vCont?",
                                        "vCont;s:1;c",
                                        "vCont;C05:2",
                                        "c",
                                        "s10000000",
                                        "C05;10000000",
                                        "D",
                                        "k",
                                        "vKill;1",
                                        "qSupported:swbreak+",
                                        "QStartNoAckMode",
                                        "qC",
                                        "qfThreadInfo",
                                        "qThreadExtraInfo,1",
                                        "qXfer:features:read:target.xml:0,fff",
                                        "qXfer:threads:read::0,fff",
                                        "qAttached",
                                        "qRcmd,68656c70",
                                        "qRcmd,7065656b20302030783130303030303030"};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::string packet() {
    std::string text = kGood[below(kGood.size())];
    for (size_t changes = below(4); changes > 0 && !text.empty(); --changes) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.insert(at, 1 + below(20), ",;:=0f-"[below(7)]);
          break;
        case 2:
          text.erase(at, 1 + below(6));
          break;
        case 3:
          text += kGood[below(kGood.size())];
          break;
        default:
          text.replace(at, 1, "ffffffff");
      }
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

TEST(GdbFuzz, EveryPacketHasAnAnswer) {
  const uint32_t seed = tpu::test::fuzz_seed(kSeed);
  Mutator mutator(seed);
  const int packets = tpu::test::fuzz_inputs(kSessions * kPackets);
  size_t refused = 0;
  for (int i = 0; i < packets / kPackets; ++i) {
    SCOPED_TRACE("session " + std::to_string(i) + " of seed " + std::to_string(seed));
    BareHarts harts;
    GdbSession session(harts);
    for (int k = 0; k < kPackets; ++k) {
      const GdbSession::Answer answer = session.handle(mutator.packet());
      EXPECT_LE(answer.reply.size(), kRspPacketBytes);
      refused += answer.reply == "E01" ? 1 : 0;
      harts.hart(0).run(5);
    }
    session.end();
    for (uint32_t core = 0; core < harts.harts(); ++core) {
      EXPECT_EQ(session.leave(core), HartLeave::kRun);
      harts.hart(core).reset(BareHarts::kBase);
      const HartStop why = harts.hart(core).run(100).reason;
      EXPECT_TRUE(why == HartStop::kBudget || why == HartStop::kTrap) << static_cast<int>(why);
    }
  }
  std::printf("refused: %zu of %d\n", refused, packets);
  EXPECT_GT(refused, static_cast<size_t>(packets) / 50);
  EXPECT_LT(refused, static_cast<size_t>(packets) / 2);
}

TEST(GdbFuzz, AnyStreamBecomesItems) {
  Mutator mutator(tpu::test::fuzz_seed(kSeed));
  const int sent = tpu::test::fuzz_inputs(kSessions * kPackets);
  RspReader reader;
  size_t packets = 0;
  for (int i = 0; i < sent; ++i) {
    std::string bytes = rsp_frame(mutator.packet());
    if (mutator.below(4) == 0) {
      bytes.insert(mutator.below(bytes.size()), 1, static_cast<char>(mutator.below(256)));
    }
    for (const RspItem& item : reader.push(bytes)) {
      EXPECT_LE(item.body.size(), kRspPacketBytes);
      packets += item.kind == RspItem::Kind::kPacket ? 1 : 0;
    }
  }
  EXPECT_GT(packets, static_cast<size_t>(sent / 2));
}

}  // namespace
}  // namespace tpu::model
