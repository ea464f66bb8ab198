# Toolchain of builds for 64-bit Arm on an x86-64 host (docs/aarch64.md): Debian's cross compiler, and a sysroot that
# sim_scripts/aarch64 makes from Debian's arm64 packages. Generators, Verilator and the firmware's compiler are the
# host's own. Programs that the build makes and runs, as for manual pages, run by QEMU's user emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(TPU_AARCH64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot CACHE PATH "Debian packages for arm64, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TPU_AARCH64_SYSROOT)
cmake_path(ABSOLUTE_PATH TPU_AARCH64_SYSROOT NORMALIZE OUTPUT_VARIABLE CMAKE_SYSROOT)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
