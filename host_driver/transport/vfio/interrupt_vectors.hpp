// Interrupts of a function: eventfds of its client for MSI vectors and for errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "socket/descriptor.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "transport/vfio/frame_socket.hpp"

namespace tpu::driver::vfio {

class InterruptVectors {
 public:
  using Bytes = std::span<const std::byte>;

  /// IRQ_INFO and SET_IRQS. Throw Rejected.
  static std::vector<std::byte> info(Bytes payload);
  void set(Frame& frame);

  /// MSI, a bit for each vector.
  void raise(uint32_t vectors);
  void raise_error();
  void clear();

 private:
  void trigger(const SetIrqs& request, Bytes wanted, std::span<base::Descriptor> events);

  std::array<base::Descriptor, spec::chip_page::kMsiVectors> msi_;
  base::Descriptor error_;
};

}  // namespace tpu::driver::vfio
