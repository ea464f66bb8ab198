// Damaged artifacts: every prefix of a file and a wrong version are clean errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "import/import.hpp"

namespace tpu::compiler {
namespace {

std::vector<char> read(const std::string& name) {
  std::ifstream file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DamagedArtifact, EveryPrefixIsRefused) {
  const std::vector<char> all = read("dense");
  ASSERT_GT(all.size(), 100u);
  for (size_t n = 0; n < all.size(); ++n) {
    EXPECT_THROW(import_vhlo(std::as_bytes(std::span(all).first(n)), "prefix"), Error) << n;
  }
}

TEST(DamagedArtifact, OtherBytecodeVersionsAreNamed) {
  std::vector<char> all = read("dense");
  all[4] = (1 << 1) | 1;
  try {
    import_vhlo(std::as_bytes(std::span(all)), "old");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("bytecode version 1 is not supported"));
  }
}

TEST(DamagedArtifact, LeavesNothingBehind) {
  const std::vector<char> all = read("mlp_sgd");
  std::vector<char> broken = all;
  broken.resize(broken.size() / 2);
  EXPECT_THROW(import_vhlo(std::as_bytes(std::span(broken)), "broken"), Error);
  const std::string first = print(import_vhlo(std::as_bytes(std::span(all)), "m"), true);
  EXPECT_EQ(print(import_vhlo(std::as_bytes(std::span(all)), "m"), true), first);
}

}  // namespace
}  // namespace tpu::compiler
