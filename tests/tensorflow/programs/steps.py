"""Steps of a TPUStrategy that go wrong, and those after them: errors of the compiler leave variables as they are, a
core whose arguments are lost fails its own step alone, and a second initialization."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from checks import check_equal, check_raises, open_board, works

resolver = open_board()
with tf.device("/TPU:0"):
    lost = tf.constant([1.0, 2.0]) + 1.0
# Frees what is on the cores, as TensorFlow warns.
tf.tpu.experimental.initialize_tpu_system(resolver)
check_raises("memory of before", tf.errors.FailedPreconditionError, ("initialized again",), lambda: lost.numpy())

strategy = tf.distribute.TPUStrategy(resolver)
CORES = strategy.num_replicas_in_sync
with strategy.scope():
    total = tf.Variable([0.0, 0.0])


@tf.function
def step(value: tf.Tensor) -> tf.Tensor:
    def body(own: tf.Tensor) -> tf.Tensor:
        everywhere = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)
        total.assign_add(everywhere)
        return everywhere

    return strategy.run(body, args=(value,))


@tf.function
def unsupported(value: tf.Tensor) -> tf.Tensor:
    def body(own: tf.Tensor) -> tf.Tensor:
        total.assign_add(own)
        return tf.strings.length(tf.strings.as_string(own))

    return strategy.run(body, args=(value,))


def on_core(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
    with tf.device(f"/TPU:{context.replica_id_in_sync_group}"):
        return tf.constant([1.0, 10.0]) + 0.0


def results(value: object) -> list[np.ndarray]:
    """Waits for them: calls of a TPU node return before they are done."""
    return [part.numpy() for part in strategy.experimental_local_results(step(value))]


good = strategy.experimental_distribute_values_from_function(on_core)
check_equal("a step", results(good), [[8.0, 80.0]] * CORES)
for _ in range(2):
    check_raises("an operation without lowering", tf.errors.OpError, ("AsString",),
                 lambda: strategy.experimental_local_results(unsupported(good))[0].numpy())
    check_equal("its variables", total, [8.0, 80.0])
check_equal("the next step", results(good), [[8.0, 80.0]] * CORES)
check_equal("trains on", total, [16.0, 160.0])

parts = strategy.experimental_local_results(good)
damaged = strategy.experimental_distribute_values_from_function(
    lambda context: lost if context.replica_id_in_sync_group == 0 else parts[context.replica_id_in_sync_group])


@tf.function
def reduced(value: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda own: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own),
                        args=(value,))


for _ in range(3):
    check_raises("a core without its argument", tf.errors.OpError, ("initialized again",),
                 lambda: strategy.experimental_local_results(reduced(damaged))[3].numpy())
    for _ in range(2):
        sums = [part.numpy() for part in strategy.experimental_local_results(reduced(good))]
        check_equal("the step after it", sums, [[8.0, 80.0]] * CORES)
check_equal("the other function", results(good), [[8.0, 80.0]] * CORES)
check_equal("trains on", total, [24.0, 240.0])
works("steps after an error", "variables keep their values when a compilation fails")
print("all passed")
