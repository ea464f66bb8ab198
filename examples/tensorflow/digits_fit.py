"""Trains the convnet of TensorFlow's guide "Use TPUs" on MNIST digits by `model.fit`, on eight cores or on the CPU.

Usage: digits_fit.py --data DIR [--device tpu|cpu] [--epochs N] [--small] [--figures FILE]
DIR holds images.npy f32[n,784] in 0..1 and labels.npy i32[n] (sim_scripts/fetch_mnist.py). Weights and batches are the
same on both devices, so that the curves can be compared. --small: layers of 8. --figures: writes wall-clock time, and
simulated time where the board is in this process, as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH = 200
TRAINING = 4000  # digits; the others are for the test


def make_model(small: bool) -> tf.keras.Model:
    """As in the guide."""
    regularizer = tf.keras.regularizers.L2(1e-5)
    wide, narrow = (8, 8) if small else (256, 128)
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Conv2D(wide, 3, input_shape=(28, 28, 1), activation="relu", kernel_regularizer=regularizer),
        layers.Conv2D(wide, 3, activation="relu", kernel_regularizer=regularizer),
        layers.Flatten(),
        layers.Dense(wide, activation="relu", kernel_regularizer=regularizer),
        layers.Dense(narrow, activation="relu", kernel_regularizer=regularizer),
        layers.Dense(10, kernel_regularizer=regularizer),
    ])
    # jit_compile: tensorflow-tpu has no XLA for the CPU.
    model.compile(optimizer="adam", loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["sparse_categorical_accuracy"], jit_compile=False)
    return model


def dataset(folder: Path, training: bool) -> tf.data.Dataset:
    """Batches of images and labels; those for training for ever, in another order in each epoch."""
    order = np.random.default_rng(0).permutation(5000)[slice(0, TRAINING) if training else slice(TRAINING, None)]
    images = np.load(folder / "images.npy").reshape(-1, 28, 28, 1)[order]
    labels = np.load(folder / "labels.npy")[order]
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    if training:
        data = data.shuffle(TRAINING, seed=1).repeat()
    return data.batch(BATCH)


def open_board() -> tf.distribute.Strategy:
    """The board in this process, or, with TPU_NAME, in that of a TPU node."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="" if "TPU_NAME" in os.environ else "local")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def main() -> None:
    """Trains, prints the loss of each epoch and the accuracy on digits that were held out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", choices=("tpu", "cpu"), default="tpu")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()

    tf.keras.utils.set_random_seed(1)
    strategy = open_board() if options.device == "tpu" else tf.distribute.get_strategy()
    weights = make_model(options.small).get_weights()  # of the CPU's random numbers
    with strategy.scope():
        model = make_model(options.small)
    model.set_weights(weights)

    figures: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        if options.device == "tpu" and "TPU_NAME" not in os.environ:
            import tpuboard
            measured = stack.enter_context(tpuboard.measure(output=None))
        started = time.monotonic()
        history = model.fit(dataset(options.data, training=True), steps_per_epoch=TRAINING // BATCH,
                            epochs=options.epochs, verbose=0).history
        figures["host_seconds"] = time.monotonic() - started
    if options.device == "tpu" and "TPU_NAME" not in os.environ:
        figures |= {name: getattr(measured, name) for name in ("seconds", "mxu", "idle")}
    for epoch, loss in enumerate(history["loss"], 1):
        print(f"epoch {epoch} loss {loss:.4f}")
    _, accuracy = model.evaluate(dataset(options.data, training=False), verbose=0)
    print(f"accuracy {accuracy:.3f}")
    if options.figures is not None:
        options.figures.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
