// Defaults of the sanitizers in fuzz tests: leaks are not looked for (the leak finder needs rights
// that a container may lack), everything else ends the process.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
