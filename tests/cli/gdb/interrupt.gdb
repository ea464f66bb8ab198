# Ctrl-C (by the test, when GDB waits) while one hart loops at its first instruction and the others stand: the boot
# would never end so.
set scheduler-locking on
thread 2
set $first = *(unsigned*)0
set *(unsigned*)0 = 0x6f
set debug remote 1
continue
set debug remote 0
p $_thread
p $pc
set *(unsigned*)0 = $first
set scheduler-locking off
detach
