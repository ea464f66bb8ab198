#include "cli/plugin_library.hpp"

#include <cstdlib>

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libtpuboard_pjrt.so";
constexpr char kVariable[] = "TPU_LIBRARY_PATH";

}  // namespace

fs::path folder_of_this_program() { return fs::read_symlink("/proc/self/exe").parent_path(); }

// A build or an installation has the library beside its programs.
void set_plugin_library() {
  const char* const named = std::getenv(kVariable);
  const fs::path library = folder_of_this_program().parent_path() / "lib" / kLibrary;
  if ((named == nullptr || fs::path(named).filename() != kLibrary) && fs::exists(library)) {
    ::setenv(kVariable, library.c_str(), 1);
  }
}

}  // namespace tpu::driver
