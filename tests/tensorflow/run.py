"""Runs a program of TensorFlow on the board, in an environment that sim_scripts/tensorflow_venv made.

Usage: run.py --venv FOLDER --library LIBRARY [--lowering LIBRARY] [--worker] [--set NAME=VALUE ...]
              PROGRAM [ARGUMENTS ...]
--worker: the board is in a process of its own, a TPU node. The program has no library, and finds the node by TPU_NAME.
Exits with 77 (skipped) if the environment is not there; with --lowering, if that library was not built.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


def environment(library: Path) -> dict[str, str]:
    """The variables of the session without those that choose a device."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TPU_", "TF_", "XLA_", "TPUBOARD_", "KUBE_"))}
    return kept | {"TPU_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT / "python"), "TPUBOARD_CACHE": "off",
                   "TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_USE_LEGACY_KERAS": "1",
                   "PYTHONUNBUFFERED": "1",
                   "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # of tests that run at the same time


@contextlib.contextmanager
def worker(python: Path, variables: dict[str, str]) -> Iterator[dict[str, str]]:
    """The variables of a program, while a TPU node serves it."""
    command = [python, "-m", "tpuboard.tpu_worker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as node:
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            assert line.startswith("export TPU_NAME=grpc://127.0.0.1:"), f"the TPU node does not start: {line}"
            names = {name: value for name, value in variables.items() if name != "TPU_LIBRARY_PATH"}
            yield names | {"TPU_NAME": line.split("=", 1)[1].strip()}
        finally:
            node.kill()


def main() -> int:
    """Exit code of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--lowering", type=Path)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    python = options.venv / "bin/python"
    if not python.exists():
        print(f"skipped: {options.venv} has no TensorFlow; make it with sim_scripts/tensorflow_venv")
        return SKIPPED
    if options.lowering and not options.lowering.exists():
        print(f"skipped: {options.lowering} was not built; configure with -DTPU_TENSORFLOW={options.venv}")
        return SKIPPED
    variables = environment(options.library.resolve()) | dict(entry.split("=", 1) for entry in options.set)
    with worker(python, variables) if options.worker else contextlib.nullcontext(variables) as of_program:
        return subprocess.run([python, options.program, *options.arguments], check=False, env=of_program).returncode


if __name__ == "__main__":
    sys.exit(main())
