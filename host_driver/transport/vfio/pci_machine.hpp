// PCI functions of chips as a driver in user space reaches them, by Linux's VFIO or by vfio-user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tpu/transport.hpp"

namespace tpu::driver::vfio {

/// All calls but map() and unmap() come from one thread at a time. All throw Error: Unavailable
/// when a function is gone.
class PciMachine {
 public:
  virtual ~PciMachine() = default;

  virtual size_t functions() const = 0;
  /// For errors: "chip0.sock", "0000:00:04.0".
  virtual std::string name(size_t function) const = 0;
  /// Of a region (protocol.hpp). A write is posted.
  virtual void read(size_t function, uint32_t region, uint64_t offset, std::span<std::byte> to) = 0;
  virtual void write(size_t function, uint32_t region, uint64_t offset,
                     std::span<const std::byte> from) = 0;
  /// Of registers of one function, whose `chip` does not matter, in this order.
  virtual void write_words(size_t function, std::span<const RegisterWrite> writes) = 0;
  virtual void reset(size_t function) = 0;
  /// Eventfds of the MSI vectors.
  virtual void set_msi(size_t function, std::span<const int> events) = 0;
  /// Memory for all functions, in whole pages. `file`: has it from its beginning; -1: none.
  virtual void map(uint64_t iova, std::span<std::byte> memory, int file) = 0;
  virtual void unmap(uint64_t iova, uint64_t bytes) noexcept = 0;
  /// A descriptor that hangs up when the function is gone; -1: none.
  virtual int hangup(size_t function) const = 0;
};

/// Sockets chip0.sock, chip1.sock, .. of `tpuboard serve --vfio-user`. Throws Error.
std::unique_ptr<PciMachine> open_vfio_user(const std::string& folder);

}  // namespace tpu::driver::vfio
