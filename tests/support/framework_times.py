"""Simulated times of a training step by several frameworks, compared (benchmarks/frameworks.py)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks/frameworks.py"


def compare(python: Path, arguments: list[str | Path], most: float) -> int:
    """Prints the benchmark's table; 1 if it fails or a time differs by more than `most` of the first framework's. One
    round, or the least of three where that one is not within half of `most`."""
    for rounds in ("1", "3"):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            done = subprocess.run([python, BENCHMARK, "--python", python, *arguments, "--rounds", rounds, "--json",
                                   figures], check=False)
            if done.returncode != 0:
                return 1
            ratios = {name: each["simulated_ratio"] for name, each in json.loads(figures.read_text("utf-8")).items()}
        far = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > most}
        if not far and (rounds == "3" or all(abs(ratio - 1) <= most / 2 for ratio in ratios.values())):
            return 0
        if far:
            print(f"simulated time differs by more than {most:.0%} of that with JAX: {far}", flush=True)
    return 1
