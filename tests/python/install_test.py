"""`pip install .` in a fresh environment: JAX and PyTorch/XLA find the board with no variable set.

Usage: install_test.py --work FOLDER [--torch ENVIRONMENT ...]. Builds the release library once more; needs the network
for the build's packages. JAX comes from the environment that runs the test, PyTorch/XLA from those that
sim_scripts/torch_venv made; one that is not there is left out, in words.
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
TORCH_PROGRAM = (ROOT / "tests/torch/programs/installed.py").read_text(encoding="utf-8")


def passes(python: Path | str, program: str, work: Path, packages: list[Path | str]) -> bool:
    """Runs it with none of the variables that choose a device or a library."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("TPUBOARD_", "TPU_", "PJRT_", "JAX_", "XLA_")) and name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, packages)), "TPUBOARD_CACHE": "off"}
    done = subprocess.run([str(python), "-c", program], check=False, capture_output=True, text=True, env=environment,
                          cwd=work)
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode == 0 and "product: " in done.stdout and "experimental" not in done.stderr


def main() -> int:
    """Installs and tries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--torch", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    work = options.work
    shutil.rmtree(work, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(work)], check=True)
    subprocess.run([str(work / "bin/pip"), "install", "-q", "--no-deps", str(ROOT)], check=True)
    good = passes(work / "bin/python", PROGRAM, work, [sysconfig.get_paths()["purelib"]])
    (installed,) = work.glob("lib/python*/site-packages")
    for environment in options.torch:
        if (environment / "bin/python").exists():
            good = passes(environment / "bin/python", TORCH_PROGRAM, work, [installed]) and good
        else:
            print(f"{environment} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
