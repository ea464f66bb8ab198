// Register allocation of vector programs: linear scan with rematerialisation.
#include <algorithm>
#include <map>
#include <set>

#include "vpu/vpu_build.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

using spec::VpuOp;

namespace {

constexpr int kRegisters = spec::kVpuRegisters;

bool can_remake(VpuOp op) {
  return op == VpuOp::kLoad || op == VpuOp::kImm || op == VpuOp::kIndex || op == VpuOp::kScalar;
}

class Allocator {
 public:
  Allocator(const VpuSections& sections, int count) : sections_(sections) {
    first_section_.assign(static_cast<size_t>(count), -1);
    pinned_.assign(static_cast<size_t>(count), -1);
  }

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
    current_ = s;
    where_.clear();
    free_.clear();
    for (int r = first_free_; r < kRegisters; ++r) {
      free_.insert(r);
    }
    uses_.clear();
    maker_.clear();
    for (size_t i = 0; i < insns.size(); ++i) {
      for (const int v : insns[i].rs) {
        if (v >= 0) {
          uses_[v].push_back(i);
        }
      }
      if (insns[i].rd >= 0 && can_remake(insns[i].op)) {
        maker_[insns[i].rd] = &insns[i];
      }
    }
    for (size_t i = 0; i < insns.size(); ++i) {
      place(insns[i], i);
    }
  }

  void place(const VirtualInsn& insn, size_t at) {
    // Immediates and loads are made when they are first read.
    if (insn.rd >= 0 && maker_.contains(insn.rd) && pinned_[static_cast<size_t>(insn.rd)] < 0) {
      return;
    }
    std::array<int, 3> rs{0, 0, 0};
    std::set<int> keep;
    for (const int v : insn.rs) {
      keep.insert(v);
    }
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
    const int rd = insn.rd < 0 ? 0 : target(insn.rd, at, {});
    emit(insn, rd, rs);
    if (insn.rd >= 0 && pinned_[static_cast<size_t>(insn.rd)] < 0 && next_use(insn.rd, at) < 0) {
      drop(insn.rd);
    }
  }

  int next_use(int v, size_t after) const {  // index of the next read behind `after`, or -1
    const auto it = uses_.find(v);
    if (it == uses_.end()) {
      return -1;
    }
    const auto u = std::upper_bound(it->second.begin(), it->second.end(), after);
    return u == it->second.end() ? -1 : static_cast<int>(*u);
  }

  void drop(int v) {
    const auto it = where_.find(v);
    if (it != where_.end()) {
      free_.insert(it->second);
      where_.erase(it);
    }
  }

  void release_after(int v, size_t at) {
    if (next_use(v, at) < 0) {
      drop(v);
    }
  }

  int target(int v, size_t at, const std::set<int>& keep) {
    if (pinned_[static_cast<size_t>(v)] >= 0) {
      return pinned_[static_cast<size_t>(v)];
    }
    if (free_.empty()) {
      evict(at, keep);
    }
    const int r = *free_.begin();
    free_.erase(free_.begin());
    where_[v] = r;
    high_ = std::max(high_, r + 1);
    return r;
  }

  void evict(size_t at, const std::set<int>& keep) {
    int victim = -1, farthest = -1;
    for (const auto& [v, r] : where_) {
      if (maker_.contains(v) && !keep.contains(v) && next_use(v, at) > farthest) {
        farthest = next_use(v, at);
        victim = v;
      }
    }
    if (victim < 0) {
      throw OutOfRegisters("a fused expression needs more than " + std::to_string(kRegisters) +
                           " vector registers");
    }
    drop(victim);
  }

  int source(int v, size_t at, const std::set<int>& keep) {
    if (pinned_[static_cast<size_t>(v)] >= 0) {
      return pinned_[static_cast<size_t>(v)];
    }
    const auto it = where_.find(v);
    if (it != where_.end()) {
      return it->second;
    }
    const VirtualInsn& maker = *maker_.at(v);
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
  std::map<int, int> where_;
  std::set<int> free_;
  std::map<int, std::vector<size_t>> uses_;
  std::map<int, const VirtualInsn*> maker_;
};

}  // namespace

VpuProgram allocate_registers(const VpuSections& sections, int virtual_registers) {
  return Allocator(sections, virtual_registers).run();
}

}  // namespace tpu::compiler
