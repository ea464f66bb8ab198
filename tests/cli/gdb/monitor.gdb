# Every command, and what is wrong with some.
monitor help
monitor time
monitor harts 7
monitor rings 3
monitor queues
monitor semaphores 0
monitor peek 0 0x4000a000
monitor peek 9 0
monitor peek 0 2
monitor peek 0 x
monitor peek 0 seq.STAT
monitor peek 7 seq.STATE
monitor peek 7 sysctl.core_id
monitor read 7 hostdma.STATUS[5]
monitor poke 7 hostdma.PATTERN[2] 0x12
monitor peek 7 hostdma.PATTERN[2]
monitor poke 7 sysctl.ID 1
monitor poke 7 timer.CMP_LO what
monitor poke 0 0x40001000
monitor poke 0 0x50000000 1
monitor queues 8
monitor reset
monitor nonsense
tbreak launch_program_event
continue
monitor rings 0
