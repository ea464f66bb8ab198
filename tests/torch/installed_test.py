"""The package as `pip install` leaves it: PyTorch/XLA finds the board and its library with no variable set.

Usage: installed_test.py --venv FOLDER --build FOLDER. Installs the built library by the rules of the wheel. Exits with
77 (skipped) without an environment. tests/python/install_test.py does the same by pip, which builds the library anew.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run


def main() -> int:
    """Installs and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("venv", "build"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    if not (options.venv / "bin/python").exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return run.SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        subprocess.run(["cmake", "--install", options.build, "--component", "python", "--prefix", folder], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copytree(run.ROOT / "python/tpuboard", folder / "tpuboard", dirs_exist_ok=True)
        run.write_metadata(folder)
        variables = run.environment(folder, Path(), "default", 8) | {"PYTHONPATH": str(folder)}
        for unset in ("TPU_LIBRARY_PATH", "XLA_STABLEHLO_COMPILE"):
            del variables[unset]
        done = subprocess.run([options.venv / "bin/python", run.ROOT / "tests/torch/programs/installed.py"],
                              check=False, env=variables, cwd=folder, stdout=subprocess.PIPE, text=True)
        print(done.stdout)
        return 0 if done.returncode == 0 and str(folder / "tpuboard/libtpuboard_pjrt.so") in done.stdout else 1


if __name__ == "__main__":
    sys.exit(main())
