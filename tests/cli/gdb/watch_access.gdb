# Reads, and reads or writes, of one hart.
tbreak main thread 1
continue
rwatch fw.heartbeat thread 1
continue
p $_thread
delete
awatch fw.serving thread 1
continue
continue
detach
