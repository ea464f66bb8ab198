"""Runs a program of PyTorch/XLA on the board, in an environment that sim_scripts/torch_venv made.

Usage: run.py --venv FOLDER --library LIBRARY [--form default|stablehlo] [--cores 1|2|8] [--set NAME=VALUE ...]
              PROGRAM [ARGUMENTS ...]
The program finds the package tpuboard as `pip install` would leave it: with its entry points, and no variable that
names a device. --form: what PyTorch/XLA compiles from, HloModuleProto or StableHLO. Exits with 77 (skipped) if the
environment is not there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
ONE_CHIP = "board.chips=1;board.torus_x=1"
BOARDS = {1: f"{ONE_CHIP};board.cores_per_chip=1", 2: ONE_CHIP}  # cores -> TPUBOARD_SET


def write_metadata(folder: Path) -> None:
    """What tells Python of a distribution: its name, its version and its entry points, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def environment(metadata: Path, library: Path, form: str, cores: int) -> dict[str, str]:
    """The variables of the session without those that choose a device."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PJRT_", "TPU_", "XLA_", "TPUBOARD_"))}
    kept |= {"PYTHONPATH": f"{metadata}:{ROOT / 'python'}", "TPU_LIBRARY_PATH": str(library), "TPUBOARD_CACHE": "off",
             "PYTHONWARNINGS": "ignore::DeprecationWarning", "PYTHONUNBUFFERED": "1",
             "XLA_STABLEHLO_COMPILE": "1" if form == "stablehlo" else "0", "HF_HUB_OFFLINE": "1"}
    return kept | ({"TPUBOARD_SET": BOARDS[cores]} if cores in BOARDS else {})


def main() -> int:
    """Exit code of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--form", choices=("default", "stablehlo"), default="default")
    parser.add_argument("--cores", type=int, choices=(1, 2, 8), default=8)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    python = options.venv / "bin/python"
    if not python.exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        write_metadata(Path(folder))
        variables = environment(Path(folder), options.library.resolve(), options.form, options.cores)
        variables |= dict(entry.split("=", 1) for entry in options.set)
        return subprocess.run([python, options.program, *options.arguments], check=False, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
