#include "vpu/vpu_sums.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tpu::compiler {

namespace {

using spec::VpuOp;

class Mover {
 public:
  Mover(VpuSections& sections, int& next, int most)
      : pre_(sections[0]), body_(sections[kBody]), next_(next), left_(most) {
    facts_.resize(static_cast<size_t>(next));
    for (size_t s = 0; s < sections.size(); ++s) {
      for (size_t i = 0; i < sections[s].size(); ++i) {
        const VirtualInsn& insn = sections[s][i];
        if (insn.rd >= 0) {
          Facts& made = fact(insn.rd);
          ++made.writes;
          made.in_pre = s == 0;
          made.in_body = s == kBody ? static_cast<int>(i) : -1;
        }
        for (const int v : insn.rs) {
          if (v >= 0) {
            ++fact(v).reads;
          }
        }
      }
    }
  }

  bool run() {
    gone_.assign(body_.size(), false);
    for (size_t i = 0; i < body_.size() && left_ > 0; ++i) {
      if (body_[i].op == VpuOp::kAddI && fact(body_[i].rd).writes == 1) {
        add(i);
      }
    }
    if (std::ranges::find(gone_, true) == gone_.end()) {
      return false;
    }
    std::vector<VirtualInsn> kept;
    for (size_t i = 0; i < body_.size(); ++i) {
      if (!gone_[i]) {
        kept.push_back(body_[i]);
      }
    }
    body_ = std::move(kept);
    return true;
  }

 private:
  struct Facts {
    int writes = 0, reads = 0;
    bool in_pre = false;
    int in_body = -1;  // where the body makes it
  };

  Facts& fact(int v) { return facts_[static_cast<size_t>(v)]; }

  bool is_immediate(int v) {
    const int at = fact(v).in_body;
    return at >= 0 && body_[static_cast<size_t>(at)].op == VpuOp::kImm && fact(v).writes == 1;
  }
  bool is_invariant(int v) { return (fact(v).in_pre && fact(v).writes == 1) || is_immediate(v); }

  // The operand that is the same in all blocks, behind the other one; `other` < 0: there is none,
  // or both are.
  std::pair<int, int> parts(const VirtualInsn& sum) {
    const auto [a, b] = std::pair{sum.rs[0], sum.rs[1]};
    if (is_invariant(a) == is_invariant(b)) {
      return {-1, -1};
    }
    return is_invariant(a) ? std::pair{b, a} : std::pair{a, b};
  }

  void add(size_t i) {
    VirtualInsn& sum = body_[i];
    if (is_invariant(sum.rs[0]) && is_invariant(sum.rs[1])) {
      sum_of(sum.rs[0], sum.rs[1], sum.rd);
      gone_[i] = true;
      return;
    }
    const auto [inner, last] = parts(sum);
    if (inner < 0 || fact(inner).in_body < 0 || fact(inner).writes != 1 || fact(inner).reads != 1) {
      return;
    }
    const auto before = static_cast<size_t>(fact(inner).in_body);
    if (body_[before].op != VpuOp::kAddI) {
      return;
    }
    const auto [x, first] = parts(body_[before]);
    if (x < 0 || fact(x).writes != 1) {  // an accumulator is another number by now
      return;
    }
    sum.rs = {x, sum_of(first, last, -1), -1};
    gone_[before] = true;
  }

  // In section pre; of equal operands it is made once.
  int sum_of(int a, int b, int rd) {
    const auto key = [this](int v) {
      return is_immediate(v) ? std::pair{-1, bits(v)} : std::pair{v, 0u};
    };
    const auto known = std::pair{std::min(key(a), key(b)), std::max(key(a), key(b))};
    if (const auto it = sums_.find(known); it != sums_.end() && rd < 0) {
      return it->second;
    }
    const int out = rd >= 0 ? rd : fresh();
    const std::array<int, 3> from = {in_pre(a), in_pre(b), -1};
    pre_.push_back({VpuOp::kAddI, out, from, 0, 0});
    fact(out).in_pre = true;
    fact(out).in_body = -1;
    fact(out).writes = 1;
    --left_;
    return sums_[known] = out;
  }

  uint32_t bits(int immediate) { return body_[static_cast<size_t>(fact(immediate).in_body)].imm; }

  int in_pre(int v) {
    if (!is_immediate(v)) {
      return v;
    }
    const int made = fresh();
    pre_.push_back({VpuOp::kImm, made, {-1, -1, -1}, bits(v), 0});
    return made;
  }

  int fresh() {
    facts_.push_back({1, 0, true, -1});
    return next_++;
  }

  std::vector<VirtualInsn>&pre_, &body_;
  int& next_;
  int left_;
  std::vector<Facts> facts_;  // by virtual register
  std::vector<bool> gone_;    // of the body
  std::map<std::pair<std::pair<int, uint32_t>, std::pair<int, uint32_t>>, int> sums_;
};

}  // namespace

bool move_invariant_sums(VpuSections& sections, int& next, int most) {
  return Mover(sections, next, most).run();
}

}  // namespace tpu::compiler
