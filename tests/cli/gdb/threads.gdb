# Eight harts in reset; the state of each is told with it.
info threads
thread 8
p/x $mhartid
thread apply all -q p $pc
