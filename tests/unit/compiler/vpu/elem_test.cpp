// Element types of the graph and those of the instruction set and of executables are the same ones.
#include <gtest/gtest.h>

#include <set>

#include "exe/executable.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {
namespace {

TEST(Elem, HasTheNameAndTheSizeOfTheInstructionSet) {
  std::set<spec::Elem> seen;
  for (int i = 0; is_supported(static_cast<Elem>(i)); ++i) {
    const auto elem = static_cast<Elem>(i);
    if (is_complex(elem) || elem == Elem::kF64) {
      EXPECT_THROW(isa_elem(elem), Error);  // a core sees pairs of f32
      continue;
    }
    const spec::Elem isa = isa_elem(elem);
    EXPECT_EQ(elem_name(elem), spec::kElemNames.at(static_cast<size_t>(isa)));
    EXPECT_EQ(elem_name(elem), exe::elem_name(static_cast<exe::Elem>(isa)));
    EXPECT_EQ(static_cast<uint64_t>(elem_bytes(elem)),
              exe::elem_bytes(static_cast<exe::Elem>(isa)));
    seen.insert(isa);
  }
  EXPECT_EQ(seen.size(), spec::kElemNames.size());
  EXPECT_THROW(isa_elem(Elem::kF16), Error);
}

}  // namespace
}  // namespace tpu::compiler
