// The columns of TPU_OP_KINDS, for code that treats many kinds the same way: ask for a trait here
// rather than list kinds. A row that lacks a column does not compile.
#pragma once

#include <array>
#include <initializer_list>
#include <utility>

#include "ir/op_kinds.hpp"

namespace tpu::compiler {

enum class Group : uint8_t {
  kSource,
  kUnary,
  kBinary,
  kTernary,
  kShape,
  kContraction,
  kBody,
  kControl,
  kCollective,
  kHost,
  kWhole,
  kMatrix,
  kCall,
  kSized,
  kGlobal,
  kEnd
};

// Element types that the operands of an elementwise op may have. kOwn: it has its own rule.
enum class Takes : uint8_t { kOwn, kAny, kNumbers, kBits, kIntegers, kFloats, kFloatsOrComplex };

// Operands that the result is linear in while the others stay as they are.
enum class LinearIn : uint8_t {
  kNone,
  kFirst,
  kFirstTwo,
  kChoices,    // both choices of a select
  kAll,        // every operand
  kProduct,    // each of two factors
  kSometimes,  // depends on types or attributes: partition/unreduced.cpp
};

namespace trait {

constexpr uint16_t kNone = 0;
constexpr uint16_t kCheap = 1;         // cheaper to compute again than to load a large result
constexpr uint16_t kWraps = 2;         // of narrow integers: may set bits beyond their width
constexpr uint16_t kReducer = 4;       // commutative and associative: may be a reduction's body
constexpr uint16_t kKeepsFinite = 8;   // the result has the operand's elements, signs aside
constexpr uint16_t kFolds = 16;        // computed from constants by eval_op (elementwise ops too)
constexpr uint16_t kUnrolls = 32;      // in bodies of loops that are unrolled (elementwise too)
constexpr uint16_t kView = 64;         // result element i is an operand's element at affine index
constexpr uint16_t kCaptures = 128;    // bodies may use values of the enclosing regions
constexpr uint16_t kWholeArray = 256;  // interpreted at once for all elements: ir/lifted_body.hpp
constexpr uint16_t kByParts = 512;     // on complex64: the same op on both parts
constexpr uint16_t kByHalves = 1024;   // on 64-bit integers: the same op on both halves

}  // namespace trait

struct OpTraits {
  Group group;
  Takes takes;
  LinearIn linear;
  uint16_t traits;
};

namespace trait {

// clang-format off
inline constexpr OpTraits kOfKind[] = {
#define TPU_TRAITS(group, takes, linear, traits) \
  {Group::group, Takes::k##takes, LinearIn::k##linear, traits},
#define X(id, name, attrs, in, out, regions, source, takes, linear, traits, forms) \
  TPU_TRAITS(TPU_GROUP, takes, linear, traits)
#define TPU_GROUP kSource
  TPU_SOURCE_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kUnary
  TPU_UNARY_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kBinary
  TPU_BINARY_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kTernary
  TPU_TERNARY_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kShape
  TPU_SHAPE_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kContraction
  TPU_CONTRACTION_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kBody
  TPU_BODY_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kControl
  TPU_CONTROL_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kCollective
  TPU_COLLECTIVE_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kHost
  TPU_HOST_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kWhole
  TPU_WHOLE_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kMatrix
  TPU_MATRIX_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kCall
  TPU_CALL_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kSized
  TPU_SIZED_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kGlobal
  TPU_GLOBAL_KINDS(X)
#undef TPU_GROUP
#define TPU_GROUP kEnd
  TPU_END_KINDS(X)
#undef TPU_GROUP
#undef X
#undef TPU_TRAITS
};
// clang-format on

}  // namespace trait

constexpr size_t kOpKinds = std::size(trait::kOfKind);

constexpr const OpTraits& traits_of(Kind kind) { return trait::kOfKind[static_cast<size_t>(kind)]; }
constexpr bool has_trait(Kind kind, uint16_t trait) {
  return (traits_of(kind).traits & trait) != 0;
}

// A value, often a function, for each of some kinds: rows by name, in any order.
template <typename T>
class KindTable {
 public:
  constexpr KindTable(std::initializer_list<std::pair<Kind, T>> rows) {
    for (const auto& [kind, value] : rows) {
      if (has_[static_cast<size_t>(kind)]) {
        throw "a kind has two rows";  // a constant expression that throws does not compile
      }
      has_[static_cast<size_t>(kind)] = true;
      rows_[static_cast<size_t>(kind)] = value;
    }
  }

  constexpr T find(Kind kind) const { return rows_[static_cast<size_t>(kind)]; }  // T{} if none

  // For static_assert: a kind for which `wanted` holds has a row.
  template <typename Wanted>
  constexpr bool has_all(Wanted wanted) const {
    for (size_t i = 0; i < kOpKinds; ++i) {
      if (wanted(static_cast<Kind>(i)) && !has_[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  std::array<T, kOpKinds> rows_{};
  // Not `rows_[i] != T{}`: with -fsanitize=undefined comparing functions is no constant expression.
  std::array<bool, kOpKinds> has_{};
};

}  // namespace tpu::compiler
