// Rules of commands, in the order in which a command is read.
#include "command/rules.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "command/operands.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::spec {
namespace {

using Wide = __int128;
constexpr int64_t kOffsetLimit = int64_t{1} << 60;
constexpr Wide kMaxElements = Wide{1} << 44;

// Keeps the first breach.
class Rules {
 public:
  void broken(bool is, uint32_t detail, std::string text) {
    if (is && found_.detail == 0) {
      found_ = {detail, std::move(text)};
    }
  }
  void address(const Addr& a) {
    broken(a.reg >= 32, fault::kDetailRegister, "address register above 31");
    broken(a.slot_reg >= 32, fault::kDetailRegister, "slot register above 31");
    broken(a.slot_reg != 0 && !is_hbm(a), fault::kDetailSpace,
           "slot register of an operand that is not in HBM");
    broken(a.offset > kOffsetLimit || a.offset < -kOffsetLimit, fault::kDetailType,
           "operand offset out of any range");
  }
  void add(Violation other) {
    if (found_.detail == 0) {
      found_ = std::move(other);
    }
  }
  void writes_once(const StridePattern& written) {
    if (found_.detail == 0) {
      broken(repeats_bytes(written), fault::kDetailOverlap,
             "the strides of the destination write some bytes twice");
    }
  }
  bool ok() const { return found_.detail == 0; }
  Violation get() { return std::move(found_); }

 private:
  Violation found_;
};

bool is_vmem(const Addr& a) { return a.space == static_cast<uint8_t>(Space::kVmem); }
bool is_local(const Addr& a) { return is_vmem(a) || a.space == static_cast<uint8_t>(Space::kSmem); }

// Product of counts, 0 if any is 0, limited so that later arithmetic cannot overflow.
template <typename Counts>
Wide product(const Counts& counts) {
  Wide total = 1;
  for (const auto count : counts) {
    total = std::min<Wide>(total * count, Wide{1} << 80);
  }
  return total;
}

bool element_ok(uint32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }
bool stride_ok(int64_t stride) { return stride < kOffsetLimit && stride > -kOffsetLimit; }

template <size_t kCount>
bool strides_ok(const std::array<int64_t, kCount>& strides) {
  return std::ranges::all_of(strides, stride_ok);
}

void reach(Rules& rules, uint8_t queue, const Addr* src, const Addr& dst) {
  bool ok = (src == nullptr || is_hbm(*src) || is_local(*src)) && (is_hbm(dst) || is_local(dst));
  if (queue == static_cast<uint8_t>(Queue::kDmaIn)) {
    ok = ok && is_local(dst);
  } else if (queue == static_cast<uint8_t>(Queue::kDmaOut)) {
    ok = ok && is_hbm(dst);
  }
  rules.broken(!ok, fault::kDetailSpace, "this DMA queue does not reach these memories");
}

// A transfer writes every byte at most once, so that memories bound its work. How long it takes is
// no error: time with a command in flight counts as progress.
template <size_t kCount>
void box_written_once(Rules& rules, const std::array<uint32_t, kCount>& counts,
                      const std::array<int64_t, kCount>& strides, const StridePattern& written) {
  for (size_t i = 0; i < kCount; ++i) {
    rules.broken(counts[i] > 1 && strides[i] == 0, fault::kDetailType,
                 "a destination stride of 0 repeats writes");
  }
  rules.writes_once(written);
}

}  // namespace

const CommandInfo* command_info(uint8_t opcode) {
  const auto it = std::ranges::find(kCommands, static_cast<Opcode>(opcode), &CommandInfo::opcode);
  return it == kCommands.end() ? nullptr : &*it;
}

Violation violation(const CommandHeader& head, const BoardParams& board) {
  Rules rules;
  const CommandInfo& info = *command_info(head.opcode);
  rules.broken(!has_queue(board, head.queue) || (info.queue_mask >> head.queue & 1) == 0,
               fault::kDetailOpcodeQueue,
               std::string(info.name) + " on queue " + std::to_string(head.queue));
  const auto semaphores = static_cast<uint32_t>(board.core.semaphores);
  for (const Wait& wait : head.wait) {
    rules.broken(wait.valid() && wait.sem >= semaphores, fault::kDetailSemaphore,
                 "waits for semaphore " + std::to_string(wait.sem));
  }
  // Each would find the value that the other one takes too.
  const Wait& first = head.wait[0];
  const Wait& second = head.wait[1];
  rules.broken(
      first.valid() && second.valid() && first.sem == second.sem && first.take() && second.take(),
      fault::kDetailSemaphore,
      "takes from semaphore " + std::to_string(first.sem) +
          " in both waits: expected one wait with the sum of the values");
  const bool remote_queue = head.queue == static_cast<uint8_t>(Queue::kDmaRemote);
  for (const Signal& signal : head.signal) {
    if (!signal.valid()) {
      continue;
    }
    rules.broken(signal.sem >= semaphores || (signal.remote() && !remote_queue),
                 fault::kDetailSemaphore,
                 "signals semaphore " + std::to_string(signal.sem) +
                     (signal.remote() ? " of another core" : ""));
    rules.broken(signal.remote() && signal.peer_reg >= 32, fault::kDetailRegister,
                 "peer register above 31");
  }
  return rules.get();
}

Violation violation_of_cycles(double cycles, const BoardParams& board) {
  const int64_t limit = board.mgmt.watchdog_us * board.core.clock_mhz;
  Rules rules;
  rules.broken(cycles > static_cast<double>(limit), fault::kDetailType,
               "the counts make a command of " + std::to_string(cycles) +
                   " cycles, longer than the watchdog (" + std::to_string(limit) + ")");
  return rules.get();
}

Violation violation(const MatmulCommand& c, const BoardParams& board) {
  Rules rules;
  for (const Addr* address : {&c.out, &c.lhs, &c.rhs}) {
    rules.address(*address);
    rules.broken(!is_vmem(*address), fault::kDetailSpace, "matmul operands must be in VMEM");
  }
  const auto type_ok = [](uint8_t t) {
    return t == static_cast<uint8_t>(Elem::kF32) || t == static_cast<uint8_t>(Elem::kBf16);
  };
  rules.broken(!type_ok(c.lhs_type) || !type_ok(c.rhs_type), fault::kDetailType,
               "matmul operands are f32 or bf16");
  const Wide rows = product(c.m), taps = product(c.t), k = product(c.k), n = product(c.n);
  rules.broken(rows > kMaxElements || taps > kMaxElements || k > kMaxElements || n > kMaxElements ||
                   rows * n > kMaxElements || taps * k > kMaxElements,
               fault::kDetailType, "matmul larger than any memory");
  if (rules.ok() && !is_empty(c)) {
    const MxuShape shape = mxu_shape(board);
    const Wide tiles = taps * ((k + shape.rows - 1) / shape.rows) * c.n[0] *
                       ((c.n[1] + shape.cols - 1) / shape.cols);
    const Wide cycles =
        std::min(tiles, kMaxElements) * mxu_interval(shape, static_cast<uint64_t>(rows));
    rules.add(violation_of_cycles(static_cast<double>(cycles), board));
    if (rules.ok()) {
      rules.writes_once(operands(c)[0].bytes);
    }
  }
  return rules.get();
}

Violation violation(const TransposeCommand& c, const BoardParams& board) {
  Rules rules;
  for (const Addr* address : {&c.src, &c.dst}) {
    rules.address(*address);
    rules.broken(!is_vmem(*address), fault::kDetailSpace, "transpose operands must be in VMEM");
  }
  rules.broken(!element_ok(c.elem_bytes), fault::kDetailType,
               "element of " + std::to_string(c.elem_bytes) + " bytes");
  rules.broken(product(std::array{c.batch, c.rows, c.cols}) > kMaxElements, fault::kDetailType,
               "transpose larger than any memory");
  if (rules.ok() && !is_empty(c)) {
    rules.add(violation_of_cycles(static_cast<double>(transpose_cycles(board, c).free_at), board));
    rules.writes_once(operands(c)[1].bytes);
  }
  return rules.get();
}

Violation violation(const DmaCommand& c, const BoardParams&) {
  Rules rules;
  rules.address(c.src);
  rules.address(c.dst);
  const bool remote = c.head.queue == static_cast<uint8_t>(Queue::kDmaRemote);
  rules.broken(remote && c.peer_reg >= 32, fault::kDetailRegister, "peer register above 31");
  reach(rules, c.head.queue, &c.src, c.dst);
  rules.broken(!element_ok(c.elem_bytes) || product(c.counts) > kMaxElements ||
                   !strides_ok(c.src_strides) || !strides_ok(c.dst_strides),
               fault::kDetailType, "element size, counts or strides");
  if (rules.ok() && !is_empty(c)) {
    box_written_once(rules, c.counts, c.dst_strides, operands(c)[1].bytes);
  }
  return rules.get();
}

Violation violation(const FillCommand& c, const BoardParams&) {
  Rules rules;
  rules.address(c.dst);
  reach(rules, c.head.queue, nullptr, c.dst);
  rules.broken(
      !element_ok(c.elem_bytes) || product(c.counts) > kMaxElements || !strides_ok(c.dst_strides),
      fault::kDetailType, "element size, counts or strides");
  if (rules.ok() && !is_empty(c)) {
    box_written_once(rules, c.counts, c.dst_strides, operands(c)[0].bytes);
  }
  return rules.get();
}

// The indexed side is bounded by its span, whatever the list says.
Violation violation(const DmaIndexedCommand& c, const BoardParams& board) {
  Rules rules;
  for (const Addr* address : {&c.src, &c.dst, &c.list}) {
    rules.address(*address);
  }
  reach(rules, c.head.queue, &c.src, c.dst);
  rules.broken(!is_vmem(c.list), fault::kDetailSpace,
               "the list of an indexed transfer must be in VMEM");
  const Wide elements = product(c.counts);
  rules.broken(!element_ok(c.elem_bytes) || elements * c.records > kMaxElements ||
                   !strides_ok(c.src_strides) || !strides_ok(c.dst_strides) ||
                   !stride_ok(c.record_stride) || !stride_ok(c.span) || c.span < 0,
               fault::kDetailType, "element size, counts, strides or span");
  if (!rules.ok() || is_empty(c)) {
    return rules.get();
  }
  StridePattern written = indexed_window(c);
  if (!c.scatter()) {
    rules.broken(c.records > 1 && c.record_stride == 0, fault::kDetailType,
                 "a destination stride of 0 repeats writes");
    written = operands(c)[1].bytes;
  }
  box_written_once(rules, c.counts, c.dst_strides, written);
  rules.broken(elements * c.records * c.elem_bytes > Wide{board.hbm.gib_per_core} << 30,
               fault::kDetailType, "the records are more than HBM holds");
  return rules.get();
}

Violation violation(const VpuAccess& a) {
  Rules rules;
  rules.address(a.addr);
  rules.broken(a.addr.space != static_cast<uint8_t>(Space::kNone) && !is_vmem(a.addr),
               fault::kDetailSpace, "VPU operands must be in VMEM");
  return rules.get();
}

Violation violation(const VpuKernelCommand& c) {
  Rules rules;
  rules.broken(std::ranges::any_of(c.scalar, [](uint8_t reg) { return reg >= 32; }),
               fault::kDetailRegister, "scalar register above 31");
  return rules.get();
}

}  // namespace tpu::spec
