"""The library shows its three interfaces and nothing else: GetPjrtApi, tpu_* and the functions for TensorFlow.

Beside them it shows sc_main for the SystemC library, and two functions that the program tpuboard_server calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "c_api/include/tpu/tpu.h"
TENSORFLOW_NAMES = ROOT / "tests/tensorflow/names.txt"


def main() -> int:
    """Compares the symbols of the library with the functions of the header."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    wanted = set(re.findall(r"\b(tpu_\w+)\((?!\*)", text))
    wanted |= {"GetPjrtApi", "sc_main", "tpuboard_serve", "tpuboard_serve_maker"}
    wanted |= set(TENSORFLOW_NAMES.read_text(encoding="ascii").split())
    listed = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], check=True, capture_output=True, text=True)
    shown = {line.split()[2].split("@")[0] for line in listed.stdout.splitlines()}
    for name in sorted(wanted - shown):
        print(f"not exported: {name}")
    for name in sorted(shown - wanted):
        print(f"exported, but in no header: {name}")
    return 0 if wanted == shown else 1


if __name__ == "__main__":
    sys.exit(main())
