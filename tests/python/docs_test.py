"""Every Python and C program of three pages (PAGES), copied out and run in the order of the pages.

Usage: docs_test.py --compiler CC. TPU_LIBRARY_PATH names the library; PYTHONPATH has the package tpuboard.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("jax.md", "package.md", "c_interface.md")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """What a command prints on both streams."""
    done = subprocess.run(command, check=False, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        sys.exit(f"docs_test: {command[0]}: exit code {done.returncode}")
    return done.stdout


def main() -> int:
    """Runs the blocks of Python one after the other, each with the names of those before it, and the block of C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    compiler = parser.parse_args().compiler
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES)
    (in_c,) = blocks(page, "c")
    library = Path(os.environ["TPU_LIBRARY_PATH"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        printed = run([sys.executable, "-c", "\n".join(blocks(page, "python"))], folder)
        (folder / "step.c").write_text(in_c, encoding="utf-8")
        run([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "step.c", "-I", str(ROOT / "c_api/include"),
             str(library), f"-Wl,-rpath,{library.parent}", "-o", "step"], folder)
        from_c = run(["./step"], folder).strip()
    losses = [float(line) for line in printed.splitlines()[:5]]
    assert losses == sorted(losses, reverse=True), losses
    assert "[30. 32.]" in printed and "[32. 32. 32. 32.]" in printed
    (measured,) = re.findall(r"^step: \d.* simulated on 1 core, MXU .*, ", printed, re.MULTILINE)[:1]
    assert f"\n{measured}" in page, measured
    # The derivative of a mean of 64 x 128 squares, one of them tanh(w)^2 with w = 1.
    expected = 1 - 2 * math.tanh(1) * (1 - math.tanh(1) ** 2) / (64 * 128)
    assert abs(float(from_c) - expected) < 1e-6, from_c
    assert f"# {from_c}\n" in page
    return 0


if __name__ == "__main__":
    sys.exit(main())
