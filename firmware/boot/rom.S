/* Mask ROM, entered from reset at hart address 0: a stack in DTCM, a trap vector, then rom_main (C).
   rom_main returns the entry address of a good image. */
  .section .text.start, "ax"
  .globl _start
_start:
  la sp, __rom_stack_top
  la t0, rom_trap
  csrw mtvec, t0
  call rom_main
  jr a0
  .balign 4
rom_trap:
  la sp, __rom_stack_top
  csrr a0, mepc
  csrr a1, mcause
  csrr a2, mtval
  call rom_dead
