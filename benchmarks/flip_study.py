"""What one flipped bit does to the accuracy of a classifier, by place and position of the bit.

Trains an MLP (784-128-10, Adam, one core) on MNIST. At one step a bit flips in a weight or a moment of Adam, in HBM
without ECC; then training continues. Each position of the bit has some random places, in either layer. Prints the table
of docs/campaigns.md in Markdown: points of test accuracy that are lost, mean and worst, and how many runs ended because
the loss was not finite. The position is drawn by the board: the script takes the first seeds that draw it.
Usage: flip_study.py --bin BUILD/bin --data FOLDER [--places N] [--steps N] [--jobs N] [--only PLACE]
FOLDER has images.npy and labels.npy (sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax

HIDDEN, BATCH, PIXELS, CLASSES, EVAL = 128, 100, 784, 10, 1000
BITS = {31: "sign", 30: "exponent, highest", 27: "exponent, middle", 23: "exponent, lowest", 22: "mantissa, highest",
        12: "mantissa, middle", 0: "mantissa, lowest"}
MASK = 0xFFFFFFFF
# Slots with their words: b, w, b, w of the parameters, the count, the same of both moments.
WORDS = (PIXELS * HIDDEN, HIDDEN * CLASSES)
PLACES = {"weight": (1, 3), "first moment": (6, 8), "second moment": (10, 12)}
CONFIG = """[program]
train = "train.mlirbc"
eval = "eval.mlirbc"
[state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros*9"]
[data]
images = "{data}/images.npy"
labels = "{data}/labels.npy"
split_seed = 7
eval_count = {eval_count}
classes = {classes}
[run]
batch = {batch}
epochs = 100
"""


def loss_of(params: list, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Loss of each example, and the logits."""
    logits = jax.nn.relu(images @ params[0]["w"] + params[0]["b"]) @ params[1]["w"] + params[1]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels), logits


def export(folder: Path) -> None:
    """Train and eval program."""
    shape = jax.ShapeDtypeStruct
    params = [{"b": shape((n,), jnp.float32), "w": shape((m, n), jnp.float32)}
              for m, n in ((PIXELS, HIDDEN), (HIDDEN, CLASSES))]
    optimizer = optax.adam(1e-3)
    state = jax.eval_shape(optimizer.init, params)

    def train(params, state, images, labels):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(loss_of(p, images, labels)[0]))(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def evaluate(params, images, labels, mask):
        right = jnp.argmax(loss_of(params, images, labels)[1], axis=-1) == labels
        return jnp.sum(jnp.where(right, mask, 0.0))

    batch = (shape((BATCH, PIXELS), jnp.float32), shape((BATCH,), jnp.int32))
    for name, function, arguments, donated in (
            ("train", train, (params, state, *batch), (0, 1)),
            ("eval", evaluate, (params, *batch, shape((BATCH,), jnp.float32)), ())):
        exported = jax.export.export(jax.jit(function, keep_unused=True, donate_argnums=donated),
                                     platforms=["cpu"])(*arguments)
        (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)


def philox(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x32-10, as base/random/philox.hpp has it."""
    for _ in range(10):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [high >> 32 ^ counter[1] ^ key[0], high & MASK, low >> 32 ^ counter[3] ^ key[1], low & MASK]
        key = [key[0] + 0x9E3779B9 & MASK, key[1] + 0xBB67AE85 & MASK]
    return counter


def seeds_of(bit: int, count: int) -> list[int]:
    """Seeds with which the first entry of a fault file flips this bit of a word of HBM of core 0."""
    return list(islice((seed for seed in range(1, MASK) if philox([0, 0, 0, 1], [seed, 0])[2] % 32 == bit), count))


def fault(place: str, bit: int, number: int, seed: int, step: int) -> str:
    """A fault file of one entry."""
    numbers = random.Random(f"{place} {bit} {number}")
    layer = numbers.randrange(2)
    offset = 4 * numbers.randrange(WORDS[layer])
    return (f'seed = {seed}\necc = false\n[[fault]]\nkind = "hbm"\nwhere = "core 0"\nat = "step {step}"\n'
            f'address = "slot {PLACES[place][layer]} + {offset}"\n')


def campaign(tools: Path, folder: Path, places: list[str], options: argparse.Namespace) -> list[dict]:
    """Rows of the sweep."""
    files = []
    for place in places:
        for bit in BITS:
            for number, seed in enumerate(seeds_of(bit, options.places), 1):
                files.append(f"{place} {bit} {number}.toml")
                (folder / files[-1]).write_text(fault(place, bit, number, seed, options.steps // 3), encoding="utf-8")
    (folder / "sweep.toml").write_text(
        f'[sweep]\ncommand = "train"\n[options]\nconfig = "mlp.toml"\nsteps = {options.steps}\n'
        f"[campaign]\nfaults = {json.dumps(files)}\n", encoding="utf-8")
    subprocess.run([tools / "tpuboard", "sweep", folder / "sweep.toml", "--out", folder / "out", "--jobs",
                    str(options.jobs)], stdout=subprocess.DEVNULL, check=True)
    return json.loads((folder / "out/sweep.json").read_text(encoding="utf-8"))["rows"]


def cell(rows: list[dict], clean: float) -> str:
    """Mean and worst loss of accuracy in points, and the runs that ended."""
    lost = [100 * (clean - row["figures"]["accuracy"]) for row in rows if "accuracy" in row["figures"]]
    ended = len(rows) - len(lost)
    text = f"{sum(lost) / len(lost):+.2f} / {max(lost):+.2f}" if lost else "-"
    return text + (f", {ended} of {len(rows)} ended" if ended else "")


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--places", type=int, default=6)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="places with this in their names")
    options = parser.parse_args()
    places = [place for place in PLACES if options.only in place]
    with tempfile.TemporaryDirectory(prefix="tpuboard_flips_") as name:
        folder = Path(name)
        export(folder)
        (folder / "mlp.toml").write_text(CONFIG.format(data=options.data.resolve(), eval_count=EVAL, classes=CLASSES,
                                                       batch=BATCH), encoding="utf-8")
        rows = campaign(options.bin, folder, places, options)
    clean = rows[0]["figures"]["accuracy"]
    print(f"Without faults: accuracy {clean:.4f} after {options.steps} steps; the bit flips in step "
          f"{options.steps // 3}, {options.places} runs each.\n")
    print(f"| Bit | {' | '.join(places)} |\n|{'---|' * (1 + len(places))}")
    for bit, meaning in BITS.items():
        cells = [cell([row for row in rows if row["values"].get("faults", "").startswith(f"{place} {bit} ")], clean)
                 for place in places]
        print(f"| {bit}: {meaning} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
