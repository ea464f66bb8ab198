// Proves a rule by computing: every factor that may be cut is cut in 2 and 4, and every two of them
// at once; each part is evaluated by the interpreter, the parts are put together and compared with
// the whole op. Operands are small whole numbers, so that sums are exact in any order.
#pragma once

#include <random>
#include <string>

#include "ir/interpreter.hpp"
#include "partition/rules/rules.hpp"

namespace tpu::compiler::test {

// "[a,B][B,c] -> [a,c]": a letter per pass factor, a capital per reduce factor, "#" for blocked
// ones, several in one dimension as "a*b", "1" for none.
std::string to_text(const FactorRule& rule);

// Fails the test where a cut gives another value, or the rule does not fit the op's shapes. Gives
// the number of cuts that were tried.
int check_rule(const Op& op, std::mt19937& random);

}  // namespace tpu::compiler::test
