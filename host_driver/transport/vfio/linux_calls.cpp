// The system calls of Linux for PCI functions.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "transport/vfio/kernel_vfio.hpp"

namespace tpu::driver::vfio {
namespace {

constexpr const char* kDriverFolder = "/sys/bus/pci/drivers/vfio-pci";
constexpr const char* kVendor = "0x1ae0";

class LinuxCalls final : public KernelCalls {
 public:
  int open(const std::string& path) override { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); }
  int control(int file, unsigned long request, void* argument) override {
    return ::ioctl(file, request, argument);
  }
  ptrdiff_t read(int file, std::span<std::byte> to, uint64_t at) override {
    return ::pread(file, to.data(), to.size(), static_cast<off_t>(at));
  }
  ptrdiff_t write(int file, std::span<const std::byte> from, uint64_t at) override {
    return ::pwrite(file, from.data(), from.size(), static_cast<off_t>(at));
  }
  void close(int file) override { ::close(file); }
  std::string link(const std::string& path) override {
    std::error_code error;
    return std::filesystem::read_symlink(path, error).string();
  }
  std::vector<std::string> functions() override {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(kDriverFolder, error)) {
      std::string vendor;
      std::ifstream(entry.path() / "vendor") >> vendor;
      if (vendor == kVendor) {
        names.push_back(entry.path().filename().string());
      }
    }
    std::ranges::sort(names);
    return names;
  }
};

}  // namespace

std::unique_ptr<KernelCalls> linux_calls() { return std::make_unique<LinuxCalls>(); }

}  // namespace tpu::driver::vfio
