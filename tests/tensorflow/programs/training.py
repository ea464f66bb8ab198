"""Keras 2 or 3: callbacks, schedules of the learning rate, class weights, frozen layers, bfloat16, other batches.

Each training runs on the eight cores and on the CPU, from the same weights.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, open_board, works
from twins import IS_2, check_weights, classes, compile_for_both, highest_precision, twins

layers = tf.keras.layers
EXAMPLES, BATCH, EPOCHS = 256, 64, 4
STEPS = EXAMPLES // BATCH
inputs, labels = classes(EXAMPLES)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy
strategy = tf.distribute.TPUStrategy(open_board())
tf.keras.utils.set_random_seed(7)


def make_model(optimizer: object = "sgd", **more: object) -> tf.keras.Model:
    model = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"),
                                 layers.Dense(4, dtype="float32")])
    return compile_for_both(model, optimizer, loss_of(from_logits=True), **more)


def one_cycle(step: float, steps: float, top: float) -> float:
    """Up to `top` in the first third, then down along a cosine."""
    part = step / steps
    return top * (0.1 + 2.7 * part) if part < 1 / 3 else top * 0.5 * (1 + math.cos(math.pi * (1.5 * part - 0.5)))


def fit(model: tf.keras.Model, **more: object) -> dict[str, list[float]]:
    options = {"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 0} | more
    return model.fit(inputs, labels, **options).history


def scalars(folder: Path, tag: str) -> list[float]:
    """What TensorBoard shows."""
    events = [event for file in sorted(folder.rglob("events.out.*"))
              for event in tf.compat.v1.train.summary_iterator(str(file))]
    return [float(tf.make_ndarray(value.tensor)) for event in events for value in event.summary.value
            if value.tag == tag]


def callbacks_of(folder: Path) -> list[tf.keras.callbacks.Callback]:
    kinds = tf.keras.callbacks
    if IS_2:
        options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
        saver = kinds.ModelCheckpoint(str(folder / "best"), save_weights_only=True, save_best_only=True,
                                      monitor="val_loss", options=options)
    else:
        saver = kinds.ModelCheckpoint(str(folder / "best.weights.h5"), save_weights_only=True, save_best_only=True,
                                      monitor="val_loss")
    return [saver, kinds.LearningRateScheduler(lambda epoch: one_cycle(epoch, EPOCHS, 0.3)),
            kinds.TensorBoard(str(folder / "logs"), write_graph=False),
            kinds.EarlyStopping(monitor="val_loss", patience=50, restore_best_weights=True)]


def with_callbacks() -> None:
    pair = twins(strategy, lambda: make_model(tf.keras.optimizers.SGD(0.1), metrics=["accuracy"]))
    validation = classes(100, seed=8)  # the last batch has 36
    found = []
    for model in pair:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            history = fit(model, validation_data=validation, callbacks=callbacks_of(folder))
            shown = scalars(folder / "logs", "epoch_loss")[:EPOCHS]  # then those of the validation
            check_close("scalars of TensorBoard", shown, history["loss"], 1e-6)
            best = make_model()
            best.load_weights(str(folder / ("best" if IS_2 else "best.weights.h5")))
            check_weights("ModelCheckpoint has the best weights", best, model, 1e-6)
            found.append(history)
    rates = found[0]["lr" if IS_2 else "learning_rate"]
    check_close("LearningRateScheduler", rates, [one_cycle(epoch, EPOCHS, 0.3) for epoch in range(EPOCHS)], 1e-6)
    for key in ("loss", "val_loss", "accuracy", "val_accuracy"):
        check_close(f"{key} with callbacks", found[0][key], found[1][key], 1e-3)

    with strategy.scope():
        stopped = make_model(tf.keras.optimizers.SGD(0.0))
    stopper = tf.keras.callbacks.EarlyStopping(monitor="loss", patience=2)
    check_equal("EarlyStopping", len(fit(stopped, epochs=20, callbacks=[stopper])["loss"]), 3)


class OneCycle(tf.keras.optimizers.schedules.LearningRateSchedule):
    """The same as a function of the step on the device."""

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        part = tf.cast(step, tf.float32) / (EPOCHS * STEPS)
        down = 0.15 * (1.0 + tf.cos(math.pi * (1.5 * part - 0.5)))
        return tf.where(part < 1 / 3, 0.3 * (0.1 + 2.7 * part), down)

    def get_config(self) -> dict[str, object]:
        return {}


def with_schedules() -> None:
    schedules = tf.keras.optimizers.schedules
    optimizers = {
        "cosine with warm-up and Adam": lambda: tf.keras.optimizers.Adam(schedules.CosineDecay(
            0.0, EPOCHS * STEPS, warmup_target=0.02, warmup_steps=STEPS)),
        "one cycle and Nesterov": lambda: tf.keras.optimizers.SGD(OneCycle(), momentum=0.9, nesterov=True),
    }
    for what, make_optimizer in optimizers.items():
        pair = twins(strategy, lambda make=make_optimizer: make_model(make(), steps_per_execution=STEPS))
        losses = [fit(model)["loss"] for model in pair]
        check_close(f"losses with {what}", *losses, 1e-3)
        check_weights(f"weights with {what}", *pair, 1e-3)


def with_class_weights() -> None:
    pair = twins(strategy, lambda: make_model(tf.keras.optimizers.SGD(0.1)))
    losses = [fit(model, class_weight={0: 4.0, 1: 1.0, 2: 0.25, 3: 1.5})["loss"] for model in pair]
    check_close("losses with class weights", *losses, 1e-3)
    check_weights("weights with class weights", *pair, 1e-3)


def with_frozen_layers() -> None:
    """Transfer: the head alone, then all of it in small steps."""
    def make() -> tf.keras.Model:
        base = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"),
                                    layers.BatchNormalization()], name="base")
        base.trainable = False
        entry = tf.keras.Input((12,))
        model = tf.keras.Model(entry, layers.Dense(4)(base(entry, training=False)))
        return compile_for_both(model, tf.keras.optimizers.Adam(0.02), loss_of(from_logits=True))

    pair = twins(strategy, make)
    before = pair[0].get_layer("base").get_weights()
    losses = [fit(model)["loss"] for model in pair]
    check_close("losses of the head", *losses, 1e-3)
    for one, other in zip(before, pair[0].get_layer("base").get_weights(), strict=True):
        np.testing.assert_array_equal(other, one, err_msg="frozen weights")
    for model in pair:
        with strategy.scope() if model is pair[0] else tf.distribute.get_strategy().scope():
            base = model.get_layer("base")
            base.trainable = True
            base.layers[-1].trainable = False  # batch normalization, which keeps its averages so
            compile_for_both(model, tf.keras.optimizers.SGD(1e-3), loss_of(from_logits=True))
    losses = [fit(model, epochs=2)["loss"] for model in pair]
    check_close("losses of fine tuning", *losses, 1e-3)
    check_weights("weights of fine tuning", *pair, 1e-3)
    after = pair[0].get_layer("base").get_weights()
    assert (before[0] != after[0]).any(), "the base was not trained"


def with_bfloat16() -> None:
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        pair = twins(strategy, lambda: make_model(tf.keras.optimizers.Adam(0.01)))
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    check_equal("type of variables", {str(value.dtype) for value in pair[0].get_weights()}, {"float32"})
    assert pair[0].layers[0].compute_dtype == "bfloat16"
    losses = [fit(model)["loss"] for model in pair]
    assert losses[0][-1] < 0.6 * losses[0][0], losses
    check_close("losses of mixed_bfloat16", *losses, 2e-2)
    check_close("predictions of mixed_bfloat16", *(model.predict(inputs, verbose=0) for model in pair), 5e-2)


def with_other_batches() -> None:
    """The last batch has fewer examples, on some cores none."""
    pair = twins(strategy, make_model)
    for examples, batch in ((70, 64), (53, 16), (5, 8), (3, 64)):
        found = pair[0].predict(inputs[:examples], batch_size=batch, verbose=0)
        check_equal(f"rows of predict of {examples} by {batch}", found.shape, (examples, 4))
        check_close(f"predict of {examples} by {batch}", found, pair[1](inputs[:examples]), 1e-5)


with highest_precision():
    with_callbacks()
    with_schedules()
    with_class_weights()
    with_frozen_layers()
    with_other_batches()
works("`ModelCheckpoint`, `EarlyStopping`, `LearningRateScheduler`, `TensorBoard`", "as on the CPU")
works("schedules of the learning rate: cosine, warm-up, one cycle", "Keras 2 and 3, weights of the CPU")
works("class weights, frozen layers and fine tuning", "Keras 2 and 3, weights of the CPU")
works("`predict` with a last batch of any size", "Keras 2 and 3")
with_bfloat16()
works("policy `mixed_bfloat16`", "Keras 2 and 3")
print("all passed")
