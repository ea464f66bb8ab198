"""Keras 2 or 3: checkpoints, SavedModel and weights on the local disk, and a training that goes on from each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, open_board, works
from twins import IS_2, classes, compile_for_both, highest_precision

layers = tf.keras.layers
EXAMPLES, BATCH = 128, 64
inputs, labels = classes(EXAMPLES)
strategy = tf.distribute.TPUStrategy(open_board())
tf.keras.utils.set_random_seed(7)
CHECKPOINT = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
SAVE = tf.saved_model.SaveOptions(experimental_io_device="/job:localhost")
LOAD = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")


def make_model() -> tf.keras.Model:
    model = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"), layers.Dense(4)])
    return compile_for_both(model, tf.keras.optimizers.Adam(0.01),
                            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def fit(model: tf.keras.Model) -> list[float]:
    return model.fit(inputs, labels, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history["loss"]


def on_cpu_of(model: tf.keras.Model) -> np.ndarray:
    """What the weights of the model give without the board."""
    plain = make_model()
    plain.set_weights(model.get_weights())
    return plain(inputs).numpy()


def check_same(what: str, found: tf.keras.Model, expected: tf.keras.Model) -> None:
    for one, other in zip(found.get_weights(), expected.get_weights(), strict=True):
        check_equal(what, one, other)


def with_checkpoints(model: tf.keras.Model, folder: Path) -> None:
    """tf.train.Checkpoint and its manager: weights, the optimizer's state, a counter."""
    with strategy.scope():
        step = tf.Variable(3, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    saved = tf.train.Checkpoint(model=model, step=step)
    manager = tf.train.CheckpointManager(saved, str(folder / "managed"), max_to_keep=2)
    before = [value.copy() for value in model.get_weights()]
    manager.save(options=CHECKPOINT)
    goes_on = fit(model)
    step.assign(9)
    for _ in range(2):
        manager.save(options=CHECKPOINT)
    check_equal("checkpoints that are kept", len(manager.checkpoints), 2)
    saved.restore(manager.latest_checkpoint, options=CHECKPOINT).assert_existing_objects_matched()
    check_equal("a counter from a checkpoint", step, 9)

    # Another model and optimizer go on from the first one, bit by bit as the first did.
    with strategy.scope():
        again = make_model()
        again_step = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    first = tf.train.Checkpoint(model=model, step=step)
    model.set_weights(before)
    path = first.save(str(folder / "first"), options=CHECKPOINT)
    status = tf.train.Checkpoint(model=again, step=again_step).restore(path, options=CHECKPOINT)
    status.assert_existing_objects_matched()
    check_equal("the counter of another object", again_step, 9)
    check_same("weights of another object", again, model)
    check_equal("losses that go on from a checkpoint", fit(again), fit(model))
    check_same("weights that go on from a checkpoint", again, model)
    assert len(goes_on) == 2


def with_saved_models(model: tf.keras.Model, folder: Path) -> None:
    expected = on_cpu_of(model)
    tf.saved_model.save(model, str(folder / "saved"), options=SAVE)
    with strategy.scope():
        loaded = tf.saved_model.load(str(folder / "saved"), options=LOAD)
    serve = loaded.signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]

    @tf.function
    def served(batch: tf.Tensor) -> tf.Tensor:
        return strategy.run(lambda x: next(iter(serve(**{name: x}).values())), args=(batch,))

    for part in strategy.experimental_local_results(served(tf.constant(inputs))):
        check_close("a SavedModel on a core", part, expected, 1e-5)
    plain = tf.saved_model.load(str(folder / "saved")).signatures["serving_default"]
    check_close("a SavedModel without the board", next(iter(plain(**{name: inputs}).values())), expected, 1e-5)

    if IS_2:
        model.save(str(folder / "keras"), options=SAVE)
    else:
        model.save(str(folder / "keras.keras"))
    with strategy.scope():
        again = (tf.keras.models.load_model(str(folder / "keras"), options=LOAD) if IS_2 else
                 tf.keras.models.load_model(str(folder / "keras.keras")))
    check_close("predictions of a saved model", again.predict(inputs, verbose=0), expected, 1e-5)
    if not IS_2:  # load_model of Keras 2 forgets the optimizer's state, on every device
        again.jit_compile = False
        check_equal("losses of a saved model that goes on", fit(again), fit(model))


def with_h5(model: tf.keras.Model, folder: Path) -> None:
    """As for a notebook without TPU."""
    model.save(str(folder / "model.h5"))
    plain = tf.keras.models.load_model(str(folder / "model.h5"))
    check_close("predictions of model.h5", plain(inputs), on_cpu_of(model), 1e-6)


with tempfile.TemporaryDirectory() as name, highest_precision():
    with strategy.scope():
        trained = make_model()
    fit(trained)
    with_checkpoints(trained, Path(name))
    with_saved_models(trained, Path(name))
    with_h5(trained, Path(name))
works("checkpoints, SavedModel, `model.h5`, `experimental_io_device`", "training continues bit by bit")
print("all passed")
