// Directives of the assembly text, and the executable around the code.
#include "asm/assembler.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <sstream>

#include "asm/assemble_code.hpp"
#include "asm/text.hpp"
#include "board/board_loader.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {

namespace {

// Words of a directive: an optional string or name first, then key=value pairs.
class Directive {
 public:
  explicit Directive(const std::vector<std::string>& words) : words_(words) {}

  std::optional<std::string> find(const std::string& key) const {
    for (const std::string& w : words_) {
      if (w.starts_with(key + "=")) {
        return w.substr(key.size() + 1);
      }
    }
    return std::nullopt;
  }
  int64_t number(const std::string& key, int64_t fallback) const {
    const auto v = find(key);
    return v ? text::parse_number(*v) : fallback;
  }
  uint64_t unsigned_number(const std::string& key) const {
    return static_cast<uint64_t>(number(key, 0));
  }
  std::string string(const std::string& key) const {
    const auto v = find(key);
    return v ? text::parse_string(*v) : "";
  }
  const std::string& word(size_t i) const {
    if (i >= words_.size()) {
      throw Error(words_[0] + " needs more operands");
    }
    return words_[i];
  }

 private:
  const std::vector<std::string>& words_;
};

class Assembler {
 public:
  explicit Assembler(const spec::BoardParams& board) {
    exe_.isa_version = spec::kIsaVersion;
    exe_.board_name = board.board.name;
    exe_.board_hash = spec::board_hash(board);
    exe_.partitions = 1;
  }

  void statement(const std::vector<std::string>& words) {
    const Directive d(words);
    const std::string& head = words[0];
    if (head == ".program") {
      exe_.name = text::parse_string(d.word(1));
    } else if (head == ".board") {
      exe_.board_name = text::parse_string(d.word(1));
      exe_.board_hash = d.unsigned_number("hash");
      exe_.isa_version = static_cast<uint32_t>(d.number("isa", spec::kIsaVersion));
    } else if (head == ".partitions") {
      exe_.partitions = static_cast<uint32_t>(text::parse_number(d.word(1)));
    } else if (head == ".slot") {
      slot(d);
    } else if (head == ".arg") {
      exe_.args.push_back(tensor(d));
    } else if (head == ".result") {
      exe_.results.push_back(tensor(d));
    } else if (head == ".constant") {
      constant(d);
    } else if (head == ".op") {
      op(d);
    } else if (head == ".note") {
      exe_.notes.push_back(text::parse_string(d.word(1)));
    } else if (head == ".stat") {
      exe_.estimated_cycles = d.unsigned_number("estimated_cycles");
      exe_.matmul_flops = d.unsigned_number("matmul_flops");
      exe_.vmem_peak_bytes = d.unsigned_number("vmem_peak_bytes");
      hbm_bytes_ = d.number("hbm_bytes", -1);
      exe_.sharded_update_bytes = static_cast<uint64_t>(d.number("sharded_update_bytes", 0));
    } else if (head == ".entry") {
      entry_ = static_cast<uint32_t>(text::parse_number(d.word(1)));
    } else {
      code_.statement(words);
    }
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
      bytes += s->alias_of < 0 ? s->bytes : 0;
    }
    exe_.hbm_bytes = hbm_bytes_ < 0 ? bytes : static_cast<uint64_t>(hbm_bytes_);
    return std::move(exe_);
  }

 private:
  void slot(const Directive& d) {
    auto s = std::make_unique<exe::SlotT>();
    static constexpr std::array<std::string_view, 4> kKinds = {"argument", "result", "constant",
                                                               "scratch"};
    const auto kind = static_cast<size_t>(text::parse_name(d.word(1), kKinds, "kind of slot"));
    s->kind = static_cast<exe::SlotKind>(kind);
    s->bytes = d.unsigned_number("bytes");
    s->index = static_cast<uint32_t>(d.number("index", count_[kind]++));
    s->alias_of = static_cast<int32_t>(d.number("alias_of", -1));
    exe_.slots.push_back(std::move(s));
  }

  std::unique_ptr<exe::TensorT> tensor(const Directive& d) const {
    auto t = std::make_unique<exe::TensorT>();
    const auto list = [&](const char* key) {
      const auto v = d.find(key);
      return v ? text::parse_list(*v) : std::vector<int64_t>{};
    };
    t->name = text::parse_string(d.word(1));
    const auto elem = d.find("elem");
    t->elem = static_cast<exe::Elem>(
        text::parse_name(elem.value_or("f32"), spec::kElemNames, "element type"));
    t->global_dims = list("global");
    t->local_dims = d.find("local") ? list("local") : t->global_dims;
    t->offsets = d.find("offsets")
                     ? list("offsets")
                     : std::vector<int64_t>(t->local_dims.size() * exe_.partitions, 0);
    t->replicated = d.number("replicated", t->local_dims == t->global_dims ? 1 : 0) != 0;
    t->slot = static_cast<uint32_t>(d.number("slot", 0));
    t->donated_to = static_cast<int32_t>(d.number("donated_to", -1));
    for (const int64_t n : list("owned_elements")) {
      t->owned_elements.push_back(static_cast<uint64_t>(n));
    }
    for (const int64_t core : list("owned_by")) {
      t->owned_by.push_back(static_cast<uint8_t>(core));
    }
    return t;
  }

  void constant(const Directive& d) {
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

  void op(const Directive& d) {
    auto o = std::make_unique<exe::OpInfoT>();
    o->name = text::parse_string(d.word(1));
    o->file = d.string("file");
    o->line = static_cast<uint32_t>(d.number("line", 0));
    o->column = static_cast<uint32_t>(d.number("column", 0));
    o->flops = d.unsigned_number("flops");
    exe_.ops.push_back(std::move(o));
  }

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
  std::istringstream in(text);
  std::string line;
  size_t number = 0;
  try {
    while (std::getline(in, line)) {
      ++number;
      const std::vector<std::string> words = text::split(line);
      if (!words.empty()) {
        assembler.statement(words);
      }
    }
  } catch (const Error& e) {
    throw Error(name + ":" + std::to_string(number) + ": " + e.what());
  }
  try {
    return assembler.finish();
  } catch (const Error& e) {
    throw Error(name + ": " + e.what());
  }
}

}  // namespace tpu::compiler
