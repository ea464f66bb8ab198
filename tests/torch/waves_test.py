"""A PyTorch/XLA program with TPUBOARD_WAVES writes a file with its launches.

In the file the core runs as many programs as there are launches in the window, one after the other, and the matrix
units name the operation of the product while they work. A reader that is not ours reads it.

Usage: waves_test.py --venv FOLDER --library FILE
Exits with 77 (skipped) without the environment of PyTorch/XLA.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pywellen

TESTS = Path(__file__).resolve().parent
SKIPPED = 77
LAUNCHES = 2  # of three


def run(options: argparse.Namespace, file: Path) -> None:
    """Leaves the file."""
    window = f"TPUBOARD_WAVES_STEPS=0..{LAUNCHES - 1}"
    subprocess.run([sys.executable, TESTS / "run.py", "--venv", options.venv, "--library", options.library,
                    "--cores", "1", "--set", f"TPUBOARD_WAVES={file}", "--set", window,
                    TESTS / "programs/waves.py"], check=True)


def values(waves: pywellen.Waveform, name: str) -> list[int | str]:
    """Of a signal of the core, in order."""
    signal = next(var.signal for var in waves.all_vars() if var.full_name == f"board.chip0.core0.{name}")
    return [value for _, value in signal]


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "library"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    if not (options.venv / "bin/python").exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder) / "torch.fst")
        waves = pywellen.Waveform(str(Path(folder) / "torch.fst"))
        running, steps = values(waves, "program_running"), values(waves, "step")
        operations = {text for unit in ("mxu0", "mxu1") for text in values(waves, f"{unit}.op")}
    print("program_running", running, "step", steps, sorted(operations))
    starts = sum(before == 0 and after == 1 for before, after in zip(running, running[1:], strict=False))
    assert starts + (running[0] == 1) == LAUNCHES, f"{running}: expected {LAUNCHES} programs"
    assert set(range(LAUNCHES)) <= set(steps), f"{steps}: expected steps 0 to {LAUNCHES - 1}"
    assert any(text.startswith("dot") for text in operations), f"{operations}: expected the product"
    return 0


if __name__ == "__main__":
    sys.exit(main())
