"""Trains a convnet on MNIST digits with Keras on all devices that JAX has. Usage: keras_mnist.py --data DIR

DIR holds images.npy f32[n,784] in 0..1 and labels.npy i32[n] (sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np


def main() -> None:
    """Trains, prints the loss of each epoch and the accuracy on digits that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--digits", type=int, default=4000, help="for training")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    order = np.random.default_rng(0).permutation(5000)
    images = np.load(options.data / "images.npy").reshape(-1, 28, 28, 1)[order]
    labels = np.load(options.data / "labels.npy")[order]

    keras.utils.set_random_seed(1)
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = keras.Sequential([
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    train, test = slice(0, options.digits), slice(4000, 5000)
    history = model.fit(images[train], labels[train], batch_size=200, epochs=options.epochs, verbose=0)
    for epoch, loss in enumerate(history.history["loss"], 1):
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    _, accuracy = model.evaluate(images[test], labels[test], batch_size=200, verbose=0)
    print(f"accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
