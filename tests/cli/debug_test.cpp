// tpuboard debug: ops and commands of a program that has run, and an op that is wrong found alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "tests/cli/command_line_fixture.hpp"

namespace tpu::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Debug : public test::CommandLineFixture {
 protected:
  static std::string artifact(const std::string& name) {
    return std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc";
  }

  /// Compiles with values kept, and writes arguments of its types.
  void prepare(const std::string& name) {
    name_ = name;
    const test::Result made =
        test::call(std::string(TPUC) + " --keep-values " + artifact(name) + " -o " + exe());
    ASSERT_EQ(made.code, 0) << made.text;
    program_ = exe::read_executable(read_file(exe()));
    for (size_t i = 0; i < program_.args.size(); ++i) {
      HostArray array;
      array.dtype = static_cast<DType>(program_.args[i]->elem);
      array.shape = program_.args[i]->global_dims;
      array.bytes.resize(byte_count(array.dtype, array.shape));
      for (size_t at = 0; array.dtype == DType::kF32 && at < array.bytes.size(); at += 4) {
        const float value = std::sin(static_cast<float>(at + i) * 12.9898F);
        std::memcpy(array.bytes.data() + at, &value, sizeof value);
      }
      const std::string file = path(std::to_string(i) + ".npy");
      write_npy(file, array);
      inputs_ += " --in " + std::to_string(i) + "=" + file;
    }
  }
  std::string exe() const { return path("kept.tpuexe"); }

  test::Result debug(const std::string& options) const {
    return test::call(std::string(TPUBOARD) + " debug " + artifact(name_) + inputs_ + " " +
                      options);
  }
  /// A session that reads `commands`, a line each.
  test::Result session(const std::string& commands, const std::string& options = "") const {
    std::ofstream(path("commands")) << commands;
    return debug("--commands " + path("commands") + " " + options);
  }

  std::string name_;
  std::string inputs_;
  exe::ExecutableT program_;
};

/// What stands behind `label` in a text, up to the end of the line.
std::string behind(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  return at == std::string::npos
             ? ""
             : text.substr(at + label.size(), text.find('\n', at) - at - label.size());
}

size_t bits_that_differ(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  size_t bits = a.size() == b.size() ? 0 : SIZE_MAX;
  for (size_t i = 0; bits != SIZE_MAX && i < a.size(); ++i) {
    bits += static_cast<size_t>(std::popcount(static_cast<uint8_t>(a[i] ^ b[i])));
  }
  return bits;
}

/// One kernel of a listing, and no other one, runs vector program `name`.
bool runs_once(const std::string& listing, const std::string& name) {
  const std::string use = "program=@" + name + " ";
  const size_t first = listing.find(use);
  return first != std::string::npos && listing.find(use, first + 1) == std::string::npos;
}

struct Planted {
  std::string listing;
  std::string op;  // that is wrong
};

/// Listings in which a kernel adds where it should subtract or multiply: codes that differ in one
/// bit.
std::vector<Planted> planted(const std::string& listing) {
  std::vector<Planted> all;
  for (size_t at = 0; (at = listing.find("\n.vpu ", at)) != std::string::npos; ++at) {
    const std::string name = listing.substr(at + 6, listing.find(' ', at + 6) - at - 6);
    const size_t end = listing.find("\n.end", at);
    for (const auto& [right, op] :
         {std::pair("sub_f", "stablehlo.subtract "), std::pair("mul_f", "stablehlo.multiply ")}) {
      const size_t place = listing.find(std::string("\n  ") + right, at);
      if (runs_once(listing, name) && place < end) {
        all.push_back({std::string(listing).replace(place + 3, 5, "add_f"), op});
      }
    }
  }
  return all;
}

TEST_F(Debug, FindsAFlippedBitInAKernelOfAResidualBlock) {
  prepare("residual_block");
  const test::Result good = debug("--executable " + exe() + " --compare");
  EXPECT_EQ(good.code, 0) << good.text;
  EXPECT_THAT(good.text, HasSubstr("ops compared: all match the reference"));
  const std::vector<Planted> all = planted(compiler::disassemble(program_));
  ASSERT_GE(all.size(), 20U);
  for (size_t i = 0; i < all.size(); i += 4) {
    const exe::ExecutableT wrong =
        compiler::assemble(all[i].listing, "wrong", spec::load_board("v3_8"));
    ASSERT_EQ(bits_that_differ(wrong.image, program_.image), 1U);
    write_file(path("wrong.tpuexe"), exe::write_executable(wrong));
    const test::Result found = debug("--executable " + path("wrong.tpuexe") + " --compare");
    EXPECT_EQ(found.code, 1);
    const size_t at = found.text.find("the first op that differs: on core 0, ");
    ASSERT_NE(at, std::string::npos) << i << ": " << found.text;
    EXPECT_THAT(behind(found.text.substr(at), "> %"), HasSubstr(" = " + all[i].op)) << i;
    // The command's statement, as the listing has it.
    const std::string word = std::to_string(std::stoul(behind(found.text.substr(at), " at word ")));
    const size_t shown = found.text.find('\n', found.text.find(" at word ", at)) + 1;
    const std::string statement = found.text.substr(shown, found.text.find('\n', shown) - shown);
    EXPECT_THAT(all[i].listing, HasSubstr(statement.substr(4) + "  ; word " + word + "\n")) << i;
  }
}

TEST_F(Debug, MovesByOpsCommandsAndBreakpoints) {
  prepare("dense");
  const test::Result said = session(R"(list
next
print
step
stepback
break op tanh
break line export_graphs.py
breaks
continue
back
delete 1
continue
print %0 0 2 3
continue
reverse
reverse
core 0
save out0 )" + path("out.npy") + "\nprint arg2\nquit\nnever\n");
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(
      said.text,
      AllOf(HasSubstr("%0 = stablehlo.dot_general arg0 arg1 : f32[5,3] at export_graphs.py"),
            HasSubstr("%0: f32[5,3], "), HasSubstr("breakpoint 0: op tanh"),
            HasSubstr("  1: line export_graphs.py\n"), HasSubstr("the program has ended"),
            HasSubstr("before the first command"), HasSubstr("arg2: f32[3], "),
            HasSubstr("core 0 of 1: TPU:0"), Not(HasSubstr("error"))));
  const HostArray out = read_npy(path("out.npy"));
  EXPECT_EQ(out.shape, (Shape{5, 3}));
}

TEST_F(Debug, MovesBySourceLines) {
  prepare("shapes");
  const test::Result said = session("next\nnextline\nnextline 99\n");
  EXPECT_EQ(said.code, 0) << said.text;
  std::set<std::string> lines;
  std::istringstream split(said.text);
  for (std::string line; std::getline(split, line);) {
    if (line.starts_with("> %")) {
      const std::string place = behind(line, " at export_graphs.py:");
      lines.insert(place.substr(0, place.find(':')));
    }
  }
  EXPECT_EQ(lines.size(), 3U) << said.text;
  EXPECT_THAT(said.text, HasSubstr("there is no op of another line behind this place"));
}

// Memory at a place is what has been written there: the program runs again for it, with equal
// cycles, and values stay what they are.
TEST_F(Debug, StopsAtAnAddressAndShowsMemory) {
  prepare("dense");
  // Where the command lies that made the op's value, from HBM to HBM or from VMEM.
  const test::Result first = session("goto %0\nprint %0 0 0 1\n");
  ASSERT_EQ(first.code, 0) << first.text;
  const std::string written = behind(first.text, "-> hbm:");
  const std::string range = "hbm:" + written.substr(0, written.find(' '));
  const std::string value = behind(first.text, "     0:");
  ASSERT_FALSE(value.empty()) << first.text;
  const test::Result again =
      session("break write " + range + "\ncontinue\nmemory " + range +
              "\nprint %0 0 0 1\nstepback\nmemory " + range + "\nmemory vmem:0..3 i32\nreverse\n");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("breakpoint 0: write " + range));
  const size_t memory = again.text.find("     0:");
  ASSERT_NE(memory, std::string::npos) << again.text;
  EXPECT_THAT(behind(again.text.substr(memory), "     0:"), ::testing::StartsWith(value));
  EXPECT_EQ(behind(again.text.substr(again.text.find("     0:", memory + 1)), "     0:"), value);
}

TEST_F(Debug, SaysWhatIsWrongWithACommand) {
  prepare("dense");
  const test::Result said = session(R"(nonsense
print
goto
goto %99
goto x
break
break op nothing_like_it
break read somewhere
break write vmem:9..3
delete
delete 3
core 1
memory vmem:0..3
step
memory hbm:0xffffffffffff..0xffffffffffff
memory vmem:0..3 f99
print %0
print arg7
print %0 0 99
next 1 2
save %0
)");
  EXPECT_EQ(said.code, 1);
  for (const char* text : {"commands:1: nonsense: no such command; `help` lists them",
                           "commands:5: x: expected",
                           "print: no op has been passed; name one",
                           "goto: which op? `list` shows them",
                           "99: expected a number below",
                           "x: expected a number",
                           "break: expected op NAME, line FILE:LINE, nan",
                           "break op nothing_like_it: the program has no such op",
                           "somewhere: expected vmem:LOW..HIGH",
                           "vmem:9..3: the end is before the begin",
                           "delete: there is no such breakpoint",
                           "1: expected a number below 1",
                           "memory: no command has been passed",
                           "the address range is outside of the memory of the board",
                           "f99: no element type; f32,",
                           "7: expected a number below 3",
                           "99: the array has 15 elements",
                           "next [COUNT]: more than it takes",
                           "save: expected an array and a file",
                           "19 commands of the session failed"}) {
    EXPECT_THAT(said.text, HasSubstr(text));
  }
  EXPECT_THAT(said.text, HasSubstr("%0: f32[5,3], ")) << "memory that is none lost no values";
}

TEST_F(Debug, StopsAtTheFirstValueThatIsNotFinite) {
  prepare("dense");
  HostArray x = read_npy(path("0.npy"));
  const float nan = NAN;
  std::memcpy(x.bytes.data(), &nan, sizeof nan);
  write_npy(path("0.npy"), x);
  const test::Result said = session("break nan\ncontinue\nprint\ncompare\n");
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text,
              AllOf(HasSubstr(" on 1 core; "), HasSubstr("breakpoint 0: nan"), HasSubstr("> %0 = "),
                    HasSubstr(", 3 not finite"), HasSubstr("all match")));
}

TEST_F(Debug, RefusesWhatItCannotRun) {
  prepare("dense");
  EXPECT_THAT(debug("--executable " + artifact("dense")).text, HasSubstr("dense.mlirbc: "));
  const std::string plain = path("plain.tpuexe");
  ASSERT_EQ(test::call(std::string(TPUC) + " " + artifact("dense") + " -o " + plain).code, 0);
  const test::Result other = debug("--executable " + plain);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.text,
              HasSubstr("plain.tpuexe: expected what tpuc --keep-values makes of this program: "
                        "expected "));
  EXPECT_EQ(debug("--no-data").code, 2);
  EXPECT_THAT(debug("--commands " + path("none")).text, HasSubstr("none: cannot be read"));
  EXPECT_THAT(debug("--transport null").text, HasSubstr("this transport does not record commands"));
  inputs_ = "";
  EXPECT_THAT(debug("--compare").text, HasSubstr("argument 0"));
  name_ = "bad_f16";
  EXPECT_THAT(debug("--compare").text, HasSubstr("bad_f16.mlirbc: "));
}

}  // namespace
}  // namespace tpu::driver
