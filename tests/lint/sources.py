"""The files that lint tests look at: everything tracked by git, or, in an export without git, everything present."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = {"build", "out", ".git", ".venv"}


def files(*suffixes: str) -> list[Path]:
    """Source files with one of the suffixes, sorted."""
    try:
        names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
                               check=True, capture_output=True, text=True).stdout.splitlines()
        found = [ROOT / name for name in names]
    except (OSError, subprocess.CalledProcessError):
        found = [p for p in ROOT.rglob("*") if not SKIPPED & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in found if p.is_file() and p.suffix in suffixes)
