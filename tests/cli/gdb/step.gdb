# Instructions, lines, and out of a function; the mask ROM comes first.
tbreak *0 thread 2
continue
stepi
p/x $pc
tbreak fw_dispatch thread 2
continue
set $from = $pc
stepi
p $pc != $from
p $_thread
next
step
p $_thread
tbreak set_state thread 2
continue
finish
p fw.serving
detach
