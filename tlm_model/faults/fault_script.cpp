// Reads a fault file: every error names file, line and entry, and says what to do.
#include "faults/fault_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "board/board_loader.hpp"
#include "check/near_names.hpp"
#include "file/whole_file.hpp"
#include "probe/events.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

constexpr uint64_t kMostEntries = 10000;
constexpr uint64_t kMostCycles = uint64_t{1} << 62;
constexpr uint64_t kTcmBytes = uint64_t{TPU_HART_ITCM_BYTES} + TPU_HART_DTCM_BYTES;

// Kinds of docs/faults.md that this version does not have.
constexpr std::array<std::string_view, 6> kUnbuilt = {"vmem",       "smem",      "mxu",
                                                      "board_dies", "host_dies", "rtl_mismatch"};

// Of an entry of the file, and where to find it.
struct Source {
  const std::string& file;
  const spec::BoardParams& params;
  uint32_t line = 0;
  uint32_t number = 0;

  [[noreturn]] void refuse(const std::string& text) const {
    throw std::runtime_error(fmt::format("{}:{}: fault {}: {}", file, line, number, text));
  }
};

// Reads a text piece by piece; pieces are separated by spaces.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) { skip(); }

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) {
      return false;
    }
    rest_.remove_prefix(word.size());
    skip();
    return true;
  }
  std::optional<uint64_t> number() {
    const bool hex = rest_.starts_with("0x");
    const char* const first = rest_.data() + (hex ? 2 : 0);
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(first, rest_.data() + rest_.size(), value, hex ? 16 : 10);
    if (error != std::errc() || value > kMostCycles) {
      return std::nullopt;
    }
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip();
    return value;
  }
  // Up to the next space.
  std::string_view word() {
    const std::string_view found = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(found.size());
    skip();
    return found;
  }

 private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  std::string_view rest_;
};

FaultKind read_kind(const Source& source, const std::string& name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kFaultKinds; ++i) {
    const auto kind = static_cast<FaultKind>(i);
    if (name == fault_kind_name(kind)) {
      return kind;
    }
    names.emplace_back(fault_kind_name(kind));
  }
  if (std::ranges::find(kUnbuilt, name) != kUnbuilt.end()) {
    source.refuse(fmt::format("kind '{}' is not built into this version; the kinds are {}", name,
                              fmt::join(names, ", ")));
  }
  source.refuse(fmt::format("unknown kind '{}'; like it are {}; docs/faults.md lists all kinds",
                            name, spec::near_names(name, names)));
}

bool has_address(FaultKind kind) { return kind == FaultKind::kHbm || kind == FaultKind::kTcm; }

// "link chip1 +x": the link that leaves the chip in that direction.
uint32_t read_link(const Source& source, FaultKind kind, const std::string& text) {
  Words words(text);
  constexpr uint64_t kNone = UINT64_MAX;
  const uint64_t chip =
      words.take("link ") && words.take("chip") ? words.number().value_or(kNone) : kNone;
  const auto* const link = std::ranges::find(kLinkNames, words.rest());
  if (chip == kNone || link == kLinkNames.end()) {
    source.refuse(
        fmt::format("where = \"{}\": a fault of kind '{}' is in a link; expected \"link chipN "
                    "+x\", or -x, +y, -y",
                    text, fault_kind_name(kind)));
  }
  const auto chips = static_cast<uint64_t>(spec::chip_count(source.params));
  if (chip >= chips) {
    source.refuse(fmt::format("where = \"{}\": the board has chips 0 to {}", text, chips - 1));
  }
  const auto direction = static_cast<uint32_t>(link - kLinkNames.begin());
  const int64_t wide = spec::chips_x(source.params);
  if ((direction < 2 ? wide : static_cast<int64_t>(chips) / wide) == 1) {
    source.refuse(fmt::format("where = \"{}\": the torus has one chip in this direction", text));
  }
  return static_cast<uint32_t>(chip) * kLinksPerChip + direction;
}

uint32_t read_unit(const Source& source, FaultKind kind, const std::string& text) {
  if (fault_home(kind) == FaultHome::kLink) {
    return read_link(source, kind, text);
  }
  const bool chip = fault_home(kind) == FaultHome::kChip;
  const char* const home = chip ? "chip" : "core";
  const auto count = static_cast<uint64_t>(chip ? spec::chip_count(source.params)
                                                : spec::core_count(source.params));
  Words words(text);
  const auto number = words.take(home) ? words.number() : std::nullopt;
  if (!number || !words.empty()) {
    source.refuse(fmt::format("where = \"{}\": a fault of kind '{}' is in a {}; expected \"{} N\"",
                              text, fault_kind_name(kind), home, home));
  }
  if (*number >= count) {
    source.refuse(fmt::format("where = \"{}\": the board has no such {}; it has {}s 0 to {}", text,
                              home, home, count - 1));
  }
  return static_cast<uint32_t>(*number);
}

[[noreturn]] void refuse_time(const Source& source, const std::string& text) {
  source.refuse(fmt::format(
      "at = \"{}\": expected \"cycle N\", \"step N\", \"step N + CYCLES\", \"launch N\", "
      "\"launch N + CYCLES\", \"op NAME\" or \"op NAME #K\"",
      text));
}

FaultTime read_time(const Source& source, const std::string& text) {
  Words words(text);
  FaultTime time;
  if (words.take("op ")) {
    time.kind = FaultTime::Kind::kOp;
    time.op = words.word();
    time.number = 1;
    if (words.take("#")) {
      time.number = words.number().value_or(0);
    }
    if (time.op.empty() || time.number == 0 || !words.empty()) {
      refuse_time(source, text);
    }
    return time;
  }
  const bool cycle = words.take("cycle ");
  const bool step = !cycle && words.take("step ");
  if (!cycle && !step && !words.take("launch ")) {
    refuse_time(source, text);
  }
  time.kind = cycle  ? FaultTime::Kind::kCycle
              : step ? FaultTime::Kind::kStep
                     : FaultTime::Kind::kLaunch;
  const auto number = words.number();
  const auto cycles = !cycle && words.take("+") ? words.number() : std::optional<uint64_t>(0);
  if (!number || !cycles || !words.empty()) {
    refuse_time(source, text);
  }
  time.number = *number;
  time.cycles = *cycles;
  return time;
}

FaultTime read_rate(const Source& source, const std::string& text) {
  Words words(text);
  FaultTime time;
  const std::string_view number = words.word();
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), time.rate);
  const bool step = words.take("per step");
  if (error != std::errc() || end != number.data() + number.size() ||
      (!step && !words.take("per launch")) || !words.empty()) {
    source.refuse(fmt::format(
        "rate = \"{}\": expected \"R per step\" or \"R per launch\", for example \"0.01 per step\"",
        text));
  }
  if (!(time.rate > 0 && time.rate <= 1)) {
    source.refuse(fmt::format(
        "rate = \"{}\": a rate is a probability: expected more than 0 and at most 1", text));
  }
  time.kind = step ? FaultTime::Kind::kRatePerStep : FaultTime::Kind::kRatePerLaunch;
  return time;
}

uint64_t memory_bytes(const Source& source, FaultKind kind) {
  return kind == FaultKind::kTcm ? kTcmBytes
                                 : static_cast<uint64_t>(source.params.hbm.gib_per_core) << 30;
}

FaultAddress read_address(const Source& source, FaultKind kind, const std::string& text) {
  const bool hbm = kind == FaultKind::kHbm;
  FaultAddress address;
  Words words(text);
  if (text == "random") {
    return address;
  }
  if (hbm && text == "random slot") {
    address.kind = FaultAddress::Kind::kRandomSlot;
    return address;
  }
  const bool slot = hbm && words.take("slot ");
  const auto first = words.number();
  const auto offset = slot && first && words.take("+") ? words.number() : first;
  if (!first || !offset || !words.empty()) {
    source.refuse(fmt::format("address = \"{}\": expected {}", text,
                              hbm ? "\"random\", \"random slot\", \"slot N\", \"slot N + OFFSET\" "
                                    "or an offset in the core's HBM"
                                  : "\"random\" or an offset in ITCM and, behind it, DTCM"));
  }
  if (slot) {
    address.kind = FaultAddress::Kind::kSlot;
    address.slot = static_cast<uint32_t>(std::min<uint64_t>(*first, UINT32_MAX));
    address.offset = text.find('+') == std::string::npos ? 0 : *offset;
    if (*first >= TPU_MAX_SLOTS) {
      source.refuse(
          fmt::format("address = \"{}\": a launch has at most {} slots", text, TPU_MAX_SLOTS));
    }
    return address;
  }
  address.kind = FaultAddress::Kind::kOffset;
  address.offset = *offset;
  if (address.offset >= memory_bytes(source, kind)) {
    source.refuse(
        fmt::format("address = \"{}\": the memory has {} bytes", text, memory_bytes(source, kind)));
  }
  return address;
}

uint32_t read_engine(const Source& source, const std::string& name) {
  std::vector<std::string> names = {"sequencer"};
  const auto mxus = static_cast<size_t>(source.params.core.mxus);
  for (size_t i = 0; i < spec::kQueueNames.size(); ++i) {
    const std::string_view queue = spec::kQueueNames[i];
    if (!queue.starts_with("mxu") || static_cast<size_t>(queue.back() - '0') < mxus) {
      names.emplace_back(queue);
      if (name == queue) {
        return static_cast<uint32_t>(i);
      }
    }
  }
  if (name != "sequencer") {
    source.refuse(fmt::format("unit = \"{}\": a core has {}", name, fmt::join(names, ", ")));
  }
  return static_cast<uint32_t>(kSequencerUnit);
}

// "20 us"; 0 without a text.
uint64_t read_duration(const Source& source, const std::optional<std::string>& text) {
  if (!text) {
    return 0;
  }
  constexpr uint64_t kMost = 1'000'000;
  Words words(*text);
  const auto number = words.number();
  if (!number || !words.take("us") || !words.empty() || *number == 0 || *number > kMost) {
    source.refuse(fmt::format("for = \"{}\": expected \"N us\", N from 1 to {}", *text, kMost));
  }
  return *number;
}

// The keys of an entry, each of which is looked at.
class Keys {
 public:
  Keys(const Source& source, const toml::table& table) : source_(source), table_(table) {}

  std::optional<std::string> text(std::string_view key) {
    known_.insert(std::string(key));
    const toml::node* const node = table_.get(key);
    if (node == nullptr) {
      return std::nullopt;
    }
    auto value = node->value_exact<std::string>();
    if (!value) {
      source_.refuse(fmt::format("'{}' must be a text", key));
    }
    return value;
  }
  std::optional<int64_t> integer(std::string_view key) {
    known_.insert(std::string(key));
    const toml::node* const node = table_.get(key);
    if (node == nullptr) {
      return std::nullopt;
    }
    const auto value = node->value_exact<int64_t>();
    if (!value) {
      source_.refuse(fmt::format("'{}' must be an integer", key));
    }
    return value;
  }
  std::string need(std::string_view key) {
    auto value = text(key);
    if (!value) {
      source_.refuse(fmt::format("'{}' is missing", key));
    }
    return *value;
  }
  void refuse_others(FaultKind kind) const {
    for (const auto& [key, unused] : table_) {
      static_cast<void>(unused);
      if (!known_.contains(std::string(key.str()))) {
        source_.refuse(fmt::format("a fault of kind '{}' has no key '{}'; it has {}",
                                   fault_kind_name(kind), key.str(), fmt::join(known_, ", ")));
      }
    }
  }

 private:
  const Source& source_;
  const toml::table& table_;
  std::set<std::string> known_;
};

FaultEntry read_entry(const Source& source, const toml::table& table) {
  Keys keys(source, table);
  FaultEntry entry;
  entry.number = source.number;
  entry.line = source.line;
  entry.kind = read_kind(source, keys.need("kind"));
  entry.unit = read_unit(source, entry.kind, keys.need("where"));
  const auto at = keys.text("at");
  const auto rate = keys.text("rate");
  if (at.has_value() == rate.has_value()) {
    source.refuse(at ? "'at' and 'rate' contradict each other; give one of them"
                     : "'at' or 'rate' is missing: when does it happen?");
  }
  entry.time = at ? read_time(source, *at) : read_rate(source, *rate);
  entry.when = at ? *at : *rate;
  if (entry.kind == FaultKind::kHbm) {
    const int64_t bits = keys.integer("bits").value_or(1);
    if (bits != 1 && bits != 2) {
      source.refuse(fmt::format("bits = {}: expected 1 (ECC corrects it) or 2 (it cannot)", bits));
    }
    entry.bits = static_cast<uint32_t>(bits);
  }
  if (has_address(entry.kind)) {
    entry.address = read_address(source, entry.kind, keys.text("address").value_or("random"));
    const bool of_launch = entry.address.kind == FaultAddress::Kind::kSlot ||
                           entry.address.kind == FaultAddress::Kind::kRandomSlot;
    if (of_launch && entry.time.kind == FaultTime::Kind::kCycle) {
      source.refuse(
          "slots belong to a launch, and at a cycle there need not be one; give 'at' a step, a "
          "launch or an op");
    }
  }
  if (entry.kind == FaultKind::kCoreHang) {
    entry.engine = read_engine(source, keys.text("unit").value_or("sequencer"));
  }
  if (entry.kind == FaultKind::kLinkCorrupt) {
    const int64_t repeats = keys.integer("repeats").value_or(1);
    if (repeats < 1 || repeats > int64_t{spec::chip_page::kLinkRetriesMax}) {
      source.refuse(
          fmt::format("repeats = {}: expected 1 to {}; a link that repeats more is "
                      "link_down",
                      repeats, spec::chip_page::kLinkRetriesMax));
    }
    entry.repeats = static_cast<uint64_t>(repeats);
  }
  if (entry.kind == FaultKind::kLinkDown) {
    entry.microseconds = read_duration(source, keys.text("for"));
  }
  keys.refuse_others(entry.kind);
  return entry;
}

void refuse_twins(const FaultScript& script, const std::string& file) {
  for (size_t i = 0; i < script.entries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const FaultEntry& a = script.entries[j];
      const FaultEntry& b = script.entries[i];
      const bool gone =
          a.kind == b.kind && (a.kind == FaultKind::kPcieDown ||
                               (a.kind == FaultKind::kLinkDown && a.microseconds == 0));
      if (a.kind == b.kind && a.unit == b.unit && a.engine == b.engine && !has_address(a.kind) &&
          (gone || a.when == b.when)) {
        throw std::runtime_error(
            fmt::format("{}:{}: fault {} is the same as fault {} in line {}; remove one of them",
                        file, b.line, b.number, a.number, a.line));
      }
    }
  }
}

}  // namespace

FaultScript parse_fault_script(const std::string& text, const std::string& file, uint64_t seed,
                               const spec::BoardParams& params) {
  toml::table root;
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw std::runtime_error(
        fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
  FaultScript script;
  for (const auto& [key, node] : root) {
    const auto refuse = [&, at = node.source().begin.line](const std::string& what) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file, at, what));
    };
    if (key.str() == "seed") {
      const auto value = node.value_exact<int64_t>();
      if (!value || *value < 0) {
        refuse("'seed' must be an integer of 0 or more");
      }
      script.seed = static_cast<uint64_t>(*value);
    } else if (key.str() == "ecc") {
      const auto value = node.value_exact<bool>();
      if (!value) {
        refuse("'ecc' must be true or false");
      }
      script.ecc = *value;
    } else if (key.str() == "fault") {
      const toml::array* const entries = node.as_array();
      if (entries == nullptr || !entries->is_homogeneous(toml::node_type::table)) {
        refuse("'fault' must be a list of tables, each with the head [[fault]]");
      }
      if (entries->size() > kMostEntries) {
        refuse(fmt::format("{} faults are too many: expected at most {}", entries->size(),
                           kMostEntries));
      }
      for (const toml::node& entry : *entries) {
        const Source source{file, params, entry.source().begin.line,
                            static_cast<uint32_t>(script.entries.size() + 1)};
        script.entries.push_back(read_entry(source, *entry.as_table()));
      }
    } else {
      refuse(fmt::format("unknown key '{}'; a fault file has seed, ecc and [[fault]]", key.str()));
    }
  }
  if (script.entries.empty()) {
    throw std::runtime_error(file + ": there is no fault in it; add a [[fault]]");
  }
  refuse_twins(script, file);
  script.seed = seed != 0 ? seed : script.seed;
  return script;
}

FaultScript load_fault_script(const std::string& path, uint64_t seed,
                              const spec::BoardParams& params) {
  const std::vector<std::byte> bytes = spec::read_whole_file(path);
  return parse_fault_script({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, seed,
                            params);
}

}  // namespace tpu::model
