"""Runs programs of this folder, each in a process of its own that starts with PyTorch/XLA imported: the import takes
longer than most of them.

Usage: each.py "PROGRAM [ARGUMENTS]" ...
All of them run; the exit code is 1 if one fails. A program that sets variables for the import cannot be among them.
"""

from __future__ import annotations

import gc
import os
import runpy
import shlex
import sys
import time
from pathlib import Path

gc.disable()  # nothing of the modules is garbage
# No device is opened here.
import torch_xla.core.xla_model  # noqa: E402, F401
import transformers  # noqa: E402, F401

gc.freeze()  # no process looks through the modules at its end
gc.enable()


def start(command: str) -> int:
    """Returns the process; the process itself becomes the program and ends as it does."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    name, *arguments = shlex.split(command)
    path = str(Path(__file__).with_name(f"{name}.py"))
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    sys.exit(0)


failed = []
for command in sys.argv[1:]:
    print(f"== {command}", flush=True)
    started = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(start(command), 0)[1])
    print(f"== {command}: {f'FAILED, exit code {code}' if code else 'passed'}, {time.monotonic() - started:.1f} s",
          flush=True)
    failed += [command] if code else []
if failed:
    print(f"failed: {', '.join(failed)}")
sys.exit(1 if failed or not sys.argv[1:] else 0)
