# Kept through reset and load: the memory holds no code yet when it is set.
thbreak main
continue
info breakpoints
p $_thread
thbreak *fw_dispatch thread 5
continue
p $_thread
detach
