// Register access of the firmware on the host: goes to the mock device of the running test.
#include "firmware_fixture.hpp"

#include "dev/mmio.h"

namespace tpu::test {
namespace {
MockDevice* g_device = nullptr;
}

void attach_device(MockDevice* device) { g_device = device; }

}  // namespace tpu::test

extern "C" uint32_t mmio_read32(uint32_t addr) { return tpu::test::g_device->read(addr); }
extern "C" void mmio_write32(uint32_t addr, uint32_t value) {
  tpu::test::g_device->write(addr, value);
}
