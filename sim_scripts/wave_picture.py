#!/usr/bin/env python3
"""Makes a picture of waves as GTKWave shows them, in a window that nobody sees (Xvfb).

Without a save file: docs/images/waves.png, core TPU:0 in a training step of examples/mnist_mlp.
Usage: wave_picture.py --bin DIR --out FILE.png [--save-file FILE.gtkw]
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples/mnist_mlp/train_step.mlirbc"
CORE = "board.chip0.core0"
WIDTH, HEIGHT = 1600, 900  # as the save files say
FRAME = 12  # of the window, which nobody manages
PATIENCE = 60  # seconds until the window must be drawn


@dataclass(frozen=True)
class Picture:
    """Pixels, three bytes each, row by row."""

    width: int
    height: int
    pixels: bytes

    def count(self, colour: tuple[int, int, int]) -> int:
        """Pixels of exactly this colour."""
        rows = memoryview(self.pixels)
        wanted = bytes(colour)
        return sum(rows[at : at + 3] == wanted for at in range(0, len(rows), 3))

    def write(self, path: Path) -> None:
        """As PNG."""
        line = self.width * 3
        raw = b"".join(b"\0" + self.pixels[row * line : (row + 1) * line] for row in range(self.height))

        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9))
                         + chunk(b"IEND", b""))  # fmt: skip


def read_xwd(data: bytes) -> Picture:
    """A dump of X of 32 bits a pixel, as Xvfb keeps its screen."""
    header = struct.unpack(">25I", data[:100])
    size, width, height, bits, line, colours = header[0], header[4], header[5], header[11], header[12], header[19]
    if bits != 32 or header[7] != 0:
        raise SystemExit(f"wave_picture: the screen has {bits} bits a pixel; 32, the lowest first, are expected")
    start = size + colours * 12
    pixels = bytearray(width * height * 3)
    for row in range(height):
        source = data[start + row * line : start + row * line + width * 4]
        target = slice(row * width * 3, (row + 1) * width * 3)
        out = bytearray(width * 3)
        out[0::3], out[1::3], out[2::3] = source[2::4], source[1::4], source[0::4]
        pixels[target] = out
    return Picture(width, height, bytes(pixels))


def missing() -> list[str]:
    """Programs that this needs and that are not installed."""
    return [name for name in ("gtkwave", "Xvfb") if shutil.which(name) is None]


@contextmanager
def running(words: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def window(save_file: Path) -> Picture:
    """The window of GTKWave when it has drawn the waves: two equal pictures that are not empty."""
    with tempfile.TemporaryDirectory() as folder:
        read_end, write_end = os.pipe()
        size = f"{WIDTH + FRAME}x{HEIGHT + FRAME}x24"
        screen = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", size, "-fbdir", folder]
        with running(screen, pass_fds=[write_end]):
            os.close(write_end)
            display = b""
            while not display.endswith(b"\n"):
                got = os.read(read_end, 16)
                if not got:
                    raise SystemExit("wave_picture: Xvfb did not start")
                display += got
            os.close(read_end)
            environment = os.environ | {"DISPLAY": f":{display.decode().strip()}", "HOME": folder}
            with running(["gtkwave", "--rcfile=/dev/null", str(save_file)], env=environment) as viewer:
                dump = Path(folder) / "Xvfb_screen0"
                last = b""
                for _ in range(PATIENCE):
                    time.sleep(1)
                    if viewer.poll() is not None:
                        raise SystemExit(f"wave_picture: GTKWave ended with {viewer.returncode}")
                    now = dump.read_bytes()
                    if now == last and read_xwd(now).count((0, 255, 0)) > 0:  # its lines are green
                        return read_xwd(now)
                    last = now
    raise SystemExit(f"wave_picture: GTKWave drew nothing within {PATIENCE} s")


def main() -> int:
    """Runs the program, takes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, help="folder of tpuboard, where there is no save file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--save-file", type=Path)
    arguments = parser.parse_args()
    if missing():
        print(f"wave_picture: not installed: {', '.join(missing())}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        save_file = arguments.save_file
        if save_file is None:
            wave = Path(folder) / "step.fst"
            subprocess.run([arguments.bin / "tpuboard", "run", PROGRAM, "--no-data", "--waves", wave,
                            "--waves-scope", CORE], check=True)  # fmt: skip
            save_file = wave.with_suffix(".gtkw")
        window(save_file).write(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
