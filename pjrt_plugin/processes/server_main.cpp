// tpuboard_server: has the board that several processes share. The library of the plugin starts it
// (pjrt_plugin/processes/meeting.cpp), and has all that it does. It goes into the background at
// once, away from the terminal's signals, and ends with the last of the processes.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  constexpr int kArguments = 4;
  if (argc != kArguments) {
    std::fprintf(stderr,
                 "usage: tpuboard_server LIBRARY PROCESSES FOLDER, with a listening socket "
                 "as descriptor 3; libtpuboard_pjrt.so starts it\n");
    return 2;
  }
  const pid_t child = ::fork();
  if (child != 0) {
    if (child < 0) {
      std::perror("tpuboard_server: fork");
    }
    return child < 0 ? 1 : 0;
  }
  ::setsid();
  void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  using Serve = int(int socket, int processes, const char* folder);
  auto* const serve =
      library == nullptr ? nullptr : reinterpret_cast<Serve*>(::dlsym(library, "tpuboard_serve"));
  if (serve == nullptr) {
    std::fprintf(stderr, "tpuboard_server: %s\n", ::dlerror());
    return 1;
  }
  constexpr int kSocket = 3;
  return serve(kSocket, std::atoi(argv[2]), argv[3]);
}
