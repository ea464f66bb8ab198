"""The processes of one job share the board of `tpuboard serve`, with a chip each; others are told who has it, or wait.

TPU_LIBRARY_PATH names the plugin, --tpuboard the program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 100  # seconds that anything here may take
JOB = """
import pathlib, sys, time
import jax, numpy as np
jax.distributed.initialize()
own = jax.local_device_count()
total = jax.pmap(lambda x: jax.lax.psum(x, 'i'), axis_name='i')(np.ones(own, np.float32))
print(jax.process_index(), [d.id for d in jax.local_devices()], float(total.addressable_data(0)[0]), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def check(tpuboard: str, folder: str) -> None:
    """All of it, on one worker."""
    worker = subprocess.Popen([tpuboard, "serve", "--listen", f"unix:{folder}/board"], text=True,
                              stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        address = worker.stdout.readline().strip()
        job = subprocess.Popen([tpuboard, "pod", "--processes", "4", "--", sys.executable, "-c", JOB, f"{folder}/end"],
                               text=True, stdout=subprocess.PIPE, env={**os.environ, "TPUBOARD_CONNECT": address})
        assert job.stdout is not None
        lines = sorted(job.stdout.readline().strip() for _ in range(4))
        assert lines == [f"[{i}] {i} [{2 * i}, {2 * i + 1}] 8.0" for i in range(4)], lines
        devices = [tpuboard, "devices", "--connect", address]
        refused = subprocess.run(devices, text=True, capture_output=True, timeout=LIMIT, check=False)
        assert refused.returncode == 1 and "the board is taken, by pid" in refused.stderr, refused
        waits = subprocess.Popen([*devices, "--connect-wait", str(LIMIT)], text=True, stdout=subprocess.PIPE)
        Path(f"{folder}/end").touch()
        assert job.wait(LIMIT) == 0
        output, _ = waits.communicate(timeout=LIMIT)
        assert waits.returncode == 0 and "TPU:7" in output, output
    finally:
        worker.terminate()
        worker.communicate(timeout=LIMIT)
    assert not Path(f"{folder}/board").exists()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tpuboard", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check(arguments.tpuboard, folder)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
