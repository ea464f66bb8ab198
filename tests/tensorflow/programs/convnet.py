"""The guide's `fit` on eight cores beside the same `fit` on TensorFlow's CPU device, from the same weights.

Usage: convnet.py DIGITS [--filters 256] [--epochs 5] [--highest] [--bound 0.02] [--accuracy 0.95]
                  [--rounded] [--nudge 0] [--save FILE] [--compare FILE]
DIGITS: folder of sim_scripts/fetch_mnist.py. Both train on its 4,000 digits for training, in the same order, in batches
of 200. The mean loss of each epoch may differ by `--bound`; the accuracy on the 1,000 digits for tests must reach
`--accuracy`.
  --filters   of the convolutions; the dense layers have as many units, and half as many
  --highest   products in f32: operands of the board's default have 8 bits
  --rounded   the operands of products on the CPU have as many bits as on the board, forward and backward
  --nudge     these products are multiplied by 1 + NUDGE: how far losses move by another order of sums
  --save      only the CPU: its losses into a file; --compare: the losses of such a file instead of training anew
Exits with 77 (skipped) if the digits are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from checks import open_board

SKIPPED = 77
WRITER = Path(__file__).resolve().parents[3] / "sim_scripts/tfds_digits.py"
BATCH, DIGITS, TESTS = 200, 4000, 1000


def create_model(filters: int, layers: Any = tf.keras.layers) -> tf.keras.Model:
    """As in the guide, where there are 256 filters."""
    return tf.keras.Sequential([
        tf.keras.layers.InputLayer((28, 28, 1)), layers.Conv2D(filters, 3, activation="relu"),
        layers.Conv2D(filters, 3, activation="relu"), tf.keras.layers.Flatten(),
        layers.Dense(filters, activation="relu"), layers.Dense(filters // 2, activation="relu"), layers.Dense(10)])


def rounded_layers(nudge: float) -> Any:
    """Those of Keras, whose products have operands with the 8 bits of bf16, and sums in f32."""

    def rounded(array: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(array, tf.bfloat16), tf.float32)

    def product(multiply: Callable, *operands: tf.Tensor) -> tf.Tensor:
        """The gradient of a product has products of the rounded operands and the rounded gradient."""
        @tf.custom_gradient
        def call(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            near = rounded(x), rounded(kernel)
            with tf.GradientTape() as tape:
                tape.watch(near)
                result = multiply(*near)

            def gradient(given: tf.Tensor) -> list[tf.Tensor]:
                return [each * (1 + nudge) for each in tape.gradient(result, near, rounded(given))]

            return result * (1 + nudge), gradient

        return call(*operands)

    class Conv2D(tf.keras.layers.Conv2D):
        def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
            return product(lambda x, k: tf.nn.conv2d(x, k, 1, "VALID"), inputs, tf.convert_to_tensor(kernel))

    class Dense(tf.keras.layers.Dense):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return self.activation(product(tf.matmul, inputs, tf.convert_to_tensor(self.kernel)) + self.bias)

    return argparse.Namespace(Conv2D=Conv2D, Dense=Dense)


def get_dataset(is_training: bool) -> tf.data.Dataset:
    """As in the guide, in an order that is the same each time."""
    import tensorflow_datasets as tfds

    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255.0, label

    dataset = tfds.load(name="mnist", split="train" if is_training else "test", as_supervised=True).map(scale)
    if is_training:
        dataset = dataset.shuffle(10000, seed=7).repeat()
    return dataset.batch(BATCH)


def compiled(options: argparse.Namespace, strategy: tf.distribute.Strategy, layers: Any) -> tf.keras.Model:
    with strategy.scope():
        model = create_model(options.filters, layers)
        model.compile(optimizer="adam", loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=["sparse_categorical_accuracy"])
    return model


def weights_of(model: tf.keras.Model) -> list[np.ndarray]:
    """Glorot-uniform, as Keras has it, by NumPy: the same in each process."""
    random = np.random.default_rng(3)
    found = []
    for weight in model.weights:
        shape = tuple(weight.shape)
        area = int(np.prod(shape[:-2]))
        limit = (6 / (area * (shape[-2] + shape[-1]))) ** 0.5 if len(shape) > 1 else 0.0
        found.append(random.uniform(-limit, limit, shape).astype(np.float32))
    return found


def train(options: argparse.Namespace, strategy: tf.distribute.Strategy,
          layers: Any = tf.keras.layers) -> dict[str, list[float]]:
    """What `fit` gives."""
    model = compiled(options, strategy, layers)
    model.set_weights(weights_of(model))
    return model.fit(get_dataset(True), epochs=options.epochs, steps_per_epoch=DIGITS // BATCH,
                     validation_data=get_dataset(False), validation_steps=TESTS // BATCH, verbose=2).history


def check(options: argparse.Namespace, board: dict[str, list[float]], cpu: dict[str, list[float]]) -> int:
    far = [abs(one / other - 1) for one, other in zip(board["loss"], cpu["loss"], strict=True)]
    for epoch, (one, other) in enumerate(zip(board["loss"], cpu["loss"], strict=True), 1):
        print(f"epoch {epoch}: loss {one:.6f} on the board, {other:.6f} on the CPU, {one / other - 1:+.4%}")
    accuracy = board["val_sparse_categorical_accuracy"][-1]
    print(f"accuracy {accuracy:.4f} on the board, {cpu['val_sparse_categorical_accuracy'][-1]:.4f} on the CPU")
    if max(far) > options.bound:
        print(f"a loss differs by {max(far):.4%}, expected at most {options.bound:.2%}")
    if accuracy < options.accuracy:
        print(f"accuracy {accuracy:.4f} of the digits for tests, expected at least {options.accuracy}")
    return int(max(far) > options.bound or accuracy < options.accuracy)


def run(options: argparse.Namespace) -> int:
    if options.compare:
        cpu = json.loads(options.compare.read_text("utf-8"))
    else:
        cpu = train(options, tf.distribute.OneDeviceStrategy("/CPU:0"),
                    rounded_layers(options.nudge) if options.rounded else tf.keras.layers)
    if options.save:
        options.save.write_text(json.dumps(cpu), "utf-8")
        return 0
    tf.config.experimental.enable_tensor_float_32_execution(not options.highest)
    return check(options, train(options, tf.distribute.TPUStrategy(open_board())), cpu)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", type=Path)
    parser.add_argument("--filters", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--highest", action="store_true")
    parser.add_argument("--bound", type=float, default=0.02)
    parser.add_argument("--accuracy", type=float, default=0.95)
    parser.add_argument("--rounded", action="store_true")
    parser.add_argument("--nudge", type=float, default=0)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    if not (options.digits / "images.npy").exists():
        print(f"skipped: {options.digits} has no digits; run sim_scripts/fetch_mnist.py --out {options.digits}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, WRITER, "--digits", options.digits, "--out", folder], check=True,
                       stderr=subprocess.DEVNULL)
        os.environ["TFDS_DATA_DIR"] = folder
        return run(options)


if __name__ == "__main__":
    sys.exit(main())
