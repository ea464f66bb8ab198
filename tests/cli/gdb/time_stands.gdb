# Simulated time stands while the host's passes.
tbreak ring_open
continue
python
before = gdb.execute("monitor time", to_string=True)
import time
time.sleep(0.2)
print("the same:", before == gdb.execute("monitor time", to_string=True))
end
detach
