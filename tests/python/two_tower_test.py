"""The example two_tower: by `tpuboard train` on small tables; with --jax by JAX on 20 GiB of them.

Usage: two_tower_test.py --bin DIR | --jax. TPU_LIBRARY_PATH names the library; PYTHONPATH has the package tpuboard.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).resolve().parents[2] / "examples/two_tower/two_tower.py"


def run(command: list[str | Path], code: int = 0, **variables: str) -> str:
    """What a command prints on both streams."""
    done = subprocess.run([str(part) for part in command], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=os.environ | variables)
    print(done.stdout, flush=True)
    assert done.returncode == code, f"exit code {done.returncode}"
    return done.stdout


def by_command(tools: Path) -> None:
    """Loss falls to what the topic of an item tells; an id outside of its table is refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([sys.executable, SCRIPT, "--shrink", "512", "--export", folder], JAX_PLATFORMS="cpu")
        train = [tools / "tpuboard", "train", folder / "train.toml", "--out", folder / "out"]
        run([*train, "--steps", "96"])
        losses = [epoch["train_loss"] for epoch in json.loads((folder / "out/run.json").read_text())["epochs"]]
        # ln 512 without knowledge; ln(512 / 64 topics) and the noise with it.
        assert len(losses) == 3 and 5 < losses[0] < 6.8 and losses[2] < 3, losses
        users = np.load(folder / "user.npy")
        users[77] = 98304
        np.save(folder / "user.npy", users)
        text = run([*train, "--steps", "1"], code=1)
        assert re.search(r"user\.npy: user 98304 of example 77, value 0, is outside of the 98304 classes", text)


def by_jax() -> None:
    """The whole example: what it learns, and how much memory its 40 GiB of tables and accumulators take."""
    text = run([sys.executable, SCRIPT], JAX_PLATFORMS="tpu")
    assert "40.0 GiB of tables on 8 cores" in text
    loss, hits = re.search(r"^step 200: loss (\S+), accuracy@10 (\S+),", text, re.MULTILINE).groups()
    assert float(loss) < 3.5 and float(hits) > 0.75, (loss, hits)
    assert float(re.search(r"memory of the process: (\S+) GiB", text)[1]) < 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--jax", action="store_true")
    options = parser.parse_args()
    if options.jax:
        by_jax()
    else:
        by_command(options.bin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
