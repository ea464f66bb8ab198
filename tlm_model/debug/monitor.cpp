// One row a command.
#include "debug/monitor.hpp"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <vector>

#include "registers/register_name.hpp"

namespace tpu::model {
namespace {

using Words = std::span<const std::string_view>;

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  std::vector<std::string_view> words;
  for (size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlank, end);
  }
  return words;
}

// Core, address and (to write) value of a register; `error` says what is wrong.
struct Place {
  uint32_t core = 0;
  uint32_t address = 0;
  uint32_t value = 0;
  std::string error{};
};

Place wrong_place(std::string why) { return {.error = std::move(why) + "\n"}; }

Place place_of(const DebugTarget& target, Words words, size_t count) {
  Place place;
  if (words.size() != count) {
    return wrong_place(fmt::format("expected CORE REGISTER{}", count == 3 ? " VALUE" : ""));
  }
  const auto core = spec::number_of(words[0]);
  if (!core || *core >= target.harts()) {
    return wrong_place(
        fmt::format("there is no core {}; the board has 0 to {}", words[0], target.harts() - 1));
  }
  place.core = *core;
  try {
    place.address = spec::hart_address(words[1]);
  } catch (const spec::RegisterNameError& error) {
    return wrong_place(error.what());
  }
  if (count == 3) {
    const auto value = spec::number_of(words[2]);
    if (!value) {
      return wrong_place(fmt::format(
          "invalid value '{}': expected a number of 32 bits; write 12 or 0x0c", words[2]));
    }
    place.value = *value;
  }
  return place;
}

// "seq.STATE (0x40004008)", or the address alone.
std::string name_of(const Place& place) {
  const std::string name = spec::register_name(spec::kHartRegisters, place.address);
  return name.starts_with("0x") ? name : fmt::format("{} ({:#010x})", name, place.address);
}

std::string word_text(const Place& place, bool done, uint32_t value) {
  return done ? fmt::format("TPU:{} {}: {:#010x}\n", place.core, name_of(place), value)
              : fmt::format("TPU:{} {}: nothing that can be read\n", place.core, name_of(place));
}

std::string peek(DebugTarget& target, Words words) {
  const Place place = place_of(target, words, 2);
  uint32_t value = 0;
  const std::span bytes(reinterpret_cast<uint8_t*>(&value), sizeof value);
  if (!place.error.empty()) {
    return place.error;
  }
  const bool done = target.read(place.core, place.address, bytes);
  return word_text(place, done, value);
}

std::string read(DebugTarget& target, Words words) {
  const Place place = place_of(target, words, 2);
  uint32_t value = 0;
  if (!place.error.empty()) {
    return place.error;
  }
  const bool done = target.read_register(place.core, place.address, value);
  return word_text(place, done, value);
}

std::string poke(DebugTarget& target, Words words) {
  const Place place = place_of(target, words, 3);
  const std::span bytes(reinterpret_cast<const uint8_t*>(&place.value), sizeof place.value);
  if (!place.error.empty()) {
    return place.error;
  }
  return target.write(place.core, place.address, bytes)
             ? std::string()
             : fmt::format("TPU:{} {}: nothing that can be written\n", place.core, name_of(place));
}

// Lines of one core, or of all.
std::string by_core(const DebugTarget& target, Words words,
                    std::string (DebugTarget::*text)(uint32_t) const) {
  const auto lines = [&](uint32_t core) {
    std::string of_core = (target.*text)(core);
    return of_core.empty() || of_core.ends_with('\n') ? of_core : of_core + "\n";
  };
  if (words.empty()) {
    std::string all;
    for (uint32_t core = 0; core < target.harts(); ++core) {
      all += lines(core);
    }
    return all.empty() ? "nothing\n" : all;
  }
  const auto core = spec::number_of(words[0]);
  if (!core || *core >= target.harts() || words.size() > 1) {
    return fmt::format("expected a core, 0 to {}, or nothing for all\n", target.harts() - 1);
  }
  const std::string one = lines(*core);
  return one.empty() ? "nothing\n" : one;
}

std::string waves(DebugTarget& target, Words words) {
  if (words.size() != 1 || (words[0] != "on" && words[0] != "off")) {
    return "expected on or off\n";
  }
  return target.switch_waves(words[0] == "on") + "\n";
}

std::string help(DebugTarget& target, Words words);

struct Command {
  std::string_view name;
  std::string_view arguments;
  std::string_view meaning;
  std::string (*run)(DebugTarget& target, Words words);
};

constexpr Command kCommands[] = {
    {"help", "", "this list", help},
    {"time", "", "simulated time",
     [](DebugTarget& target, Words) { return target.time_text() + "\n"; }},
    {"harts", "[CORE]", "where the control harts are",
     [](DebugTarget& target, Words words) {
       return by_core(target, words, &DebugTarget::hart_text);
     }},
    {"queues", "[CORE]", "what waits for what: sequencers and engine queues",
     [](DebugTarget& target, Words words) {
       return by_core(target, words, &DebugTarget::queues_text);
     }},
    {"semaphores", "[CORE]", "semaphores that are not zero",
     [](DebugTarget& target, Words words) {
       return by_core(target, words, &DebugTarget::semaphores_text);
     }},
    {"rings", "[CORE]", "command and completion rings",
     [](DebugTarget& target, Words words) {
       return by_core(target, words, &DebugTarget::rings_text);
     }},
    {"peek", "CORE REGISTER", "a register by name, or a word by address, without side effects",
     peek},
    {"read", "CORE REGISTER", "the same as firmware reads it, with its side effects", read},
    {"poke", "CORE REGISTER VALUE", "writes it, as firmware does", poke},
    {"waves", "on|off", "opens or closes the window of the waves", waves},
    {"reset", "", "not supported",
     [](DebugTarget&, Words) {
       return std::string(
           "reset is not supported: the driver would lose its rings; end the run and start it "
           "again\n");
     }},
};

std::string help(DebugTarget& /*target*/, Words /*words*/) {
  std::string text;
  for (const Command& command : kCommands) {
    text += fmt::format("{:<26} {}\n", fmt::format("{} {}", command.name, command.arguments),
                        command.meaning);
  }
  return text;
}

}  // namespace

std::string monitor_answer(DebugTarget& target, std::string_view command) {
  const std::vector<std::string_view> words = words_of(command);
  for (const Command& known : kCommands) {
    if (!words.empty() && known.name == words.front()) {
      return known.run(target, Words(words).subspan(1));
    }
  }
  return fmt::format("unknown command '{}'\n{}", words.empty() ? "" : words.front(),
                     help(target, {}));
}

}  // namespace tpu::model
