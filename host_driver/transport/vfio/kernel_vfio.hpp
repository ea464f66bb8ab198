// PCI functions that Linux's vfio-pci has, in an IOMMU container of their own (type 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/vfio/pci_machine.hpp"

namespace tpu::driver::vfio {

/// What is asked of the kernel, so that tests can be one. As the system calls: negative results,
/// and the reason in errno.
class KernelCalls {
 public:
  virtual ~KernelCalls() = default;
  virtual int open(const std::string& path) = 0;
  virtual int control(int file, unsigned long request, void* argument) = 0;
  virtual ptrdiff_t read(int file, std::span<std::byte> to, uint64_t at) = 0;
  virtual ptrdiff_t write(int file, std::span<const std::byte> from, uint64_t at) = 0;
  virtual void close(int file) = 0;
  /// Target of a link; empty: there is none.
  virtual std::string link(const std::string& path) = 0;
  /// Addresses of the functions that vfio-pci has, of the vendor 1ae0.
  virtual std::vector<std::string> functions() = 0;
};
std::unique_ptr<KernelCalls> linux_calls();

/// `addresses`: "0000:00:04.0", separated by commas; empty: all functions of the vendor 1ae0 that
/// vfio-pci has. Throws Error.
std::unique_ptr<PciMachine> open_kernel_vfio(const std::string& addresses,
                                             std::unique_ptr<KernelCalls> calls);

}  // namespace tpu::driver::vfio
