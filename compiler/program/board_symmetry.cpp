// Walks the scalar instructions of single cores; commands matter by the cores that they name.
#include "program/board_symmetry.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "program/timed_command.hpp"
#include "program/timed_scalar.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {
namespace {

using spec::ScalarOp;

// A longer walk is compared as far as it went.
constexpr uint64_t kMostWalked = 20'000'000;

// A core that a command sends to.
struct RemoteUse {
  size_t word = 0;
  uint64_t peer = 0;  // in the pod
};

class CoreWalk {
 public:
  CoreWalk(TimedProgram& program, const spec::Fold& fold, uint32_t core)
      : program_(program), scalars_(fold.pod(), core, fold.cores(), 1) {}

  std::vector<RemoteUse> uses() {
    for (uint64_t step = 0; step < kMostWalked && word_ < program_.words() && !ended_; ++step) {
      if (program_.is_command(word_)) {
        command(program_.command(word_));
        word_ += program_.command_words(word_);
      } else {
        scalar(program_.scalar(word_));
      }
    }
    return std::move(uses_);
  }

 private:
  void use(uint8_t reg) { uses_.push_back({word_, scalars_.value(reg)}); }

  void command(const TimedCommand& command) {
    if (command.writes_smem()) {
      const int64_t out =
          command.out.offset + static_cast<int64_t>(scalars_.value(command.out.reg));
      scalars_.forget(out + command.out_extent.low, out + command.out_extent.high);
    }
    if (command.queue != static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
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
      ended_ = scalars_.unknown(insn);
      word_ = scalars_.taken(insn) ? static_cast<size_t>(insn.imm) : word_ + 1;
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
  TimedScalars scalars_;
  size_t word_ = 0;
  bool ended_ = false;
  std::vector<RemoteUse> uses_;
};

// Boards beside the first one: its neighbors, one in the middle, and the last one.
std::set<uint32_t> witnesses(const spec::BoardParams& pod) {
  const auto columns = static_cast<uint32_t>(pod.pod.boards_x);
  const auto rows = static_cast<uint32_t>(pod.pod.boards_y);
  std::set<uint32_t> found = {columns > 1 ? 1U : 0U, rows > 1 ? columns : 0U,
                              columns / 2 + columns * (rows / 2), columns * rows - 1};
  found.erase(0);
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
           (shifted(board, a / cores) == b / cores || mirrored(board, a / cores) == b / cores);
  }

 private:
  uint32_t columns() const { return static_cast<uint32_t>(fold_.pod().pod.boards_x); }
  uint32_t rows() const { return static_cast<uint32_t>(fold_.pod().pod.boards_y); }
  uint32_t shifted(uint32_t board, uint32_t by) const {
    return (board % columns() + by % columns()) % columns() +
           columns() * ((board / columns() + by / columns()) % rows());
  }
  uint32_t mirrored(uint32_t board, uint32_t by) const {
    return (board % columns() ^ by % columns()) + columns() * (board / columns() ^ by / columns());
  }

  const spec::Fold& fold_;
};

std::string sends_text(const spec::Fold& fold, uint32_t core, const RemoteUse& use) {
  return use.peer < fold.cores() ? fmt::format("core {} sends to core {}", core, use.peer)
                                 : fmt::format("core {} sends to none", core);
}

}  // namespace

std::string board_difference(std::span<const std::byte> image, const spec::Fold& fold) {
  TimedProgram program(image.subspan(sizeof(tpu_program_image_header_t)), fold.pod());
  const BoardImages images(fold);
  const std::set<uint32_t> boards = witnesses(fold.pod());
  for (uint32_t twin = 0; twin < fold.board_cores(); ++twin) {
    const uint32_t core = fold.in_pod(twin);
    const std::vector<RemoteUse> first = CoreWalk(program, fold, core).uses();
    for (const uint32_t board : boards) {
      const uint32_t far = fold.in_pod(board * fold.board_cores() + twin);
      const std::vector<RemoteUse> other = CoreWalk(program, fold, far).uses();
      for (size_t i = 0; i < first.size() && i < other.size(); ++i) {
        if (first[i].word != other[i].word) {
          return fmt::format("core {} and core {} of another board execute different commands",
                             core, far);
        }
        if (!images.equal(first[i].peer, board, other[i].peer)) {
          return fmt::format(
              "{} where {}, at word {} of the program, which is neither a shift nor "
              "a mirror image of the boards",
              sends_text(fold, core, first[i]), sends_text(fold, far, other[i]), first[i].word);
        }
      }
      if (first.size() != other.size()) {
        return fmt::format("core {} sends {} times, core {} of another board {} times", core,
                           first.size(), far, other.size());
      }
    }
  }
  return {};
}

}  // namespace tpu::compiler
