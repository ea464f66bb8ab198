// Entry point of every test program that elaborates SystemC modules: sc_main runs GoogleTest.
// SystemC elaborates once a process, so CTest runs every test of such a program in its own process.
#include <gtest/gtest.h>

#include <systemc>

int sc_main(int argc, char* argv[]) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
