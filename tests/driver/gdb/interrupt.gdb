# Ctrl-C (by the test, when GDB waits) while one hart runs and the others stand: the boot would never end so.
set scheduler-locking on
thread 2
set debug remote 1
continue
set debug remote 0
p $_thread
set scheduler-locking off
detach
