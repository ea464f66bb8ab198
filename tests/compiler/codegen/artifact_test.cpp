// Artifacts exported from JAX, compiled and run on the untimed machine, against the interpreter.
#include <filesystem>

#include "import/import.hpp"
#include "passes/pass_manager.hpp"
#include "run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

Module load_artifact(const std::string& name) {
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
  run_passes(m, canonical_passes());
  return m;
}

class Artifact : public testing::TestWithParam<const char*> {};

TEST_P(Artifact, ComputesWhatTheGraphSays) {
  const Module m = load_artifact(GetParam());
  RunOptions o;
  o.order_seeds =
      m.num_cores == 1 ? std::vector<uint32_t>{0, 1, 2, 3} : std::vector<uint32_t>{0, 5};
  check_graph(m, o);
}

INSTANTIATE_TEST_SUITE_P(All, Artifact,
                         testing::Values("dense", "elementwise", "dots", "shapes", "constants",
                                         "bf16_dense", "integers", "collectives", "collectives_2d",
                                         "mlp_sgd", "mlp_momentum", "mlp_adam"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace tpu::compiler::test
