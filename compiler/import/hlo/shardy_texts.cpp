// See shardy_texts.hpp. The syntax is that of shardy/dialect/sdy/ir/parsers.cc.
#include "import/hlo/shardy_texts.hpp"

#include <charconv>
#include <optional>

#include "import/codes.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {

using bytecode::Dialect;
using bytecode::kNone;
using bytecode::RawAttr;
namespace sa = bytecode::sdy_attr;

namespace {

RawAttr sdy(uint32_t code) {
  RawAttr a;
  a.dialect = Dialect::kSdy;
  a.code = code;
  return a;
}

// Old versions of XLA write \" for the quotes of names.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size() || text[i + 1] != '"') {
      out += text[i];
    }
  }
  return out;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '.' || c == '-';
}

}  // namespace

class ShardyTexts::Parser {
 public:
  Parser(ShardyTexts& owner, std::string_view text)
      : owner_(owner), whole_(unescaped(text)), rest_(whole_) {}

  [[noreturn]] void fail(const std::string& expected) const {
    constexpr size_t kShown = 40;
    throw Error(
        "'" + whole_ + "' is not an attribute of Shardy: expected " + expected +
        (rest_.empty() ? " at its end" : " at '" + std::string(rest_.substr(0, kShown)) + "'"));
  }

  void skip_spaces() {
    while (rest_.starts_with(' ') || rest_.starts_with('\n')) {
      rest_.remove_prefix(1);
    }
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) {
      return false;
    }
    rest_.remove_prefix(word.size());
    return true;
  }
  void need(std::string_view word) {
    if (!take(word)) {
      fail("'" + std::string(word) + "'");
    }
  }
  void end() {
    skip_spaces();
    if (!rest_.empty()) {
      fail("its end");
    }
  }

  // Calls `read` for each member up to `close`.
  template <typename Fn>
  void list(std::string_view close, const Fn& read) {
    if (take(close)) {
      return;
    }
    do {
      read();
    } while (take(","));
    need(close);
  }

  int64_t integer() {
    skip_spaces();
    int64_t n = 0;
    const auto [at, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
    if (error != std::errc()) {
      fail("a number");
    }
    rest_.remove_prefix(static_cast<size_t>(at - rest_.data()));
    return n;
  }

  std::string quoted() {
    need("\"");
    const size_t size = rest_.find('"');
    if (size == std::string_view::npos) {
      fail("'\"'");
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size + 1);
    return text;
  }

  // A bare name, or one in quotes.
  std::string name() {
    skip_spaces();
    if (rest_.starts_with('"')) {
      return quoted();
    }
    size_t size = 0;
    while (size < rest_.size() && is_name_char(rest_[size])) {
      ++size;
    }
    if (size == 0) {
      fail("a name");
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  uint32_t mesh() {
    RawAttr made = sdy(sa::kMesh);
    need("<");
    need("[");
    list("]", [&] {
      RawAttr axis = sdy(sa::kMeshAxis);
      axis.text = kept(quoted());
      need("=");
      axis.ints = {integer()};
      made.attrs.push_back(add(std::move(axis)));
    });
    if (take(",")) {
      need("device_ids");
      need("=");
      need("[");
      list("]", [&] { made.ints.push_back(integer()); });
    }
    need(">");
    return add(std::move(made));
  }

  // <MESH, [DIMENSIONS], replicated={..}, unreduced={..}>
  uint32_t sharding(bool open) {
    need("<");
    RawAttr made = sdy(sa::kTensorShardingReduction);
    made.attrs.push_back(mesh_or_name());
    need(",");
    need("[");
    list("]", [&] { made.attrs.push_back(dimension(open)); });
    const size_t dims = made.attrs.size() - 1;
    std::vector<uint32_t> replicated, unreduced;
    int64_t reduction = 0;  // a sum
    while (take(",")) {
      if (take("replicated")) {
        axes_in_braces(replicated);
      } else {
        need("unreduced");
        reduction = axes_in_braces(unreduced);
      }
    }
    need(">");
    made.ints = {static_cast<int64_t>(dims), std::ssize(replicated), std::ssize(unreduced),
                 reduction};
    made.attrs.insert(made.attrs.end(), replicated.begin(), replicated.end());
    made.attrs.insert(made.attrs.end(), unreduced.begin(), unreduced.end());
    return add(std::move(made));
  }

  uint32_t manual_axes() {
    RawAttr made = sdy(sa::kManualAxes);
    need("#sdy<manual_axes{");
    list("}", [&] { made.attrs.push_back(string(quoted())); });
    need(">");
    return add(std::move(made));
  }

 private:
  uint32_t add(RawAttr attr) const { return owner_.build_.add(std::move(attr)); }

  // Names of axes and meshes are few: each is one text, and one attribute, by which readers find
  // its mesh.
  std::string_view kept(std::string text) const { return known(std::move(text)).first; }
  uint32_t string(std::string text) const { return known(std::move(text)).second; }
  std::pair<std::string_view, uint32_t> known(std::string text) const {
    const auto found = owner_.names_.find(text);
    if (found != owner_.names_.end()) {
      return *found;
    }
    const std::string_view name = owner_.build_.keep(std::move(text));
    return *owner_.names_.emplace(name, owner_.build_.text(name)).first;
  }

  uint32_t mesh_or_name() {
    if (take("@")) {
      return string(name());
    }
    need("mesh");
    return mesh();
  }

  uint32_t dimension(bool open) {
    RawAttr made = sdy(sa::kDimSharding);
    need("{");
    list("}", [&] {
      if (take("?")) {
        open = true;
      } else {
        made.attrs.push_back(axis());
      }
    });
    made.ints = {open ? 0 : 1};
    if (take("p")) {
      integer();  // a priority of propagation
    }
    return add(std::move(made));
  }

  // "a", or "a":(2)4, a part of the axis: the devices before it, and its own.
  uint32_t axis() {
    RawAttr made = sdy(sa::kAxisRef);
    made.text = kept(quoted());
    if (take(":")) {
      RawAttr part = sdy(sa::kSubAxis);
      need("(");
      part.ints = {integer()};
      need(")");
      part.ints.push_back(integer());
      made.attrs.push_back(add(std::move(part)));
    }
    return add(std::move(made));
  }

  // ={"a", "b"}. Gives how terms along the axes are combined: 0, a sum, or another number.
  int64_t axes_in_braces(std::vector<uint32_t>& to) {
    need("=");
    const bool other = take("max") || take("min");
    need("{");
    list("}", [&] { to.push_back(axis()); });
    return other ? 1 : 0;
  }

  ShardyTexts& owner_;
  const std::string whole_;
  std::string_view rest_;
};

std::vector<std::pair<std::string_view, uint32_t>> ShardyTexts::meshes(std::string_view text) {
  std::vector<std::pair<std::string_view, uint32_t>> all;
  Parser parser(*this, text);
  parser.need("{");
  parser.list("}", [&] {
    std::string name = parser.name();
    parser.need("=");
    parser.need("#sdy.mesh");
    const uint32_t mesh = parser.mesh();
    all.emplace_back(build_.keep(std::move(name)), mesh);
  });
  parser.end();
  return all;
}

uint32_t ShardyTexts::sharding(std::string_view text) {
  Parser parser(*this, text);
  parser.need("#sdy.sharding");
  const uint32_t made = parser.sharding(false);
  parser.end();
  return made;
}

const std::vector<uint32_t>& ShardyTexts::per_value(std::string_view text, bool open) {
  const auto [at, added] = per_value_.try_emplace(std::pair(text, open));
  if (added) {
    Parser parser(*this, text);
    parser.need("#sdy.sharding_per_value<[");
    parser.list("]", [&] { at->second.push_back(parser.sharding(open)); });
    parser.need(">");
    parser.end();
  }
  return at->second;
}

uint32_t ShardyTexts::manual_axes(std::string_view text) {
  Parser parser(*this, text);
  const uint32_t made = parser.manual_axes();
  parser.end();
  return made;
}

int64_t ShardyTexts::number(std::string_view text) {
  const size_t end = text.find(" :");
  int64_t n = 0;
  const std::string_view digits = text.substr(0, end);
  const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || at != digits.data() + digits.size()) {
    throw Error("'" + std::string(text) + "' is not a number");
  }
  return n;
}

}  // namespace tpu::compiler::hlo
