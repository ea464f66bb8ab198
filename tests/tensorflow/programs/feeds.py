"""Infeed and outfeed: arrays that the host gives a step while it runs, and takes from it."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf
from checks import check_equal, check_raises, open_board, works

strategy = tf.distribute.TPUStrategy(open_board())
CORES = strategy.num_replicas_in_sync
TYPES = (tf.float32, tf.int32, tf.bool, tf.bfloat16, tf.uint8, tf.int64)
SHAPES = ((2, 3), (), (5,), (3, 3), (7,), (2,))
random = np.random.default_rng(7)


def enqueue(core: int, *arrays: tf.Tensor) -> None:
    with tf.device("/CPU:0"):
        tf.raw_ops.InfeedEnqueueTuple(inputs=arrays, shapes=[array.shape for array in arrays], device_ordinal=core)


def dequeue(core: int, types: tuple[tf.DType, ...], shapes: tuple[tuple[int, ...], ...]) -> list[tf.Tensor]:
    with tf.device("/CPU:0"):
        return tf.raw_ops.OutfeedDequeueTuple(dtypes=types, shapes=shapes, device_ordinal=core)


@tf.function
def returned() -> tf.Tensor:
    """Each core gives what it gets."""
    def body() -> tf.Tensor:
        arrays = tf.raw_ops.InfeedDequeueTuple(dtypes=TYPES, shapes=SHAPES)
        tf.raw_ops.OutfeedEnqueueTuple(inputs=arrays)
        return arrays[1] + 1

    return strategy.run(body)


given = [[tf.cast(tf.constant(random.integers(0, 100, shape)), kind) for kind, shape in zip(TYPES, SHAPES, strict=True)]
         for _ in range(CORES)]
for core in range(CORES):
    enqueue(core, *given[core])
numbers = [int(value) for value in strategy.experimental_local_results(returned())]
check_equal("results beside an outfeed", numbers, [int(arrays[1]) + 1 for arrays in given])
for core in range(CORES):
    for array, expected in zip(dequeue(core, TYPES, SHAPES), given[core], strict=True):
        assert array.dtype == expected.dtype
        check_equal(f"core {core}, {array.dtype.name}", tf.cast(array, tf.float32), tf.cast(expected, tf.float32))


with strategy.scope():
    weight = tf.Variable(tf.zeros([4]), trainable=False)


STEPS = 5


@tf.function
def train() -> None:
    """The loop of a TPUEstimator: a batch and a loss for each iteration, in one program."""
    def body() -> None:
        for _ in tf.range(STEPS):
            batch = tf.raw_ops.InfeedDequeue(dtype=tf.float32, shape=[4])
            scale = tf.raw_ops.InfeedDequeue(dtype=tf.float32, shape=[])
            total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, batch * scale)
            weight.assign_add(total)
            tf.raw_ops.OutfeedEnqueue(input=tf.reduce_sum(total))

    strategy.run(body)


batches = random.integers(-8, 8, (STEPS, CORES, 4)).astype(np.float32)
scales = random.integers(1, 4, (STEPS, CORES)).astype(np.float32)
losses: list[list[float]] = [[] for _ in range(CORES)]


def feed() -> None:
    with tf.device("/CPU:0"):
        for step in range(STEPS):
            for core in range(CORES):
                for array in (batches[step, core], scales[step, core]):
                    tf.raw_ops.InfeedEnqueue(input=array, shape=array.shape, device_ordinal=core)


def drain(core: int) -> None:
    with tf.device("/CPU:0"):
        for _ in range(STEPS):
            losses[core].append(float(tf.raw_ops.OutfeedDequeue(dtype=tf.float32, shape=[], device_ordinal=core)))


threads = [threading.Thread(target=drain, args=[core], daemon=True) for core in range(CORES)]
threads.append(threading.Thread(target=feed, daemon=True))
for thread in threads:
    thread.start()
train()
for thread in threads:
    thread.join()
sums = (batches * scales[..., None]).sum(1)
check_equal("losses of each iteration", losses, [list(sums.sum(1))] * CORES)
check_equal("the variable", weight.numpy(), sums.sum(0))
works("`InfeedEnqueue`, `OutfeedDequeue`, also in loops of a step",
      "[queues on the host](#infeed-and-outfeed)")


@tf.function
def one() -> tf.Tensor:
    def body() -> tf.Tensor:
        array = tf.raw_ops.InfeedDequeue(dtype=tf.float32, shape=[2])
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, array)

    return strategy.run(body)


def first_of_one() -> np.ndarray:
    return strategy.experimental_local_results(one())[0].numpy()


def feed_all(*arrays: list[float]) -> None:
    for core in range(CORES):
        enqueue(core, *(tf.constant(array) for array in arrays))


feed_all([1.0, 2.0], [3.0, 4.0])
check_raises("two arrays in the place of one", tf.errors.InvalidArgumentError,
             ("2 arrays", "infeed of core", "expected 1"), first_of_one)
tf.tpu.experimental.initialize_tpu_system(strategy.extended._tpu_cluster_resolver)  # empties the queues
feed_all([1.0, 2.0, 3.0])
check_raises("an array of another size", tf.errors.InvalidArgumentError, ("12 bytes", "expected 8, for [2]"),
             first_of_one)
tf.tpu.experimental.initialize_tpu_system(strategy.extended._tpu_cluster_resolver)
feed_all([5.0, 6.0])
check_equal("a step after the errors", strategy.experimental_local_results(one())[7].numpy(), [5.0, 6.0])


def graph() -> None:
    """tf.compat.v1.tpu.rewrite in a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.tpu.initialize_system())
        doubled = tf.compat.v1.tpu.rewrite(
            lambda: tf.raw_ops.InfeedDequeue(dtype=tf.float32, shape=[2]) * 2.0)
        with tf.device("/CPU:0"):
            put = tf.raw_ops.InfeedEnqueue(input=tf.constant([3.0, 4.0]), shape=[2], device_ordinal=0)
        session.run(put)
        check_equal("tpu.rewrite", session.run(doubled)[0], [6.0, 8.0])


graph()
