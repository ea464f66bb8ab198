#!/usr/bin/env python3
"""Makes docs/images/report.png: the report of the MNIST convnet's training step as a headless Chromium shows it.

Usage: report_picture.py --bin DIR --out FOLDER
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 1240, 1700


def main() -> int:
    """Compiles, reports, takes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True, help="folder of tpuc and tpuboard")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("report_picture: chromium is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        program, page = Path(folder) / "train_step.tpuexe", Path(folder) / "report.html"
        graph = ROOT / "examples/mnist_convnet/train_step.mlirbc"
        subprocess.run([arguments.bin / "tpuc", graph, "-o", program], check=True)
        subprocess.run([arguments.bin / "tpuboard", "report", program, "-o", page], check=True)
        subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        f"--user-data-dir={folder}/chromium", f"--window-size={WIDTH},{HEIGHT}",
                        f"--screenshot={arguments.out.resolve() / 'report.png'}", f"file://{page}"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
