// Damaged artifacts: every prefix of a file and a wrong version are clean errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  for (const char* name : {"dense", "forms_0_9", "forms_plain"}) {
    const std::vector<char> all = read(name);
    ASSERT_GT(all.size(), 100u);
    for (size_t n = 0; n < all.size(); ++n) {
      EXPECT_THROW(import_vhlo(std::as_bytes(std::span(all).first(n)), "prefix"), Error)
          << name << " " << n;
    }
  }
}

TEST(DamagedArtifact, BytecodeVersionsOfTheFutureAreNamed) {
  std::vector<char> all = read("dense");
  all[4] = (7 << 1) | 1;
  try {
    import_vhlo(std::as_bytes(std::span(all)), "new");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("bytecode of version 7 is not supported: expected 0 to 6"));
  }
}

// Attributes with codes of later versions are no damage, but an op may need one.
TEST(DamagedArtifact, UnknownAttributesAreNamedByTheOpThatNeedsThem) {
  constexpr char kMesh = 2 << 1 | 1, kLater = 14 << 1 | 1;  // codes of one byte
  const std::vector<char> good = read("mesh_parts");
  std::string errors;
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<char> all = good;
    all[at] = kLater;
    try {
      if (good[at] == kMesh) {
        import_vhlo(std::as_bytes(std::span(all)), "later");
      }
    } catch (const Error& e) {
      errors += std::string(e.what()) + "\n";
    }
  }
  EXPECT_THAT(errors, testing::HasSubstr("sdy.mesh: expected a mesh, found another attribute"));
}

// The name of an op is a string of the file: another name of the same length is another op.
std::string error_with_op(const std::string& name) {
  std::vector<char> all = read("dense");
  const std::string old = "tanh_v2";
  const auto at = std::search(all.begin(), all.end(), old.begin(), old.end());
  EXPECT_NE(at, all.end());
  std::copy(name.begin(), name.end(), at);
  try {
    import_vhlo(std::as_bytes(std::span(all)), "renamed");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(DamagedArtifact, UnknownOpsAreNamedWithTheirLine) {
  const std::string e = error_with_op("tanq_v2");
  EXPECT_THAT(e, testing::HasSubstr("export_graphs.py:"));
  EXPECT_THAT(e, testing::HasSubstr(
                     "stablehlo.tanq: this op is not known (tanq_v2, artifact of StableHLO_v"));
}

TEST(DamagedArtifact, VersionsOfOpsFromTheFutureAreNamed) {
  EXPECT_THAT(error_with_op("tanh_v9"), testing::HasSubstr("this op is not known (tanh_v9"));
}

TEST(DamagedArtifact, OpsThatTheGraphCannotExpressAreNamed) {
  // The properties differ, so the reader may refuse them first; either way it is an Error.
  EXPECT_NE(error_with_op("send_v2"), "");
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
