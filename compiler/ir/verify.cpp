// Structure of the graph: owners and positions, definition before use, counts, attribute kinds,
// returns. The type rule of each op is in verify_types.cpp.
#include "ir/verify.hpp"

#include <memory_resource>
#include <set>
#include <unordered_set>

#include "ir/op_traits.hpp"
#include "ir/verify_types.hpp"

namespace tpu::compiler {
namespace {

struct KindFacts {
  int operands, results, regions;
  bool (*attrs_match)(const Attrs&);
};

constexpr KindFacts kKindFacts[] = {
#define X(id, name, attrs, in, out, regions, ...) \
  {in, out, regions, [](const Attrs& a) { return std::holds_alternative<attrs>(a); }},
    TPU_OP_KINDS(X)
#undef X
};

// Bodies that may use values of the enclosing regions.
bool may_capture(Kind kind) { return has_trait(kind, trait::kCaptures); }

class Verifier {
 public:
  explicit Verifier(const Module& module) : module_(module) {}

  void run() {
    if (!module_.main) {
      throw Error("the module has no main function");
    }
    if (!module_.mesh.axes.empty() && module_.mesh.size() != module_.num_cores) {
      throw Error("the mesh does not have as many devices as the program has cores");
    }
    function(*module_.main, true);
    for (const auto& f : module_.functions) {
      function(*f, false);
    }
  }

 private:
  void function(const Function& f, bool is_main) {
    const auto check = [&](bool ok, const std::string& message) {
      if (!ok) {
        throw Error("function '" + f.name + "': " + message, "", f.loc);
      }
    };
    visible_.clear();
    visible_.reserve(f.body.args.size() + f.body.ops.size());
    check(f.args.size() == f.body.args.size(), "argument facts and arguments differ in number");
    region(f.body, nullptr);
    const Op* ret = f.body.terminator();
    check(ret != nullptr, "the body does not end with a return");
    check(f.results.size() == ret->operands.size(), "result facts and results differ in number");
    if (!is_main) {
      return;
    }
    check(words_pair(f.args, [&](size_t i) { return f.body.args[i]->type; }) &&
              words_pair(f.results, [&](size_t i) { return ret->operands[i]->type; }),
          "words of a 64-bit argument or result without the other word beside them");
    std::set<int> taken;
    for (size_t i = 0; i < f.args.size(); ++i) {
      check(fits(f.args[i], f.body.args[i]->type),
            "argument " + std::to_string(i) + " does not fit its sharding");
      const int alias = f.args[i].alias_result;
      check(alias >= -1 && (alias < 0 || taken.insert(alias).second),
            "argument " + std::to_string(i) + " is donated to a result that is taken or negative");
      check(alias < static_cast<int>(f.results.size()) &&
                (alias < 0 ||
                 ret->operands[static_cast<size_t>(alias)]->type == f.body.args[i]->type),
            "argument " + std::to_string(i) + " is donated to a result of another type");
    }
    for (size_t i = 0; i < f.results.size(); ++i) {
      check(fits(f.results[i], ret->operands[i]->type),
            "result " + std::to_string(i) + " does not fit its sharding");
    }
  }

  // The type of an argument or result in the graph: the whole array, or one core's part of it.
  template <typename Info>
  bool fits(const Info& info, const Type& type) const {
    if (module_.global) {
      return type == info.global && info.sharding.is_replicated();
    }
    const Type& global = info.global;
    const bool word = info.part != WordPart::kWhole;
    if ((word && elem_bytes(global.elem) != 8) || type.elem != (word ? Elem::kU32 : global.elem) ||
        type.dims.size() != global.dims.size()) {
      return false;
    }
    for (size_t d = 0; d < global.dims.size(); ++d) {
      if (type.dims[d] * info.sharding.parts(module_.mesh, d) != global.dims[d]) {
        return false;
      }
    }
    return true;
  }

  // The words of 64-bit integers come in pairs, low and high, of one type.
  template <typename Info, typename TypeOf>
  static bool words_pair(const std::vector<Info>& list, TypeOf type_of) {
    for (size_t i = 0; i < list.size(); ++i) {
      const bool low = list[i].part == WordPart::kLow;
      const bool high_next = i + 1 < list.size() && list[i + 1].part == WordPart::kHigh;
      if (low != high_next || (low && type_of(i) != type_of(i + 1)) ||
          (i == 0 && list[i].part == WordPart::kHigh)) {
        return false;
      }
    }
    return true;
  }

  // What the region defines is visible in it only; nothing comes behind the body of a function.
  void region(const Region& r, const Op* owner) {
    for (const auto& arg : r.args) {
      visible_.insert(arg.get());
    }
    for (const auto& op : r.ops) {
      one_op(*op, r);
      for (const auto& result : op->results) {
        visible_.insert(result.get());
      }
    }
    if (owner == nullptr) {
      return;
    }
    if (r.terminator() == nullptr) {
      throw_at(*owner, "a region does not end with a return");
    }
    for (const auto& arg : r.args) {
      visible_.erase(arg.get());
    }
    for (const auto& op : r.ops) {
      for (const auto& result : op->results) {
        visible_.erase(result.get());
      }
    }
  }

  void one_op(const Op& op, const Region& r) {
    const KindFacts& facts = kKindFacts[static_cast<size_t>(op.kind)];
    const auto counts = [&](int wanted, size_t got, const char* what) {
      if (wanted >= 0 && static_cast<size_t>(wanted) != got) {
        throw_at(op, "has " + std::to_string(got) + " " + what + ", must have " +
                         std::to_string(wanted));
      }
    };
    if (!op.loc || op.parent != &r) {
      throw Error("an op without location or owner", source_name(op.kind), op.loc);
    }
    counts(facts.operands, op.operands.size(), "operands");
    counts(facts.results, op.results.size(), "results");
    counts(facts.regions, op.regions.size(), "regions");
    if (!facts.attrs_match(op.attrs)) {
      throw_at(op, "has attributes of another op");
    }
    if (!module_.global && is_global_only(op.kind)) {
      throw_at(op, "occurs in the graph of one core");
    }
    for (const Value* v : op.operands) {
      if (v == nullptr || visible_.count(v) == 0) {
        throw_at(op, "uses a value that is not defined before it or not visible here");
      }
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (op.results[i]->def != &op || op.results[i]->index != static_cast<int>(i)) {
        throw_at(op, "has a result that belongs to another op");
      }
    }
    if (op.kind == Kind::kReturn && r.ops.back().get() != &op) {
      throw_at(op, "is inside of a region, not at its end");
    }
    regions(op);
    verify_types(op, module_);
  }

  void regions(const Op& op) {
    if (op.regions.empty() || may_capture(op.kind)) {
      for (const auto& inner : op.regions) {
        region(*inner, &op);
      }
      return;
    }
    Values outside(&arena_);
    outside.swap(visible_);
    for (const auto& inner : op.regions) {
      region(*inner, &op);
    }
    visible_.swap(outside);
  }

  [[noreturn]] static void throw_at(const Op& op, const std::string& message) {
    throw Error(message, source_name(op.kind), op.loc);
  }

  using Values = std::pmr::unordered_set<const Value*>;

  const Module& module_;
  std::pmr::monotonic_buffer_resource arena_;
  Values visible_{&arena_};
};

}  // namespace

void verify(const Module& module) { Verifier(module).run(); }

}  // namespace tpu::compiler
