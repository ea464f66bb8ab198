// tpuboard_server: has the board that several processes share, or boards of a pod for one program
// (serve-maker). The library of the plugin starts it (pjrt_plugin/processes/meeting.cpp and
// host_driver/transport/worker/local_workers.cpp), and has all that it does. With a shared board it
// goes into the background at once, away from the terminal's signals, and ends with the last of the
// processes. Of what that process had open it keeps the standard error alone: those that wait for
// its output to end, or for a lock that it had, do not wait for the server. The folder stays, from
// which paths may start.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr int kSocket = 3;

void close_what_came_along() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDOUT_FILENO);
  std::vector<int> open_files;  // the folder is read by one of them
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    open_files.push_back(std::atoi(entry.path().filename().c_str()));
  }
  for (const int file : open_files) {
    if (file > kSocket) {
      ::close(file);
    }
  }
}

template <class Function>
Function* find(const char* library, const char* name) {
  void* const opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  auto* const found =
      opened == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(opened, name));
  if (found == nullptr) {
    std::fprintf(stderr, "tpuboard_server: %s\n", ::dlerror());
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[2], "serve-maker") == 0) {
    auto* const serve = find<int()>(argv[1], "tpuboard_serve_maker");
    return serve == nullptr ? 1 : serve();
  }
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
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read the standard error any more
  close_what_came_along();
  auto* const serve =
      find<int(int socket, int processes, const char* folder)>(argv[1], "tpuboard_serve");
  if (serve == nullptr) {
    return 1;
  }
  return serve(kSocket, std::atoi(argv[2]), argv[3]);
}
