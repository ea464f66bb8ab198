// Walks the scalar instructions of single cores; commands matter by the cores that they name.
#include "program/board_symmetry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "program/timed_command.hpp"
#include "program/timed_scalar.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {
namespace {

using spec::ScalarOp;

// Boards that are always compared with the first one.
constexpr size_t kWitnesses = 4;

// A core that a command sends to.
struct RemoteUse {
  size_t word = 0;
  uint64_t peer = 0;  // in the pod
};

bool is_remote(const TimedCommand& command) {
  return command.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote);
}

// Commands in a row that a walk passes without a look: they write no SMEM and send to no core. Most
// of a program is of them, and thousands of cores pass each.
class QuietRuns {
 public:
  struct Run {
    size_t end = 0;
    uint64_t commands = 0;
  };

  explicit QuietRuns(TimedProgram& program) : program_(program), from_(program.words()) {}

  // That begins at this word. Empty: there is none.
  const Run& at(size_t word) {
    Run& run = from_[word];
    if (run.end == 0) {
      for (run.end = word; run.end < program_.words() && quiet(run.end); ++run.commands) {
        run.end += program_.command_words(run.end);
      }
    }
    return run;
  }

 private:
  bool quiet(size_t word) {
    if (!program_.is_command(word)) {
      return false;
    }
    const TimedCommand& command = program_.command(word);
    return !command.writes_smem() && !is_remote(command);
  }

  TimedProgram& program_;
  std::vector<Run> from_;  // by word; end 0: not looked for, or at the first word an empty one
};

class CoreWalk {
 public:
  CoreWalk(TimedProgram& program, QuietRuns& quiet, const spec::Fold& fold, uint32_t core)
      : program_(program), quiet_(quiet), scalars_(fold.pod(), core, fold.cores(), 1) {}

  std::vector<RemoteUse> uses(uint64_t most) {
    while (steps_ < most && word_ < program_.words() && !ended_) {
      if (!program_.is_command(word_)) {
        scalar(program_.scalar(word_));
        ++steps_;
      } else if (const QuietRuns::Run& run = quiet_.at(word_); run.commands != 0) {
        word_ = run.end;
        steps_ = std::min(most, steps_ + run.commands);
      } else {
        command(program_.command(word_));
        word_ += program_.command_words(word_);
        ++steps_;
      }
    }
    return std::move(uses_);
  }
  uint64_t steps() const { return steps_; }

 private:
  void use(uint8_t reg) { uses_.push_back({word_, scalars_.value(reg)}); }

  void command(const TimedCommand& command) {
    if (command.writes_smem()) {
      const int64_t out =
          command.out.offset + static_cast<int64_t>(scalars_.value(command.out.reg));
      scalars_.forget(out + command.out_extent.low, out + command.out_extent.high);
    }
    if (!is_remote(command)) {
      return;
    }
    if (!command.nop) {
      use(command.peer_reg);
    }
    for (const spec::Signal& signal : command.signal) {
      if (signal.valid() && signal.remote()) {
        use(signal.peer_reg);
      }
    }
  }

  void scalar(const spec::ScalarInsn& insn) {
    const auto op = static_cast<ScalarOp>(insn.op);
    if (spec::scalar_class(op) == spec::ScalarClass::kBranch) {
      // In a run without data `bneg` on data is not taken, and other branches on data are faults.
      const bool unknown = scalars_.unknown(insn);
      ended_ = unknown && op != ScalarOp::kBneg;
      word_ = !unknown && scalars_.taken(insn) ? static_cast<size_t>(insn.imm) : word_ + 1;
      return;
    }
    ended_ = op == ScalarOp::kHalt;
    if (op != ScalarOp::kSwait && op != ScalarOp::kSsignal && op != ScalarOp::kHcall &&
        op != ScalarOp::kMarkb && op != ScalarOp::kMarke && !ended_) {
      scalars_.execute(insn);
    }
    ++word_;
  }

  TimedProgram& program_;
  QuietRuns& quiet_;
  TimedScalars scalars_;
  size_t word_ = 0;
  uint64_t steps_ = 0;
  bool ended_ = false;
  std::vector<RemoteUse> uses_;
};

// All boards but the first one. In front are those that differ most: its neighbors, one in the
// middle, and the last one.
std::vector<uint32_t> other_boards(const spec::BoardParams& pod) {
  const auto columns = static_cast<uint32_t>(pod.pod.boards_x);
  const auto rows = static_cast<uint32_t>(pod.pod.boards_y);
  std::vector<uint32_t> found;
  std::set<uint32_t> seen = {0};
  const auto add = [&](uint32_t board) {
    if (seen.insert(board).second) {
      found.push_back(board);
    }
  };
  add(columns > 1 ? 1 : 0);
  add(rows > 1 ? columns : 0);
  add(columns / 2 + columns * (rows / 2));
  add(columns * rows - 1);
  for (uint32_t board = 1; board < columns * rows; ++board) {
    add(board);
  }
  return found;
}

class BoardImages {
 public:
  explicit BoardImages(const spec::Fold& fold) : fold_(fold) {}

  // From `board` to `other` it is as from the first board to `first`.
  bool equal(uint64_t first, uint32_t board, uint64_t other) const {
    if (first >= fold_.cores() || other >= fold_.cores()) {
      return first == other;
    }
    const uint32_t a = fold_.by_board(first);
    const uint32_t b = fold_.by_board(other);
    const uint32_t cores = fold_.board_cores();
    return fold_.twin(a) == fold_.twin(b) &&
           (shifted(board, a / cores) == b / cores || mirrored(board, a / cores, b / cores));
  }

 private:
  uint32_t columns() const { return static_cast<uint32_t>(fold_.pod().pod.boards_x); }
  uint32_t rows() const { return static_cast<uint32_t>(fold_.pod().pod.boards_y); }
  uint32_t shifted(uint32_t board, uint32_t by) const {
    return (board % columns() + by % columns()) % columns() +
           columns() * ((board / columns() + by / columns()) % rows());
  }
  // The image may lie outside of a pod whose sides are no powers of two.
  bool mirrored(uint32_t board, uint32_t by, uint32_t other) const {
    const uint32_t column = board % columns() ^ by % columns();
    const uint32_t row = board / columns() ^ by / columns();
    return column < columns() && row < rows() && column + columns() * row == other;
  }

  const spec::Fold& fold_;
};

std::string sends_text(const spec::Fold& fold, uint32_t core, const RemoteUse& use) {
  return use.peer < fold.cores() ? fmt::format("core {} sends to core {}", core, use.peer)
                                 : fmt::format("core {} sends to none", core);
}

class Comparison {
 public:
  // `most`: steps of a core; what it does behind them is cut off.
  Comparison(TimedProgram& program, const spec::Fold& fold, uint64_t most)
      : program_(program), quiet_(program), fold_(fold), most_(most), images_(fold) {
    for (uint32_t twin = 0; twin < fold.board_cores(); ++twin) {
      first_.push_back(walk(fold.in_pod(twin)));
    }
  }

  // Where a board differs from the first one; empty: nowhere.
  std::string difference(uint32_t board) {
    for (uint32_t twin = 0; twin < fold_.board_cores(); ++twin) {
      const uint32_t far = fold_.in_pod(board * fold_.board_cores() + twin);
      std::string text = difference(twin, board, far, walk(far));
      if (!text.empty()) {
        return text;
      }
    }
    return {};
  }
  uint64_t steps() const { return steps_; }
  bool cut_short() const { return cut_short_; }

 private:
  std::vector<RemoteUse> walk(uint32_t core) {
    CoreWalk walk(program_, quiet_, fold_, core);
    std::vector<RemoteUse> uses = walk.uses(most_);
    steps_ += walk.steps();
    cut_short_ = cut_short_ || walk.steps() == most_;
    return uses;
  }

  std::string difference(uint32_t twin, uint32_t board, uint32_t far,
                         const std::vector<RemoteUse>& other) const {
    const uint32_t core = fold_.in_pod(twin);
    const std::vector<RemoteUse>& first = first_[twin];
    for (size_t i = 0; i < first.size() && i < other.size(); ++i) {
      if (first[i].word != other[i].word) {
        return fmt::format("core {} and core {} of another board execute different commands", core,
                           far);
      }
      if (!images_.equal(first[i].peer, board, other[i].peer)) {
        return fmt::format(
            "{} where {}, at word {} of the program, which is neither a shift nor "
            "a mirror image of the boards",
            sends_text(fold_, core, first[i]), sends_text(fold_, far, other[i]), first[i].word);
      }
    }
    if (first.size() != other.size()) {
      return fmt::format("core {} sends {} times, core {} of another board {} times", core,
                         first.size(), far, other.size());
    }
    return {};
  }

  TimedProgram& program_;
  QuietRuns quiet_;
  const spec::Fold& fold_;
  const uint64_t most_;
  const BoardImages images_;
  std::vector<std::vector<RemoteUse>> first_;  // by core of the first board
  uint64_t steps_ = 0;
  bool cut_short_ = false;
};

}  // namespace

BoardComparison compare_boards(std::span<const std::byte> image, const spec::Fold& fold,
                               const ComparisonLimits& limits) {
  TimedProgram program(image.subspan(sizeof(tpu_program_image_header_t)), fold.pod());
  Comparison comparison(program, fold, limits.core);
  BoardComparison result;
  const std::vector<uint32_t> others = other_boards(fold.pod());
  std::set<uint32_t> compared = {0};
  for (const uint32_t board : others) {
    if (compared.size() > kWitnesses && comparison.steps() > limits.pod) {
      result.left_out = fmt::format("only boards {} of {} were compared", fmt::join(compared, ", "),
                                    others.size() + 1);
      break;
    }
    result.difference = comparison.difference(board);
    if (!result.difference.empty()) {
      return result;
    }
    compared.insert(board);
  }
  if (comparison.cut_short()) {
    result.left_out += fmt::format("{}of each core only the first {} instructions were compared",
                                   result.left_out.empty() ? "" : "; ", limits.core);
  }
  return result;
}

}  // namespace tpu::compiler
