// Engines by name, as the command line gives them: fast, scalar, rtl, lockstep[:1/N].
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_lockstep.hpp"

namespace tpu::model {

struct MxuEngineOptions {
  std::string kind = "fast";  // fast | scalar | rtl | lockstep | lockstep:1/N
  std::string simd = "auto";  // of the fast engine: auto | scalar | avx2 | avx512 | amx
  spec::MxuShape shape;
  std::string path = "mxu";  // of the unit, for waves
  // Of the Verilog alone; lockstep reports by its own options.
  MxuRtlEngine::FailureObserver on_failure{};
  MxuLockstepOptions lockstep;  // one_in comes from `kind` when that has a :1/N
};

// Throws std::runtime_error for an unknown kind, a shape without Verilog, or a SIMD level this host
// lacks.
std::unique_ptr<MxuEngine> make_mxu_engine(const MxuEngineOptions& options);

// Nothing, or the reason why `kind` is not a name make_mxu_engine knows; for checking command lines
// early.
std::optional<std::string> mxu_kind_error(const std::string& kind);

}  // namespace tpu::model
