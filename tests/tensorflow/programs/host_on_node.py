"""Parts of a step that run on the host of a TPU node: strings, and a Python function, which the node does not have."""

from __future__ import annotations

import tensorflow as tf
from checks import check_equal, check_raises, open_board

strategy = tf.distribute.TPUStrategy(open_board())
on_host = tf.compat.v1.tpu.outside_compilation


def with_digit(value: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.join(["1", tf.strings.as_string(tf.cast(value, tf.int32))]))


def in_python(value: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda given: given * 2, [value], tf.float32), [])


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: on_host(with_digit, value) + 0.5, args=(x,))


@tf.function
def python_step(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: on_host(in_python, value) + 0.5, args=(x,))


def values(results: tf.distribute.DistributedValues) -> list[float]:
    return [float(part) for part in strategy.experimental_local_results(results)]


for number in range(3):
    check_equal("strings on the node", values(step(tf.constant(float(number)))), [10.5 + number] * 8)
    if number == 1:
        check_raises("a Python function on the node", tf.errors.OpError, ("pyfunc_0",),
                     lambda: values(python_step(tf.constant(1.0))))
print("all passed")
