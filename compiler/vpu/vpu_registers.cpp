// Register allocation of vector programs: linear scan with rematerialisation.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>
#include <span>

#include "vpu/vpu_build.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

using spec::VpuOp;

namespace {

constexpr int kRegisters = spec::kVpuRegisters;
static_assert(kRegisters == 32, "free registers are the bits of a word");

bool can_remake(VpuOp op) {
  return op == VpuOp::kLoad || op == VpuOp::kImm || op == VpuOp::kIndex || op == VpuOp::kScalar;
}

class Allocator {
 public:
  Allocator(const VpuSections& sections, int count)
      : sections_(sections),
        first_section_(static_cast<size_t>(count), -1),
        pinned_(static_cast<size_t>(count), -1),
        where_(static_cast<size_t>(count), -1),
        maker_(static_cast<size_t>(count)) {}

  VpuProgram run() {
    pin_shared();
    for (size_t s = 0; s < sections_.size(); ++s) {
      section(static_cast<int>(s));
    }
    program_.header.registers = static_cast<uint16_t>(high_);
    return std::move(program_);
  }

 private:
  // Values of more than one section, and values written twice (accumulators).
  void pin_shared() {
    std::set<int> shared;
    const auto touch = [&](int v, int s) {
      if (v < 0) {
        return;
      }
      int& first = first_section_[static_cast<size_t>(v)];
      if (first >= 0 && first != s) {
        shared.insert(v);
      }
      first = first < 0 ? s : first;
    };
    for (size_t s = 0; s < sections_.size(); ++s) {
      for (const VirtualInsn& i : sections_[s]) {
        touch(i.rd, static_cast<int>(s));
        for (const int v : i.rs) {
          touch(v, static_cast<int>(s));
        }
      }
    }
    int reg = 0;
    for (const int v : shared) {
      pinned_[static_cast<size_t>(v)] = reg++;
    }
    first_free_ = reg;
    high_ = reg;
    if (reg > kRegisters - 6) {
      throw OutOfRegisters("a fused loop keeps " + std::to_string(reg) +
                           " values across its sections; the vector unit has too few registers");
    }
  }

  void section(int s) {
    const auto& insns = sections_[static_cast<size_t>(s)];
    program_.header.section[static_cast<size_t>(s)] = 0;
    if (insns.empty()) {
      return;
    }
    current_ = s;
    std::ranges::fill(where_, -1);
    owner_.fill(-1);
    free_ = ~uint32_t{0} << first_free_;
    find_uses(insns);
    std::ranges::fill(maker_, nullptr);
    for (const VirtualInsn& insn : insns) {
      if (insn.rd >= 0 && can_remake(insn.op)) {
        maker_[static_cast<size_t>(insn.rd)] = &insn;
      }
    }
    for (size_t i = 0; i < insns.size(); ++i) {
      place(insns[i], i);
    }
  }

  // Reads of each virtual register, ascending.
  void find_uses(std::span<const VirtualInsn> insns) {
    first_use_.assign(where_.size() + 2, 0);
    const auto each = [&](auto f) {
      for (size_t i = 0; i < insns.size(); ++i) {
        for (const int v : insns[i].rs) {
          if (v >= 0) {
            f(static_cast<size_t>(v), i);
          }
        }
      }
    };
    each([&](size_t v, size_t) { ++first_use_[v + 2]; });
    std::partial_sum(first_use_.begin(), first_use_.end(), first_use_.begin());
    uses_.resize(first_use_.back());
    each([&](size_t v, size_t i) { uses_[first_use_[v + 1]++] = i; });
  }

  void place(const VirtualInsn& insn, size_t at) {
    // Immediates and loads are made when they are first read.
    if (insn.rd >= 0 && can_be_remade(insn.rd) && pinned_[static_cast<size_t>(insn.rd)] < 0) {
      return;
    }
    std::array<int, 3> rs{0, 0, 0};
    const Keep& keep = insn.rs;
    for (size_t k = 0; k < 3; ++k) {
      if (insn.rs[k] >= 0) {
        rs[k] = source(insn.rs[k], at, keep);
      }
    }
    for (const int v : keep) {
      if (v >= 0) {
        release_after(v, at);
      }
    }
    const int rd = insn.rd < 0 ? 0 : target(insn.rd, at, {-1, -1, -1});
    emit(insn, rd, rs);
    if (insn.rd >= 0 && pinned_[static_cast<size_t>(insn.rd)] < 0 && next_use(insn.rd, at) < 0) {
      drop(insn.rd);
    }
  }

  using Keep = std::array<int, 3>;  // virtual registers that an instruction reads

  bool can_be_remade(int v) const { return maker_[static_cast<size_t>(v)] != nullptr; }

  int next_use(int v, size_t after) const {  // index of the next read behind `after`, or -1
    const auto last =
        uses_.begin() + static_cast<ptrdiff_t>(first_use_[static_cast<size_t>(v) + 1]);
    const auto first = uses_.begin() + static_cast<ptrdiff_t>(first_use_[static_cast<size_t>(v)]);
    const auto u = std::upper_bound(first, last, after);
    return u == last ? -1 : static_cast<int>(*u);
  }

  void drop(int v) {
    int& r = where_[static_cast<size_t>(v)];
    if (r >= 0) {
      free_ |= uint32_t{1} << r;
      owner_[static_cast<size_t>(r)] = -1;
      r = -1;
    }
  }

  void release_after(int v, size_t at) {
    if (next_use(v, at) < 0) {
      drop(v);
    }
  }

  int target(int v, size_t at, const Keep& keep) {
    if (pinned_[static_cast<size_t>(v)] >= 0) {
      return pinned_[static_cast<size_t>(v)];
    }
    if (free_ == 0) {
      evict(at, keep);
    }
    const int r = std::countr_zero(free_);
    free_ &= free_ - 1;
    where_[static_cast<size_t>(v)] = r;
    owner_[static_cast<size_t>(r)] = v;
    high_ = std::max(high_, r + 1);
    return r;
  }

  // The value that is read last from here on; of several the first one made.
  void evict(size_t at, const Keep& keep) {
    int victim = -1, farthest = -1;
    for (const int v : owner_) {
      if (v < 0 || !can_be_remade(v) || std::ranges::find(keep, v) != keep.end()) {
        continue;
      }
      const int next = next_use(v, at);
      if (next > farthest || (next == farthest && next >= 0 && v < victim)) {
        farthest = next;
        victim = v;
      }
    }
    if (victim < 0) {
      throw OutOfRegisters("a fused expression needs more than " + std::to_string(kRegisters) +
                           " vector registers");
    }
    drop(victim);
  }

  int source(int v, size_t at, const Keep& keep) {
    if (pinned_[static_cast<size_t>(v)] >= 0) {
      return pinned_[static_cast<size_t>(v)];
    }
    if (const int r = where_[static_cast<size_t>(v)]; r >= 0) {
      return r;
    }
    const VirtualInsn& maker = *maker_[static_cast<size_t>(v)];
    const int r = target(v, at, keep);
    emit(maker, r, {0, 0, 0});
    return r;
  }

  void emit(const VirtualInsn& insn, int rd, const std::array<int, 3>& rs) {
    spec::VpuInsn out{};
    out.op = static_cast<uint8_t>(insn.op);
    out.rd = static_cast<uint8_t>(rd);
    out.rs1 = static_cast<uint8_t>(rs[0]);
    out.rs2 = insn.op == VpuOp::kStore ? insn.mode : static_cast<uint8_t>(rs[1]);
    out.imm = insn.rs[2] >= 0 ? static_cast<uint32_t>(rs[2]) : insn.imm;
    program_.code.push_back(out);
    ++program_.header.section[static_cast<size_t>(current_)];
  }

  const VpuSections& sections_;
  VpuProgram program_;
  int current_ = 0;
  int first_free_ = 0, high_ = 0;
  std::vector<int> first_section_, pinned_;
  std::vector<int> where_;               // register of each virtual one; -1: in none
  std::array<int, kRegisters> owner_{};  // virtual one of each register; -1: none
  uint32_t free_ = 0;                    // bit r: register r
  std::vector<size_t> first_use_, uses_;
  std::vector<const VirtualInsn*> maker_;  // null: it must be kept
};

}  // namespace

VpuProgram allocate_registers(const VpuSections& sections, int virtual_registers) {
  return Allocator(sections, virtual_registers).run();
}

}  // namespace tpu::compiler
