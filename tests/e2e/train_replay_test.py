"""Training on a board that fails on purpose: with `on_fault = "replay"` a run has the state and losses of one without
faults, whatever fails and when; and a run that cannot go on says why.

Usage: train_replay_test.py --bin DIR [--scripts N]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import case_runner
from train_fault_test import BATCH, CONFIG, PIXELS, step

import numpy as np

RULES = 'on_fault = "replay"\nmax_replays = 8\n'
STEPS = 8
# What each kind takes beside kind, place and time; each leaves a board that can go on.
KINDS = {"hbm": 'bits = 2\naddress = "random slot"', "core_hang": 'unit = "dma_in"', "hart_trap": "", "hart_hang": "",
         "pcie_lost_msi": "", "pcie_poison": "", "ring_command": ""}


def script(seed: int) -> str:
    """A fault file with one to four faults of different kinds: the same one twice at a step may end the run."""
    random = np.random.default_rng(seed)
    text = f"seed = {seed}\n"
    steps = random.choice(STEPS, size=int(random.integers(1, 5)), replace=False)
    kinds = random.choice(list(KINDS), size=len(steps), replace=False)
    for at, kind in zip(steps, map(str, kinds), strict=True):
        place = "chip 0" if kind.startswith("pcie") else "core 0"
        text += f'[[fault]]\nkind = "{kind}"\nwhere = "{place}"\nat = "step {at} + {random.integers(0, 300)}"\n'
        text += KINDS[kind].replace("dma_in", str(random.choice(["dma_in", "dma_out", "vpu", "sequencer"]))) + "\n"
    return text


def train(tools: Path, folder: Path, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One run of tpuboard; of one that takes minutes a TimeoutExpired."""
    return subprocess.run([tools / "tpuboard", "train", folder / "good.toml", "--out", folder / out, "--set",
                           "mgmt.watchdog_us=50", *options], capture_output=True, text=True, check=False, timeout=300)


def result(folder: Path, out: str) -> dict:
    """What must not depend on faults."""
    run = json.loads((folder / out / "run.json").read_text())
    return {key: run[key] for key in ("losses", "digest", "steps")}


def prepare(folder: Path, rules: str = RULES) -> None:
    """Program, examples and configuration."""
    random = np.random.default_rng(1)
    np.save(folder / "images.npy", random.normal(size=(2 * BATCH, PIXELS)).astype(np.float32))
    np.save(folder / "labels.npy", random.integers(0, 3, 2 * BATCH).astype(np.int32))
    arguments = (np.float32(0), np.zeros(PIXELS, np.float32), np.zeros((BATCH, PIXELS), np.float32),
                 np.zeros(BATCH, np.int32))
    (folder / "good.mlirbc").write_bytes(case_runner.export(step, arguments, donate=(0, 1)).mlir_module_serialized)
    (folder / "good.toml").write_text(CONFIG.format(folder=folder, program="good") + rules)


def recovers(tools: Path, folder: Path, scripts: int) -> str | None:
    """Text of what is wrong, or None."""
    prepare(folder)
    clean = train(tools, folder, "clean")
    if clean.returncode != 0:
        return f"without faults: {clean.stderr}"
    wanted = result(folder, "clean")
    went_back = 0
    for seed in range(1, scripts + 1):
        faults = folder / f"faults{seed}.toml"
        faults.write_text(script(seed))
        options = ("--checkpoint-every", "2") if seed % 2 == 0 else ()
        run = train(tools, folder, f"run{seed}", "--faults", faults, *options)
        if run.returncode != 0:
            return f"{script(seed)}\nexit code {run.returncode}: {run.stderr}"
        if result(folder, f"run{seed}") != wanted:
            return f"{script(seed)}\nother results: {run.stderr}"
        went_back += run.stderr.count("the run goes back to step")
    return None if went_back > 0 else "no run went back"


def ends_with_the_reason(tools: Path, folder: Path, _scripts: int) -> str | None:
    """A fault in each step, and runs that may not go back or not as often."""
    prepare(folder, 'on_fault = "replay"\nmax_replays = 1\n')
    faults = folder / "faults.toml"
    faults.write_text("".join(f'[[fault]]\nkind = "core_hang"\nwhere = "core 0"\nat = "step {at}"\nunit = "dma_in"\n'
                              for at in (1, 4, 6)))
    run = train(tools, folder, "often", "--faults", faults)
    if run.returncode != 1 or "the run has gone back 1 times, as often as run.max_replays allows" not in run.stderr:
        return f"max_replays: exit code {run.returncode}: {run.stderr}"
    faults.write_text('[[fault]]\nkind = "core_hang"\nwhere = "core 0"\nrate = "1 per step"\nunit = "dma_in"\n')
    run = train(tools, folder, "twice", "--faults", faults)
    if run.returncode != 1 or "the replay failed at the same place again" not in run.stderr:
        return f"the same place: exit code {run.returncode}: {run.stderr}"
    prepare(folder, "")
    run = train(tools, folder, "stop", "--faults", faults)
    if run.returncode != 1 or "goes back" in run.stderr or "DeviceFault" not in run.stderr:
        return f"without on_fault: exit code {run.returncode}: {run.stderr}"
    return None


if __name__ == "__main__":
    parser = case_runner.parser(__doc__)
    parser.add_argument("--scripts", type=int, default=20)
    args = parser.parse_args()
    sys.exit(case_runner.run_all([recovers, ends_with_the_reason], args, lambda test, tools,
                                 folder: test(tools, folder, args.scripts),
                                 lambda test: test.__name__))
