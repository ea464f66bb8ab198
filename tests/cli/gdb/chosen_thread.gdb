# One hart goes on alone; another that stands at a breakpoint stays there.
tbreak fw_boot thread 1
continue
set $stands = $pc
tbreak fw_boot thread 4
continue
thread 1
set $stands = $pc
thread 4
set scheduler-locking on
tbreak main.c:16
tbreak set_state
continue
p $_thread
thread 1
p $pc == $stands
set scheduler-locking off
detach
