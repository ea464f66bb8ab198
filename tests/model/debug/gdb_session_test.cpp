// Packets of a debugger on bare harts. What GDB itself makes of them: tests/cli/gdb.
#include "debug/gdb_session.hpp"

#include <gtest/gtest.h>

#include "bare_harts.hpp"
#include "debug/monitor.hpp"
#include "debug/rsp.hpp"

namespace tpu::model {
namespace {

class GdbSessionTest : public ::testing::Test {
 protected:
  std::string say(const std::string& packet) { return session_.handle(packet).reply; }
  BareHarts harts_;
  GdbSession session_{harts_};
};

TEST_F(GdbSessionTest, RegistersAndMemoryAreOfTheSelectedThread) {
  EXPECT_EQ(say("Hg2"), "OK");
  EXPECT_EQ(say("P5=78563412"), "OK");
  EXPECT_EQ(harts_.hart(1).reg(5), 0x12345678U);
  EXPECT_EQ(harts_.hart(0).reg(5), 0U);
  EXPECT_EQ(say("p5"), "78563412");
  EXPECT_EQ(say("p20"), "00000010");
  EXPECT_EQ(say("M10000010,2:beef"), "OK");
  EXPECT_EQ(say(std::string("X10000012,2:") + '\0' + '\x7f'), "OK");
  EXPECT_EQ(say("m10000010,4"), "beef007f");
  EXPECT_EQ(say("Hg1"), "OK");
  EXPECT_EQ(say("m10000010,4"), "00000000");
  EXPECT_EQ(say("m10000ffe,4"), "E0e");
  EXPECT_EQ(say("P381=78563412"), "OK");
  EXPECT_EQ(harts_.hart(0).csr(0x340), 0x12345678U);  // mscratch
  EXPECT_EQ(say("p355"), "E01");
  EXPECT_EQ(say("pf55"), "00000000");
  const std::string all = say("g");
  EXPECT_EQ(all.size(), 33U * 8);
  EXPECT_EQ(say("G" + all), "OK");
  EXPECT_EQ(say("g"), all);
}

TEST_F(GdbSessionTest, EachThreadGoesAsTheFirstActionThatNamesItSays) {
  EXPECT_TRUE(session_.handle("vCont;s:2;c").resume);
  EXPECT_EQ(session_.leave(0), HartLeave::kRun);
  EXPECT_EQ(session_.leave(1), HartLeave::kStep);
  EXPECT_TRUE(session_.handle("vCont;C05:1").resume);
  EXPECT_EQ(session_.leave(0), HartLeave::kRun);
  EXPECT_EQ(session_.leave(1), HartLeave::kHold);
  EXPECT_FALSE(session_.handle("vCont;c:3").resume);
  EXPECT_FALSE(session_.handle("vCont;r1,2:1").resume);
  EXPECT_TRUE(session_.handle("D").over);
  session_.end();
  EXPECT_EQ(session_.leave(1), HartLeave::kRun);
}

TEST_F(GdbSessionTest, ABreakpointStaysWhileOneOfTwoIsLeft) {
  EXPECT_EQ(say("Z0,10000000,4"), "OK");
  EXPECT_EQ(say("Z1,10000000,4"), "OK");
  EXPECT_EQ(say("Z1,10000000,4"), "OK");
  EXPECT_EQ(say("z0,10000000,4"), "OK");
  EXPECT_EQ(harts_.hart(0).run(10).reason, HartStop::kBreak);
  EXPECT_EQ(session_.stopped(0, HartStop::kBreak), "T05thread:1;hwbreak:;");
  EXPECT_EQ(say("z1,10000000,4"), "OK");
  EXPECT_EQ(say("z1,10000000,4"), "OK");
  EXPECT_NE(harts_.hart(1).run(10).reason, HartStop::kBreak);
  EXPECT_EQ(say("Z0,10000000,4"), "OK");
  EXPECT_EQ(say("Z1,10000000,4"), "OK");
  session_.end();
  harts_.hart(0).reset(BareHarts::kBase);
  EXPECT_NE(harts_.hart(0).run(10).reason, HartStop::kBreak);
}

TEST_F(GdbSessionTest, DocumentsComeInParts) {
  const std::string first = say("qXfer:features:read:target.xml:0,20");
  const std::string second = say("qXfer:features:read:target.xml:20,4000");
  EXPECT_EQ(first[0], 'm');
  EXPECT_EQ(second[0], 'l');
  EXPECT_NE((first.substr(1) + second.substr(1)).find("<reg name=\"mcause\" bitsize=\"32\""),
            std::string::npos);
  EXPECT_EQ(say("qXfer:features:read:target.xml:ffffffff,1"), "l");
  EXPECT_EQ(say("qXfer:features:read:other.xml:0,1"), "E00");
}

TEST_F(GdbSessionTest, MonitorCommandsAnswerInHex) {
  EXPECT_EQ(say("qRcmd," + rsp_hex(std::string_view("time"))),
            rsp_hex(std::string_view("cycle 0\n")));
  EXPECT_EQ(say("qRcmd," + rsp_hex(std::string_view("poke 1 0x10000000 7"))), "OK");
  EXPECT_EQ(monitor_answer(harts_, "peek 1 0x10000000"), "TPU:1 0x10000000: 0x00000007\n");
  EXPECT_EQ(monitor_answer(harts_, "rings"), "ring\nring\n");
  EXPECT_EQ(monitor_answer(harts_, "queues 1"), "nothing\n");
  EXPECT_EQ(monitor_answer(harts_, "waves on"), "begins\n");
  EXPECT_EQ(monitor_answer(harts_, "waves off"), "ends\n");
  EXPECT_EQ(monitor_answer(harts_, "waves"), "expected on or off\n");
  EXPECT_EQ(monitor_answer(harts_, "waves on off"), "expected on or off\n");
  EXPECT_EQ(monitor_answer(harts_, "").find("unknown command ''"), 0U);
}

}  // namespace
}  // namespace tpu::model
