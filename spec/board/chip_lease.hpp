// Some chips of a board as a board of their own: what a program gets that leases chips of a worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

/// A bit for each chip, by its number on the whole board.
using ChipSet = uint64_t;
inline constexpr ChipSet kAllChips = ~ChipSet{0};

/// Of a text as "0,1"; empty: kAllChips. Throws BoardError for what is not a number of a chip of
/// the board, a chip that is named twice, chips that are not a rectangle of the torus, and pods.
/// `option`: where the text is from, for errors.
ChipSet read_chips(const BoardParams& board, const std::string& text,
                   const char* option = "OpenOptions::connect_chips");

/// "section.key=value" that make the board one of these chips alone, numbered from 0 in the same
/// order; none for kAllChips.
std::vector<std::string> overrides_of_chips(const BoardParams& board, ChipSet chips);

/// "0,1"
std::string text_of_chips(ChipSet chips);

/// The board of load_board() with these chips of it alone. Throws BoardError.
BoardParams load_chips(const std::string& name_or_path, const std::vector<std::string>& overrides,
                       const std::string& chips);

}  // namespace tpu::spec
