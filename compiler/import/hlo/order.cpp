// See order.hpp.
#include "import/hlo/order.hpp"

#include <algorithm>

namespace tpu::compiler::hlo {
namespace {

bool is_sum(const Instruction& at) { return at.opcode == "all-reduce"; }

// Nothing is computed for it.
bool is_there(const Instruction& at) {
  return at.opcode == "parameter" || at.opcode == "constant" || at.opcode == "get-tuple-element";
}

bool is_scalar(const Instruction& at) { return !at.shape.is_tuple() && at.shape.dims.empty(); }

// Instructions whose order among each other means something: they stay.
bool stays(const Instruction& at) {
  static constexpr std::string_view kKinds[] = {
      "rng", "send", "recv", "infeed", "outfeed", "after-all", "while", "call", "conditional"};
  return at.side_effect || at.opcode == "custom-call" || at.opcode.starts_with("all-") ||
         at.opcode.starts_with("collective-") || at.opcode.starts_with("reduce-scatter") ||
         std::ranges::any_of(kKinds, [&](auto kind) { return at.opcode.starts_with(kind); });
}

class Order {
 public:
  explicit Order(const Computation& computation) : c_(computation), early_(size()), done_(size()) {}

  std::vector<uint32_t> run() {
    find_moved();
    const bool has_sums = std::ranges::any_of(c_.instructions, is_sum);
    std::vector<std::vector<uint32_t>> behind(size());
    std::vector<int64_t> last(size(), -1);  // of what is computed for the instruction
    for (uint32_t i = 0; i < size(); ++i) {
      const Instruction& at = c_.instructions[i];
      for (const uint32_t operand : at.operands) {
        const bool later = moved_[operand] || early_[operand] || is_there(c_.instructions[operand]);
        last[i] = std::max(last[i], later ? last[operand] : operand);
      }
      early_[i] = has_sums && last[i] < 0 && !at.operands.empty() && is_scalar(at) && !stays(at);
      if (early_[i]) {
        emit(i);
      } else if (moved_[i] && last[i] >= 0) {
        behind[static_cast<size_t>(last[i])].push_back(i);
      }
    }
    for (uint32_t i = 0; i < size(); ++i) {
      if (!moved_[i] || last[i] < 0) {
        emit(i);
      }
      for (const uint32_t moved : behind[i]) {
        emit(moved);
      }
    }
    return std::move(out_);
  }

 private:
  uint32_t size() const { return static_cast<uint32_t>(c_.instructions.size()); }

  // All its users are moved or sums, and there is one.
  void find_moved() {
    std::vector<bool> used(size()), used_otherwise(size());
    moved_.resize(size());
    for (uint32_t i = size(); i-- > 0;) {
      const Instruction& at = c_.instructions[i];
      moved_[i] = used[i] && !used_otherwise[i] && i != c_.root && !is_there(at) && !stays(at);
      for (const uint32_t operand : at.operands) {
        used[operand] = true;
        used_otherwise[operand] = used_otherwise[operand] || !(moved_[i] || is_sum(at));
      }
    }
  }

  // Behind its operands: parameters and constants may be listed later.
  void emit(uint32_t i) {
    if (done_[i]) {
      return;
    }
    done_[i] = true;
    for (const uint32_t operand : c_.instructions[i].operands) {
      emit(operand);
    }
    out_.push_back(i);
  }

  const Computation& c_;
  std::vector<bool> moved_, early_, done_;
  std::vector<uint32_t> out_;
};

}  // namespace

std::vector<uint32_t> order_of(const Computation& computation) { return Order(computation).run(); }

}  // namespace tpu::compiler::hlo
