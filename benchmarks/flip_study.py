"""What one flipped bit does to the accuracy of a classifier, by place and position of the bit.

Trains an MLP (784-128-10) or a convolutional network (--program convnet) with Adam on one core, on MNIST. At one step a
bit flips in a weight or a moment of Adam, in HBM without ECC, or in a result of a matrix unit; then training continues.
Each position of the bit has some random places, in all layers, or some random times of the step. Prints the table of
docs/campaigns.md in Markdown: points of test accuracy that are lost, mean and worst, and how many runs ended because
the loss was not finite.
Usage: flip_study.py --bin BUILD/bin --data FOLDER [--program mlp|convnet] [--places N] [--steps N] [--batch N]
                     [--eval N] [--bits N,...] [--jobs N] [--only PLACE]
FOLDER has images.npy and labels.npy (sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax

PIXELS, CLASSES = 784, 10
BITS = {31: "sign", 30: "exponent, highest", 27: "exponent, middle", 23: "exponent, lowest", 22: "mantissa, highest",
        12: "mantissa, middle", 0: "mantissa, lowest"}
PLACES = ("weight", "first moment", "second moment", "matrix result")
# Shapes of the weights of each program; of the convolutions: height, width, inputs, outputs.
SHAPES = {"mlp": ((PIXELS, 128), (128, CLASSES)),
          "convnet": ((3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, CLASSES))}
CONFIG = """[program]
train = "train.mlirbc"
eval = "eval.mlirbc"
[state]
seed = 1
init = [{init}]
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


def logits_of(params: list, images: jax.Array) -> jax.Array:
    """Of either program."""
    x = images
    for layer in params:
        if layer["w"].ndim == 4:
            x = x if x.ndim == 4 else x.reshape(-1, 28, 28, 1)
            x = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + layer["b"])
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            continue
        x = x.reshape(x.shape[0], -1) @ layer["w"] + layer["b"]
        x = x if layer is params[-1] else jax.nn.relu(x)
    return x


def export(folder: Path, shapes: tuple, batch_size: int) -> None:
    """Train and eval program."""
    shape = jax.ShapeDtypeStruct
    params = [{"b": shape(each[-1:], jnp.float32), "w": shape(each, jnp.float32)} for each in shapes]
    optimizer = optax.adam(1e-3)
    state = jax.eval_shape(optimizer.init, params)

    def train(params, state, images, labels):
        def loss_of(params):
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits_of(params, images), labels))
        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def evaluate(params, images, labels, mask):
        right = jnp.argmax(logits_of(params, images), axis=-1) == labels
        return jnp.sum(jnp.where(right, mask, 0.0))

    batch = (shape((batch_size, PIXELS), jnp.float32), shape((batch_size,), jnp.int32))
    for name, function, arguments, donated in (
            ("train", train, (params, state, *batch), (0, 1)),
            ("eval", evaluate, (params, *batch, shape((batch_size,), jnp.float32)), ())):
        exported = jax.export.export(jax.jit(function, keep_unused=True, donate_argnums=donated),
                                     platforms=["cpu"])(*arguments)
        (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)


def step_cycles(tools: Path, folder: Path) -> int:
    """Simulated cycles of a step."""
    run = subprocess.run([tools / "tpuboard", "train", folder / "train.toml", "--steps", "2", "--json",
                          folder / "clean.json"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(run.stdout + run.stderr)
    return int(json.loads((folder / "clean.json").read_text(encoding="utf-8"))["sim_cycles_per_step"])


def fault(place: str, bit: int, number: int, step: int, shapes: tuple, cycles: int) -> str:
    """A fault file of one entry. Slots are those of the parameters, the count, and both moments."""
    numbers = random.Random(f"{place} {bit} {number}")
    if place == "matrix result":
        return (f'seed = {number}\n[[fault]]\nkind = "mxu"\nwhere = "core 0"\nbit = {bit}\n'
                f'at = "step {step} + {numbers.randrange(cycles)}"\n')
    layer = numbers.randrange(len(shapes))
    offset = 4 * numbers.randrange(math.prod(shapes[layer]))
    first = {"weight": 0, "first moment": 2 * len(shapes) + 1, "second moment": 4 * len(shapes) + 1}[place]
    return (f'seed = {number}\necc = false\n[[fault]]\nkind = "hbm"\nwhere = "core 0"\nat = "step {step}"\n'
            f'bit = {bit}\naddress = "slot {first + 2 * layer + 1} + {offset}"\n')


def campaign(tools: Path, folder: Path, places: list[str], options: argparse.Namespace) -> list[dict]:
    """Rows of the sweep."""
    cycles = step_cycles(tools, folder) if "matrix result" in places else 1
    files = []
    for place in places:
        for bit in options.bits:
            for number in range(1, options.places + 1):
                files.append(f"{place} {bit} {number}.toml")
                (folder / files[-1]).write_text(fault(place, bit, number, options.steps // 3,
                                                      SHAPES[options.program], cycles), encoding="utf-8")
    (folder / "sweep.toml").write_text(
        f'[sweep]\ncommand = "train"\n[options]\nconfig = "train.toml"\nsteps = {options.steps}\n'
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
    parser.add_argument("--program", choices=SHAPES, default="mlp")
    parser.add_argument("--places", type=int, default=6)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--eval", type=int, default=1000, help="examples of the accuracy")
    parser.add_argument("--bits", type=lambda text: [int(bit) for bit in text.split(",")], default=list(BITS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="places with this in their names")
    options = parser.parse_args()
    places = [place for place in PLACES if options.only in place]
    with tempfile.TemporaryDirectory(prefix="tpuboard_flips_") as name:
        folder = Path(name)
        shapes = SHAPES[options.program]
        export(folder, shapes, options.batch)
        init = '"zeros", "he_normal", ' * len(shapes) + f'"zeros*{4 * len(shapes) + 1}"'
        (folder / "train.toml").write_text(CONFIG.format(
            data=options.data.resolve(), eval_count=options.eval, classes=CLASSES, batch=options.batch, init=init),
            encoding="utf-8")
        rows = campaign(options.bin, folder, places, options)
    clean = rows[0]["figures"]["accuracy"]
    print(f"Without faults: accuracy {clean:.4f} after {options.steps} steps; the bit flips in step "
          f"{options.steps // 3}, {options.places} runs each.\n")
    print(f"| Bit | {' | '.join(places)} |\n|{'---|' * (1 + len(places))}")
    for bit in options.bits:
        cells = [cell([row for row in rows if row["values"].get("faults", "").startswith(f"{place} {bit} ")], clean)
                 for place in places]
        print(f"| {bit}: {BITS.get(bit, '')} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
