// One phrase for each thing that a unit can wait for.
#include "sim/wait_text.hpp"

#include <fmt/format.h>

namespace tpu::spec {
namespace {

using For = UnitWait::For;

std::string ender_text(const UnitWait& wait, const PlaceText& place_text, bool everywhere) {
  if (!wait.ender) {
    return everywhere ? ", which no command ahead signals"
                      : ", which no command ahead in the same process signals";
  }
  const std::string place = place_text(*wait.ender);
  if (!wait.behind) {
    return fmt::format(", which {}, not issued yet, would signal", place);
  }
  return *wait.behind == 0 ? fmt::format(", which {}, the head of its queue, would signal", place)
                           : fmt::format(", which {} would signal, {} commands behind the head",
                                         place, *wait.behind);
}

}  // namespace

std::string wait_text(const UnitWait& wait, const PlaceText& place_text, bool everywhere) {
  switch (wait.what) {
    case For::kSemaphore:
      return fmt::format("waits for semaphore {} >= {} (is {})", wait.index, wait.wanted,
                         wait.value) +
             ender_text(wait, place_text, everywhere);
    case For::kQueue:
      return fmt::format("waits, since queue {} is full", wait.queue);
    case For::kEngines:
      return "waits at halt for the engines";
    case For::kHost:
      return fmt::format("waits for the host to answer call {}", wait.index);
    default:
      return "has started";
  }
}

}  // namespace tpu::spec
