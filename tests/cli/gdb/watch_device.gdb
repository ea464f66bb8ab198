# Registers too: FW_STATE in block sysctl is written with HANDSHAKE.
awatch *(unsigned*)0x40000004 thread 6
continue
p $_thread
p *(unsigned*)0x40000004
continue
p *(unsigned*)0x40000004
delete
# TAKE of block irq: read by its owner only.
rwatch *(unsigned*)0x40001008 thread 7
continue
p $_thread
detach
