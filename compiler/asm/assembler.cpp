// Directives of the assembly text, and the executable around the code.
#include "asm/assembler.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "asm/assemble_code.hpp"
#include "asm/text.hpp"
#include "board/board_loader.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {

namespace {

constexpr std::array<std::string_view, 16> kDirectives = {
    ".program", ".board", ".partitions", ".slot", ".arg",    ".result", ".constant", ".op",
    ".note",    ".stat",  ".entry",      ".vpu",  ".access", ".end",    ".word",     ".temporary"};
constexpr std::array<std::string_view, 4> kOfCode = {".vpu", ".access", ".end", ".word"};

// Words of a directive: an optional string or name first, then key=value pairs. Every word must be
// asked for: what nobody reads is a mistake in the text.
class Directive {
 public:
  explicit Directive(const text::Statement& words) : words_(words), used_(words.size()) {
    used_[0] = true;
  }

  std::optional<std::string> find(const std::string& key) {
    known_.push_back(key);
    for (size_t i = 1; i < words_.size(); ++i) {
      if (!used_[i] && words_[i].starts_with(key + "=")) {
        used_[i] = true;
        return words_[i].substr(key.size() + 1);
      }
    }
    return std::nullopt;
  }
  int64_t number(const std::string& key, int64_t fallback, int64_t low, int64_t high) {
    const auto v = find(key);
    return v ? text::parse_range(*v, low, high, key) : fallback;
  }
  uint32_t number32(const std::string& key, int64_t fallback) {
    return static_cast<uint32_t>(number(key, fallback, 0, UINT32_MAX));
  }
  // Any 64 bits.
  uint64_t number64(const std::string& key, uint64_t fallback = 0) {
    const auto v = find(key);
    return v ? static_cast<uint64_t>(text::parse_number(*v)) : fallback;
  }
  std::string string(const std::string& key) {
    const auto v = find(key);
    return v ? text::parse_string(*v) : "";
  }
  std::vector<int64_t> list(const std::string& key, std::vector<int64_t> fallback = {}) {
    const auto v = find(key);
    return v ? text::parse_list(*v) : std::move(fallback);
  }
  const std::string& word(size_t i, const char* what) {
    if (i >= words_.size()) {
      throw Error(words_[0] + " needs " + what);
    }
    used_[i] = true;
    return words_[i];
  }
  void finish() {
    for (size_t i = 1; i < words_.size(); ++i) {
      if (used_[i]) {
        continue;
      }
      const std::string key = words_[i].substr(0, words_[i].find('='));
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
        throw Error(key + "= is given twice");
      }
      const std::string head = words_[0];
      throw Error(head + " has no operand '" + words_[i] + "'" +
                  text::suggestion(key, {known_.begin(), known_.end()}));
    }
  }

 private:
  const text::Statement& words_;
  std::vector<bool> used_;
  std::vector<std::string> known_;
};

class Assembler {
 public:
  explicit Assembler(const spec::BoardParams& board) : board_(board) {
    exe_.isa_version = spec::kIsaVersion;
    exe_.wide_layout = exe::WideLayout::planes;
    exe_.board_name = board.board.name;
    exe_.board_hash = own_hash();
    exe_.partitions = 1;
  }

  void statement(const text::Statement& words) {
    const std::string& head = words[0];
    if (head.front() != '.' || std::find(kOfCode.begin(), kOfCode.end(), head) != kOfCode.end()) {
      code_.statement(words);
      return;
    }
    Directive d(words);
    if (head == ".slot") {
      slot(d);
    } else if (head == ".arg") {
      exe_.args.push_back(tensor(d));
    } else if (head == ".result") {
      exe_.results.push_back(tensor(d));
    } else if (head == ".constant") {
      constant(d);
    } else if (head == ".op") {
      op(d);
    } else if (head == ".temporary") {
      temporary(d);
    } else {
      program(d, words);
    }
    d.finish();
  }

  exe::ExecutableT finish() {
    const std::vector<std::byte> code = code_.finish();
    tpu_program_image_header_t header{};
    header.magic = TPU_PROGRAM_MAGIC;
    header.isa_version = exe_.isa_version;
    header.header_bytes = sizeof header;
    header.code_bytes = static_cast<uint32_t>(code.size());
    header.entry_word = entry_;
    header.slots = static_cast<uint32_t>(exe_.slots.size());
    header.cores = exe_.partitions;
    header.board_hash = exe_.board_hash;
    exe_.image.resize(sizeof header + code.size());
    std::memcpy(exe_.image.data(), &header, sizeof header);
    if (!code.empty()) {
      std::memcpy(exe_.image.data() + sizeof header, code.data(), code.size());
    }
    uint64_t bytes = 0;
    for (const auto& s : exe_.slots) {
      bytes += s->bytes;
    }
    exe_.hbm_bytes = hbm_bytes_ < 0 ? bytes : static_cast<uint64_t>(hbm_bytes_);
    return std::move(exe_);
  }

 private:
  // Directives about the program as a whole.
  void program(Directive& d, const text::Statement& words) {
    const std::string& head = words[0];
    if (head == ".program") {
      exe_.name = text::parse_string(d.word(1, "a name in quotes"));
    } else if (head == ".board") {
      board(d);
    } else if (head == ".partitions") {
      if (!exe_.args.empty() || !exe_.results.empty()) {
        throw Error(".partitions must come before .arg and .result, which depend on it");
      }
      exe_.partitions = static_cast<uint32_t>(text::parse_range(
          d.word(1, "a number of cores"), 1, exe::kMaxPartitions, "the number of cores"));
      std::vector<uint16_t> cores;
      for (const int64_t core : d.list("cores")) {
        cores.push_back(static_cast<uint16_t>(text::parse_range(
            std::to_string(core), 0, exe::kMaxPartitions - 1, "the number of a core")));
      }
      exe::set_cores(exe_, cores);
    } else if (head == ".note") {
      exe_.notes.push_back(text::parse_string(d.word(1, "a text in quotes")));
    } else if (head == ".stat") {
      exe_.estimated_cycles = d.number64("estimated_cycles");
      exe_.matmul_flops = d.number64("matmul_flops");
      exe_.vmem_peak_bytes = d.number64("vmem_peak_bytes");
      hbm_bytes_ = d.number("hbm_bytes", -1, 0, INT64_MAX);
      exe_.sharded_update_bytes = d.number64("sharded_update_bytes");
      exe_.vector_ops = d.number64("vector_ops");
      exe_.hbm_read_bytes = d.number64("hbm_read_bytes");
      exe_.hbm_written_bytes = d.number64("hbm_written_bytes");
      exe_.link_bytes = d.number64("link_bytes");
    } else if (head == ".entry") {
      entry_ = static_cast<uint32_t>(
          text::parse_range(d.word(1, "a word index"), 0, UINT32_MAX, "the entry"));
    } else {
      throw Error("unknown directive '" + head + "'" +
                  text::suggestion(head, {kDirectives.begin(), kDirectives.end()}));
    }
  }

  void board(Directive& d) {
    const std::string& own = board_.board.name;
    exe_.board_name = text::parse_string(d.word(1, "a name in quotes"));
    const auto hash = d.find("hash");
    if (!hash && exe_.board_name != own) {
      throw Error("board " + text::quote(exe_.board_name) + " is not the one assembled for (" +
                  text::quote(own) + "); choose it with OpenOptions::preset, or give its hash=");
    }
    exe_.board_hash = hash ? static_cast<uint64_t>(text::parse_number(*hash)) : own_hash();
    exe_.isa_version = d.number32("isa", spec::kIsaVersion);
  }

  uint64_t own_hash() const { return spec::board_hash(board_); }

  void slot(Directive& d) {
    auto s = std::make_unique<exe::SlotT>();
    static constexpr std::array<std::string_view, 4> kKinds = {"argument", "result", "constant",
                                                               "scratch"};
    const auto kind =
        static_cast<size_t>(text::parse_name(d.word(1, "a kind of slot"), kKinds, "kind of slot"));
    s->kind = static_cast<exe::SlotKind>(kind);
    s->bytes = d.number64("bytes");
    s->index = d.number32("index", count_[kind]++);
    exe_.slots.push_back(std::move(s));
  }

  static exe::Elem parse_elem(Directive& d) {
    const std::string elem(d.find("elem").value_or("f32"));
    for (const exe::Elem wide : {exe::Elem::c64, exe::Elem::f64}) {
      if (elem == exe::elem_name(wide)) {
        return wide;
      }
    }
    return static_cast<exe::Elem>(text::parse_name(elem, spec::kElemNames, "element type"));
  }

  std::unique_ptr<exe::TensorT> tensor(Directive& d) const {
    auto t = std::make_unique<exe::TensorT>();
    t->name = text::parse_string(d.word(1, "a name in quotes"));
    t->elem = parse_elem(d);
    t->global_dims = d.list("global");
    t->local_dims = d.list("local", t->global_dims);
    t->offsets = d.list("offsets", std::vector<int64_t>(t->local_dims.size() * exe_.partitions, 0));
    t->replicated = d.number("replicated", t->local_dims == t->global_dims ? 1 : 0, 0, 1) != 0;
    t->slot = d.number32("slot", 0);
    t->donated_to = static_cast<int32_t>(d.number("donated_to", -1, -1, INT32_MAX));
    for (const int64_t n : d.list("owned_elements")) {
      t->owned_elements.push_back(static_cast<uint64_t>(n));
    }
    std::vector<uint16_t> owners, terms;
    for (const int64_t core : d.list("owned_by")) {
      if (core < 0 || core >= exe_.partitions) {
        throw Error("owned_by= expects cores from 0 to " + std::to_string(exe_.partitions - 1) +
                    ", found " + std::to_string(core));
      }
      owners.push_back(static_cast<uint16_t>(core));
    }
    for (const int64_t term : d.list("terms")) {
      if (term < 0 || term >= exe_.partitions) {
        throw Error("terms= expects numbers from 0 to " + std::to_string(exe_.partitions - 1) +
                    ", found " + std::to_string(term));
      }
      terms.push_back(static_cast<uint16_t>(term));
    }
    exe::set_owners(*t, owners);
    exe::set_terms(*t, terms);
    return t;
  }

  void constant(Directive& d) {
    auto c = std::make_unique<exe::ConstantT>();
    const std::string hex = d.find("hex").value_or("");
    if (hex.size() % 2 != 0) {
      throw Error(".constant hex= takes an even number of digits");
    }
    for (size_t i = 0; i < hex.size(); i += 2) {
      c->data.push_back(static_cast<uint8_t>(text::parse_number("0x" + hex.substr(i, 2))));
    }
    exe_.constants.push_back(std::move(c));
  }

  void op(Directive& d) {
    auto o = std::make_unique<exe::OpInfoT>();
    o->name = text::parse_string(d.word(1, "a name in quotes"));
    o->file = d.string("file");
    o->line = d.number32("line", 0);
    o->column = d.number32("column", 0);
    o->flops = d.number64("flops");
    exe_.ops.push_back(std::move(o));
  }

  void temporary(Directive& d) {
    auto t = std::make_unique<exe::TemporaryT>();
    t->elem = parse_elem(d);
    t->dims = d.list("dims");
    t->offset = d.number64("offset");
    t->bytes = d.number64("bytes");
    t->from = d.number32("from", 0);
    t->to = d.number32("to", UINT32_MAX);
    t->op = d.number32("op", 0);
    exe_.temporaries.push_back(std::move(t));
  }

  const spec::BoardParams& board_;
  exe::ExecutableT exe_;
  CodeAssembler code_;
  std::array<int64_t, 4> count_{};
  int64_t hbm_bytes_ = -1;
  uint32_t entry_ = 0;
};

}  // namespace

exe::ExecutableT assemble(const std::string& text, const std::string& name,
                          const spec::BoardParams& board) {
  Assembler assembler(board);
  const auto placed = [&name](const text::Place& place, const Error& e) {
    return Error(name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) +
                 ": " + e.what());
  };
  try {
    std::istringstream in(text);
    std::string line;
    for (size_t number = 1; std::getline(in, line); ++number) {
      const text::Statement words(line, number);
      if (words.size() == 0) {
        continue;
      }
      try {
        assembler.statement(words);
      } catch (const Error& e) {
        throw placed(words.place(), e);
      }
    }
    return assembler.finish();
  } catch (const text::PlacedError& e) {
    throw placed(e.place(), e);
  }
}

}  // namespace tpu::compiler
