"""Parts of a step that run on the host: printing, Python functions, summaries and strings (outside compilation).

With the argument `mlir` TensorFlow finds these parts by itself (the MLIR bridge and soft device placement).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_equal, check_raises, open_board, works

MLIR = "mlir" in sys.argv
if MLIR:
    tf.config.experimental.enable_mlir_bridge()
tf.config.set_soft_device_placement(True)
strategy = tf.distribute.TPUStrategy(open_board())
seen: list[float] = []


on_host = tf.compat.v1.tpu.outside_compilation


def replica() -> tf.Tensor:
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


def note(value: tf.Tensor) -> np.ndarray:
    seen.append(float(value))
    return value.numpy() * 10


def python_part(value: tf.Tensor) -> tf.Tensor:
    tf.print("on the host:", value)
    return tf.ensure_shape(tf.py_function(note, [value], tf.float32), [])


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: on_host(python_part, tf.reduce_sum(value) + replica()) + 1.0, args=(x,))


for start in (3.0, 5.0):
    parts = strategy.experimental_local_results(step(tf.constant([1.0, start - 1.0])))
    check_equal("results of the host", [float(part) for part in parts], [10 * (start + r) + 1 for r in range(8)])
check_equal("arrays that came to the host", sorted(seen), sorted(s + r for s in (3.0, 5.0) for r in range(8)))


@tf.function
def in_loop(x: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            value += on_host(lambda part: tf.ensure_shape(tf.py_function(note, [part], tf.float32), []), value)
        return value

    return strategy.run(body, args=(x,))


seen.clear()
check_equal("a loop with the host in it", in_loop(tf.constant(1.0)).values[5], 11.0 ** 3)
check_equal("calls of each iteration", sorted(seen), [1.0] * 8 + [11.0] * 8 + [121.0] * 8)


@tf.function
def failing(x: tf.Tensor) -> tf.Tensor:
    def refuse(value: tf.Tensor) -> np.ndarray:
        raise ValueError(f"no {float(value)}")

    def part(value: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(refuse, [value], tf.float32), [])

    return strategy.run(lambda value: on_host(part, value) + 1.0, args=(x,))


check_raises("an error in Python", tf.errors.OpError, ("no 4.0",),
             lambda: float(failing(tf.constant(4.0)).values[0]))
seen.clear()
check_equal("a step after an error", float(step(tf.constant([1.0, 2.0])).values[7]), 101.0)

folder = tempfile.mkdtemp()
writer = tf.summary.create_file_writer(folder)
with strategy.scope():
    counted = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


@tf.function
def summarized(x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(value)
        counted.assign_add(total)
        if MLIR:
            tf.summary.scalar("total", total, step=number)
        else:
            on_host(lambda part: tf.summary.scalar("total", part, step=number), total)
        return total

    return strategy.run(body, args=(x,))


with writer.as_default():
    for number in range(3):
        summarized(tf.constant([1.0, 2.0 * number]), tf.constant(number, tf.int64))
writer.flush()
events = [event for path in Path(folder).iterdir() for event in tf.compat.v1.train.summary_iterator(str(path))]
values = {(event.step, float(tf.make_ndarray(value.tensor))) for event in events for value in event.summary.value}
check_equal("a variable that these steps change", counted.numpy(), 9.0)
check_equal("summaries", sorted(values), [(0, 1.0), (1, 3.0), (2, 5.0)])


@tf.function
def found(x: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        tf.print("without a mark:", value)
        return tf.strings.to_number(tf.strings.join(["1", tf.strings.as_string(tf.cast(value, tf.int32))])) + 0.5

    return strategy.run(body, args=(x,))


if MLIR:
    check_equal("strings", [float(part) for part in found(tf.constant(7.0)).values], [17.5] * 8)
works("`tf.print`, `tf.summary`, strings in a step", "[on the host](#parts-of-a-step-on-the-host)")
works("the MLIR bridge", "with `tf.config.experimental.enable_mlir_bridge()`")
print("all passed")
