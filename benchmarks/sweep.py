"""24 trainings of examples/mnist_mlp, one after the other and beside each other (tpuboard sweep), with equal results.

The reference is one row at a time with one host thread, against a row a core with one thread each: the same work,
beside each other. One row at a time with a thread a core, as `tpuboard train` alone would run it, is printed too. The
data are random: the work of a step does not depend on them. Needs an idle machine.
Usage: sweep.py --bin BUILD/bin [--jobs N] [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PIXELS, CLASSES = 5000, 28 * 28, 10
SWEEP = """[sweep]
command = "train"
figures = ["sim_cycles"]
[options]
config = "mlp.toml"
steps = {steps}
{threads}
[grid]
set.hbm.gbps_per_chip = [225, 450, 900, 1800]
with.state.seed = [1, 2, 3, 4, 5, 6]
"""


def prepare(folder: Path, steps: int) -> None:
    """Data, configuration and sweep."""
    numbers = random.Random(1)
    (folder / "images.u8").write_bytes(numbers.randbytes(EXAMPLES * PIXELS))
    (folder / "labels.u8").write_bytes(bytes(numbers.randrange(CLASSES) for _ in range(EXAMPLES)))
    example = ROOT / "examples/mnist_mlp"
    config = (example / "train.toml.in").read_text(encoding="utf-8")
    for old, new in (("@OUT@/train_step.tpuexe", f"{example}/train_step.mlirbc"),
                     ("@OUT@/eval_step.tpuexe", f"{example}/eval_step.mlirbc"),
                     ("@DATA@/images.npy", "images.u8"), ("@DATA@/labels.npy", "labels.u8")):
        config = config.replace(old, new)
    (folder / "mlp.toml").write_text(config, encoding="utf-8")
    for threads in ("one", "all"):
        line = "threads = 1" if threads == "one" else ""  # else the sweep gives a thread a core to a row alone
        (folder / f"{threads}.toml").write_text(SWEEP.format(steps=steps, threads=line), encoding="utf-8")


def measure(program: Path, folder: Path, jobs: int, threads: str) -> tuple[float, list[tuple]]:
    """Seconds of a sweep in a new folder, and what each row has computed. `threads` of a row: "one", "all"."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        start = time.perf_counter()
        subprocess.run([program, "sweep", folder / f"{threads}.toml", "--out", out, "--jobs", str(jobs)], check=True,
                       stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        rows = json.loads((Path(out) / "sweep.json").read_text(encoding="utf-8"))["rows"]
        return seconds, [(row["name"], row["figures"]["loss"], row["figures"]["sim_cycles"]) for row in rows]


def main() -> None:
    """A line for each round, then the best of each against the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    forms = ((1, "one"), (options.jobs, "one"), (1, "all"))
    best = [float("inf")] * len(forms)
    with tempfile.TemporaryDirectory(prefix="tpuboard_sweep_") as name:
        prepare(Path(name), options.steps)
        for _ in range(options.rounds):
            results = [measure(options.bin / "tpuboard", Path(name), jobs, threads) for jobs, threads in forms]
            if any(rows != results[0][1] for _, rows in results):
                raise SystemExit("the rows differ")
            best = [min(old, seconds) for old, (seconds, _) in zip(best, results, strict=True)]
            print("  ".join(f"{seconds:.2f} s" for seconds, _ in results), flush=True)
    single, beside, wide = best
    print(f"24 rows of {options.steps} steps, {options.jobs} at a time with one thread each: {beside:.2f} s\n"
          f"one at a time with one thread: {single:.2f} s, {single / beside:.2f} x (bar on 2 cores: 1.8)\n"
          f"one at a time with a thread a core: {wide:.2f} s, {wide / beside:.2f} x")


if __name__ == "__main__":
    main()
