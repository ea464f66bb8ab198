// What a unit of a core waits for, in words: the debugger's stub of the model says it as the
// driver's report of a hang does.
#pragma once

#include <functional>
#include <string>

#include "tpu/board_report.hpp"

namespace tpu::spec {

using PlaceText = std::function<std::string(const CommandPlace&)>;

// "waits for semaphore 3 >= 1 (is 0), which PLACE, not issued yet, would signal"; `place_text`
// names the command that would end the wait. `everywhere`: it was looked for on all cores; else on
// those of the same process.
std::string wait_text(const UnitWait& wait, const PlaceText& place_text, bool everywhere);

}  // namespace tpu::spec
