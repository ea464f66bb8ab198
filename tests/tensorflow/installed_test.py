"""The package as `pip install` leaves it has the library that lowers graphs: a TPU node starts with no variable set.

Usage: installed_test.py --venv FOLDER --build FOLDER --lowering LIBRARY. Installs what was built by the rules of the
wheel. Exits with 77 (skipped) without an environment.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run


def main() -> None:
    """Installs, and starts a node."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("venv", "build", "lowering"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    run.check_environment(options.venv, options.lowering, None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        subprocess.run(["cmake", "--install", options.build, "--component", "python", "--prefix", folder], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copytree(run.ROOT / "python/tpuboard", folder / "tpuboard", dirs_exist_ok=True)
        variables = run.environment(Path()) | {"PYTHONPATH": str(folder)}
        del variables["TPU_LIBRARY_PATH"]
        with run.node(options.venv / "bin/python", variables) as (process, line):
            print(line)
            libraries = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
        for library in ("libtpuboard_pjrt.so", options.lowering.name):
            assert f"{folder}/tpuboard/{library}" in libraries, f"the node has not loaded {library} of {folder}"


if __name__ == "__main__":
    sys.exit(main())
