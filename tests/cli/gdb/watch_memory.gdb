# A variable that changes, and who changed it.
tbreak main thread 1
continue
watch fw.state
continue
p fw.state
p $_thread
backtrace 2
detach
