// The command tpuboard.
#include <csignal>

#include "cli/commands.hpp"

int main(int argc, char** argv) {
  // A file that outgrows the user's limit is an error of its writer, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return tpu::driver::tpuboard_main(argc, argv);
}
