"""Runs programs one after the other in one process: each opens the board anew, and makes strategies of its own.

Usage: together.py PROGRAM ...
A PROGRAM is the name of one in this folder. The first that fails ends the run. The process ends without the last steps
of the interpreter: TensorFlow waits there for up to a minute for each iterator that is left (docs/tensorflow.md).
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from pathlib import Path

for name in sys.argv[1:]:
    started = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
    except BaseException:  # whatever it is, the process ends here
        traceback.print_exc()
        os._exit(1)
    print(f"== {name}: {time.monotonic() - started:.1f} s", flush=True)
sys.stdout.flush()
os._exit(0)
