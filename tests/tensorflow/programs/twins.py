"""A model on the eight cores and the same one on the CPU, from the same weights, and what they share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from checks import check_close

IS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


@contextlib.contextmanager
def highest_precision() -> Iterator[None]:
    """Products of f32 as the CPU has them, instead of operands of 8 bits. It counts when a function is compiled."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)


def twins(strategy: tf.distribute.Strategy,
          make: Callable[[], tf.keras.Model]) -> tuple[tf.keras.Model, tf.keras.Model]:
    """The model under the strategy, and without one."""
    with strategy.scope():
        on_cores = make()
    on_cpu = make()
    on_cpu.set_weights(on_cores.get_weights())
    return on_cores, on_cpu


def compile_for_both(model: tf.keras.Model, optimizer: object, loss: object, **more: object) -> tf.keras.Model:
    """compile(); tensorflow-tpu has no XLA for the CPU, which Keras 3 would use."""
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False, **more)
    return model


def check_weights(what: str, found: tf.keras.Model, expected: tf.keras.Model, tolerance: float) -> None:
    """All together, so that the largest of them counts."""
    flat = [np.concatenate([np.ravel(value) for value in model.get_weights()]) for model in (found, expected)]
    check_close(what, *flat, tolerance)


def classes(examples: int, size: int = 12, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of four classes, with noise, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, examples)
    inputs = np.eye(4, size, dtype=np.float32)[labels] * 2 + random.standard_normal((examples, size)) / 2
    return inputs.astype(np.float32), labels
