"""The commands of a wheel: each becomes the program of its name in `bin` of the package's folder.

A module of its own, which imports neither the package nor NumPy: a command starts in a few dozen milliseconds.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "tpuboard"


def _check_host(name: str) -> None:
    spec = importlib.util.spec_from_file_location("tpuboard_host", PACKAGE / "_host.py")
    if spec is None or spec.loader is None:
        sys.exit(f"{name}: {PACKAGE} lacks _host.py; install the package again")
    host = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(host)
    wrong = host.found_problem()
    if wrong is not None:
        sys.exit(f"{name}: {wrong}")


def _become(name: str) -> None:
    _check_host(name)
    program = PACKAGE / "bin" / name
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: cannot be started: {error.strerror}; install the package again, for this host")


def tpuboard() -> None:
    """The command tpuboard."""
    _become("tpuboard")


def tpuc() -> None:
    """The command tpuc."""
    _become("tpuc")


def exporter() -> None:
    """The command tpuboard-exporter."""
    _become("tpuboard-exporter")
