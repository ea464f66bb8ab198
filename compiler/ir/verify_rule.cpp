// Checks that all rules of types share.
#include "ir/verify_rule.hpp"

#include <algorithm>

namespace tpu::compiler {

void TypeCheck::fail(const std::string& message) const {
  std::string types;
  for (const Value* v : op_.operands) {
    types += (types.empty() ? "" : ", ") + to_string(v->type);
  }
  types = "(" + types + ") ->";
  for (const auto& r : op_.results) {
    types += " " + to_string(r->type);
  }
  throw Error(message + ": " + types, source_name(op_.kind), op_.loc);
}

void TypeCheck::check_result(const Dims& dims, Elem e) const {
  check(out().elem == e && out().dims == dims, [&] {
    return "the result must be " + to_string(Type{e, dims});
  });
}

void TypeCheck::check_dims(const Dims& dims, int64_t rank, const char* what) const {
  const bool in_range =
      std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d >= 0 && d < rank; });
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  check(in_range && std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
        [&] { return std::string(what) + " " + to_string(dims) + " are out of range or repeat"; });
}

void TypeCheck::check_sizes(std::initializer_list<const Dims*> lists, int64_t size) const {
  for (const Dims* list : lists) {
    check(static_cast<int64_t>(list->size()) == size,
          [&] { return "an attribute must have " + std::to_string(size) + " entries"; });
  }
}

int64_t TypeCheck::positions(int64_t n, int64_t size, int64_t stride, int64_t low, int64_t high,
                             int64_t base, int64_t dilation) {
  const int64_t dilated = n == 0 ? 0 : (n - 1) * base + 1;
  const int64_t reach = size == 0 ? 0 : (size - 1) * dilation + 1;
  const int64_t padded = low + dilated + high;
  return padded < reach || padded <= 0 ? 0 : (padded - reach) / stride + 1;
}

void TypeCheck::check_body(const Region& body, const std::vector<Elem>& elems,
                           size_t copies) const {
  const Op* ret = body.terminator();
  check(body.args.size() == elems.size() * copies, "the body has the wrong number of arguments");
  for (size_t i = 0; i < body.args.size(); ++i) {
    check(body.args[i]->type.is_scalar(), "the body must take scalars");
  }
  check(ret != nullptr && ret->operands.size() == elems.size(),
        "the body returns the wrong number of values");
  for (size_t i = 0; i < elems.size(); ++i) {
    check(ret->operands[i]->type == Type{elems[i], {}}, "the body returns another type");
  }
}

}  // namespace tpu::compiler
