#!/usr/bin/env python3
"""Writes random arguments of tanh_layer.mlirbc, the same each time: FOLDER/x.npy, w.npy and b.npy. Needs no packages.

Usage: arguments.py FOLDER
"""

from __future__ import annotations

import argparse
import random
import sys
from array import array
from math import prod
from pathlib import Path

SHAPES = {"x": (32, 200), "w": (200, 96), "b": (96,)}


def npy(shape: tuple[int, ...], values: array[float]) -> bytes:
    """A NumPy file (format 1.0) of f32."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    if sys.byteorder == "big":
        values.byteswap()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values.tobytes()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(0)
    for name, shape in SHAPES.items():
        values = array("f", (numbers.gauss(0, 1) for _ in range(prod(shape))))
        (folder / f"{name}.npy").write_bytes(npy(shape, values))


if __name__ == "__main__":
    main()
