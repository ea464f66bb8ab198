# Memories and registers by the debug port; reading TAKE takes nothing there.
tbreak fw_dispatch thread 1
continue
set var fw.trace = 77
p fw.trace
x/2xw 0x40001000
monitor poke 0 0x4000100c 0x80
monitor peek 0 0x40001000
x/xw 0x40001008
x/xw 0x40001008
x/xb 0x40001000
monitor read 0 0x40001008
monitor peek 0 0x40001000
set *(unsigned*)0x80000040 = 0xabcd1234
x/xw 0x80000040
x/xw 0x80000044
x/xw 0x30000000
