"""tf.distribute.TPUStrategy: results by replica, all-reduce, variables, loops, batches of other sizes, errors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, check_raises, open_board, works

strategy = tf.distribute.TPUStrategy(open_board())
CORES = strategy.num_replicas_in_sync
check_equal("replicas", CORES, 8)
a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@tf.function
def matmul_fn(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, y)


@tf.function
def replicated(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return strategy.run(matmul_fn, args=(x, y))


def first(results: object) -> np.ndarray:
    """Waits for them: calls of a TPU node return before they are done."""
    return strategy.experimental_local_results(results)[0].numpy()


for part in strategy.experimental_local_results(replicated(a, b)):
    check_equal("PerReplica", part, [[22, 28], [49, 64]])


@tf.function
def numbers() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    def body() -> tuple[tf.Tensor, tf.Tensor]:
        own = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return own, tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own * own)

    own, total = strategy.run(body)
    return own, total, strategy.reduce(tf.distribute.ReduceOp.MEAN, own, axis=None)


own, total, mean = numbers()
check_equal("replica ids", [float(value) for value in own.values], np.arange(8))
check_equal("all-reduce", [float(value) for value in total.values], [140.0] * 8)
check_equal("reduce", mean, 3.5)

works("`TPUStrategy.run`, results by replica, all-reduce, `strategy.reduce`", "on eight cores")

with strategy.scope():
    weights = tf.Variable(np.zeros((4, 1), np.float32))
    seen = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
random = np.random.default_rng(1)
inputs = random.standard_normal((83, 4)).astype(np.float32)
targets = inputs @ np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)


@tf.function
def train(iterator: tf.data.Iterator, steps: tf.Tensor) -> None:
    def step(batch: tuple[tf.Tensor, tf.Tensor]) -> None:
        x, y = batch
        gradient = 2.0 * tf.matmul(x, tf.matmul(x, weights) - y, transpose_a=True) / 83.0
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        weights.assign_sub(0.2 * gradient)
        seen.assign_add(1)

    for _ in tf.range(steps):
        strategy.run(step, args=(next(iterator),))


# 83 examples: the parts of the cores have 11 and 6 of them, and their sizes are known at run time only.
dataset = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(83).repeat()
iterator = iter(strategy.experimental_distribute_dataset(dataset))
train(iterator, tf.constant(30))
expected = np.zeros((4, 1), np.float32)
for _ in range(30):
    expected -= 0.2 * 2.0 * inputs.T @ (inputs @ expected - targets) / np.float32(83)
check_close("30 steps of batches that do not divide", weights.numpy(), expected, 1e-2)
check_equal("steps", seen, 30)


@tf.function
def doubled(iterator: tf.data.Iterator) -> tf.Tensor:
    return strategy.run(lambda batch: (tf.transpose(batch[0]), batch[0] * 2.0, tf.reduce_sum(tf.ones_like(batch[0]))),
                        args=(next(iterator),))


# Results whose sizes are known at run time only: in the last dimension, and in the first one.
turned, twice, counted = doubled(iterator)
check_equal("ones", strategy.experimental_local_results(counted), [44] * 7 + [24])
parts = strategy.experimental_local_results(twice)
check_equal("sizes of results", [part.shape[0] for part in parts], [11] * 7 + [6])
check_equal("results of dynamic size", tf.concat(parts, 0), 2 * inputs)
check_equal("columns of dynamic size", tf.concat(strategy.experimental_local_results(turned), 1), inputs.T)


@tf.function
def shared(iterator: tf.data.Iterator) -> tuple[tf.Tensor, tf.Tensor]:
    def body(batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.shape(batch[0])[0])
        return tf.transpose(batch[0]) + tf.cast(total, tf.float32), batch[1][:, 0]

    return strategy.run(body, args=(next(iterator),))


@tf.function
def halved(values: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda own: own / 2.0, args=(values,))


@tf.function
def meant(values: tf.Tensor) -> tf.Tensor:
    def body(own: tf.Tensor) -> tf.Tensor:
        return own - tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(own))

    return strategy.run(body, args=(values,))


# The same of a program that the cores run together; then as arguments of others.
columns, last = shared(iterator)
check_equal("columns of dynamic size, with a sum over the cores",
            tf.concat(strategy.experimental_local_results(columns), 1), inputs.T + 83.0)
check_equal("the result behind them", tf.concat(strategy.experimental_local_results(last), 0), targets[:, 0])
check_equal("results of dynamic size as arguments",
            tf.concat(strategy.experimental_local_results(halved(columns)), 1), (inputs.T + 83.0) / 2.0)
check_close("results of dynamic size as arguments, with a sum over the cores",
            tf.concat(strategy.experimental_local_results(meant(twice)), 0), 2 * inputs - 2 * inputs.sum(), 1e-2)


works("loops with `tf.range`", "a step is one program of the board")
works("batches and results whose size is known at run time", "padded to a bound, as on a TPU")


@tf.function
def normalized(iterator: tf.data.Iterator) -> tuple[tf.Tensor, tf.Tensor]:
    def body(batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        images = tf.reshape(batch[0], [-1, 2, 2, 1])
        outputs = tf.compat.v1.nn.fused_batch_norm(images, scale=[1.0], offset=[0.0], epsilon=1e-3, is_training=True)
        return outputs[0], batch[0][8:]

    return strategy.run(body, args=(next(iterator),))


# Means of the examples alone, and a part that is empty on the last core, which has fewer examples than it leaves out.
images, behind = (strategy.experimental_local_results(part) for part in normalized(iterator))
for core, image in enumerate(images):
    own = inputs[11 * core:11 * core + 11]
    check_close("batch normalization of a part", np.asarray(image).reshape(-1, 4),
                (own - own.mean()) / np.sqrt(own.var() + 1e-3), 1e-3)
check_equal("parts without the first 8", [part.shape for part in behind], [(3, 4)] * 7 + [(0, 4)])


@tf.function
def random_numbers() -> tuple[tf.Tensor, tf.Tensor]:
    return strategy.run(lambda: (tf.random.uniform((1000,)), tf.random.normal((1000,), mean=3.0)))


drawn = [np.asarray(part) for _ in range(2) for part in strategy.experimental_local_results(random_numbers()[0])]
assert all(part.min() >= 0 and part.max() < 1 and abs(part.mean() - 0.5) < 0.05 for part in drawn)
check_equal("random numbers of each core and launch differ", len({part.tobytes() for part in drawn}), 16)
normal = np.concatenate([np.asarray(part) for part in strategy.experimental_local_results(random_numbers()[1])])
assert abs(normal.mean() - 3) < 0.05 and abs(normal.std() - 1) < 0.05, (normal.mean(), normal.std())

with tf.device("/TPU:1"):
    eager = [tf.random.uniform((5,)).numpy().tobytes() for _ in range(3)]
check_equal("eager random numbers differ", len(set(eager)), 3)


@tf.function
def random_in_loop() -> tf.Tensor:
    def body() -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, 6, element_shape=(4,)).write(0, tf.random.uniform((4,)))
        for i in tf.range(1, 5):
            row = tf.random.uniform((4,))
            if row[0] > 0.5:
                row += 10.0 * tf.random.uniform((4,)) + 1.0
            rows = rows.write(i, row)
        return rows.write(5, tf.random.uniform((4,))).stack()

    return strategy.run(body)


rows = np.concatenate([np.asarray(part) for _ in range(2)
                       for part in strategy.experimental_local_results(random_in_loop())])
check_equal("random numbers of each iteration, core and launch differ", len({row.tobytes() for row in rows}), 96)
assert (rows.max(axis=1) > 1).any() and (rows.max(axis=1) < 1).any(), "both branches of the loop ran"


@tf.function
def random_condition(x: tf.Tensor) -> tf.Tensor:
    def body(value: tf.Tensor) -> tf.Tensor:
        while tf.reduce_sum(value) + tf.random.uniform(()) < 100.0:
            value += tf.random.uniform((2, 3))
        return value

    return strategy.run(body, args=(x,))


assert 98.5 < first(random_condition(a)).sum() < 106.0, "a loop with random numbers in its condition"


works("`tf.random` and dropout", "from the seed of each launch; other numbers in each iteration of a loop")


@tf.function
def no_arguments() -> tf.Tensor:
    return strategy.run(lambda: tf.range(3) * 2)


check_equal("a function without arguments", no_arguments().values[4], [0, 2, 4])


@tf.function
def unsupported(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: tf.strings.length(tf.strings.as_string(value)), args=(x,))


@tf.function
def half(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(lambda value: tf.cast(value, tf.float16) + tf.constant(1.0, tf.float16), args=(x,))


for _ in range(2):
    check_raises("strings on a core", tf.errors.OpError, ("AsString",), lambda: first(unsupported(a)))
    check_raises("f16 on a core", tf.errors.OpError, ("f16",), lambda: first(half(a)))
check_equal("a step after an error", replicated(a, b).values[7], [[22, 28], [49, 64]])
works("errors of the compiler and of launches", "exceptions with operation and type; the process continues")
print("all passed")
