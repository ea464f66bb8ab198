// The handler of SIGBUS looks through a list of entries that are never freed, only used again, so
// that it needs no lock. Addresses of nobody here go to the handler that was there before.
#include "file/lost_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <mutex>

namespace tpu::driver {

struct WatchedMapping::Entry {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<int> protection{0};
  std::atomic<bool> lost{false};
  Entry* next = nullptr;
};

struct LostPages {
  using Entry = WatchedMapping::Entry;

  static Entry* take(uintptr_t begin, uintptr_t end, int protection) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Entry* entry = first.load();
    while (entry != nullptr && entry->begin != 0) {
      entry = entry->next;
    }
    if (entry == nullptr) {
      entry = new Entry;  // for good: the handler may look at it at any time
      entry->next = first.load();
      first = entry;
    }
    entry->lost = false;
    entry->protection = protection;
    entry->end = end;
    entry->begin = begin;
    return entry;
  }

  // All of the mapping from the page on becomes zeros: the rest of a cut file is lost too.
  static bool replace(void* at) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    for (Entry* entry = first.load(); entry != nullptr; entry = entry->next) {
      const uintptr_t begin = entry->begin;
      const uintptr_t end = entry->end;
      if (begin == 0 || address < begin || address >= end) {
        continue;
      }
      const uintptr_t in_page = address & (page_bytes - 1);
      void* const page = static_cast<char*>(at) - in_page;
      entry->lost = true;
      return ::mmap(page, end - address + in_page, entry->protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return false;
  }

  static void on_bus_error(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const bool ours = replace(info->si_addr);
    errno = error;
    if (ours) {
      return;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(signal);
    } else {
      ::signal(SIGBUS, SIG_DFL);  // the access is tried again, and ends the process
    }
  }

  static void install() {
    static const bool installed = [] {
      page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
      struct sigaction action {};
      action.sa_sigaction = &on_bus_error;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigemptyset(&action.sa_mask);
      return ::sigaction(SIGBUS, &action, &before) == 0;
    }();
    static_cast<void>(installed);
  }

  static inline std::atomic<Entry*> first{nullptr};
  static inline uintptr_t page_bytes = 4096;
  static inline struct sigaction before {};
};

WatchedMapping::WatchedMapping(const void* begin, size_t bytes, bool writable) {
  LostPages::install();
  const auto address = reinterpret_cast<uintptr_t>(begin);
  entry_ = LostPages::take(address, address + bytes, PROT_READ | (writable ? PROT_WRITE : 0));
}

WatchedMapping::~WatchedMapping() { entry_->begin = 0; }

bool WatchedMapping::lost() const { return entry_->lost; }

}  // namespace tpu::driver
