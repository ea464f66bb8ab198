// Infeed and outfeed: InfeedEnqueue, InfeedEnqueueTuple, OutfeedDequeue and OutfeedDequeueTuple on
// the host.
#include <algorithm>

#include "abi/executor.h"
#include "answer.hpp"
#include "errors.hpp"
#include "feed_queues.hpp"
#include "shapes.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

uint64_t words_of(uint64_t bytes) { return (bytes + kInfeedWord - 1) / kInfeedWord; }

// The arrays of a literal.
struct Array {
  const XLA_Shape* shape = nullptr;
  std::span<std::byte> bytes;
};
std::vector<Array> arrays_of(const XLA_Literal& literal, const XLA_Shape& shape) {
  const std::vector<Leaf> leaves = leaves_of(shape);
  if (leaves.size() != literal.count) {
    pjrt::throw_invalid("a literal of " + std::to_string(literal.count) + " arrays: expected " +
                        std::to_string(leaves.size()) + ", as in its shape");
  }
  std::vector<Array> arrays;
  for (size_t i = 0; i < leaves.size(); ++i) {
    check_row_major(*leaves[i].shape);
    const uint64_t bytes = payload_bytes(*leaves[i].shape);
    if (literal.sizes[i] < bytes) {
      pjrt::throw_invalid("a literal has " + std::to_string(literal.sizes[i]) +
                          " bytes: expected " + std::to_string(bytes));
    }
    arrays.push_back({leaves[i].shape, {reinterpret_cast<std::byte*>(literal.buffers[i]), bytes}});
  }
  return arrays;
}

void free_buffers(char** buffers, int64_t* sizes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    delete[] buffers[i];
  }
  delete[] buffers;
  delete[] sizes;
}

// In words: TensorFlow passes them on as such.
void to_buffers(const XLA_Literal& literal, char*** buffers, int64_t** sizes, int64_t* count) {
  const std::vector<Array> arrays = arrays_of(literal, literal.shape);
  *buffers = new char* [arrays.size()] {};
  *sizes = new int64_t[arrays.size()]{};
  *count = static_cast<int64_t>(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    const uint64_t bytes = kInfeedWord * words_of(arrays[i].bytes.size());
    (*sizes)[i] = static_cast<int64_t>(bytes);
    (*buffers)[i] = new char[bytes]{};
    std::ranges::copy(arrays[i].bytes, reinterpret_cast<std::byte*>((*buffers)[i]));
  }
}

void from_outfeed(int device, const XLA_Shape& shape, const XLA_Literal& literal) {
  for (const Array& array : arrays_of(literal, shape)) {
    const FeedQueues::Array given = FeedQueues::get().dequeue(device);
    if (given.size() != array.bytes.size()) {
      pjrt::throw_invalid("the next array of the outfeed of core " + std::to_string(device) +
                          " has " + std::to_string(given.size()) + " bytes: expected " +
                          std::to_string(array.bytes.size()));
    }
    std::ranges::copy(given, array.bytes.begin());
  }
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

void TpuTransferManager_GetInfeedLayout(XLA_Shape* shape, XLA_Shape* infeed_shape) {
  clear_with_layout(*infeed_shape);
  answer(__func__, nullptr, [&] { copy_shape(*shape, *infeed_shape); });
}

void TpuTransferManager_TransferLiteralToInfeed(XLA_TransferManager* /*manager*/,
                                                SE_StreamExecutor* executor, XLA_Literal* literal,
                                                TF_Status* status) {
  answer(__func__, status, [&] {
    FeedQueues::Entry entry;
    for (const Array& array : arrays_of(*literal, literal->shape)) {
      entry.emplace_back(array.bytes.begin(), array.bytes.end());
    }
    FeedQueues::get().enqueue(executor->device, std::move(entry));
  });
}

void TpuTransferManager_TransferBuffersToInfeed(XLA_TransferManager* /*manager*/,
                                                SE_StreamExecutor* executor, uint32_t** buffers,
                                                int64_t* words, int64_t count, TF_Status* status) {
  answer(__func__, status, [&] {
    FeedQueues::Entry entry;
    for (int64_t i = 0; i < count; ++i) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(buffers[i]);
      entry.emplace_back(bytes, bytes + kInfeedWord * static_cast<uint64_t>(words[i]));
    }
    FeedQueues::get().enqueue(executor->device, std::move(entry));
  });
}

// TensorFlow reads the results before it looks at the status.
void TpuTransferManager_LinearizeToBuffers(XLA_TransferManager* /*manager*/, XLA_Literal* literal,
                                           XLA_Shape* /*device_shape*/, char*** buffers,
                                           int64_t** sizes, int64_t* count, TF_Status* status) {
  *buffers = nullptr;
  *sizes = nullptr;
  *count = 0;
  answer(__func__, status, [&] { to_buffers(*literal, buffers, sizes, count); });
}

void TpuTransferManager_FreeBuffers(char** buffers, int64_t* sizes, int64_t count) {
  free_buffers(buffers, sizes, count);
}

// Waits until a step has given the arrays.
void TpuTransferManager_TransferLiteralFromOutfeed(XLA_TransferManager* /*manager*/,
                                                   SE_StreamExecutor* executor, XLA_Shape* shape,
                                                   XLA_Literal* literal, TF_Status* status) {
  answer(__func__, status, [&] { from_outfeed(executor->device, *shape, *literal); });
}

}  // extern "C"
