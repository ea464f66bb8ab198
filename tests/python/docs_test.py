"""Every Python and C program of docs/jax.md, copied out and run in the order of the page.

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
PYTHON = {"Programs": 1, "Several cores": 3, "The package tpuboard": 3}  # how many programs a section has


def sections() -> dict[str, str]:
    """The page's sections by their headings."""
    parts = re.split(r"^## (.*)$", (ROOT / "docs/jax.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


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
    """Runs the sections one after the other; the blocks of one are one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    compiler = parser.parse_args().compiler
    page = sections()
    printed = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for heading, text in page.items():
            programs = blocks(text, "python")
            assert len(programs) == PYTHON.get(heading, 0), heading
            if programs:
                print(f"== {heading}", flush=True)
                printed[heading] = run([sys.executable, "-c", "\n".join(programs)], folder)
        print("== C", flush=True)
        (program,) = blocks(page["C interface"], "c")
        (folder / "step.c").write_text(program, encoding="utf-8")
        library = Path(os.environ["TPU_LIBRARY_PATH"])
        run([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "step.c", "-I", str(ROOT / "c_api/include"),
             str(library), f"-Wl,-rpath,{library.parent}", "-o", "step"], folder)
        printed["C"] = run(["./step"], folder)
    losses = [float(line) for line in printed["Programs"].splitlines()]
    assert len(losses) == 5 and losses == sorted(losses, reverse=True), losses
    assert "[30. 32.]" in printed["Several cores"] and "[32. 32. 32. 32.]" in printed["Several cores"]
    assert re.search(r"^step: \d.* simulated on 1 core, MXU ", printed["The package tpuboard"], re.MULTILINE)
    # The derivative of a mean of 64 x 128 squares, one of them tanh(w)^2 with w = 1.
    expected = 1 - 2 * math.tanh(1) * (1 - math.tanh(1) ** 2) / (64 * 128)
    assert abs(float(printed["C"]) - expected) < 1e-6, printed["C"]
    assert f"# {printed['C'].strip()}\n" in page["C interface"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
