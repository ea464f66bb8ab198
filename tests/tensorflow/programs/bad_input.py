"""What a program must not do on the board: each is a Python exception that says why, and the next step works.

Cores have 1 GiB of memory here (hbm.gib_per_core).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from checks import check_equal, check_raises, works

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
tf.config.experimental_connect_to_cluster(resolver)
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
ones = tf.ones((2, 3))


def first(results: object) -> np.ndarray:
    return strategy.experimental_local_results(results)[0].numpy()


@tf.function
def doubled(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: value * 2.0, args=(x,))


def refused(what: str, kind: type[BaseException], parts: tuple[str, ...], body: object, *arguments: object) -> None:
    """The body on all cores fails, twice, and then a good step runs."""

    @tf.function
    def on_all(*given: tf.Tensor) -> tf.Tensor:
        return strategy.run(body, args=given)

    for _ in range(2):
        check_raises(what, kind, parts, lambda: first(on_all(*arguments)))
    check_equal(f"a step after: {what}", first(doubled(ones)), 2 * np.ones((2, 3)))


def strings(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.strings.as_string(x))


refused("strings on a core", tf.errors.InvalidArgumentError, ("AsString", "outside compile"), strings, ones)


def half(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float16) + tf.constant(1.0, tf.float16)


refused("f16 on a core", tf.errors.UnimplementedError, ("f16",), half, ones)


class Layer(tf.Module):
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        with self.name_scope:
            return tf.raw_ops.Lu(input=x, output_idx_type=tf.int32)[0]


refused("an operation without a lowering", tf.errors.InvalidArgumentError, ("Lu", "odd_layer"),
        Layer(name="odd_layer"), tf.ones((3, 3)))


def sum_of_unknown_size(x: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.boolean_mask(x, x > 0.0))


refused("a sum over the cores of a size that is known at run time only", tf.errors.UnimplementedError,
        ("not implemented", "Give it a known size"), sum_of_unknown_size, ones)


def large(x: tf.Tensor) -> tf.Tensor:
    rows = tf.matmul(tf.sin(tf.tile(x, [20000, 1])), tf.ones((3, 20000)))
    return tf.reduce_sum(tf.sort(rows, axis=0), axis=0)


refused("a program that needs more memory than a core has", tf.errors.ResourceExhaustedError,
        ("bytes of HBM", "1 GiB"), large, tf.ones((1, 3)))


def too_much() -> list[tf.Tensor]:
    with tf.device("/TPU:0"):
        return [tf.fill((4096, 4096), float(i)) for i in range(20)]


check_raises("more arrays than a core has memory for", tf.errors.ResourceExhaustedError, ("TPU:0",),
             lambda: [part.numpy() for part in too_much()])
check_equal("a step after it", first(doubled(ones)), 2 * np.ones((2, 3)))
check_raises("more replicas than cores", (ValueError, tf.errors.OpError), ("16",), lambda: tf.distribute.TPUStrategy(
    resolver, experimental_device_assignment=tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=16)))




def logarithm(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(tf.math.log(x), "log")


@tf.function
def checked(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(logarithm, args=(x,))


# Checks of numbers and assertions are not compiled, as on a TPU.
check_equal("NaN in a step", np.isnan(first(checked(-ones))).all(), True)


@tf.function
def of_ragged(rows: tf.RaggedTensor) -> tf.RaggedTensor:
    return strategy.run(lambda part: part * 2.0, args=(rows,))


check_equal("rows of different lengths", strategy.experimental_local_results(
    of_ragged(tf.ragged.constant([[1.0, 2.0], [3.0]])))[7].values, [2.0, 4.0, 6.0])
works("out of memory, too many replicas, no lowering for an operation, f16", "exceptions; the next step works")
works("ragged tensors as arguments of a step; NaN in a step", "yes; results are NaN, as on a TPU")
print("all passed")
