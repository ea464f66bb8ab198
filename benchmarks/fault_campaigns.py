"""Which method finds which fault: campaigns of a small MLP on eight cores (`tpuboard sweep` with [campaign]), a table.

Each fault is one flipped bit at a random place when a step begins. Copies of the state are compared when a
checkpoint is made and at the end of the run, or after each step, too (compare_replicas). Where the fault is in a matrix
unit, the Verilog may compute all tiles, too (lockstep). The last line of the table damages files of checkpoints, and
counts those that `--resume` names. The data are random. Prints the table of docs/campaigns.md in Markdown.
Usage: fault_campaigns.py --bin BUILD/bin [--seeds N] [--jobs N] [--only FAULT]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PIXELS, CLASSES, CORES, STEPS = 80, 12, 4, 8, 8
CONFIG = """[program]
train = "{program}"
[state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal", "zeros*13"]
[data]
images = "images.u8"
labels = "labels.u8"
split_seed = 7
eval_count = 10
classes = {classes}
[run]
batch = 16
epochs = 2
checkpoint = "checkpoint"
checkpoint_every = 2
on_fault = "replay"
max_replays = 8
"""
SWEEP = """[sweep]
command = "train"
[options]
config = "mlp.toml"
set.mgmt.watchdog_us = 200
{rows}
[campaign]
faults = {files}
"""
METHODS = {"checkpoints and end": "", "each step": "with.run.compare_replicas = 1",
           "lockstep": 'mxu = "board.*=lockstep"'}
# Slots of the program, with their words: 6 arrays of parameters, Adam's count, 6 of each moment, images, labels.
WEIGHTS, MOMENTS, IMAGES = {1: 12 * 10, 3: 10 * 6}, {8: 12 * 10, 10: 10 * 6}, {19: 2 * 12}
FAULTS = {"HBM, weights": ("hbm", WEIGHTS, "ecc = false"), "HBM, moments of Adam": ("hbm", MOMENTS, "ecc = false"),
          "HBM, images": ("hbm", IMAGES, "ecc = false"), "HBM, weights, ECC": ("hbm", WEIGHTS, ""),
          "HBM, weights, ECC, two bits": ("hbm2", WEIGHTS, ""), "matrix unit": ("mxu", {}, "")}


def fault(name: str, seed: int) -> str:
    """A fault file of one entry."""
    kind, slots, head = FAULTS[name]
    numbers = random.Random(f"{name} {seed}")
    text = f"seed = {seed}\n{head}\n[[fault]]\nkind = \"{kind.rstrip('2')}\"\n"
    text += f'where = "core {numbers.randrange(CORES)}"\nat = "step {numbers.randrange(STEPS)}"\n'
    if slots:
        slot = numbers.choice(list(slots))
        text += f'address = "slot {slot} + {4 * numbers.randrange(slots[slot])}"\n'
    if kind == "mxu":
        text += 'unit = "mxu0"\n'  # the program leaves the other one idle
    return text + ("bits = 2\n" if kind.endswith("2") else "")


def prepare(folder: Path) -> None:
    """Data and configuration."""
    numbers = random.Random(1)
    (folder / "images.u8").write_bytes(numbers.randbytes(EXAMPLES * PIXELS))
    (folder / "labels.u8").write_bytes(bytes(numbers.randrange(CLASSES) for _ in range(EXAMPLES)))
    program = ROOT / "tests/data/mlp_adam.mlirbc"
    (folder / "mlp.toml").write_text(CONFIG.format(program=program, classes=CLASSES), encoding="utf-8")


def campaign(tools: Path, folder: Path, name: str, seeds: int, jobs: int) -> dict[str, Counter]:
    """Rows by class, of each method."""
    files = []
    for seed in range(1, seeds + 1):
        files.append(f"fault{seed}.toml")
        (folder / files[-1]).write_text(fault(name, seed), encoding="utf-8")
    methods = {method: key for method, key in METHODS.items() if method != "lockstep" or "matrix" in name}
    rows = "".join(f'[[row]]\nname = "{method}"\n{key}\n' for method, key in methods.items())
    (folder / "sweep.toml").write_text(SWEEP.format(rows=rows, files=json.dumps(files)), encoding="utf-8")
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([tools / "tpuboard", "sweep", folder / "sweep.toml", "--out", out, "--jobs", str(jobs)],
                   stdout=subprocess.DEVNULL, check=True)
    table: dict[str, Counter] = {method: Counter() for method in METHODS}
    for row in json.loads((out / "sweep.json").read_text(encoding="utf-8"))["rows"]:
        if "class" in row:
            table[next(method for method in METHODS if row["name"].startswith(method))][row["class"]] += 1
    return table


def damaged_files(tools: Path, folder: Path, seeds: int) -> Counter:
    """Flips a bit of the newest checkpoint and continues from there: named, or silently used."""
    counts: Counter = Counter()
    command = [tools / "tpuboard", "train", folder / "mlp.toml", "--steps", "4", "--out", folder / "run"]
    subprocess.run(command, check=True, capture_output=True)
    file = folder / "run/checkpoint/step4.safetensors"
    whole = file.read_bytes()
    for seed in range(1, seeds + 1):
        numbers = random.Random(seed)
        damaged = bytearray(whole)
        damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
        file.write_bytes(damaged)
        run = subprocess.run([*command[:-4], "--resume", *command[-2:]], capture_output=True, text=True, check=False)
        counts["detected" if f"/{file.name}: " in run.stderr else "silent"] += 1
        shutil.rmtree(folder / "run/checkpoint")
        file.parent.mkdir()
        file.write_bytes(whole)
    return counts


def cell(counts: Counter) -> str:
    """"5 recovered, 1 masked"."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "-"


def main() -> int:
    """The table, a line as soon as its campaign is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="faults with this in their names")
    options = parser.parse_args()
    print(f"| Fault | {' | '.join(METHODS)} |\n|{'---|' * (1 + len(METHODS))}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tpuboard_faults_") as name:
        prepare(Path(name))
        for each in FAULTS:
            if options.only in each:
                table = campaign(options.bin, Path(name), each, options.seeds, options.jobs)
                print(f"| {each} | {' | '.join(map(cell, table.values()))} |", flush=True)
        if options.only in "checkpoint file":
            counts = cell(damaged_files(options.bin, Path(name), options.seeds))
            print(f"| checkpoint file | {' | '.join([counts] * len(METHODS))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
