// Container and checks of executables.
#include "exe/executable.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tpu/spec/isa.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::exe {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'P', 'U', 'E', 'X', 'E', '0', '1'};
constexpr size_t kHeadBytes = 8 + 8 + SHA256_DIGEST_LENGTH;
constexpr uint64_t kMaxElements = uint64_t{1} << 40;
constexpr uint32_t kMaxPartitions = 64;

[[noreturn]] void refuse(const std::string& what) { throw ExecutableError(what); }

void check(bool condition, const std::string& what) {
  if (!condition) {
    refuse("corrupt executable: " + what);
  }
}

void check_tensor(const TensorT& tensor, const ExecutableT& exe, SlotKind kind, size_t index,
                  const std::string& what) {
  check(tensor.elem <= Elem::MAX, what + " has an unknown element type");
  check(tensor.global_dims.size() == tensor.local_dims.size() && tensor.global_dims.size() <= 16,
        what + " has bad ranks");
  const uint64_t local = element_count(tensor.local_dims);
  static_cast<void>(element_count(tensor.global_dims));
  const size_t rank = tensor.local_dims.size();
  check(tensor.owned_elements.size() == tensor.owned_by.size(),
        what + " has unequal lists of owners");
  if (!tensor.owned_elements.empty()) {
    uint64_t left = local;
    for (size_t i = 0; i < tensor.owned_elements.size(); ++i) {
      check(tensor.owned_elements[i] <= left && tensor.owned_by[i] < exe.partitions,
            what + " has an owner outside of the array or the program");
      left -= tensor.owned_elements[i];
    }
    check(left == 0 && tensor.replicated, what + " has elements without an owner");
  }
  check(tensor.offsets.size() == rank * exe.partitions, what + " has a wrong number of offsets");
  for (size_t i = 0; i < tensor.offsets.size(); ++i) {
    const int64_t offset = tensor.offsets[i];
    check(offset >= 0 && offset <= tensor.global_dims[i % rank] - tensor.local_dims[i % rank],
          what + " has an offset outside the global shape");
  }
  check(tensor.slot < exe.slots.size(), what + " names a slot that does not exist");
  const SlotT& slot = *exe.slots[tensor.slot];
  check(slot.kind == kind && slot.index == index, what + " names a slot of another kind");
  check(slot.bytes >= local * elem_bytes(tensor.elem), what + " is larger than its slot");
}

void check_image(const ExecutableT& exe) {
  check(exe.image.size() >= sizeof(tpu_program_image_header_t), "image without header");
  tpu_program_image_header_t head;
  std::memcpy(&head, exe.image.data(), sizeof(head));
  check(head.magic == TPU_PROGRAM_MAGIC, "image magic");
  check(head.header_bytes == sizeof(head) && head.code_bytes % 8 == 0 &&
            exe.image.size() == uint64_t{head.header_bytes} + head.code_bytes,
        "image size");
  check(head.slots == exe.slots.size() && head.slots <= 2048, "slot count of the image");
  check(head.isa_version == exe.isa_version && head.cores == exe.partitions &&
            head.board_hash == exe.board_hash,
        "image header and executable disagree");
  check(uint64_t{head.entry_word} * 8 < head.code_bytes, "entry outside the code");
}

// FlatBuffers' verifier does not look at the alignment of the elements of a vector.
void check_alignment(const Executable& exe) {
  const auto aligned = [](const auto* values) {
    return values == nullptr || reinterpret_cast<uintptr_t>(values->Data()) % alignof(int64_t) == 0;
  };
  for (const auto* tensors : {exe.args(), exe.results()}) {
    for (flatbuffers::uoffset_t i = 0; tensors != nullptr && i < tensors->size(); ++i) {
      const Tensor* tensor = tensors->Get(i);
      check(aligned(tensor->global_dims()) && aligned(tensor->local_dims()) &&
                aligned(tensor->offsets()) && aligned(tensor->owned_elements()),
            "the structure is damaged (alignment)");
    }
  }
}

void check_executable(const ExecutableT& exe) {
  check(exe.partitions >= 1 && exe.partitions <= kMaxPartitions, "partition count");
  check_image(exe);
  for (size_t i = 0; i < exe.slots.size(); ++i) {
    const SlotT& slot = *exe.slots[i];
    check(slot.kind <= SlotKind::MAX, fmt::format("kind of slot {}", i));
    check(slot.bytes <= kMaxElements * 8, fmt::format("size of slot {}", i));
    const size_t bound = slot.kind == SlotKind::argument   ? exe.args.size()
                         : slot.kind == SlotKind::result   ? exe.results.size()
                         : slot.kind == SlotKind::constant ? exe.constants.size()
                                                           : SIZE_MAX;
    check(slot.index < bound, fmt::format("index of slot {}", i));
    check(slot.alias_of >= -1 && slot.alias_of < static_cast<int64_t>(exe.slots.size()) &&
              slot.alias_of != static_cast<int64_t>(i),
          fmt::format("alias of slot {}", i));
    if (slot.alias_of >= 0) {
      const SlotT& root = *exe.slots[static_cast<size_t>(slot.alias_of)];
      check(slot.kind == SlotKind::result && root.kind == SlotKind::argument && root.alias_of < 0 &&
                root.bytes >= slot.bytes &&
                exe.args[root.index]->donated_to == static_cast<int64_t>(slot.index),
            fmt::format("alias of slot {}", i));
    }
    if (slot.kind == SlotKind::constant) {
      check(exe.constants[slot.index]->data.size() <= slot.bytes,
            fmt::format("constant of slot {}", i));
    }
  }
  for (size_t i = 0; i < exe.args.size(); ++i) {
    check_tensor(*exe.args[i], exe, SlotKind::argument, i, fmt::format("argument {}", i));
    check(exe.args[i]->donated_to >= -1 &&
              exe.args[i]->donated_to < static_cast<int64_t>(exe.results.size()),
          fmt::format("donation of argument {}", i));
  }
  for (size_t i = 0; i < exe.results.size(); ++i) {
    check_tensor(*exe.results[i], exe, SlotKind::result, i, fmt::format("result {}", i));
  }
}

}  // namespace

uint64_t elem_bytes(Elem elem) {
  switch (elem) {
    case Elem::i64:
    case Elem::ui64:
      return 8;
    case Elem::f32:
    case Elem::i32:
    case Elem::ui32:
      return 4;
    case Elem::bf16:
    case Elem::i16:
    case Elem::ui16:
      return 2;
    case Elem::i8:
    case Elem::ui8:
    case Elem::i1:
      return 1;
  }
  refuse("unknown element type");
}

const char* elem_name(Elem elem) { return EnumNameElem(elem); }

uint64_t element_count(const std::vector<int64_t>& dims) {
  uint64_t count = 1;
  for (const int64_t dim : dims) {
    check(dim >= 0 && static_cast<uint64_t>(dim) <= kMaxElements,
          "a dimension is negative or too large");
    check(dim == 0 || count <= kMaxElements / static_cast<uint64_t>(dim), "a shape is too large");
    count *= static_cast<uint64_t>(dim);
  }
  return count;
}

std::vector<std::byte> write_executable(const ExecutableT& executable) {
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(false);
  builder.Finish(Executable::Pack(builder, &executable));
  std::vector<std::byte> bytes(kHeadBytes + builder.GetSize());
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  const uint64_t size = builder.GetSize();
  std::memcpy(bytes.data() + 8, &size, sizeof(size));
  std::memcpy(bytes.data() + kHeadBytes, builder.GetBufferPointer(), builder.GetSize());
  repair_hash(bytes);
  return bytes;
}

void repair_hash(std::vector<std::byte>& bytes) {
  if (bytes.size() < kHeadBytes) {
    return;
  }
  SHA256(reinterpret_cast<const uint8_t*>(bytes.data()) + kHeadBytes, bytes.size() - kHeadBytes,
         reinterpret_cast<uint8_t*>(bytes.data()) + 16);
}

ExecutableT read_executable(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse("not a tpuboard executable (magic TPUEXE01 missing)");
  }
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 8, sizeof(size));
  if (size != bytes.size() - kHeadBytes) {
    refuse(fmt::format("truncated executable: {} bytes of payload announced, {} present", size,
                       bytes.size() - kHeadBytes));
  }
  check(size > 0, "no payload");
  const auto* payload = reinterpret_cast<const uint8_t*>(bytes.data()) + kHeadBytes;
  std::array<uint8_t, SHA256_DIGEST_LENGTH> hash{};
  SHA256(payload, size, hash.data());
  if (std::memcmp(hash.data(), bytes.data() + 16, hash.size()) != 0) {
    refuse("corrupt executable: the SHA-256 does not match; compile the program again");
  }
  // FlatBuffers need an aligned buffer; the container's header is 48 bytes, so a copy gives that.
  const std::vector<uint64_t> aligned = [&] {
    std::vector<uint64_t> copy((size + 7) / 8);
    std::memcpy(copy.data(), payload, size);
    return copy;
  }();
  const auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, size, 16, 10'000'000);
  check(VerifyExecutableBuffer(verifier), "the structure is damaged");
  check_alignment(*GetExecutable(data));
  ExecutableT exe;
  GetExecutable(data)->UnPackTo(&exe);
  if (exe.isa_version != spec::kIsaVersion) {
    refuse(fmt::format(
        "the executable is for ISA version {}, this board has {}; compile the program again",
        exe.isa_version, spec::kIsaVersion));
  }
  check_executable(exe);
  return exe;
}

ExecutableT load_executable(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    refuse(path + ": cannot be opened");
  }
  const std::vector<char> text{std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>()};
  try {
    return read_executable(std::as_bytes(std::span(text)));
  } catch (const ExecutableError& error) {
    refuse(path + ": " + error.what());
  }
}

}  // namespace tpu::exe
