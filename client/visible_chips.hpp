// Chips that the variables of a TPU host give to a program: what it leases of a worker's board, or
// has as a board of its own.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

#include "tpu/error.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::client {

// Whether TPU_PROCESS_BOUNDS says so.
inline bool is_one_process(std::string_view bounds) { return bounds == "1,1,1" || bounds == "1,1"; }

// TPU_VISIBLE_CHIPS of a program of one process; empty: it is not set, or other variables say that
// several processes share the board, each of which has its chips by its number. `variable` returns
// null for what is not set.
inline std::string visible_chips(const std::function<const char*(const char*)>& variable) {
  const auto value = [&](const char* name) {
    const char* const text = variable(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  const std::string_view bounds = value("TPU_PROCESS_BOUNDS");
  const bool one_process = bounds.empty() || is_one_process(bounds);
  const std::string_view count = value("TPUBOARD_PROCESS_COUNT");
  const bool shared =
      !one_process || (!count.empty() && count != "1") ||
      (bounds.empty() && value("TPU_PROCESS_ADDRESSES").find(',') != std::string_view::npos);
  return shared ? std::string() : std::string(value("TPU_VISIBLE_CHIPS"));
}

// `part`: the board of these chips alone. Throws Error (InvalidArgument) where
// TPU_CHIPS_PER_PROCESS_BOUNDS, if it is set, has another shape than they.
inline void check_shape(const spec::BoardParams& part, const std::string& chips,
                        const std::function<const char*(const char*)>& variable) {
  const char* const bounds = variable("TPU_CHIPS_PER_PROCESS_BOUNDS");
  const std::string_view found = bounds == nullptr ? "" : bounds;
  const int64_t width = part.board.torus_x;
  const int64_t height = part.board.chips / width;
  const std::string flat = fmt::format("{},{}", width, height);
  if (!chips.empty() && !found.empty() && found != flat && found != flat + ",1") {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("TPU_VISIBLE_CHIPS={} names {} x {} chips, TPU_CHIPS_PER_PROCESS_BOUNDS={}: "
                    "expected {},1; take one of them away",
                    chips, width, height, found, flat));
  }
}

}  // namespace tpu::client
