"""JAX on a pod whose boards are in several processes (TPUBOARD_BOARD_PROCESSES): three steps of training have
the bits of one process, the processes are those of tpuboard_server beside the plugin, and they end with Python.

TPU_LIBRARY_PATH names the plugin, TPUBOARD_BOARD the pod. Usage: spread_test.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import hashlib, os, pathlib
import jax, many_cores_test as cores
board, digest = jax.devices()[0].platform, hashlib.sha256()
for array in cores.training(board):
    digest.update(str((array.dtype, array.shape)).encode() + array.tobytes())
print("digest", digest.hexdigest())

def show_children(pid):
    for thread in os.listdir(f"/proc/{pid}/task"):
        for child in pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
            print("child", child, pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\\0")[0].decode())
            show_children(child)

show_children("self")
"""
SECONDS = 30  # within which the processes end with Python


def run(processes: int) -> tuple[str, list[tuple[int, str]]]:
    """Digest of all results, and the processes that Python had: number and program."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parent, env={**os.environ, "TPUBOARD_BOARD_PROCESSES": str(processes)})
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    digest, = (word[1] for word in words if word[0] == "digest")
    return digest, [(int(word[1]), word[2]) for word in words if word[0] == "child"]


def main() -> None:
    """All checks."""
    alone, none = run(1)
    assert not none, none
    for processes in (2, 4):
        digest, children = run(processes)
        print(f"{processes} processes: {digest}, {children}")
        assert digest == alone, (digest, alone)
        assert len(children) == processes + 1, children  # one listens
        assert all(Path(program).name == "tpuboard_server" for _, program in children), children
        end = time.monotonic() + SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid, _ in children):
            assert time.monotonic() < end, f"a process stays: {children}"
            time.sleep(0.05)


if __name__ == "__main__":
    main()
