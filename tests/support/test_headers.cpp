// The program that the precompiled headers of the tests belong to (tests/CMakeLists.txt). It does
// nothing.
int main() { return 0; }
