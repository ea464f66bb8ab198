// Container of executables: magic, length, hash, and the FlatBuffer inside.
#include "exe/executable.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "exe/executable_check.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/types.hpp"
#include "types/dtype_table.hpp"

namespace tpu::exe {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'P', 'U', 'E', 'X', 'E', '0', '2'};
constexpr size_t kFormatAt = 6;  // of the magic: its version
constexpr size_t kHeadBytes = 8 + 8 + SHA256_DIGEST_LENGTH;
constexpr size_t kTableBytes = 128;  // at most, of one table without its vectors and strings

// Types of elements have the same numbers here, in the interface of the driver and in the
// instruction set, which has neither complex numbers nor f64.
constexpr bool same(driver::DType dtype, Elem elem) {
  return static_cast<uint8_t>(dtype) == static_cast<uint8_t>(elem);
}
static_assert(same(driver::DType::kF32, Elem::f32) && same(driver::DType::kBf16, Elem::bf16) &&
              same(driver::DType::kI1, Elem::i1));
static_assert(same(driver::DType::kI8, Elem::i8) && same(driver::DType::kU8, Elem::ui8));
static_assert(same(driver::DType::kI16, Elem::i16) && same(driver::DType::kU16, Elem::ui16));
static_assert(same(driver::DType::kI32, Elem::i32) && same(driver::DType::kU32, Elem::ui32));
static_assert(same(driver::DType::kI64, Elem::i64) && same(driver::DType::kU64, Elem::ui64));
static_assert(same(driver::DType::kC64, Elem::c64));
static_assert(same(driver::DType::kF64, Elem::f64) && same(driver::DType::kF64, Elem::MAX));
static_assert(driver::kDTypes.size() == static_cast<size_t>(Elem::MAX) + 1);
constexpr bool names_of_the_isa() {
  for (size_t i = 0; i < spec::kElemNames.size(); ++i) {
    if (driver::kDTypes[i].name != spec::kElemNames[i]) {
      return false;
    }
  }
  return true;
}
static_assert(names_of_the_isa());

using Wide = std::vector<uint16_t>;

Wide list_of(const std::vector<uint8_t>& bytes, const Wide& wide) {
  return wide.empty() ? Wide(bytes.begin(), bytes.end()) : wide;
}

void set_list(std::vector<uint8_t>& bytes, Wide& wide, const Wide& values) {
  bytes.clear();
  wide.clear();
  if (std::ranges::all_of(values, [](uint16_t value) { return value <= UINT8_MAX; })) {
    std::ranges::transform(values, std::back_inserter(bytes),
                           [](uint16_t value) { return static_cast<uint8_t>(value); });
  } else {
    wide = values;
  }
}

[[noreturn]] void refuse(const std::string& what) { throw ExecutableError(what); }

void check(bool condition, const char* what) {
  if (!condition) {
    refuse(std::string("corrupt executable: ") + what);
  }
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
  for (flatbuffers::uoffset_t i = 0; exe.temporaries() != nullptr && i < exe.temporaries()->size();
       ++i) {
    check(aligned(exe.temporaries()->Get(i)->dims()), "the structure is damaged (alignment)");
  }
}

// Bytes of vectors and strings when every reference has its own copy.
class UnpackedBytes {
 public:
  template <typename Vector>
  void add(const Vector* values) {
    bytes_ +=
        values == nullptr ? 0 : uint64_t{values->size()} * sizeof(typename Vector::value_type);
  }
  template <typename Tables, typename Fn>
  static void each(const Tables* tables, Fn fn) {
    for (flatbuffers::uoffset_t i = 0; tables != nullptr && i < tables->size(); ++i) {
      fn(*tables->Get(i));
    }
  }
  uint64_t get() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

// A file may refer to one vector from many tables, which then takes room for each; the writer never
// does, so what is unpacked is no larger than the file.
void check_unpacked_size(const Executable& exe, uint64_t payload_bytes) {
  UnpackedBytes total;
  total.add(exe.image());
  total.add(exe.name());
  total.add(exe.board_name());
  for (const auto* tensors : {exe.args(), exe.results()}) {
    UnpackedBytes::each(tensors, [&](const Tensor& tensor) {
      total.add(tensor.name());
      total.add(tensor.global_dims());
      total.add(tensor.local_dims());
      total.add(tensor.offsets());
      total.add(tensor.owned_elements());
      total.add(tensor.owned_by());
      total.add(tensor.terms());
      total.add(tensor.wide_owned_by());
      total.add(tensor.wide_terms());
    });
  }
  UnpackedBytes::each(exe.constants(), [&](const Constant& c) { total.add(c.data()); });
  UnpackedBytes::each(exe.ops(), [&](const OpInfo& op) {
    total.add(op.name());
    total.add(op.file());
  });
  UnpackedBytes::each(exe.temporaries(), [&](const Temporary& t) { total.add(t.dims()); });
  UnpackedBytes::each(exe.notes(), [&](const flatbuffers::String& note) { total.add(&note); });
  check(total.get() <= payload_bytes, "its tables share their contents");
}

// FlatBufferBuilder does not survive contents that are too large. Returns the bytes of the payload
// or some more.
uint64_t check_fits(const ExecutableT& exe) {
  uint64_t bytes = exe.image.size() + exe.name.size() + exe.board_name.size() + kTableBytes;
  for (const auto* tensors : {&exe.args, &exe.results}) {
    for (const auto& t : *tensors) {
      bytes += kTableBytes + t->name.size() + t->owned_by.size() + t->terms.size() +
               2 * (t->wide_owned_by.size() + t->wide_terms.size()) +
               8 * (t->global_dims.size() + t->local_dims.size() + t->offsets.size() +
                    t->owned_elements.size());
    }
  }
  for (const auto& op : exe.ops) {
    bytes += kTableBytes + op->name.size() + op->file.size();
  }
  for (const std::string& note : exe.notes) {
    bytes += kTableBytes + note.size();
  }
  for (const auto& temporary : exe.temporaries) {
    bytes += kTableBytes + 8 * temporary->dims.size();
  }
  bytes += exe.slots.size() * kTableBytes;
  uint64_t constants = 0;
  for (const auto& constant : exe.constants) {
    constants += kTableBytes + constant->data.size();
  }
  if (bytes + constants > kMaxPayloadBytes) {
    refuse(
        fmt::format("the executable has {} bytes (constants {}, code {}): expected at most {} "
                    "bytes; pass large constants as arguments",
                    bytes + constants, constants, exe.image.size(), kMaxPayloadBytes));
  }
  return bytes + constants;
}

}  // namespace

// Element types are numbered as in the instruction set (spec/isa/commands.toml), which ends before
// those of the host.
static_assert(static_cast<int>(Elem::c64) == spec::kElemCount && Elem::f64 == Elem::MAX);
static_assert(static_cast<spec::Elem>(Elem::f32) == spec::Elem::kF32);
static_assert(static_cast<spec::Elem>(Elem::bf16) == spec::Elem::kBf16);
static_assert(static_cast<spec::Elem>(Elem::i32) == spec::Elem::kI32);
static_assert(static_cast<spec::Elem>(Elem::ui32) == spec::Elem::kUi32);
static_assert(static_cast<spec::Elem>(Elem::i8) == spec::Elem::kI8);
static_assert(static_cast<spec::Elem>(Elem::ui8) == spec::Elem::kUi8);
static_assert(static_cast<spec::Elem>(Elem::i1) == spec::Elem::kI1);
static_assert(static_cast<spec::Elem>(Elem::i16) == spec::Elem::kI16);
static_assert(static_cast<spec::Elem>(Elem::ui16) == spec::Elem::kUi16);
static_assert(static_cast<spec::Elem>(Elem::i64) == spec::Elem::kI64);
static_assert(static_cast<spec::Elem>(Elem::ui64) == spec::Elem::kUi64);

uint64_t elem_bytes(Elem elem) {
  if (elem > Elem::MAX) {
    refuse("unknown element type");
  }
  return driver::kDTypes[static_cast<size_t>(elem)].bytes;
}

const char* elem_name(Elem elem) {
  return elem > Elem::MAX ? "" : driver::kDTypes[static_cast<size_t>(elem)].name.data();
}

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

Wide cores_of(const ExecutableT& executable) {
  return list_of(executable.cores, executable.wide_cores);
}
Wide owners_of(const TensorT& tensor) { return list_of(tensor.owned_by, tensor.wide_owned_by); }
Wide terms_of(const TensorT& tensor) { return list_of(tensor.terms, tensor.wide_terms); }
void set_cores(ExecutableT& executable, const Wide& cores) {
  set_list(executable.cores, executable.wide_cores, cores);
}
void set_owners(TensorT& tensor, const Wide& owners) {
  set_list(tensor.owned_by, tensor.wide_owned_by, owners);
}
void set_terms(TensorT& tensor, const Wide& terms) {
  set_list(tensor.terms, tensor.wide_terms, terms);
}

std::vector<std::byte> write_executable(const ExecutableT& executable) {
  flatbuffers::FlatBufferBuilder builder(check_fits(executable));
  builder.ForceDefaults(false);
  builder.Finish(Executable::Pack(builder, &executable));
  const auto payload = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  std::vector<std::byte> bytes;
  bytes.reserve(kHeadBytes + payload.size());
  bytes.resize(kHeadBytes);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  const uint64_t size = payload.size();
  std::memcpy(bytes.data() + 8, &size, sizeof(size));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
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
    refuse(bytes.size() >= kHeadBytes && std::memcmp(bytes.data(), kMagic.data(), kFormatAt) == 0
               ? "an executable of another format version; compile the program again"
               : "not a tpuboard executable (magic TPUEXE02 missing); tpuc makes one of a program");
  }
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 8, sizeof(size));
  const uint64_t present = bytes.size() - kHeadBytes;
  if (size != present) {
    refuse(
        fmt::format("{} executable: expected {} bytes of payload, found {}; copy the file again or "
                    "compile the program again",
                    size > present ? "truncated" : "overlong", size, present));
  }
  check(size > 0, "no payload");
  check(size <= kMaxPayloadBytes, "larger than a FlatBuffer can be");
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
  check_unpacked_size(*GetExecutable(data), size);
  ExecutableT exe;
  GetExecutable(data)->UnPackTo(&exe);
  if (exe.isa_version != spec::kIsaVersion) {
    refuse(fmt::format(
        "the executable is for ISA version {}, this board has {}; compile the program again",
        exe.isa_version, spec::kIsaVersion));
  }
  check_tables(exe);
  return exe;
}

}  // namespace tpu::exe
