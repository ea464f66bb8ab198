"""Loss curves of the convnet of Keras' TPU guide on MNIST digits: the board beside JAX's CPU backend, in f32 and with
the operands of its products rounded to bf16, which is the board's number format. docs/numerics.md has the figures.

Usage: loss_curve.py [--plugin build/release/lib/libtpuboard_pjrt.so] [--filters 32] [--epochs 3] [--seed 1] [CURVE ...]
Needs Keras and JAX (tests/requirements.txt) and the digits (sim_scripts/fetch_mnist.py --out out/data/mnist). The guide
has 256 filters: a step of them is 478 GFLOP, half a minute of CPU time on JAX's CPU backend.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Devices (0: the CPU), precision.
CURVES = {"cpu": (0, "highest"), "rounded": (0, "default"), "board": (1, "default"), "board8": (8, "default"),
          "highest": (1, "highest"), "highest8": (8, "highest")}


def train(options: argparse.Namespace, cores: int, precision: str) -> list[float]:
    """The loss of each epoch."""
    import jax
    import keras
    import numpy as np

    order = np.random.default_rng(0).permutation(5000)[:options.digits]
    images = np.load(options.data / "images.npy").reshape(-1, 28, 28, 1)[order]
    labels = np.load(options.data / "labels.npy")[order]
    devices = jax.devices()[:cores] or jax.devices("cpu")[:1]
    with jax.default_device(devices[0]), jax.default_matmul_precision(precision):
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=devices) if cores > 1 else None)
        keras.utils.set_random_seed(options.seed)
        layers = keras.layers
        model = keras.Sequential([
            layers.Input((28, 28, 1)), layers.Conv2D(options.filters, 3, activation="relu"),
            layers.Conv2D(options.filters, 3, activation="relu"), layers.Flatten(),
            layers.Dense(256, activation="relu"), layers.Dense(128, activation="relu"), layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model.fit(images, labels, batch_size=200, epochs=options.epochs, verbose=0).history["loss"]


def main() -> None:
    """Prints a line for each curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(CURVES)}; default: all")
    parser.add_argument("--plugin", type=Path, default=ROOT / "build/release/lib/libtpuboard_pjrt.so")
    parser.add_argument("--data", type=Path, default=ROOT / "out/data/mnist")
    parser.add_argument("--filters", type=int, default=32)
    parser.add_argument("--digits", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nudge", type=float, default=0, help="the rounded products are multiplied by 1 + NUDGE")
    options = parser.parse_args()
    if unknown := set(options.curves) - set(CURVES):
        parser.error(f"there is no curve {', '.join(sorted(unknown))}")
    os.environ |= {"TPU_LIBRARY_PATH": str(options.plugin.resolve()), "KERAS_BACKEND": "jax"}
    sys.path.append(str(ROOT / "tests/pjrt"))
    import train_rounding

    train_rounding.install(options.nudge)
    for name in options.curves or CURVES:
        losses = train(options, *CURVES[name])
        print(f"{name:9}", *(f"{loss:.6f}" for loss in losses), flush=True)


if __name__ == "__main__":
    main()
