// Core program of the driver's tests, in assembler: copies an argument i32[1024] to its result
// through VMEM. In parts, so that a test can put its own commands in place of the copy.
#pragma once

#include <string>

namespace tpu::driver::test {

inline constexpr const char* kCopySlots = R"(
.slot argument bytes=4096
.slot result bytes=4096
.arg "x" elem=i32 global=[1024] slot=0
.result "y" elem=i32 global=[1024] slot=1
)";

inline constexpr const char* kCopyCommands = R"(
  dma_in.dma signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma wait=0:1:take signal=1:1 src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r1, r0, 1
)";

/// The whole program.
inline std::string copy_program() {
  return std::string(".program \"copy\"") + kCopySlots + kCopyCommands + "  halt\n";
}

/// As copy_program(), but its argument is donated to its result, and copied onto itself.
inline std::string donating_program() {
  std::string commands = kCopyCommands;
  commands.replace(commands.find("hbm[1]"), 6, "hbm[0]");
  return R"(.program "donating"
.slot argument bytes=4096
.arg "x" elem=i32 global=[1024] slot=0 donated_to=0
.result "y" elem=i32 global=[1024] slot=0
)" + commands +
         "  halt\n";
}

}  // namespace tpu::driver::test
