// Firmware that traps, prints or logs, on the simulated board: what the user is told; and the debug
// port of its harts. A trap is made by an illegal instruction written over the first one of a
// function of the real image.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "image/firmware_image.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/support/elf_builder.hpp"
#include "tpu/spec/console_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::copy_program;
using test::counting;

constexpr int kDevice = 3;

uint32_t address_of(const std::string& function) {
  const firmware::Image& image = firmware::image();
  const auto at = std::ranges::find_if(
      image.lines, [&](const auto& line) { return image.names[line.function] == function; });
  EXPECT_NE(at, image.lines.end()) << function;
  return at == image.lines.end() ? 0 : at->address;
}

class FirmwareTrap : public ::testing::Test {
 protected:
  // `function` of the image traps; only the command FILL comes to fill_start.
  Board open(const std::string& function) {
    const firmware::Image& image = firmware::image();
    const auto bytes = std::as_bytes(image.bytes);
    options_.firmware.assign(bytes.begin(), bytes.end());
    mepc_ = address_of(function);
    std::fill_n(options_.firmware.begin() + (mepc_ - TPU_HART_ITCM_BASE), 2, std::byte{0});
    options_.console = [this](int device, const std::string& line) {
      lines_.emplace_back(device, line);
    };
    return Board::open(options_);
  }
  static Executable load(const Board& board, const std::string& head = "", int device = kDevice) {
    const auto exe = compiler::assemble(head + copy_program(), "test.s", spec::load_board("v3_8"));
    return board.load(exe::write_executable(exe), device);
  }
  void expect_trap(const std::string& text) const {
    char mepc[16];
    std::snprintf(mepc, sizeof mepc, "0x%08x", mepc_);
    const std::string place = firmware::code_place(firmware::image(), mepc_);
    EXPECT_TRUE(std::regex_match(place, std::regex("fill_start \\([a-z]+\\.[ch]:[1-9][0-9]*\\)")))
        << place;
    for (const std::string& part : {"illegal instruction in " + place, std::string("mepc ") + mepc,
                                    std::string("mcause 0x2"), std::string("mtval 0x")}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
  }

  OpenOptions options_;
  uint32_t mepc_ = 0;
  std::vector<std::pair<int, std::string>> lines_;
};

TEST_F(FirmwareTrap, BeforeALaunchIsNamedAndLosesNothing) {
  Board board = open("fill_start");
  const Executable program = load(board);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array argument = program.put(0, sent);
  board.synchronize();
  const Buffer filled = board.zeros(kDevice, DType::kI32, {64});
  const RunResult run = program.run({argument});
  const auto error = run.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault) << error->what();
  EXPECT_EQ(error->place().device, kDevice);
  EXPECT_EQ(error->place().op, "");
  expect_trap(error->message());
  const auto lost = filled.ready().wait_for_error();
  ASSERT_NE(lost, nullptr);
  expect_trap(lost->message());
  ASSERT_FALSE(lines_.empty());
  EXPECT_EQ(lines_[0].first, kDevice);
  expect_trap(lines_[0].second);
  EXPECT_EQ(argument.to_host().bytes, sent.bytes);
  EXPECT_EQ(program.run({argument}).outputs[0].to_host().bytes, sent.bytes);
}

// The other cores wait at the barrier for one that will never come.
TEST_F(FirmwareTrap, OfOneCoreBeforeALaunchOfAllIsNamedAndLosesNothing) {
  Board board = open("fill_start");
  const Executable program = load(board, ".partitions 8\n", 0);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array argument = program.put(0, sent);
  board.synchronize();
  static_cast<void>(board.zeros(kDevice, DType::kI32, {64}));
  const auto error = program.run({argument}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->place().device, kDevice);
  expect_trap(error->message());
  EXPECT_EQ(argument.to_host().bytes, sent.bytes);
  EXPECT_EQ(program.run({argument}).outputs[0].to_host().bytes, sent.bytes);
}

TEST_F(FirmwareTrap, AfterALaunchIsNamed) {
  Board board = open("fill_start");
  const Executable program = load(board);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array argument = program.put(0, sent);
  EXPECT_EQ(program.run({argument}).outputs[0].to_host().bytes, sent.bytes);
  const Buffer filled = board.zeros(kDevice, DType::kI32, {64});
  const RunResult behind = program.run({argument});
  const auto error = behind.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  expect_trap(error->message());
  EXPECT_EQ(argument.to_host().bytes, sent.bytes);
}

TEST_F(FirmwareTrap, ThatNobodyWaitsForIsToldAtClose) {
  Board board = open("fill_start");
  static_cast<void>(board.zeros(kDevice, DType::kI32, {64}));
  board.close(CloseMode::kDrain);
  ASSERT_FALSE(lines_.empty());
  expect_trap(lines_[0].second);
}

// Hand-made images: lui, addi and sw of a hart that has not set up anything.
class TinyFirmware {
 public:
  TinyFirmware() { word(TPU_HART_CONSOLE_BASE | kT0 << 7 | 0x37); }
  TinyFirmware& print(const std::string& text) {
    for (const char c : text) {
      word(static_cast<uint32_t>(c) << 20 | kT1 << 7 | 0x13);
      word(kT1 << 20 | kT0 << 15 | 2u << 12 | spec::console::kChar << 7 | 0x23);
    }
    return *this;
  }
  // A log line; its text goes to kTextAt.
  TinyFirmware& log(const std::string& text, const std::vector<uint32_t>& args) {
    for (const uint32_t arg : args) {
      store(spec::console::kLogArg, arg);
    }
    store(spec::console::kLog, TPU_HART_ITCM_BASE + kTextAt);
    text_ = text;
    return *this;
  }
  TinyFirmware& trace(uint32_t value) {
    word(value << 20 | kT1 << 7 | 0x13);
    word(kT1 << 20 | kT0 << 15 | 2u << 12 | spec::console::kTrace << 7 | 0x23);
    return *this;
  }
  std::vector<std::byte> trap() {
    mepc_ = TPU_HART_ITCM_BASE + static_cast<uint32_t>(bytes_.size());
    word(0);
    return bytes_;
  }
  std::vector<std::byte> sleep() {
    word(0x10500073);  // wfi
    word(0x0000006f);  // here again
    if (!text_.empty()) {
      bytes_.resize(kTextAt + text_.size() + 1);
      std::memcpy(bytes_.data() + kTextAt, text_.data(), text_.size());
    }
    return bytes_;
  }
  uint32_t mepc() const { return mepc_; }

 private:
  static constexpr uint32_t kT0 = 5, kT1 = 6;
  static constexpr uint32_t kTextAt = 512;
  void store(uint32_t offset, uint32_t value) {
    word((value + 0x800) >> 12 << 12 | kT1 << 7 | 0x37);
    word(value << 20 | kT1 << 15 | kT1 << 7 | 0x13);
    word(kT1 << 20 | kT0 << 15 | 2u << 12 | offset << 7 | 0x23);
  }
  void word(uint32_t value) {
    for (int i = 0; i < 4; ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
  }
  std::vector<std::byte> bytes_;
  std::string text_;
  uint32_t mepc_ = 0;
};

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string open_error(const OpenOptions& options) {
  try {
    Board::open(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.message();
  }
  return {};
}

TEST(FirmwareConsole, TextAndTrapOfABootReachTheUser) {
  TinyFirmware tiny;
  OpenOptions options;
  options.firmware = tiny.print("hello\nhalf a \x1b line").trap();
  std::vector<std::string> of_device;
  options.console = [&](int device, const std::string& line) {
    if (device == kDevice) {
      of_device.push_back(line);
    }
  };
  const std::string error = open_error(options);
  char mepc[24];
  std::snprintf(mepc, sizeof mepc, "mepc 0x%08x", tiny.mepc());
  EXPECT_NE(error.find("trapped: illegal instruction"), std::string::npos) << error;
  EXPECT_NE(error.find(mepc), std::string::npos) << error;
  ASSERT_GE(of_device.size(), 1u);
  EXPECT_EQ(of_device[0], "hello");
  if (of_device.size() > 1) {  // the board was given up while this core still printed
    EXPECT_EQ(of_device[1], "half a \\x1b line");
  }
}

TEST(FirmwareConsole, TraceWordsReachTheTextTrace) {
  OpenOptions options;
  options.firmware = TinyFirmware().trace(21).trace(22).sleep();
  options.sim.trace_path = testing::TempDir() + "/firmware_trace.txt";
  static_cast<void>(open_error(options));
  const std::string text = text_of(options.sim.trace_path);
  for (const std::string core : {"0", "7"}) {
    const size_t first = text.find(" " + core + " hart word=0x00000015\n");
    EXPECT_NE(first, std::string::npos) << text;
    EXPECT_NE(text.find(" " + core + " hart word=0x00000016\n", first), std::string::npos);
  }
}

TEST(FirmwareConsole, LogLinesAndPrintedOnesReachTheLog) {
  OpenOptions options;
  options.sim.firmware_log = testing::TempDir() + "/firmware_log.txt";
  options.firmware =
      TinyFirmware().print("printed\n").log("%u of %#x\x1b", {7, 0xfffff800, 1, 2}).sleep();
  static_cast<void>(open_error(options));
  const std::string text = text_of(options.sim.firmware_log);
  for (const std::string core : {"0", "7"}) {
    const std::regex lines("\\[([0-9]+) TPU:" + core + "\\] (printed|7 of 0xfffff800\\\\x1b)\n");
    const std::vector<std::smatch> found(std::sregex_iterator(text.begin(), text.end(), lines), {});
    ASSERT_EQ(found.size(), 2u) << text;
    EXPECT_EQ(found[0][2], "printed");
    EXPECT_LT(std::stoull(found[0][1]), std::stoull(found[1][1]));
  }
}

TEST(FirmwareFile, NamesItsOwnFunctions) {
  TinyFirmware tiny;
  tpu::test::ElfBuilder elf;
  elf.add(TPU_HART_ITCM_BASE, tiny.print("own\n").trap());
  elf.symbols = {{"begins", TPU_HART_ITCM_BASE}, {"ends_badly", tiny.mepc()}};
  OpenOptions options;
  options.firmware_file = testing::TempDir() + "/own_firmware.elf";
  options.sim.mmio_trace_path = testing::TempDir() + "/own_firmware.txt";
  elf.write(options.firmware_file);
  std::vector<std::string> lines;
  options.console = [&](int /*device*/, const std::string& line) { lines.push_back(line); };
  const std::string error = open_error(options);
  EXPECT_NE(error.find("trapped: illegal instruction in ends_badly"), std::string::npos) << error;
  EXPECT_NE(std::ranges::find(lines, "own"), lines.end());
  const std::string trace = text_of(options.sim.mmio_trace_path);
  EXPECT_NE(trace.find(" 0 hart write console.CHAR 0x0000006f pc=0x10000008 begins\n"),
            std::string::npos)
      << trace;
}

TEST(FirmwareFile, AndAFlatImageAreTwo) {
  OpenOptions options;
  options.firmware = TinyFirmware().sleep();
  options.firmware_file = "any.elf";
  try {
    Board::open(options);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(FirmwareConsole, LinesWithoutAnEndReachTheUser) {
  OpenOptions options;
  options.firmware = TinyFirmware().print("no end").sleep();
  std::vector<std::string> lines;
  options.console = [&](int /*device*/, const std::string& line) { lines.push_back(line); };
  EXPECT_NE(open_error(options).find("does not boot"), std::string::npos);
  EXPECT_EQ(lines, std::vector<std::string>(8, "no end"));
}

TEST(FirmwareConsole, GoesToStandardErrorByDefault) {
  OpenOptions options;
  options.firmware = TinyFirmware().print("hello\n").trap();
  testing::internal::CaptureStderr();
  static_cast<void>(open_error(options));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("[TPU:0 firmware] hello\n"), std::string::npos) << text;
}

// Calls with what is wrong about them.
ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(FirmwareDebugPort, PeeksAndPokesByNameAndAddress) {
  Board board = Board::open({});
  const uint64_t begin = board.now();
  for (const int device : {0, 7}) {
    EXPECT_EQ(board.peek_word(device, "sysctl.CORE_ID") & 0xff, static_cast<uint32_t>(device));
    EXPECT_EQ(board.peek_word(device, "sysctl.FW_BUILD"), firmware::image().build);
    EXPECT_EQ(board.peek_word(device, "0x10000004"), firmware::image().build);
  }
  board.poke_word(7, "hostdma.PATTERN[2]", 0x12345678);
  EXPECT_EQ(board.peek_word(7, "HOSTDMA.pattern[2]"), 0x12345678U);
  EXPECT_EQ(board.peek_word(0, "hostdma.PATTERN[2]"), 0U);
  EXPECT_EQ(board.now(), begin);
  for (const auto& [device, place] : std::vector<std::pair<int, std::string>>{
           {8, "seq.STATE"}, {-1, "seq.STATE"}, {0, "seq.NONE"}, {0, "0x50000000"}, {0, "0x2"}}) {
    EXPECT_EQ(code_of([&, d = device, p = place] { board.peek_word(d, p); }),
              ErrorCode::kInvalidArgument)
        << place;
    EXPECT_EQ(code_of([&, d = device, p = place] { board.poke_word(d, p, 1); }),
              ErrorCode::kInvalidArgument)
        << place;
  }
  EXPECT_EQ(code_of([&] { board.poke_word(0, "sysctl.CORE_ID", 1); }), ErrorCode::kInvalidArgument);
  board.close();
  EXPECT_EQ(code_of([&] { board.peek_word(0, "seq.STATE"); }), ErrorCode::kFailedPrecondition);
}

TEST(FirmwareDebugPort, IsNothingThatTheNullTransportHas) {
  OpenOptions options;
  options.transport = "null";
  const Board board = Board::open(options);
  EXPECT_EQ(code_of([&] { board.peek_word(0, "seq.STATE"); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { board.poke_word(0, "seq.STATE", 1); }), ErrorCode::kUnimplemented);
}

}  // namespace
}  // namespace tpu::driver
