"""tpuboard debug on a terminal: lines are completed, and come again from the history.

Usage: debug_terminal_test.py TPUBOARD TESTS_DATA
"""

from __future__ import annotations

import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

TIMEOUT_S = 60
PROMPT = "(debug) "


def write_npy(path: Path, shape: tuple[int, ...]) -> None:
    """A file of ones."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    count = 1
    for dim in shape:
        count *= dim
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                     + struct.pack("<f", 1.0) * count)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.said = ""  # and not looked at yet
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)

    def until(self, wanted: str) -> None:
        """Reads what it says up to `wanted`, which it does say."""
        end = time.monotonic() + TIMEOUT_S
        while wanted not in self.said:
            ready, _, _ = select.select([self.file], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {wanted!r} in {self.said!r}")
            try:
                piece = os.read(self.file, 4096)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"it ended without {wanted!r}: {self.said!r}")
            self.said += piece.decode(errors="replace")
        self.said = self.said.split(wanted, 1)[1]

    def type(self, text: str) -> None:
        """Types when the terminal gives single characters: libedit shows its prompt just before, and an end of input
        that comes in between is lost."""
        end = time.monotonic() + TIMEOUT_S
        while termios.tcgetattr(self.file)[3] & termios.ICANON:
            if time.monotonic() > end:
                raise AssertionError("the terminal still gives whole lines")
            time.sleep(0.001)
        os.write(self.file, text.encode())

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main() -> None:
    tpuboard, data = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        command = [tpuboard, "debug", f"{data}/dense.mlirbc"]
        for number, shape in enumerate(((5, 7), (7, 3), (3,))):
            file = Path(folder) / f"{number}.npy"
            write_npy(file, shape)
            command += ["--in", f"{number}={file}"]
        terminal = Terminal(command)
        terminal.until(PROMPT)
        terminal.type("lis\t\n")
        terminal.until("%0 = stablehlo.dot_general")
        terminal.until(PROMPT)
        terminal.type("\x1b[A\n")  # the arrow up
        terminal.until("%0 = stablehlo.dot_general")
        terminal.until(PROMPT)
        terminal.type("break op stablehlo.tan\t\n")
        terminal.until("breakpoint 0: op stablehlo.tanh")
        terminal.until(PROMPT)
        terminal.type("\x04")  # the end of what is typed
        assert terminal.exit_code() == 0


if __name__ == "__main__":
    main()
