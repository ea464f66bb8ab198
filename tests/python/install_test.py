"""`pip install .` in a fresh environment: JAX finds the board with nothing said, and the package reaches it.

Usage: install_test.py --work FOLDER. Builds the release library once more; needs the network for the build's packages.
JAX comes from the environment that runs the test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import warnings
warnings.simplefilter("error")
import jax, numpy as np, tpuboard
assert [d.device_kind for d in jax.devices()] == ["TPU v3"] * 8, jax.devices()
x = np.eye(8, dtype=np.float32) * 3
with tpuboard.measure("product") as m:
    y = jax.jit(lambda a: a @ a)(x)
assert (np.asarray(y) == x @ x).all() and m.programs == 1
assert "site-packages" in str(tpuboard.library_path())
"""


def main() -> int:
    """Installs and tries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work
    shutil.rmtree(work, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(work)], check=True)
    subprocess.run([str(work / "bin/pip"), "install", "-q", "--no-deps", str(ROOT)], check=True)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("TPUBOARD_") and name not in ("TPU_LIBRARY_PATH", "PYTHONPATH")}
    environment |= {"PYTHONPATH": sysconfig.get_paths()["purelib"], "TPUBOARD_CACHE": "off"}
    done = subprocess.run([str(work / "bin/python"), "-c", PROGRAM], check=False, capture_output=True, text=True,
                          env=environment, cwd=work)
    print(done.stdout, done.stderr, sep="\n")
    return 0 if done.returncode == 0 and "product: " in done.stdout and "experimental" not in done.stderr else 1


if __name__ == "__main__":
    sys.exit(main())
