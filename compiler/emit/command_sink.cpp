#include "emit/command_sink.hpp"

#include <algorithm>
#include <array>

namespace tpu::compiler {

namespace {

constexpr int64_t kCopyPieceBytes = 512 * 1024;
constexpr int64_t kMostElements = int64_t{1} << 30;  // along one stride of a command
constexpr size_t kMostStrides = std::tuple_size_v<decltype(spec::DmaCommand::counts)>;

spec::Queue queue_for(const spec::Addr& dst) {
  return static_cast<spec::Space>(dst.space) == spec::Space::kHbm ? spec::Queue::kDmaOut
                                                                  : spec::Queue::kDmaIn;
}

spec::Addr moved(spec::Addr at, int64_t bytes) {
  at.offset += bytes;
  return at;
}

// More than five strides, and counts beyond what a field holds, become commands of their own:
// `part(src_offset, dst_offset)` makes each while `dims` are its own. False if one command does.
template <typename Part>
bool in_parts(std::vector<CopyDim>& dims, const Part& part) {
  const auto overlong =
      std::find_if(dims.begin(), dims.end(), [](const CopyDim& d) { return d.n > kMostElements; });
  if (overlong != dims.end()) {
    const CopyDim whole = *overlong;
    for (int64_t i = 0; i < whole.n; i += kMostElements) {
      overlong->n = std::min(kMostElements, whole.n - i);
      part(i * whole.src, i * whole.dst);
    }
    return true;
  }
  if (dims.size() > kMostStrides) {
    const CopyDim outer = dims.front();
    dims.erase(dims.begin());
    for (int64_t i = 0; i < outer.n; ++i) {
      part(i * outer.src, i * outer.dst);
    }
    return true;
  }
  return false;
}

int unused_bits(Elem e) { return e == Elem::kI1 ? 63 : 64 - 8 * static_cast<int>(elem_bytes(e)); }

}  // namespace

void CommandSink::copy(const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
                       std::vector<CopyDim> dims, uint32_t op_id) {
  dims = merged(std::move(dims));
  const auto part = [&](int64_t src_offset, int64_t dst_offset) {
    copy(moved(src, src_offset), moved(dst, dst_offset), elem_bytes, dims, op_id);
  };
  if (in_parts(dims, part)) {
    return;
  }
  auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma, queue_for(dst), op_id);
  c.src = src;
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(elem_bytes);
  c.counts.fill(1);
  const size_t shift = kMostStrides - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    c.counts[shift + i] = static_cast<uint32_t>(dims[i].n);
    c.src_strides[shift + i] = dims[i].src;
    c.dst_strides[shift + i] = dims[i].dst;
  }
  if (dims.empty()) {
    c.src_strides[4] = c.dst_strides[4] = elem_bytes;
  }
  Command command;
  command.body = c;
  listing.append(std::move(command));
}

void CommandSink::copy_bytes(const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
                             int64_t elem_bytes, uint32_t op_id) {
  for (int64_t at = 0; at < bytes; at += kCopyPieceBytes) {
    const int64_t n = std::min(kCopyPieceBytes, bytes - at) / elem_bytes;
    copy(moved(src, at), moved(dst, at), elem_bytes, {{n, elem_bytes, elem_bytes}}, op_id);
  }
}

void CommandSink::fill(const spec::Addr& dst, int64_t elem_bytes, int64_t count, uint64_t pattern,
                       uint32_t op_id) {
  fill_box(dst, elem_bytes, {{count, elem_bytes, elem_bytes}}, pattern, op_id);
}

void CommandSink::fill_box(const spec::Addr& dst, int64_t elem_bytes, std::vector<CopyDim> dims,
                           uint64_t pattern, uint32_t op_id) {
  for (CopyDim& d : dims) {
    d.src = d.dst;
  }
  dims = merged(std::move(dims));
  const auto part = [&](int64_t, int64_t offset) {
    fill_box(moved(dst, offset), elem_bytes, dims, pattern, op_id);
  };
  if (in_parts(dims, part)) {
    return;
  }
  auto c = make_command<spec::FillCommand>(spec::Opcode::kFill, queue_for(dst), op_id);
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(elem_bytes);
  c.counts.fill(1);
  c.dst_strides[4] = elem_bytes;
  const size_t shift = kMostStrides - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    c.counts[shift + i] = static_cast<uint32_t>(dims[i].n);
    c.dst_strides[shift + i] = dims[i].dst;
  }
  c.pattern = pattern;
  Command command;
  command.body = c;
  listing.append(std::move(command));
}

void CommandSink::run(const std::vector<Move>& moves) {
  for (const Move& m : moves) {
    copy_bytes(m.src, m.dst, m.bytes, m.elem_bytes, m.op_id);
  }
}

void CommandSink::copy_window(const spec::Addr& src, const spec::Addr& dst, int64_t unit,
                              std::vector<CopyDim> dims, const MemRange& window, uint32_t id) {
  const size_t before = listing.items.size();
  copy(src, dst, unit, std::move(dims), id);
  for (size_t i = before; i < listing.items.size(); ++i) {
    std::get<Command>(listing.items[i]).windows = {window};
  }
}

void CommandSink::load_immediate(int reg, int64_t value) {
  insn(spec::ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(value));
  if (value != static_cast<int32_t>(value)) {
    insn(spec::ScalarOp::kLih, reg, 0, 0, static_cast<int32_t>(value >> 32));
  }
}

void CommandSink::wrap(int reg, Elem elem) {
  const int shift = unused_bits(elem);
  if (shift == 0) {
    return;
  }
  insn(spec::ScalarOp::kShli, reg, reg, 0, shift);
  insn(is_signed(elem) ? spec::ScalarOp::kSari : spec::ScalarOp::kShri, reg, reg, 0, shift);
}

void CommandSink::control(Control::Kind kind, int label, int64_t trips) {
  Control c;
  c.kind = kind;
  c.label = label;
  c.trips = trips;
  listing.append(c);
}

void CommandSink::branch(spec::ScalarOp op, int rs1, int rs2, int label) {
  Control c;
  c.kind = Control::Kind::kBranch;
  c.label = label;
  c.insn = {static_cast<uint8_t>(op), 0, static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), 0};
  listing.append(c);
}

void CommandSink::tight(Control::Kind kind, int label, spec::ScalarInsn insn) {
  Control c;
  c.kind = kind;
  c.label = label;
  c.insn = insn;
  c.tight = true;
  listing.append(c);
}

}  // namespace tpu::compiler
