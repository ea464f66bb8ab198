#!/usr/bin/env python3
"""Exports the artifacts of tests/data again and compares them with the checked-in files.

Usage: export_compare_test.py --data TESTS_DATA. Exits with 77 (skipped) if the packages of
tests/requirements.txt are not installed in the stated versions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path


def missing_package(requirements: Path) -> str | None:
    for line in requirements.read_text().split():
        name, version = line.split("==")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is not installed"
        if found != version:
            return f"{name} is {found}, not {version}"
    return None


def artifacts(folder: Path) -> dict[str, bytes]:
    paths = (*folder.rglob("*.mlirbc"), *folder.rglob("*.hlo.pb"))
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    reason = missing_package(args.data.parent / "requirements.txt")
    if reason:
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for script in sorted(args.data.glob("export_*.py")):
            subprocess.run([sys.executable, str(script), "--out-dir", folder], check=True)
        fresh = artifacts(Path(folder))
    kept = artifacts(args.data)
    different = sorted(n for n in fresh.keys() | kept.keys() if fresh.get(n) != kept.get(n))
    for name in different:
        print(f"differs: {name}; run tests/data/export_*.py")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
