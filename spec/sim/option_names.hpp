// How errors name an option: layers below the command line and the environment write its field,
// SimOptions::waves_trigger, and the one that the option came through puts its own name there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tpu/spec/option_table.hpp"

namespace tpu::spec {

/// Where options are given.
enum class OptionDoor : uint8_t {
  kStruct,       ///< SimOptions::waves_trigger
  kCommandLine,  ///< --waves-trigger
  kEnvironment   ///< TPUBOARD_WAVES_TRIGGER
};

/// The row of an option that exists, by its name.
const OptionInfo& board_option(std::string_view name);

/// Name of an option at a door; its field where it has none there.
std::string option_name(const OptionInfo& option, OptionDoor door);

/// The text with all fields that it names (SimOptions::.., OpenOptions::..) by their names at
/// `door`.
std::string name_options(const std::string& text, OptionDoor door);

}  // namespace tpu::spec
