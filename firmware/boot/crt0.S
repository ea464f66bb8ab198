/* Start of the image in ITCM: entry, build id, C run time set-up, trap vector.
   Any trap is an error of the firmware (interrupts stay masked): it is recorded and the hart stops. */
  .section .text.start, "ax"
  .globl _start
_start:
  .option push
  .option norvc
  j start
  .option pop
  .globl fw_build_id
fw_build_id:                   # at byte 4; written by image/make_image.py
  .word 0

start:
  .option push
  .option norelax
  la gp, __global_pointer$
  .option pop
  la sp, __stack_top
  la t0, trap_vector
  csrw mtvec, t0
  la t0, __data_start
  la t1, __data_end
  la t2, __data_load
1:
  bgeu t0, t1, 2f
  lw t3, 0(t2)
  sw t3, 0(t0)
  addi t0, t0, 4
  addi t2, t2, 4
  j 1b
2:
  la t0, __bss_start
  la t1, __bss_end
3:
  bgeu t0, t1, 4f
  sw zero, 0(t0)
  addi t0, t0, 4
  j 3b
4:
  call main
5:
  wfi
  j 5b

  .text
  .balign 4
trap_vector:
  la sp, __trap_stack_top      # the stack may be what failed
  csrw mie, zero
  csrr a0, mepc
  csrr a1, mcause
  csrr a2, mtval
  call fault_record_hart
6:
  wfi
  j 6b
