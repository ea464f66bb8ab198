"""Keras 2 or 3 under TPUStrategy: fit with dropout, evaluate and predict on arrays, weights in a file.

With Keras 2 the last batch has 18 or 30 examples, and replicas have different numbers of them, or none. With Keras 3
all batches divide: its loss is the mean over the replicas of the mean over their examples, on any device.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, open_board, works

IS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
EXAMPLES = 530 if IS_2 else 512
tf.keras.utils.set_random_seed(5)
strategy = tf.distribute.TPUStrategy(open_board())
random = np.random.default_rng(3)
labels = random.integers(0, 4, EXAMPLES)
inputs = (np.eye(4, 12, dtype=np.float32)[labels] * 2 + random.standard_normal((EXAMPLES, 12)) / 2).astype(np.float32)


def make_model(plain: bool = False) -> tf.keras.Model:
    layers = tf.keras.layers
    between = [] if plain else [layers.BatchNormalization(), layers.Dropout(0.1)]
    model = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"), *between,
                                 layers.Dense(4)])
    # tensorflow-tpu has no XLA for the CPU.
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), steps_per_execution=2, jit_compile=False,
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


with strategy.scope():
    model = make_model()
history = model.fit(inputs, labels, batch_size=64, epochs=4, verbose=0).history
print(history)
assert history["loss"][-1] < 0.5 * history["loss"][0], history["loss"]
assert history["accuracy"][-1] > 0.9, history["accuracy"]

# Each replica has its own moving averages; what get_weights() gives are their means.
model.set_weights(model.get_weights())
on_cpu = make_model()
on_cpu.set_weights(model.get_weights())
predicted = model.predict(inputs, batch_size=64, verbose=0)
check_equal("shape of predictions", predicted.shape, (EXAMPLES, 4))
# Operands of products have 8 bits: with two layers 2^-8 of the sum of the magnitudes of the products.
check_close("predictions", predicted, on_cpu(inputs), 1e-2)
found = model.evaluate(inputs, labels, batch_size=100 if IS_2 else 128, verbose=0)
expected = tf.keras.losses.sparse_categorical_crossentropy(labels, on_cpu(inputs), from_logits=True)
check_close("loss of evaluate", found[0], float(tf.reduce_mean(expected)), 1e-2)

works("`fit`, `evaluate`, `predict`, `steps_per_execution`, dropout, batch normalization", "Keras 2 and 3")

# The same training without a strategy, on the CPU, from the same weights.
with strategy.scope():
    model_of_cores = make_model(plain=True)
model_of_cpu = make_model(plain=True)
model_of_cpu.set_weights(model_of_cores.get_weights())
losses = [each.fit(inputs[:512], labels[:512], batch_size=64, epochs=4, shuffle=False, verbose=0).history["loss"]
          for each in (model_of_cores, model_of_cpu)]
check_close("losses beside the CPU", *losses, 2e-2)

if IS_2:
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, options=tf.saved_model.SaveOptions(experimental_io_device="/job:localhost"))
        with strategy.scope():
            load = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
            loaded = tf.keras.models.load_model(folder, options=load)
        of_loaded = loaded.predict(inputs, batch_size=64, verbose=0)
        check_close("predictions of a SavedModel", of_loaded, on_cpu(inputs), 1e-2)

with tempfile.TemporaryDirectory() as folder:
    tf.profiler.experimental.start(folder)
    model.evaluate(inputs, labels, batch_size=128, verbose=0)
    tf.profiler.experimental.stop()
    (profile,) = Path(folder).rglob("*.xplane.pb")
    plane = b"\x12\x0d/device:TPU:7"  # XPlane.name
    assert plane in profile.read_bytes(), f"{profile} has no plane of a core"
    print("a profile: passed")

works("`tf.profiler`", "the board's timeline; in the process that has the board")

with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "model.weights.h5")
    options = {}
    if IS_2:
        path = str(Path(folder) / "weights")
        options["options"] = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
    model.save_weights(path, **options)
    with strategy.scope():
        again = make_model()
    again.load_weights(path, **options)
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        check_close("weights from a file", one, other, 1e-6)  # means over the replicas are rounded anew
print("all passed")
