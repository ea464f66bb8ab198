"""The save files as GTKWave shows them: a real window, in which what runs, waits and is a curve has its colour.

Usage: waves_picture_test.py --bin DIR [--keep FOLDER]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sim_scripts"))
from wave_picture import Picture, window  # noqa: E402

PROGRAM = ROOT / "examples/mnist_mlp/train_step.mlirbc"
RUNS, WAITS = (0x00, 0x64, 0x00), (0x8B, 0x45, 0x00)  # DarkGreen, DarkOrange4
LINES = (0x00, 0xFF, 0x00)  # around values
CURVES = (0xFF, 0xFF, 0x00)


def check(picture: Picture, curves: bool) -> None:
    """Each colour takes some of the window."""
    for name, colour, least in (("runs", RUNS, 3000), ("waits", WAITS, 3000), ("lines", LINES, 2000)):
        assert picture.count(colour) >= least, f"{name}: {picture.count(colour)} pixels, {least} are expected"
    assert (picture.count(CURVES) > 3000) == curves, f"curves: {picture.count(CURVES)} pixels"


def main() -> None:
    """One core, and the board."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="folder for the pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "w.fst"
        subprocess.run([arguments.bin / "tpuboard", "run", PROGRAM, "--no-data", "--waves", wave], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        for save_file, curves in ((wave.with_suffix(".gtkw"), False), (Path(folder) / "w.chip0.core0.gtkw", True)):
            picture = window(save_file)
            if arguments.keep:
                picture.write(arguments.keep / f"{save_file.stem}.png")
            check(picture, curves)


if __name__ == "__main__":
    sys.exit(main())
