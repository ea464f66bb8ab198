// Transfers between host and HBM, and within HBM. Arrays of any size go through staging memory in
// pieces; a piece waits for room in staging memory and in its ring, and gives its staging memory
// back when it is over.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/board_impl.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kLargestPieceBytes = uint64_t{16} << 20;
constexpr uint64_t kPiecesInStaging = 4;  // at least: while one is moved another is filled

}  // namespace

uint64_t BoardImpl::piece_bytes() const {
  constexpr uint64_t kAlign = RangeAllocator::kAlign;
  return std::min(kLargestPieceBytes, arena_->staging_bytes() / kPiecesInStaging / kAlign * kAlign);
}

void BoardImpl::check_owner(const BufferState& buffer) const {
  if (buffer.board.get() != this) {
    throw Error(ErrorCode::kInvalidArgument, "the buffer belongs to another board");
  }
  if (!buffer.live) {
    throw Error(ErrorCode::kFailedPrecondition, "the buffer was donated or deleted");
  }
}

// Sends the same bytes to all targets; operation i is that of target i.
void BoardImpl::send_up(const std::vector<std::shared_ptr<Operation>>& ops,
                        const std::vector<std::shared_ptr<Allocation>>& targets, uint64_t bytes,
                        const ByteSource& source) {
  const auto all_failed = [&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->error != nullptr; });
  };
  for (uint64_t at = 0; at < bytes && !all_failed(); at += piece_bytes()) {
    const uint64_t piece = std::min(piece_bytes(), bytes - at);
    const auto staged = stage(piece);
    source(at, staged->bytes());
    for (size_t i = 0; i < targets.size(); ++i) {
      auto command = std::make_shared<Command>();
      command->device = targets[i]->device();
      command->writes = {targets[i]};
      command->keep = {staged};
      tpu_command_copy_t copy{};
      copy.src = staged->iova();
      copy.dst = targets[i]->address() + at;
      copy.bytes = piece;
      copy.kind = TPU_COPY_H2D;
      set_payload(*command, TPU_OP_COPY, TPU_LANE_UP, copy);
      add(ops[i], command);
    }
  }
}

std::vector<Buffer> BoardImpl::upload(const std::vector<int>& devices, const HostView& host,
                                      const Box& box, const Shape& local, uint64_t alloc_bytes,
                                      const std::string& label) {
  const Entry entry(*this);
  check_usable();
  std::vector<std::shared_ptr<Allocation>> ranges;
  for (const int device : devices) {
    ranges.push_back(allocate(device, std::max(alloc_bytes, box.bytes()), label));
  }
  std::vector<Buffer> buffers;
  std::deque<Submission> uploads;
  std::vector<std::shared_ptr<Operation>> ops;
  for (size_t i = 0; i < devices.size(); ++i) {
    uploads.emplace_back(*this, fmt::format("upload of {} to TPU:{}", label, devices[i]));
    ops.push_back(uploads.back().op());
    buffers.emplace_back(make_buffer(devices[i], host.dtype, local, ranges[i], ops[i]->event));
  }
  send_up(ops, ranges, box.bytes(),
          [&](uint64_t at, std::span<std::byte> piece) { box.cut(host.bytes, at, piece); });
  return buffers;
}

Buffer BoardImpl::zeros(int device, DType dtype, const Shape& shape) {
  const uint64_t bytes = byte_count(dtype, shape);
  const Entry entry(*this);
  check_usable();
  const auto range = allocate(device, bytes, type_text(dtype, shape));
  const Submission fill_op(*this, fmt::format("fill on TPU:{}", device));
  auto buffer = make_buffer(device, dtype, shape, range, fill_op.op()->event);
  if (bytes > 0) {
    auto command = std::make_shared<Command>();
    command->device = device;
    command->writes = {range};
    tpu_command_fill_t fill{};
    fill.dst = range->address();
    fill.bytes = (bytes + 3) / 4 * 4;  // the range is a multiple of 512 bytes
    set_payload(*command, TPU_OP_FILL, TPU_LANE_UP, fill);
    add(fill_op.op(), command);
  }
  return Buffer(std::move(buffer));
}

Buffer BoardImpl::clone(const std::shared_ptr<BufferState>& source) {
  const Entry entry(*this);
  check_usable();
  check_owner(*source);
  const auto range = allocate(source->device, source->memory->bytes(), "copy of a buffer");
  const Submission copy_op(*this, fmt::format("copy on TPU:{}", source->device));
  copy_op.op()->inputs = {source->ready};
  auto buffer =
      make_buffer(source->device, source->dtype, source->shape, range, copy_op.op()->event);
  buffer->owned = source->owned;
  if (source->bytes > 0) {
    auto command = std::make_shared<Command>();
    command->device = source->device;
    command->reads = {source->memory};
    command->writes = {range};
    tpu_command_copy_t copy{};
    copy.src = source->memory->address();
    copy.dst = range->address();
    copy.bytes = source->bytes;
    copy.kind = TPU_COPY_D2D;
    copy.peer = static_cast<uint8_t>(source->device);
    set_payload(*command, TPU_OP_COPY, TPU_LANE_UP, copy);
    add(copy_op.op(), command);
  }
  return Buffer(std::move(buffer));
}

Event BoardImpl::read(const std::shared_ptr<BufferState>& source, const ByteRanges& ranges,
                      ByteSink sink) {
  const Entry entry(*this);
  check_usable();
  check_owner(*source);
  const Submission read_op(*this, fmt::format("read from TPU:{}", source->device));
  const std::shared_ptr<Operation>& op = read_op.op();
  op->inputs = {source->ready};
  const auto take = std::make_shared<const ByteSink>(std::move(sink));
  for (const auto& [first, end] : ranges) {
    for (uint64_t at = first; at < end && !op->error; at += piece_bytes()) {
      const auto staged = stage(std::min(piece_bytes(), end - at));
      auto command = std::make_shared<Command>();
      command->device = source->device;
      command->reads = {source->memory};
      command->keep = {staged};
      command->good = [staged, take, at] { (*take)(at, staged->bytes()); };
      tpu_command_copy_t copy{};
      copy.src = source->memory->address() + at;
      copy.dst = staged->iova();
      copy.bytes = staged->bytes().size();
      copy.kind = TPU_COPY_D2H;
      set_payload(*command, TPU_OP_COPY, TPU_LANE_DOWN, copy);
      add(op, command);
    }
  }
  return Event(op->event);
}

}  // namespace tpu::driver
