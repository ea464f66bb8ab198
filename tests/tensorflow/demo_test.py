"""sim_scripts/demo_tf with built libraries: both loss curves fall, and agree within 2 %.

Usage: demo_test.py --venv FOLDER --build FOLDER --work FOLDER. Exits with 77 (skipped) without an environment.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock

import run


def check_order() -> None:
    """The environment comes before the build, which needs its headers: noted instead of run."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(run.ROOT / "sim_scripts"))
    demo = SourceFileLoader("demo_tf", str(run.ROOT / "sim_scripts/demo_tf"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo_tf", demo))
    sys.modules["demo_tf"] = module
    demo.exec_module(module)
    for given, expected in ([], ["setup", "tensorflow_venv", "cmake", "cmake"]), \
            (["--venv", "x"], ["setup", "cmake", "cmake"]), (["--build-dir", "x"], ["setup", "tensorflow_venv"]):
        called: list[str] = []
        module.call = lambda what, command, log, called=called: called.append(Path(command[0]).name)
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit), \
                contextlib.redirect_stderr(io.StringIO()):
            module.PLUGIN = "no/library"  # ends there
            with mock.patch.object(sys, "argv", ["demo_tf", "--out", folder, *given]):
                module.main()
        assert called == expected, (given, called)


def main() -> int:
    """Runs two epochs of a small network."""
    check_order()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("venv", "build", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    run.check_environment(options.venv, options.build / "lib/libtpuboard_tf.so", None)
    done = subprocess.run([sys.executable, run.ROOT / "sim_scripts/demo_tf", "--venv", options.venv, "--build-dir",
                           options.build, "--epochs", "2", "--small", "--out", options.work], check=False,
                          stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    if done.returncode != 0:  # demo_tf has said why
        return 1
    rows = [tuple(map(float, row)) for row in re.findall(r"^ +\d+ +(\d\S+) +(\d\S+)$", done.stdout, re.M)]
    assert len(rows) == 2 and rows[1][0] < 0.9 * rows[0][0], rows
    assert all(abs(board / cpu - 1) < 0.02 for board, cpu in rows), rows
    time = re.search(r"simulated time (\S+) ms", done.stdout)
    assert time is not None and float(time[1]) > 0, done.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
