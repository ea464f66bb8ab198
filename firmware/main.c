/* Main loop of the control hart. Interrupts stay masked (mstatus.MIE = 0): WFI wakes on a pending
   enabled one all the same, and reading TAKE clears what it returns, so no wake-up is lost and no
   handler can interrupt another. Every wait of the firmware ends in an interrupt; between them the
   hart sleeps. */
#include "dev/mmio.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

#define MIE_EXTERNAL (1u << 11)

extern const uint32_t fw_build_id; /* filled in behind the linker */

int main(void) {
  fw_boot(fw_build_id);
  __asm__ volatile("csrw mie, %0" ::"r"(MIE_EXTERNAL));
  for (;;) {
    const uint32_t sources = REG_READ(IRQ, TAKE);
    if (sources == 0) {
      __asm__ volatile("wfi");
    } else {
      fw_dispatch(sources);
    }
  }
}
