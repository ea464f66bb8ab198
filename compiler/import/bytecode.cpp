// Reads the sections of an MLIR bytecode file: strings, dialects, attributes and types, properties,
// and the op tree. Sections come in any order: they are located first and then decoded in
// dependency order.
#include "import/bytecode.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "import/attr_reader.hpp"
#include "import/bytecode_tables.hpp"
#include "import/cursor.hpp"
#include "import/plain_form.hpp"

namespace tpu::compiler::bytecode {
namespace {

// Versions of the bytecode: StableHLO 0.9 writes 0, 0.15.0 and later ones 6. What came with which:
constexpr uint64_t kVersionedDialects = 1, kIsolatedApart = 2, kUseListOrders = 3,
                   kPlacesLeftOut = 4, kPropertiesApart = 5, kNewestVersion = 6;

enum Section : uint8_t {
  kStrings = 0,
  kDialects = 1,
  kAttrTypes = 2,
  kOffsets = 3,
  kIr = 4,
  kResources = 5,
  kResourceOffsets = 6,
  kDialectVersions = 7,
  kProperties = 8,
  kNumSections = 9,
};

struct OpName {
  std::string_view dialect_name;
  Dialect dialect;
  std::string_view name;
  bool registered;
};

Dialect dialect_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Dialect>, 6> kNames = {{
      {"builtin", Dialect::kBuiltin},
      {"vhlo", Dialect::kVhlo},
      {"sdy", Dialect::kSdy},
      {"stablehlo", Dialect::kStablehlo},
      {"func", Dialect::kFunc},
      {"chlo", Dialect::kChlo},
  }};
  for (const auto& [known, dialect] : kNames) {
    if (name == known) {
      return dialect;
    }
  }
  return Dialect::kOther;
}

struct SectionBytes {
  uint8_t id;
  std::span<const std::byte> bytes;
};

SectionBytes read_section(Cursor& c) {
  const uint8_t head = c.byte();
  const auto id = static_cast<uint8_t>(head & 0x7f);
  if (id >= kNumSections) {
    c.fail("unknown section " + std::to_string(id));
  }
  const uint64_t length = c.varint();
  if (head & 0x80) {
    c.varint();  // alignment; the padding bytes 0xCB follow
    Cursor probe = c;
    while (!probe.at_end() && probe.byte() == 0xcb) {
      c = probe;
    }
  }
  return {id, c.take(c.checked(length))};
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> artifact) : file_(artifact, "file") {}

  RawModule read() {
    header();
    while (!file_.at_end()) {
      const SectionBytes s = read_section(file_);
      sections_[s.id] = s.bytes;
    }
    strings();
    dialects();
    attrs_and_types();
    properties();
    ir();
    return std::move(module_);
  }

 private:
  void header() {
    static constexpr std::array<uint8_t, 4> kMagic = {0x4d, 0x4c, 0xef, 0x52};
    if (is_text()) {
      throw Error(
          "this is MLIR as text; make a StableHLO portable artifact of it, with "
          "stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version()) of "
          "jaxlib.mlir.dialects or with stablehlo-translate --serialize --target=1.0.0");
    }
    for (const uint8_t m : kMagic) {
      if (file_.at_end() || file_.byte() != m) {
        throw Error(
            "not a StableHLO portable artifact (MLIR bytecode); write "
            "jax.export.export(f)(...).mlir_module_serialized to the file");
      }
    }
    version_ = file_.varint();
    if (version_ > kNewestVersion) {
      throw Error("MLIR bytecode of version " + std::to_string(version_) +
                  " is not supported: expected 0 to " + std::to_string(kNewestVersion) +
                  "; write the program as a StableHLO portable artifact "
                  "(stablehlo.serialize_portable_artifact)");
    }
    for (char ch = static_cast<char>(file_.byte()); ch != 0; ch = static_cast<char>(file_.byte())) {
      module_.producer += ch;
    }
  }

  // What MLIR prints begins with the module, or with the places that it names.
  bool is_text() const {
    constexpr std::array<std::string_view, 4> kBegins = {"module", "builtin.module",
                                                         "\"builtin.module\"", "#loc"};
    Cursor start = file_;
    const auto bytes = start.take(start.left());
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    return std::any_of(kBegins.begin(), kBegins.end(),
                       [&](std::string_view begin) { return text.starts_with(begin); });
  }

  Cursor section(Section id, const char* what) const {
    if (!sections_[id]) {
      throw Error(std::string("the artifact is damaged: it has no ") + what + " section");
    }
    return {*sections_[id], what};
  }

  void strings() {
    Cursor c = section(kStrings, "string");
    const size_t n = c.count();
    std::vector<size_t> lengths(n);
    for (size_t i = n; i-- > 0;) {
      lengths[i] = static_cast<size_t>(c.varint());
    }
    for (const size_t length : lengths) {
      const auto bytes = c.take(c.checked(length));
      if (bytes.empty() || bytes.back() != std::byte{0}) {
        c.fail("a string does not end with a zero byte");
      }
      module_.strings.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size() - 1);
    }
  }

  std::string_view string_at(Cursor& c, uint64_t index) const {
    if (index >= module_.strings.size()) {
      c.fail("string index out of range");
    }
    return module_.strings[static_cast<size_t>(index)];
  }

  void dialects() {
    Cursor c = section(kDialects, "dialect");
    for (size_t n = c.count(); n > 0; --n) {
      bool versioned = false;
      const uint64_t name = version_ < kVersionedDialects ? c.varint() : c.flagged(versioned);
      dialects_.push_back(string_at(c, name));
      if (versioned) {
        read_section(c);
      }
    }
    if (c.at_end()) {
      return;
    }
    if (version_ >= kPlacesLeftOut) {
      c.varint();  // number of op names; the groups say it again
    }
    while (!c.at_end()) {
      const std::string_view d = dialects_[c.index(dialects_.size(), "dialects")];
      for (size_t n = c.count(); n > 0; --n) {
        bool registered = true;
        const uint64_t name = version_ < kPropertiesApart ? c.varint() : c.flagged(registered);
        op_names_.push_back({d, dialect_of(d), string_at(c, name), registered});
      }
    }
  }

  struct Entry {
    Dialect dialect;
    uint64_t size;
    bool custom;
  };

  void attrs_and_types() {
    Cursor offsets = section(kOffsets, "offset");
    const size_t num_attrs = offsets.count();
    const size_t num_types = offsets.count();
    std::vector<Entry> entries;
    while (entries.size() < num_attrs + num_types) {
      const Dialect d = dialect_of(dialects_.at(offsets.index(dialects_.size(), "dialects")));
      for (size_t n = offsets.count(); n > 0; --n) {
        Entry e{d, 0, false};
        e.size = offsets.flagged(e.custom);
        entries.push_back(e);
      }
    }
    if (entries.size() != num_attrs + num_types) {
      offsets.fail("the groups hold more entries than announced");
    }
    Cursor data = section(kAttrTypes, "attribute and type");
    std::vector<Cursor> cursors;
    for (const Entry& e : entries) {
      cursors.emplace_back(data.take(data.checked(e.size)), "attribute and type");
    }
    const auto code_of = [](const Entry& e, Cursor& c) {
      return e.custom ? static_cast<uint32_t>(std::min<uint64_t>(c.varint(), kNone)) : kNone;
    };
    // Types first: numbers need the width of their type.
    for (size_t i = num_attrs; i < entries.size(); ++i) {
      const uint32_t code = code_of(entries[i], cursors[i]);
      module_.types.push_back(
          read_type_entry(cursors[i], entries[i].dialect, code, module_, num_attrs, num_types));
    }
    for (size_t i = 0; i < num_attrs; ++i) {
      const uint32_t code = code_of(entries[i], cursors[i]);
      module_.attrs.push_back(
          read_attr_entry(cursors[i], entries[i].dialect, code, module_, num_attrs, num_types));
    }
  }

  void properties() {
    if (!sections_[kProperties]) {
      return;
    }
    Cursor c = section(kProperties, "property");
    for (size_t n = c.count(); n > 0; --n) {
      const size_t size = c.count();
      properties_.push_back(c.take(size));
    }
  }

  void ir() {
    Cursor c = section(kIr, "op");
    bool has_args = false;
    if (c.flagged(has_args) != 1 || has_args) {
      c.fail("the file must hold one module");
    }
    module_.module = op(c, 0);
    if (module_.module.dialect != Dialect::kBuiltin || module_.module.name != "module") {
      c.fail("the file's top must be builtin.module");
    }
    module_.num_values = next_value_;
  }

  RawOp op(Cursor& c, int depth) {
    const OpName& name = op_names_.at(c.index(op_names_.size(), "op names"));
    const uint8_t mask = c.byte();
    RawOp out;
    out.dialect = name.dialect;
    out.dialect_name = name.dialect_name;
    out.name = name.name;
    out.loc = c.index(module_.attrs.size(), "attributes");
    if (mask & 0x01) {
      out.dictionary = c.index(module_.attrs.size(), "attributes");
      if (version_ < kPropertiesApart) {
        take_properties(out.dictionary, out);  // between the others
      }
    }
    if (mask & 0x40) {
      op_property_list(c, name, out);
    }
    if (mask & 0x02) {
      for (size_t n = c.count(); n > 0; --n) {
        out.result_types.push_back(c.index(module_.types.size(), "types"));
      }
    }
    if (mask & 0x04) {
      for (size_t n = c.count(); n > 0; --n) {
        out.operands.push_back(value(c));
      }
    }
    if (mask & 0x08) {
      c.fail("ops with successors do not occur in StableHLO");
    }
    if (mask & 0x20) {
      skip_use_lists(c, out.result_types.size());
    }
    if (mask & 0x10) {
      regions(c, out, depth);
    }
    return out;
  }

  void take_properties(uint32_t dictionary, RawOp& out) const {
    for (const auto& [key, value_attr] : module_.attrs[dictionary].pairs) {
      out.properties.emplace_back(module_.attrs[key].text, value_attr);
    }
  }

  void op_property_list(Cursor& c, const OpName& name, RawOp& out) {
    const uint32_t index = c.index(properties_.size(), "properties");
    Cursor p(properties_[index], "property");
    if (name.dialect == Dialect::kBuiltin && name.name == "module") {
      // Its name and visibility; each is an index behind a flag that says if it is there.
      bool named = false;
      const uint64_t symbol = p.flagged(named);
      if (named && symbol < module_.attrs.size()) {
        out.properties.emplace_back("sym_name", static_cast<uint32_t>(symbol));
      }
      return;
    }
    if (!name.registered) {
      take_properties(p.index(module_.attrs.size(), "attributes"), out);
      return;
    }
    if (name.dialect == Dialect::kStablehlo || name.dialect == Dialect::kFunc ||
        name.dialect == Dialect::kChlo) {
      plain_property_list(p, name, out);
      return;
    }
    const auto* names = op_properties(name.dialect, name.name);
    if (names == nullptr) {
      return;  // an op this compiler does not know: the import names it with its location
    }
    for (const std::string_view property : *names) {
      out.properties.emplace_back(property, p.index(module_.attrs.size(), "attributes"));
    }
    if (!p.at_end()) {
      p.fail("op " + std::string(name.name) + " has more properties than known");
    }
  }

  // Writers of other versions store other lists: the number of entries tells them apart.
  void plain_property_list(Cursor& p, const OpName& name, RawOp& out) const {
    const auto lists = plain_properties(name.dialect, name.name);
    size_t entries = 0;
    for (Cursor all = p; !all.at_end(); ++entries) {
      all.varint();
    }
    const auto list = std::find_if(lists.begin(), lists.end(),
                                   [&](const auto& names) { return names.size() == entries; });
    if (lists.empty()) {
      return;  // an op this compiler does not know: the import names it with its location
    }
    if (list == lists.end()) {
      throw Error(
          "op " + std::string(name.name) + " has " + std::to_string(entries) + " properties in " +
          module_.producer +
          ", which this compiler does not support: write the program as a StableHLO portable "
          "artifact (stablehlo.serialize_portable_artifact)");
    }
    for (const std::string_view property : *list) {
      if (!property.ends_with('?')) {
        out.properties.emplace_back(property, p.index(module_.attrs.size(), "attributes"));
        continue;
      }
      bool present = false;
      const uint64_t attr = p.flagged(present);
      if (present && attr >= module_.attrs.size()) {
        p.fail("attribute index out of range");
      }
      if (present) {
        out.properties.emplace_back(property.substr(0, property.size() - 1),
                                    static_cast<uint32_t>(attr));
      }
    }
  }

  uint32_t value(Cursor& c) {
    const uint32_t slot = c.index(slots_.size(), "values");
    if (slots_[slot] == kNone) {
      c.fail("a value is used before it is defined");
    }
    return slots_[slot];
  }

  void skip_use_lists(Cursor& c, size_t num_values) {
    const size_t lists = num_values > 1 ? c.count() : 1;
    for (size_t i = 0; i < lists; ++i) {
      if (num_values > 1) {
        c.varint();
      }
      bool pairs = false;
      for (size_t n = c.checked(c.flagged(pairs)); n > 0; --n) {
        c.varint();
      }
    }
  }

  void regions(Cursor& c, RawOp& op_with_regions, int depth) {
    if (depth > kMaxRegionDepth) {
      throw Error("loops and branches are nested more than " + std::to_string(kMaxRegionDepth) +
                      " deep; reduce the nesting",
                  frontend::display_name(op_with_regions),
                  frontend::Tables(module_).loc(op_with_regions.loc));
    }
    bool isolated = false;
    const size_t n = c.checked(c.flagged(isolated));
    if (!isolated) {
      // The op's results are defined behind its regions but numbered in the enclosing region.
      for (size_t i = 0; i < n; ++i) {
        op_with_regions.regions.push_back(region(c, depth));
      }
      return;
    }
    // Values of such an op are numbered from 0.
    std::vector<uint32_t> outer_slots;
    outer_slots.swap(slots_);
    Cursor apart;
    if (version_ >= kIsolatedApart) {
      const SectionBytes section = read_section(c);
      if (section.id != kIr) {
        c.fail("the regions of an isolated op must be an op section");
      }
      apart = Cursor(section.bytes, "op");
    }
    for (size_t i = 0; i < n; ++i) {
      op_with_regions.regions.push_back(region(version_ >= kIsolatedApart ? apart : c, depth));
    }
    slots_.swap(outer_slots);
  }

  RawRegion region(Cursor& c, int depth) {
    RawRegion out;
    const uint64_t blocks = c.varint();
    if (blocks == 0) {
      return out;
    }
    if (blocks != 1) {
      c.fail("a region with several blocks");
    }
    const size_t num_values = c.count();
    const size_t base = slots_.size();
    size_t next = base;
    slots_.resize(base + num_values, kNone);
    const auto define = [&] {
      if (next == base + num_values) {
        c.fail("a region defines more values than announced");
      }
      slots_[next] = next_value_++;
      return slots_[next++];
    };

    bool has_args = false;
    const size_t num_ops = c.checked(c.flagged(has_args));
    if (has_args) {
      const size_t num_args = c.count();
      for (size_t i = 0; i < num_args; ++i) {
        RawArg arg;
        bool has_loc = true;
        const uint64_t type = version_ < kPlacesLeftOut ? c.varint() : c.flagged(has_loc);
        if (type >= module_.types.size()) {
          c.fail("type index out of range");
        }
        arg.type = static_cast<uint32_t>(type);
        if (has_loc) {
          arg.loc = c.index(module_.attrs.size(), "attributes");
        }
        arg.value = define();
        out.args.push_back(arg);
      }
      if (version_ >= kUseListOrders && c.byte() != 0) {
        skip_use_lists(c, num_args);
      }
    }
    for (size_t i = 0; i < num_ops; ++i) {
      out.ops.push_back(op(c, depth + 1));
      RawOp& last = out.ops.back();
      for (size_t r = 0; r < last.result_types.size(); ++r) {
        last.results.push_back(define());
      }
    }
    slots_.resize(base);
    return out;
  }

  Cursor file_;
  uint64_t version_ = 0;
  std::array<std::optional<std::span<const std::byte>>, kNumSections> sections_;
  std::vector<std::string_view> dialects_;
  std::vector<OpName> op_names_;
  std::vector<std::span<const std::byte>> properties_;
  std::vector<uint32_t> slots_;  // value number by position in the scope; kNone: not defined yet
  uint32_t next_value_ = 0;
  RawModule module_;
};

}  // namespace

RawModule read_bytecode(std::span<const std::byte> artifact) { return Reader(artifact).read(); }

}  // namespace tpu::compiler::bytecode
