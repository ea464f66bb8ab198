"""Whether this package can run here: Python, processor and C library.

Imported before anything else, so that it has only what Python 3.7 understands.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

OLDEST_PYTHON = (3, 10)


def found_libc() -> tuple[str, tuple[int, ...]]:
    """("glibc", (2, 36)); another name and () for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        name, version = "", ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return (name, numbers) if name == "glibc" and len(numbers) == 2 else ("another C library", ())


def dotted(version: tuple[int, ...]) -> str:
    """(2, 36) as text."""
    return ".".join(str(part) for part in version)


def problem(wanted: tuple[str, tuple[int, ...]] | None, python: tuple[int, ...], machine: str,
            libc: tuple[str, tuple[int, ...]]) -> str | None:
    """What is wrong, in words; None: nothing. `wanted`: machine and oldest glibc of a wheel, or None where the package
    was built on this host."""
    if python < OLDEST_PYTHON:
        return (f"this package needs Python {dotted(OLDEST_PYTHON)} or later, found {dotted(python)}; install it in "
                f"another environment")
    if wanted is None or (machine == wanted[0] and libc[1] >= wanted[1]):
        return None
    name, version = libc
    return (f"this package is for {wanted[0]} with glibc {dotted(wanted[1])} or later, found {machine} with {name}"
            f"{' ' if version else ''}{dotted(version)}; use a newer system, or build the package here: pip install . "
            f"in the source tree (docs/install.md)")


def wanted_host() -> tuple[str, tuple[int, ...]] | None:
    """Of a wheel, as sim_scripts/wheel wrote it: "x86_64 2.35"."""
    try:
        machine, version = Path(__file__).with_name("built_for.txt").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return machine, tuple(int(part) for part in version.split("."))


def found_problem() -> str | None:
    """What is wrong with this host, in words; None: nothing."""
    return problem(wanted_host(), sys.version_info[:2], platform.machine(), found_libc())


def check() -> None:
    """ImportError if the package cannot run here."""
    wrong = found_problem()
    if wrong is not None:
        raise ImportError("tpuboard: " + wrong)
