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
#include <span>
#include <stdexcept>
#include <utility>

#include "board/board_loader.hpp"
#include "check/near_names.hpp"
#include "file/crc32c.hpp"
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
  if (name == "rtl_mismatch") {
    source.refuse(
        "kind 'rtl_mismatch' is what lockstep with the Verilog finds, and nothing that fails: use "
        "kind = \"mxu\", a wrong result, on a board whose matrix units are in lockstep "
        "(SimOptions::mxu)");
  }
  source.refuse(fmt::format("unknown kind '{}'; like it are {}; docs/faults.md lists all kinds",
                            name, spec::near_names(name, names)));
}

bool has_address(FaultKind kind) {
  return kind == FaultKind::kHbm || kind == FaultKind::kVmem || kind == FaultKind::kSmem ||
         kind == FaultKind::kTcm;
}

// Of words of 32 bits, or of bytes (TCM).
bool flips_bits(FaultKind kind) { return has_address(kind) || kind == FaultKind::kMxu; }

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

// Its name in files, and how many the pod has.
std::pair<const char*, int64_t> home_of(FaultHome home, const spec::BoardParams& params) {
  switch (home) {
    case FaultHome::kCore:
      return {"core", spec::core_count(params)};
    case FaultHome::kBoard:
      return {"board", spec::board_count(params)};
    default:
      return {"chip", spec::chip_count(params)};
  }
}

// The chip that has the unit of an entry.
uint32_t chip_of(const FaultEntry& entry, const spec::BoardParams& params) {
  switch (fault_home(entry.kind)) {
    case FaultHome::kCore:
      return entry.unit / static_cast<uint32_t>(params.board.cores_per_chip);
    case FaultHome::kChip:
      return entry.unit;
    case FaultHome::kLink:
      return entry.unit / kLinksPerChip;
    case FaultHome::kBoard:
      break;
  }
  uint32_t chip = 0;
  while (spec::board_of_chip(params, chip) != static_cast<int64_t>(entry.unit)) {
    ++chip;
  }
  return chip;
}

uint32_t read_unit(const Source& source, FaultKind kind, const std::string& text) {
  if (fault_home(kind) == FaultHome::kLink) {
    return read_link(source, kind, text);
  }
  const auto [home, number_of] = home_of(fault_home(kind), source.params);
  const auto count = static_cast<uint64_t>(number_of);
  Words words(text);
  const auto number = words.take(home) ? words.number() : std::nullopt;
  if (!number || !words.empty()) {
    source.refuse(fmt::format("where = \"{}\": a fault of kind '{}' is in a {}; expected \"{} N\"",
                              text, fault_kind_name(kind), home, home));
  }
  if (*number >= count) {
    source.refuse(fmt::format("where = \"{}\": there is no such {}; there are {}s 0 to {}", text,
                              home, home, count - 1));
  }
  return static_cast<uint32_t>(*number);
}

[[noreturn]] void refuse_time(const Source& source, const std::string& text) {
  source.refuse(fmt::format(
      "at = \"{}\": expected \"cycle N\", \"step N\", \"step N + CYCLES\", \"launch N\", "
      "\"launch N + CYCLES\", \"op NAME\" or \"op NAME #K\"; numbers may be ranges, \"2..9\"",
      text));
}

// "5" or "2..9".
std::optional<FaultTime::Number> read_range(Words& words) {
  const auto first = words.number();
  const auto last = first && words.take("..") ? words.number() : first;
  return last && *first <= *last ? std::optional<FaultTime::Number>({*first, *last}) : std::nullopt;
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
  const auto number = read_range(words);
  const auto cycles = !cycle && words.take("+") ? read_range(words) : FaultTime::Number();
  if (!number || !cycles || !words.empty()) {
    refuse_time(source, text);
  }
  time.number_range = *number;
  time.cycles_range = *cycles;
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
  const auto& core = source.params.core;
  switch (kind) {
    case FaultKind::kTcm:
      return kTcmBytes;
    case FaultKind::kVmem:
      return static_cast<uint64_t>(core.vmem_kib) << 10;
    case FaultKind::kSmem:
      return static_cast<uint64_t>(core.smem_kib) << 10;
    default:
      return static_cast<uint64_t>(source.params.hbm.gib_per_core) << 30;
  }
}

const char* memory_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kTcm:
      return "ITCM and, behind it, DTCM";
    case FaultKind::kVmem:
      return "the core's VMEM";
    case FaultKind::kSmem:
      return "the core's SMEM";
    default:
      return "the core's HBM";
  }
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
    source.refuse(fmt::format("address = \"{}\": expected \"random\"{} or an offset in {}", text,
                              hbm ? ", \"random slot\", \"slot N\", \"slot N + OFFSET\"" : "",
                              memory_name(kind)));
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

// Of a fault in a matrix unit: a queue. "random": the seed chooses it later.
constexpr uint32_t kRandomEngine = UINT32_MAX;

uint32_t read_mxu(const Source& source, const std::string& name) {
  const auto mxus = static_cast<size_t>(source.params.core.mxus);
  for (size_t i = 0; i < mxus; ++i) {
    const auto queue = static_cast<size_t>(spec::kMxuQueues[i]);
    if (name == spec::kQueueNames[queue]) {
      return static_cast<uint32_t>(queue);
    }
  }
  if (name != "random") {
    source.refuse(fmt::format("unit = \"{}\": expected \"random\" or a matrix unit, mxu0 to mxu{}",
                              name, mxus - 1));
  }
  return kRandomEngine;
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

// How many bits flip, and which.
void read_bits(const Source& source, Keys& keys, FaultEntry& entry) {
  const bool byte = entry.kind == FaultKind::kTcm;
  const int64_t bits = byte ? 1 : keys.integer("bits").value_or(1);
  if (bits != 1 && bits != 2) {
    source.refuse(fmt::format("bits = {}: expected 1 (ECC corrects it) or 2 (it cannot)", bits));
  }
  entry.bits = static_cast<uint32_t>(bits);
  const auto bit = keys.integer("bit");
  if (!bit) {
    return;
  }
  const int64_t most = byte ? 7 : 31;
  if (*bit < 0 || *bit > most) {
    source.refuse(fmt::format("bit = {}: expected 0 to {}", *bit, most));
  }
  if (bits != 1) {
    source.refuse("'bit' names the one bit that flips, and contradicts bits = 2");
  }
  entry.bit = static_cast<uint32_t>(*bit);
}

FaultEntry read_entry(const Source& source, const toml::table& table) {
  Keys keys(source, table);
  FaultEntry entry;
  entry.number = source.number;
  entry.line = source.line;
  entry.kind = read_kind(source, keys.need("kind"));
  entry.unit = read_unit(source, entry.kind, keys.need("where"));
  entry.chip = chip_of(entry, source.params);
  const auto at = keys.text("at");
  const auto rate = keys.text("rate");
  if (at.has_value() == rate.has_value()) {
    source.refuse(at ? "'at' and 'rate' contradict each other; give one of them"
                     : "'at' or 'rate' is missing: when does it happen?");
  }
  entry.time = at ? read_time(source, *at) : read_rate(source, *rate);
  entry.when = at ? *at : *rate;
  if (flips_bits(entry.kind)) {
    read_bits(source, keys, entry);
  }
  if (entry.kind == FaultKind::kMxu) {
    entry.engine = read_mxu(source, keys.text("unit").value_or("random"));
    const int64_t commands = keys.integer("commands").value_or(1);
    if (commands < 1) {
      source.refuse(fmt::format("commands = {}: expected 1 or more", commands));
    }
    entry.commands = static_cast<uint64_t>(commands);
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

// What ranges and "random" leave open.
void draw_open(FaultScript& script, size_t mxus) {
  constexpr uint64_t kOfTimes = UINT64_MAX;  // no draw of what an entry does has these counts
  constexpr uint64_t kOfWideTimes = kOfTimes - 1;
  for (FaultEntry& entry : script.entries) {
    const std::array<uint32_t, 4> words = fault_draw(script.seed, entry, kOfTimes);
    const auto one_of = [](const FaultTime::Number& range, uint64_t random) {
      return range.first + random % (range.last - range.first + 1);
    };
    if (entry.kind == FaultKind::kMxu && entry.engine == kRandomEngine) {
      entry.engine = static_cast<uint32_t>(spec::kMxuQueues[words[3] % mxus]);
    }
    FaultTime& time = entry.time;
    if (time.kind != FaultTime::Kind::kOp) {
      const uint32_t high = fault_draw(script.seed, entry, kOfWideTimes)[0];
      time.number = one_of(time.number_range, uint64_t{high} << 32 | words[0]);
      time.cycles = one_of(time.cycles_range, uint64_t{words[1]} << 32 | words[2]);
    }
  }
}

void refuse_twins(const FaultScript& script, const std::string& file) {
  for (size_t i = 0; i < script.entries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const FaultEntry& a = script.entries[j];
      const FaultEntry& b = script.entries[i];
      const bool gone =
          a.kind == b.kind &&
          (a.kind == FaultKind::kPcieDown || fault_home(a.kind) == FaultHome::kBoard ||
           (a.kind == FaultKind::kLinkDown && a.microseconds == 0));
      if (a.kind == b.kind && a.unit == b.unit && a.engine == b.engine && !flips_bits(a.kind) &&
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
  for (int64_t chip = 0; chip < spec::chip_count(params); ++chip) {
    script.boards.push_back(static_cast<uint32_t>(spec::board_of_chip(params, chip)));
  }
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
  const std::string whole = fmt::format("{}\n{}", script.seed, text);
  script.digest = std::max(spec::crc32c(std::as_bytes(std::span(whole))), 1U);
  draw_open(script, static_cast<size_t>(params.core.mxus));
  return script;
}

FaultScript load_fault_script(const std::string& path, uint64_t seed,
                              const spec::BoardParams& params) {
  const std::vector<std::byte> bytes = spec::read_whole_file(path);
  return parse_fault_script({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, seed,
                            params);
}

}  // namespace tpu::model
