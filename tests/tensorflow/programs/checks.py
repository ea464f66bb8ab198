"""What the programs have in common: the board as TensorFlow's TPU system, and checks."""

from __future__ import annotations

import gc
import os

import numpy as np
import tensorflow as tf

gc.freeze()  # what the modules hold is no garbage: not to be looked through while a program runs, and at its end


def open_board() -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """As a program on a TPU VM does it, or, where TPU_NAME names one, with a TPU node."""
    tune_no_inputs()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="" if "TPU_NAME" in os.environ else "local")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return resolver


def tune_no_inputs() -> None:
    """No iterator gets the thread that tunes its data set, also none of those that Keras makes: TensorFlow waits up to
    60 s for that one when an iterator is deleted (docs/tensorflow.md)."""
    options = tf.data.Options()
    options.autotune.enabled = False
    # Each kind of iterator calls it for its data set; there is no public place for all of them.
    assert hasattr(tf.data.Dataset, "_apply_debug_options")
    tf.data.Dataset._apply_debug_options = lambda dataset: dataset.with_options(options)


def works(what: str, state: str) -> None:
    """What the checks so far have shown: a row of docs/tensorflow.md (sim_scripts/tensorflow_support.py)."""
    print(f"works: {what}: {state}", flush=True)


def check_equal(what: str, found: object, expected: object) -> None:
    """Bit by bit."""
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), err_msg=what)
    print(f"{what}: passed", flush=True)


def check_close(what: str, found: object, expected: object, tolerance: float) -> None:
    """Relative to the largest of the expected values."""
    expected = np.asarray(expected)
    worst = np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()
    assert worst <= tolerance, f"{what}: differs by {worst:.2e} of the largest value, expected at most {tolerance}"
    print(f"{what}: passed ({worst:.1e})", flush=True)


def check_raises(what: str, kind: type[BaseException], parts: tuple[str, ...], call: object) -> None:
    """The call raises, and the text has all parts."""
    try:
        call()
    except kind as error:
        for part in parts:
            assert part in str(error), f"{what}: '{part}' is not in the error: {error}"
        print(f"{what}: passed ({type(error).__name__})", flush=True)
        return
    raise AssertionError(f"{what}: no error, expected {kind.__name__}")
