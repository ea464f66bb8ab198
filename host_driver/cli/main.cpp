// The command tpuboard.
#include "cli/commands.hpp"

int main(int argc, char** argv) { return tpu::driver::tpuboard_main(argc, argv); }
