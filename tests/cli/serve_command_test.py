"""Ends of `tpuboard serve`: by signals, with programs on its boards; no process and no socket stay.

Usage: serve_command_test.py --tpuc TPUC --tpuboard TPUBOARD GRAPH.mlirbc
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 60  # seconds that anything here may take


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Fails with `what` when it takes too long."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Worker:
    """One run of `tpuboard serve`."""

    def __init__(self, program: str, folder: str, *words: str) -> None:
        self.program, self.socket = program, Path(folder) / "board"
        self.mark = f"WORKER={folder}".encode()
        self.process = subprocess.Popen([program, "serve", "--listen", f"unix:{self.socket}", *words], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "WORKER": folder})
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def processes(self) -> list[int]:
        """All that it has started, and itself."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark in (entry / "environ").read_bytes().split(b"\0") and (
                        (entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def await_processes(self, count: int) -> None:
        """Itself and the processes of its boards."""
        wait_until(lambda: len(self.processes()) == count, f"there are not {count} processes")

    def run(self, *words: str) -> subprocess.Popen[str]:
        """A command on its board."""
        return subprocess.Popen([self.program, *words, "--connect", self.address], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)


def ends_by_signals(program: str, executable: str) -> None:
    """It ends well by each signal, also while a program has its board, which is told."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with tempfile.TemporaryDirectory() as folder:
            worker = Worker(program, folder)
            assert worker.address == f"unix:{worker.socket}", worker.process.communicate()
            job = worker.run("run", executable, "--no-data", "--launches", "1000000000")
            worker.await_processes(2)
            worker.process.send_signal(number)
            _, errors = worker.process.communicate(timeout=LIMIT)
            assert worker.process.returncode == 0, (number, worker.process.returncode, errors)
            assert not worker.socket.exists(), number
            worker.await_processes(0)
            _, errors = job.communicate(timeout=LIMIT)
            assert job.returncode == 1 and "Unavailable" in errors, (number, job.returncode, errors)


def boards_end_with_it(program: str, executable: str) -> None:
    """Killed, it leaves its socket behind, which the next one replaces, and no board."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(program, folder)
        job = worker.run("run", executable, "--no-data", "--launches", "1000000000")
        worker.await_processes(2)
        worker.process.kill()
        worker.process.communicate()
        worker.await_processes(0)
        assert job.wait(LIMIT) == 1
        job.communicate()
        assert worker.socket.exists()
        following = Worker(program, folder)
        twice = Worker(program, folder)
        _, errors = twice.process.communicate(timeout=LIMIT)
        assert twice.process.returncode == 1 and "another worker listens there" in errors, errors
        job = following.run("devices")
        output, errors = job.communicate(timeout=LIMIT)
        assert job.returncode == 0, (output, errors)
        following.process.terminate()
        following.process.communicate(timeout=LIMIT)
        assert not following.socket.exists()


def is_free_after(worker: Worker, job: subprocess.Popen[str], *options: str) -> None:
    """A program that waits for what the job has gets it when the job is killed. Ends the worker."""
    waits = worker.run("devices", *options, "--connect-wait", str(LIMIT))
    job.kill()
    job.communicate()
    output, errors = waits.communicate(timeout=LIMIT)
    assert waits.returncode == 0, (output, errors)
    worker.process.terminate()
    worker.process.communicate(timeout=LIMIT)


def a_board_of_a_killed_program_is_free(program: str, executable: str) -> None:
    """The next program waits for it; one that does not is told who has it."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(program, folder)
        job = worker.run("run", executable, "--no-data", "--launches", "1000000000")
        worker.await_processes(2)
        refused = worker.run("devices")
        _, errors = refused.communicate(timeout=LIMIT)
        assert refused.returncode == 1 and f"pid {job.pid} " in errors and "--connect-wait" in errors, errors
        is_free_after(worker, job)


def compile_for(tpuc: str, graph: str, folder: str, chips: int, columns: int) -> tuple[str, list[str]]:
    """An executable for a board of so many chips, and the options that make it one."""
    options = ["--set", f"board.chips={chips}", "--set", f"board.torus_x={columns}"]
    executable = f"{folder}/{chips}.tpuexe"
    subprocess.run([tpuc, graph, "-o", executable, *options], check=True, timeout=LIMIT)
    return executable, options


def save_numbers(path: Path, values: list[float]) -> None:
    """A file of NumPy, which this test does not need."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(values)},), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}d", *values))


def programs_lease_chips(program: str, tpuc: str, graph: str) -> None:
    """Two programs have chips of one board at a time, with the bits and cycles that they have alone; who wants chips
    of both is told by whom they are taken, and those of a program that is killed are free."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(program, folder)
        two, _ = compile_for(tpuc, graph, folder, 2, 1)
        one, alone = compile_for(tpuc, graph, folder, 1, 1)
        job = worker.run("run", two, "--chips", "0,2", "--no-data", "--launches", "1000000000")
        worker.await_processes(2)
        numbers = Path(folder) / "x.npy"
        save_numbers(numbers, [1.5, -2.0, 3.25])
        figures = []
        for words in (["--connect", worker.address, "--chips", "3"], alone):
            path = Path(folder) / "figures.json"
            subprocess.run([program, "run", one, "--in", f"0={numbers}", "--json", path, *words], check=True,
                           timeout=LIMIT, stdout=subprocess.DEVNULL)
            found = json.loads(path.read_text(encoding="utf-8"))
            figures.append((found["digest"], found["sim_cycles"]))
        assert figures[0] == figures[1], figures
        refused = worker.run("devices", "--chips", "2,3")
        _, errors = refused.communicate(timeout=LIMIT)
        assert refused.returncode == 1 and "chips 2,3 of the board are taken" in errors, errors
        assert f"pid {job.pid} " in errors and "with chips 0,2" in errors, errors
        refused = worker.run("devices", "--chips", "1,2")
        _, errors = refused.communicate(timeout=LIMIT)
        assert refused.returncode == 1 and "--chips '1,2': expected a rectangle" in errors, errors
        is_free_after(worker, job, "--chips", "2,3")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tpuc", required=True)
    parser.add_argument("--tpuboard", required=True)
    parser.add_argument("graph")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        executable = f"{folder}/program.tpuexe"
        subprocess.run([args.tpuc, args.graph, "-o", executable], check=True, timeout=LIMIT)
        for check in (ends_by_signals, boards_end_with_it, a_board_of_a_killed_program_is_free):
            check(args.tpuboard, executable)
            print(check.__name__, "ok", flush=True)
    programs_lease_chips(args.tpuboard, args.tpuc, args.graph)
    print(programs_lease_chips.__name__, "ok", flush=True)


if __name__ == "__main__":
    main()
