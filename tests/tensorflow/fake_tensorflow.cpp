// In the place of libtensorflow_cc.so.2: the version of the process.
#pragma GCC visibility push(default)
extern "C" const char* TF_Version() { return "2.20.0"; }
#pragma GCC visibility pop
