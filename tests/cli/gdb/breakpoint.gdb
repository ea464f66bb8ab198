# A software breakpoint of one thread, its caller, and all harts behind it.
break fw_boot thread 3
continue
p $mhartid
backtrace
finish
p fw.core
p fw.cores
delete
tbreak launch_start
continue
backtrace 1
continue
