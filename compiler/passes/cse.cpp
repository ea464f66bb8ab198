// Pass `cse`: see cse.hpp. One forward sweep; operands are replaced before an op is looked up.
#include "passes/cse.hpp"

#include <algorithm>
#include <string_view>

namespace tpu::compiler {
namespace {

bool opens_scope(Kind kind) {
  return kind == Kind::kWhile || kind == Kind::kIf || kind == Kind::kCase;
}

std::string region_text(const Op& op) {
  std::string text;
  for (const auto& r : op.regions) {
    for (const auto& arg : r->args) {
      text += to_string(arg->type);
    }
    text += "{" + print(*r) + "}";
  }
  return text;
}

// Ops with regions compare by the text of the regions, so they must not use values from outside
// ("%?").
bool is_mergeable(const Op& op) {
  if (has_side_effect(op) || op.kind == Kind::kRng || opens_scope(op.kind)) {
    return false;
  }
  return op.regions.empty() || region_text(op).find("%?") == std::string::npos;
}

class Hash {
 public:
  void add(size_t v) { value_ = value_ * 0x9e3779b97f4a7c15u + v + (value_ >> 29); }
  void add(const Dims& dims) {
    add(dims.size());
    for (const int64_t d : dims) {
      add(static_cast<size_t>(d));
    }
  }
  void add(const Dense& constant) {
    constexpr size_t kBytes = 64;  // that tell most constants apart
    add(constant.splat);
    const size_t n = std::min(constant.data->size(), kBytes);
    add(std::hash<std::string_view>()({reinterpret_cast<const char*>(constant.data->data()), n}));
  }
  // The attributes in which ops of the same operands and types usually differ.
  void add(const Attrs& attrs) {
    if (const auto* constant = std::get_if<ConstantAttrs>(&attrs)) {
      add(constant->value);
    } else if (const auto* dims = std::get_if<DimsAttrs>(&attrs)) {
      add(dims->dims);
    } else if (const auto* dim = std::get_if<DimAttrs>(&attrs)) {
      add(static_cast<size_t>(dim->dim));
    } else if (const auto* slice = std::get_if<SliceAttrs>(&attrs)) {
      add(slice->start);
    } else if (const auto* compare = std::get_if<CompareAttrs>(&attrs)) {
      add(static_cast<size_t>(compare->direction));
    }
  }
  size_t value() const { return value_; }

 private:
  size_t value_ = 0;
};

// Equal for ops that are the same; a splat and the same constant written out stay apart.
size_t hash_of(const Op& op) {
  Hash h;
  h.add(static_cast<size_t>(op.kind));
  for (const Value* v : op.operands) {
    h.add(std::hash<const void*>()(v));
  }
  h.add(op.attrs);
  for (const auto& r : op.results) {
    h.add(static_cast<size_t>(r->type.elem));
    h.add(r->type.dims);
  }
  return h.value();
}

bool same(const Op& a, const Op& b) {
  if (a.kind != b.kind || a.operands != b.operands || a.results.size() != b.results.size() ||
      a.regions.size() != b.regions.size() || !attrs_equal(a.attrs, b.attrs)) {
    return false;
  }
  for (size_t i = 0; i < a.results.size(); ++i) {
    if (a.type(i) != b.type(i)) {
      return false;
    }
  }
  return a.regions.empty() || region_text(a) == region_text(b);
}

class Merger {
 public:
  using Table = std::unordered_multimap<size_t, Op*>;

  size_t run(Region& region, Table table) {
    for (auto& owner : region.ops) {
      Op& op = *owner;
      op.operands = mapped(std::move(op.operands), replaced_);
      for (auto& inner : op.regions) {
        run(*inner, opens_scope(op.kind) ? table : Table());
      }
      if (!is_mergeable(op)) {
        continue;
      }
      const size_t h = hash_of(op);
      const auto [first, last] = table.equal_range(h);
      const auto match =
          std::find_if(first, last, [&](const auto& entry) { return same(*entry.second, op); });
      if (match == last) {
        table.emplace(h, &op);
        continue;
      }
      for (size_t i = 0; i < op.results.size(); ++i) {
        replaced_[op.result(i)] = match->second->result(i);
      }
      graveyard_.push_back(std::move(owner));
      ++merged_;
    }
    std::erase(region.ops, nullptr);
    return merged_;
  }

 private:
  ValueMap replaced_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys of replaced_ alive
  size_t merged_ = 0;
};

}  // namespace

size_t merge_common_ops(Module& module) {
  size_t merged = Merger().run(module.main->body, {});
  for (const auto& f : module.functions) {
    merged += Merger().run(f->body, {});
  }
  return merged;
}

}  // namespace tpu::compiler
