"""`tpuboard.measure()` around TensorFlow: what it counts is what the program does."""

from __future__ import annotations

import tpuboard

import numpy as np
import tensorflow as tf
from checks import check_equal, open_board, works

STEPS, SIDE = 3, 256
strategy = tf.distribute.TPUStrategy(open_board())
with strategy.scope():
    weights = tf.Variable(np.eye(SIDE, dtype=np.float32))


@tf.function
def step() -> tf.Tensor:
    def body() -> tf.Tensor:
        weights.assign(tf.tanh(tf.matmul(weights, weights)))
        return tf.reduce_sum(weights)

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(body), axis=None)


@tf.function
def mean(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(values)


step()  # it is compiled
found = []
for _ in range(2):
    with tpuboard.measure(output=None, ops=10) as figures:
        for _ in range(STEPS):
            step()
    found.append((figures.programs, figures.cores, [(op.op, op.commands) for op in figures.ops]))
    assert figures.cycles > 0 and figures.host_seconds > 0 and 0 < figures.mxu < 1, str(figures)
    assert 0 <= figures.idle < 1, str(figures)
check_equal("cores that run a step", found[0][1], range(8))
check_equal("programs", found[0][0], 8 * STEPS)
assert any("dot_general" in name for name, _ in found[0][2]), found[0][2]
check_equal("figures of the same steps", found[0] == found[1], True)

with tpuboard.measure(output=None) as figures, tf.device("/TPU:5"):
    tf.matmul(tf.ones((SIDE, SIDE)), tf.ones((SIDE, SIDE))).numpy()
check_equal("the core of an operation", figures.cores, [5])

with tpuboard.measure(output=None) as figures, tf.device("/CPU:0"):
    mean(tf.ones((8, 8))).numpy()
check_equal("programs of the CPU", (figures.programs, figures.cycles), (0, 0))
works("`tpuboard.measure()`", "programs, cores, operations and time; in the process that has the board")
