// Tuples of an artifact as their members, before anything else looks at its values:
//
//   %t = tuple(%a, %b)                       =>   nothing
//   %u = while(%t) (x: tuple<A, B>) ..       =>   %u0, %u1 = while(%a, %b) (x0: A, x1: B) ..
//   %r = get_tuple_element(%u) {index = 1}   =>   %u1
//
// The program's arguments and results are members in order too; a member of argument "x" is "x.0".
#pragma once

#include "import/bytecode.hpp"

namespace tpu::compiler::frontend {

void flatten_tuples(bytecode::RawModule& module);

}  // namespace tpu::compiler::frontend
