"""Replicas on two cores: arrays that are split over them, on one of them, and on both; random numbers; a training step.

With the argument `spmd` TensorFlow asks for one program for all cores of a replica, else for one for each.
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, check_raises, works

SPMD = "spmd" in sys.argv
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
tf.config.experimental_connect_to_cluster(resolver)
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
assignment = tf.tpu.experimental.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
strategy = tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment,
                                     experimental_spmd_xla_partitioning=SPMD)
check_equal("replicas", strategy.num_replicas_in_sync, 4)
generator = np.random.default_rng(2)
x = generator.integers(-4, 4, (8, 4)).astype(np.float32)
start = generator.integers(-4, 4, (4, 6)).astype(np.float32)
with strategy.scope():
    weights = tf.Variable(start)
    steps = tf.Variable(0, dtype=tf.int32, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


@tf.function
def split(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    def body(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = strategy.experimental_split_to_logical_devices(rows, [1, 2])
        product = tf.matmul(rows, weights)
        return product, tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, product)

    return strategy.run(body, args=(batch,))


product, total = split(tf.constant(x))
for part, whole in zip(strategy.experimental_local_results(product), strategy.experimental_local_results(total),
                       strict=True):
    check_equal("a product of split rows", part, x @ start)
    check_equal("its sum over the replicas", whole, 4 * (x @ start))


@tf.function
def train(batch: tf.Tensor) -> tf.Tensor:
    def body(rows: tf.Tensor) -> tf.Tensor:
        rows = strategy.experimental_split_to_logical_devices(rows, [2, 1])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(rows, weights) ** 2)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN,
                                                                  tape.gradient(loss, weights))
        weights.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        return loss

    return strategy.run(body, args=(batch,))


expected, losses = start.copy(), []
for _ in range(3):
    loss = strategy.experimental_local_results(train(tf.constant(x)))[0]
    losses.append((float(loss), float(np.mean((x @ expected) ** 2))))
    expected -= 0.1 * 2 * x.T @ (x @ expected) / np.float32(48)
check_close("losses of 3 steps", *zip(*losses, strict=True), 1e-2)
check_close("weights after 3 steps", weights.numpy(), expected, 1e-2)
check_equal("steps", steps.numpy(), 3)


@tf.function
def on_second(a: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        second = strategy.experimental_assign_to_logical_device(value * 2.0, 1)
        return strategy.experimental_assign_to_logical_device(second + 1.0, 0)

    return strategy.run(body, args=(a,))


if not SPMD:
    check_equal("an array on the second core", strategy.experimental_local_results(on_second(tf.constant(x)))[3],
                2 * x + 1)


@tf.function
def random_numbers() -> tf.Tensor:
    return strategy.run(lambda: tf.random.uniform((5,)))


drawn = [np.asarray(part) for part in strategy.experimental_local_results(random_numbers())]
check_equal("random numbers of each replica differ", len({part.tobytes() for part in drawn}), 4)


@tf.function
def with_host(a: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        product = tf.matmul(value, value, transpose_b=True)
        return 3.0 * tf.compat.v1.tpu.outside_compilation(lambda part: part + 1.0, product)

    return strategy.run(body, args=(a,))


check_raises("a part on the host", tf.errors.UnimplementedError, ("on the host", "2 cores"),
             lambda: strategy.experimental_local_results(with_host(tf.constant(x)))[0].numpy())
works("several cores for one replica", "[one program](#several-cores-for-one-replica) for all of them")
print("all passed")
