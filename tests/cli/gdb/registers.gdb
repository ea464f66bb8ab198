# General registers and CSRs, read and written.
tbreak main thread 1
continue
p/x $mstatus
p/x $misa
p/x $mhartid
set $t6 = 0x12345678
p/x $t6
set $mscratch = 0xcafe
p/x $mscratch
p/x $zero
set $mtvec = 0x10000100
p/x $mtvec
thread 2
p/x $mscratch
p/x $mhartid
detach
