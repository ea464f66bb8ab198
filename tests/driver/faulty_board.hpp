// A simulated board with a fault file (docs/faults.md), for tests that look at what its user sees.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver::test {

/// Device of the programs.
inline constexpr int kFaultyDevice = 3;

/// An entry of a fault file; `rest`: its other keys.
inline std::string fault(const std::string& kind, const std::string& where,
                         const std::string& rest) {
  return "[[fault]]\nkind = \"" + kind + "\"\nwhere = \"" + where + "\"\n" + rest + "\n";
}

class SimFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    if (open_) {
      board_.close();
    }
  }

  /// `threads`: of the simulation; 0: as many as it likes.
  void open(const std::string& faults, int threads = 0) {
    std::ofstream(faults_path()) << faults;
    OpenOptions options;
    options.sim.threads = threads;
    options.sim.faults_path = faults_path();
    options.sim.fault_log_path = log_path();
    options.console = [this](int, const std::string& line) { console_ += line + "\n"; };
    board_ = Board::open(options);
    open_ = true;
  }
  // The log, when the board is closed.
  std::string close() {
    board_.close();
    open_ = false;
    std::stringstream text;
    text << std::ifstream(log_path()).rdbuf();
    return text.str();
  }
  Executable load(const std::string& text = copy_program(), int device = kFaultyDevice) {
    const auto exe = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
    return board_.load(exe::write_executable(exe), device);
  }
  void expect_copies(const Executable& copy, const Array& argument) {
    EXPECT_EQ(copy.run({argument}).outputs[0].to_host().bytes, sent_.bytes);
  }
  std::shared_ptr<const Error> expect_error(const Executable& copy, const Array& argument,
                                            ErrorCode code, const std::string& part) {
    auto error = copy.run({argument}).done.wait_for_error();
    EXPECT_NE(error, nullptr) << part;
    if (error) {
      EXPECT_EQ(error->code(), code) << error->what();
      EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
    }
    return error;
  }
  // The fault is of core 3 and its second launch, of a program whose argument is donated; the
  // launches around it are right.
  void expect_only_second_launch_fails(const std::string& kind, const std::string& part,
                                       const std::string& rest = {}) {
    open(fault(kind, "core 3", "at = \"launch 2\"\n" + rest));
    const Executable copy = load(donating_program());
    expect_copies(copy, copy.put(0, sent_));
    expect_error(copy, copy.put(0, sent_), ErrorCode::kDeviceFault, part);
    expect_copies(copy, copy.put(0, sent_));
    EXPECT_EQ(console_.find("sent again"), std::string::npos) << console_;
  }
  // The same fault, of a program whose argument stays as it was: the launch runs again, and only
  // the console has a word of it. The second time the launch fails.
  void expect_second_launch_runs_again(const std::string& kind, const std::string& part,
                                       const std::string& rest = {}) {
    open(fault(kind, "core 3", "at = \"launch 2\"\n" + rest) +
         fault(kind, "core 3", "at = \"launch 5\"\n" + rest) +
         fault(kind, "core 3", "at = \"launch 6\"\n" + rest));
    const Executable copy = load();
    const Array argument = copy.put(0, sent_);
    expect_copies(copy, argument);
    expect_copies(copy, argument);  // launches 2 and 3
    EXPECT_NE(console_.find(part), std::string::npos) << console_;
    EXPECT_NE(console_.find("it is sent again\n"), std::string::npos) << console_;
    expect_copies(copy, argument);
    expect_error(copy, argument, ErrorCode::kDeviceFault, part);
    expect_copies(copy, argument);
    EXPECT_EQ(tally(kind, &spec::FaultTally::fired), 3U);
  }
  uint64_t tally(const std::string& kind, uint64_t spec::FaultTally::*of) {
    const BoardCounters counters = board_.peek();
    const auto found = std::ranges::find(counters.faults, kind, &spec::FaultTally::kind);
    return found == counters.faults.end() ? 0 : (*found).*of;
  }

  static std::string faults_path() { return ::testing::TempDir() + "faults_" + name() + ".toml"; }

  static std::string log_path() { return ::testing::TempDir() + "faults_" + name() + ".log"; }

  const HostArray sent_ = counting(DType::kI32, {1024});
  Board board_;
  std::string console_;  // lines of the driver and of firmware

 private:
  static std::string name() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  bool open_ = false;
};

}  // namespace tpu::driver::test
