// The rules of types, one class for each family of ops: elementwise ops and data movement in
// verify_types.cpp, ops with bodies, contractions and collectives in verify_bodies.cpp, indexed ops
// in verify_index.cpp, ops whose sizes are operands in verify_sizes.cpp, those of matrices in
// verify_linalg.cpp, those of the global graph in verify_sharding.cpp. Private to the verifier.
#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// What a rule has at hand: the op, and checks that throw with its types and place.
class TypeCheck {
 public:
  TypeCheck(const Op& op, const Module& module) : op_(op), module_(module) {}

 protected:
  // `message`: a text, or a function that makes it.
  template <typename Message>
  void check(bool ok, const Message& message) const {
    if (ok) {
      return;
    }
    if constexpr (std::is_invocable_v<Message>) {
      fail(message());
    } else {
      fail(message);
    }
  }
  [[noreturn]] void fail(const std::string& message) const;
  const Type& in(size_t i) const { return op_.operand_type(i); }
  const Type& out(size_t i = 0) const { return op_.type(i); }
  void check_result(const Dims& dims, Elem e) const;

  // Dimension numbers: in [0, rank), none twice.
  void check_dims(const Dims& dims, int64_t rank, const char* what) const;
  void check_sizes(std::initializer_list<const Dims*> lists, int64_t size) const;

  // Bodies take the element types of the given values, twice if `pairs`, and give them back.
  void check_body(const Region& body, const std::vector<Elem>& elems, size_t copies) const;

  // Positions of a window over `n` elements.
  static int64_t positions(int64_t n, int64_t size, int64_t stride, int64_t low, int64_t high,
                           int64_t base, int64_t dilation);

  const Op& op_;
  const Module& module_;
};

class BodyRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void reduce() const;
  void control() const;
  void call() const;
  void dot() const;
  void convolution() const;
  void fft() const;
  void window() const;
  void sort() const;
  void map() const;
  void batch_norm() const;
  void collective() const;

 private:
  void select_body(const Region& body) const;
};

class IndexRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void gather() const;
  void scatter() const;
  void indexed() const;
};

class SizeRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void sizes_as_operands() const;
  void rng() const;
};

class MatrixRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void matrix_op() const;
};

class ShardingTypeRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void sharding_constraint() const;
  void manual_computation() const;

 private:
  void check_sharding(const ShardingAttrs& a, const Type& global) const;
};

// The rule of any op: its own, or that of its family.
class TypeRule : public TypeCheck {
 public:
  using TypeCheck::TypeCheck;
  void run() const;

 private:
  void unary() const;
  void bitcast() const;
  void binary() const;
  void ternary() const;
  void other() const;
  void movement() const;
  void slice() const;
  void pad() const;
  void window_view() const;
  void concatenate() const;
  void dynamic_slice() const;
};

}  // namespace tpu::compiler
