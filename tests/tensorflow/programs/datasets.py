"""`tfds.load("mnist")` without a network: the digits as a prepared dataset, and a model that learns them.

Usage: datasets.py DIGITS
DIGITS: folder of sim_scripts/fetch_mnist.py. Exits with 77 (skipped) if the digits are not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_equal, open_board

SKIPPED = 77
SCRIPT = Path(__file__).resolve().parents[3] / "sim_scripts/tfds_digits.py"
BATCH, EPOCHS = 200, 5

digits = Path(sys.argv[1])
if not (digits / "images.npy").exists():
    print(f"skipped: {digits} has no digits; run sim_scripts/fetch_mnist.py --out {digits}")
    raise SystemExit(SKIPPED)

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, SCRIPT, "--digits", digits, "--out", folder], check=True, stderr=subprocess.DEVNULL)
    os.environ["TFDS_DATA_DIR"] = folder
    import tensorflow_datasets as tfds

    sets, info = tfds.load(name="mnist", with_info=True, as_supervised=True, try_gcs=True)
    arrays = {split: list(zip(*sets[split].as_numpy_iterator(), strict=True)) for split in ("train", "test")}

images = np.load(digits / "images.npy").reshape(-1, 28, 28, 1)
found = np.concatenate([arrays[split][0] for split in ("train", "test")])
labels = {split: np.asarray(arrays[split][1]) for split in arrays}
check_equal("examples of the splits", [info.splits[split].num_examples for split in ("train", "test")], [4000, 1000])
check_equal("images", sorted(image.tobytes() for image in found),
            sorted(image.tobytes() for image in np.rint(images * 255).astype(np.uint8)))
for split, each in (("train", 400), ("test", 100)):
    check_equal(f"digits of each class in {split}", np.bincount(labels[split], minlength=10), 10 * [each])

strategy = tf.distribute.TPUStrategy(open_board())
tf.keras.utils.set_random_seed(1)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
                                 tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.005), steps_per_execution=10,
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["sparse_categorical_accuracy"])
inputs = {split: (np.asarray(arrays[split][0], np.float32) / 255, labels[split]) for split in arrays}
model.fit(*inputs["train"], batch_size=BATCH, epochs=EPOCHS, verbose=2)
_, accuracy = model.evaluate(*inputs["test"], batch_size=BATCH, verbose=2)
assert accuracy >= 0.9, f"accuracy {accuracy:.3f} of the digits for tests, expected at least 0.9"
print(f"accuracy: passed ({accuracy:.3f})")
