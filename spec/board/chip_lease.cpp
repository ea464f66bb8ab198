#include "board/chip_lease.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "board/board_loader.hpp"

namespace tpu::spec {
namespace {

constexpr int64_t kMostChips = std::numeric_limits<ChipSet>::digits - 1;  // fewer than kAllChips

[[noreturn]] void refuse(const char* option, const std::string& text, const std::string& why) {
  throw BoardError(fmt::format("{} '{}': {}", option, text, why));
}

constexpr ChipSet bit_of(int64_t chip) { return ChipSet{1} << chip; }

struct Rectangle {
  int64_t left, right, top, bottom;
};

// Around the chips.
Rectangle around(const BoardParams& board, ChipSet chips) {
  const int64_t width = board.board.torus_x;
  Rectangle found{width, -1, board.board.chips, -1};
  for (int64_t chip = 0; chip < board.board.chips; ++chip) {
    if ((chips & bit_of(chip)) != 0) {
      found.left = std::min(found.left, chip % width);
      found.right = std::max(found.right, chip % width);
      found.top = std::min(found.top, chip / width);
      found.bottom = std::max(found.bottom, chip / width);
    }
  }
  return found;
}

}  // namespace

ChipSet read_chips(const BoardParams& board, const std::string& text, const char* option) {
  if (text.empty()) {
    return kAllChips;
  }
  if (board_count(board) != 1) {
    refuse(option, text, "a program gets all boards of a pod, not some chips");
  }
  if (board.board.chips > kMostChips) {
    refuse(option, text,
           fmt::format("expected a board of at most {} chips, found {}", kMostChips,
                       board.board.chips));
  }
  ChipSet chips = 0;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    int64_t chip = -1;
    const auto [stopped, error] = std::from_chars(text.data() + from, text.data() + end, chip);
    if (error != std::errc() || stopped != text.data() + end || chip < 0 ||
        chip >= board.board.chips) {
      refuse(option, text,
             fmt::format("expected numbers of chips from 0 to {}, separated by commas, found "
                         "'{}'",
                         board.board.chips - 1, text.substr(from, end - from)));
    }
    if ((chips & bit_of(chip)) != 0) {
      refuse(option, text, fmt::format("chip {} is named twice", chip));
    }
    chips |= bit_of(chip);
    from = end + 1;
  }
  const Rectangle all = around(board, chips);
  if (std::popcount(chips) != (all.right - all.left + 1) * (all.bottom - all.top + 1)) {
    refuse(option, text,
           fmt::format("expected a rectangle of the torus, which has {} x {} chips with "
                       "chip = x + {} * y",
                       board.board.torus_x, board.board.chips / board.board.torus_x,
                       board.board.torus_x));
  }
  return chips;
}

std::vector<std::string> overrides_of_chips(const BoardParams& board, ChipSet chips) {
  if (chips == kAllChips) {
    return {};
  }
  const Rectangle all = around(board, chips);
  return {fmt::format("board.chips={}", std::popcount(chips)),
          fmt::format("board.torus_x={}", all.right - all.left + 1)};
}

std::string text_of_chips(ChipSet chips) {
  std::string text;
  for (int64_t chip = 0; chip <= kMostChips; ++chip) {
    if ((chips & bit_of(chip)) != 0) {
      text += (text.empty() ? "" : ",") + std::to_string(chip);
    }
  }
  return text;
}

BoardParams load_chips(const std::string& name_or_path, const std::vector<std::string>& overrides,
                       const std::string& chips) {
  BoardParams board = load_board(name_or_path, overrides);
  if (chips.empty()) {
    return board;
  }
  std::vector<std::string> all = overrides;
  for (std::string& each : overrides_of_chips(board, read_chips(board, chips))) {
    all.push_back(std::move(each));
  }
  return load_board(name_or_path, all);
}

}  // namespace tpu::spec
