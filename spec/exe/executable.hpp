// Executable of a core program (.tpuexe): container with magic, length, SHA-256, then a FlatBuffer
// (spec/formats/tpuexe.fbs). Reading checks everything that later code relies on, so a corrupt file
// is refused here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tpuexe_generated.h"

namespace tpu::exe {

// What an executable can hold; the compiler refuses what is more, with the operation's source line.
constexpr size_t kMaxRank = 64;                       // dimensions of an argument or result
constexpr uint32_t kMaxPartitions = 2048;             // cores that run a program together
constexpr uint64_t kMaxElements = uint64_t{1} << 40;  // of one array
// FlatBuffers address their bytes with 31 bits.
constexpr uint64_t kMaxPayloadBytes = (uint64_t{1} << 31) - 1;

/// A file that is not a usable executable; the text says why.
class ExecutableError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes of one element in memory (i1 takes one byte).
uint64_t elem_bytes(Elem elem);

/// "f32", "bf16", ...
const char* elem_name(Elem elem);

/// Product of `dims`; throws ExecutableError on negative dims or more than kMaxElements.
uint64_t element_count(const std::vector<int64_t>& dims);

/// Lists of cores: of an executable with a number that takes two bytes they are in its wide lists.
std::vector<uint16_t> cores_of(const ExecutableT& executable);
std::vector<uint16_t> owners_of(const TensorT& tensor);
std::vector<uint16_t> terms_of(const TensorT& tensor);
void set_cores(ExecutableT& executable, const std::vector<uint16_t>& cores);
void set_owners(TensorT& tensor, const std::vector<uint16_t>& owners);
void set_terms(TensorT& tensor, const std::vector<uint16_t>& terms);

/// Serialises, with hash. Throws ExecutableError when the contents exceed kMaxPayloadBytes.
std::vector<std::byte> write_executable(const ExecutableT& executable);

/// Parses and checks the whole structure. Does not judge whether a certain board can run it. Throws
/// ExecutableError.
ExecutableT read_executable(std::span<const std::byte> bytes);

/// Replaces the hash of a container by the right one (for tests that mutate payloads).
void repair_hash(std::vector<std::byte>& bytes);

}  // namespace tpu::exe
