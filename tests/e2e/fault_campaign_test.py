"""Random fault files against an MLP, a convolutional network, an embedding and programs of JAX, as one campaign each
(`tpuboard sweep` with [campaign]): no run crashes or hangs, and a result that differs is never silent.

All kinds that hardware reports take part, one to three faults a file. Training runs go back to their checkpoint
(`on_fault = "replay"`), others end with the reason. Wrong results of matrix units are for a run in lockstep with the
Verilog, which finds them: `RTL_MISMATCH`, and the run goes back. A run whose process ends (`host_dies`) is detected by
its log.

Usage: fault_campaign_test.py --bin DIR [--scripts N] [--jobs N]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp
import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"
STEPS, BATCH, CORES, CHIPS = 8, 16, 8, 4
UNITS = ("dma_in", "dma_out", "dma_remote", "vpu", "mxu0", "sequencer")
SILENT = ("silent", "crash", "hang")
CONFIG = """[program]
train = "{program}"
[state]
seed = 1
init = {init}
[data]
images = "images.npy"
labels = "labels.npy"
split_seed = 7
eval_count = 0
classes = 4
[run]
batch = {batch}
epochs = {steps}
on_fault = "replay"
max_replays = 8
checkpoint_every = 2
compare_replicas = 3
"""
SWEEP = """[sweep]
command = "{command}"
[options]
{options}
set.mgmt.watchdog_us = 100
[campaign]
faults = {files}
"""


def embedding_step(table: jax.Array, weights: jax.Array, ids: jax.Array, labels: jax.Array) -> tuple:
    """One step of rows that are looked up and summed."""
    def loss_of(table: jax.Array, weights: jax.Array) -> jax.Array:
        rows = jnp.sum(table[ids.astype(jnp.int32)], axis=1)
        one_hot = jax.nn.one_hot(labels, 4)
        return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(rows @ weights), axis=-1))
    loss, (of_table, of_weights) = jax.value_and_grad(loss_of, (0, 1))(table, weights)
    return table - 0.1 * of_table, weights - 0.1 * of_weights, loss


def sort_and_scan(x: jax.Array) -> tuple:
    """A program of one core with a loop."""
    total, steps = jax.lax.scan(lambda sum, row: (sum + jnp.sort(row), jnp.max(sum)), jnp.zeros(x.shape[1]), x)
    return total, steps, jnp.fft.fft(x[0]).real


def training(folder: Path, program: Path, init: str, images: np.ndarray, cores: int) -> tuple[str, str]:
    """Command and options of a training run."""
    random = np.random.default_rng(1)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", random.integers(0, 4, len(images)).astype(np.int32))
    text = CONFIG.format(program=program, init=init, batch=BATCH, steps=STEPS // 2)
    (folder / "train.toml").write_text(text if cores > 1 else text.replace("compare_replicas = 3\n", ""))
    return "train", f'config = "train.toml"\ncores = {cores}'


def mlp(folder: Path) -> tuple[str, str]:
    """Eight cores that exchange gradients."""
    images = np.random.default_rng(2).normal(size=(2 * BATCH, 12)).astype(np.float32)
    return training(folder, DATA / "mlp_adam.mlirbc", '["zeros", "he_normal", "zeros", "he_normal", "zeros", '
                    '"he_normal", "zeros*13"]', images, CORES)


def convnet(folder: Path) -> tuple[str, str]:
    """Eight cores, convolutions."""
    images = np.random.default_rng(3).normal(size=(2 * BATCH, 8, 8, 1)).astype(np.float32)
    return training(folder, DATA / "whole_cnn.mlirbc", '["zeros", "he_normal", "he_normal", "zeros*3"]', images, CORES)


def embedding(folder: Path) -> tuple[str, str]:
    """Rows of a table by index, and their gradient."""
    ids = np.random.default_rng(4).integers(0, 64, (2 * BATCH, 3)).astype(np.float32)
    arguments = (np.zeros((64, 8), np.float32), np.zeros((8, 4), np.float32), np.zeros((BATCH, 3), np.float32),
                 np.zeros(BATCH, np.int32))
    program = folder / "embedding.mlirbc"
    program.write_bytes(case_runner.export(embedding_step, arguments, donate=(0, 1)).mlir_module_serialized)
    return training(folder, program, '["he_normal", "he_normal"]', ids, 1)


def lockstep(folder: Path) -> tuple[str, str]:
    """The MLP, each tile of which the Verilog computes, too."""
    command, options = mlp(folder)
    return command, options + '\nmxu = "board.*=lockstep"'


def collectives(folder: Path) -> tuple[str, str]:
    """Exchanges between eight cores."""
    return launches(folder, DATA / "collectives.mlirbc", (np.arange(16 * 3, dtype=np.float32).reshape(16, 3),))


def scan(folder: Path) -> tuple[str, str]:
    """A loop, a sort, a transform on one core."""
    values = np.random.default_rng(5).normal(size=(6, 64)).astype(np.float32)
    program = folder / "scan.mlirbc"
    program.write_bytes(case_runner.export(sort_and_scan, (values,)).mlir_module_serialized)
    return launches(folder, program, (values,))


def launches(folder: Path, program: Path, arrays: tuple) -> tuple[str, str]:
    """Command and options of some launches."""
    for index, array in enumerate(arrays):
        np.save(folder / f"{index}.npy", array)
    inputs = ", ".join(f'"{index}={index}.npy"' for index in range(len(arrays)))
    return "run", f'program = "{program}"\nlaunches = {STEPS}\nin = [{inputs}]'


def entry(kind: str, cores: int, random: np.random.Generator) -> str:
    """One fault at a random time and place."""
    core, chip = int(random.integers(cores)), int(random.integers(-(-cores // 2)))
    place = f"chip {chip}" if kind.startswith("pcie") else f"core {core}"
    if kind.endswith("_dies"):
        place = "board 0"
    if kind.startswith("link"):
        place = f"link chip{random.integers(CHIPS)} {random.choice(['+x', '-x', '+y', '-y'])}"
    text = f'[[fault]]\nkind = "{kind.split()[0]}"\nwhere = "{place}"\n'
    text += f'at = "step {random.integers(STEPS)} + {random.integers(8000)}"\n'
    more = {"hbm 1": 'address = "random slot"\n', "hbm 2": 'bits = 2\naddress = "random slot"\n',
            "vmem 2": "bits = 2\n", "smem 2": "bits = 2\n",
            "mxu": f'unit = "mxu0"\ncommands = {random.integers(1, 4)}\n',
            "core_hang": f'unit = "{random.choice(UNITS)}"\n',
            "link_down for": f'for = "{random.integers(1, 50)} us"\n',
            "link_corrupt": f"repeats = {random.integers(1, 9)}\n"}
    return text + more.get(kind, "")


KINDS = ("hbm 1", "hbm 2", "vmem 1", "vmem 2", "smem 1", "smem 2", "tcm", "core_hang", "hart_trap", "hart_hang",
         "pcie_timeout", "pcie_poison", "pcie_lost_msi", "pcie_down", "ring_command", "ring_completion", "link_corrupt",
         "link_down for", "link_down", "board_dies", "host_dies")


def script(seed: int, cores: int, kinds: tuple[str, ...]) -> str:
    """A fault file with one to three faults of different kinds."""
    random = np.random.default_rng(seed)
    kinds = random.choice(kinds, size=min(len(kinds), int(random.integers(1, 4))), replace=False)
    return f"seed = {seed}\n" + "".join(entry(str(kind), cores, random) for kind in kinds)


def survives(program: Callable[[Path], tuple[str, str]], cores: int, tools: Path, folder: Path, scripts: int,
             jobs: int) -> str | None:
    """Text of what is wrong, or None."""
    command, options = program(folder)
    files = [f"faults{seed}.toml" for seed in range(1, scripts + 1)]
    for seed, file in enumerate(files, 1):
        (folder / file).write_text(script(seed, cores, ("mxu",) if program is lockstep else KINDS))
    if program is scan:
        files.append("host.toml")
        (folder / "host.toml").write_text('[[fault]]\nkind = "host_dies"\nwhere = "board 0"\nat = "step 2"\n')
    (folder / "sweep.toml").write_text(SWEEP.format(command=command, options=options, files=json.dumps(files)))
    run = subprocess.run([tools / "tpuboard", "sweep", folder / "sweep.toml", "--out", folder / "out", "--jobs",
                          str(jobs)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return f"exit code {run.returncode}: {run.stdout}{run.stderr}"
    rows = json.loads((folder / "out/sweep.json").read_text())["rows"]
    classes = Counter(row["class"] for row in rows[1:])
    print(f"{program.__name__}: {scripts} scripts: {dict(classes.most_common())}", flush=True)
    wrong = [row for row in rows[1:] if row["class"] in SILENT]
    if wrong:
        return "\n".join(f"{row['class']}: {row.get('error', '')}\n{(folder / row['values']['faults']).read_text()}"
                         for row in wrong)
    if program is lockstep:
        return finds_mismatches(folder / "out/rows")
    if program is scan and (rows[-1]["class"], rows[-1]["error"][:10]) != ("detected", "host_dies:"):
        return f"a process that dies: {rows[-1]}"
    ran = classes.total() - classes["not fired"]
    return None if ran > 0 else "no fault happened"


def finds_mismatches(folder: Path) -> str | None:
    """Whether runs that have had a wrong result went back, with the words of the fault."""
    seen = 0
    for log in folder.glob("*/faults.log"):
        damage, text = "damage mxu " in log.read_text(), (log.parent / "log.txt").read_text()
        seen += damage
        if damage and any(words not in text for words in ("goes back to step", "RTL_MISMATCH",
                                                          "mxu lockstep mismatch: tile")):
            return text
    return None if seen > 0 else "no result was wrong"


PROGRAMS = {mlp: CORES, lockstep: CORES, convnet: CORES, embedding: 1, collectives: CORES, scan: 1}

if __name__ == "__main__":
    parser = case_runner.parser(__doc__)
    parser.add_argument("--scripts", type=int, default=3, help="of each program")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    sys.exit(case_runner.run_all(list(PROGRAMS), args, lambda program, tools, folder: survives(
        program, PROGRAMS[program], tools, folder, args.scripts, args.jobs), lambda program: program.__name__))
