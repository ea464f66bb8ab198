"""Eager operations with tf.device: placement, types, copies between cores, variables, gradients, errors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, check_raises, open_board, works

open_board()
devices = tf.config.list_logical_devices("TPU")
check_equal("devices", [device.name[-12:] for device in devices], [f"device:TPU:{i}" for i in range(8)])

# The block of the guide on manual placement.
a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
with tf.device("/TPU:0"):
    c = tf.matmul(a, b)
assert c.device.endswith("TPU:0"), c.device
check_equal("manual placement", c, [[22, 28], [49, 64]])

random = np.random.default_rng(0)
x, y = (random.standard_normal((33, 65)).astype(np.float32) for _ in range(2))
with tf.device("/TPU:3"):
    on_core = tf.constant(x)
    check_equal("add", tf.add(on_core, y), x + y)
    check_equal("reshape", tf.reshape(on_core, (65, 33)), x.reshape(65, 33))
    check_equal("transpose", tf.transpose(on_core), x.T)
    check_close("reduce", tf.reduce_sum(on_core, axis=1), x.sum(axis=1), 1e-5)
    check_close("tanh", tf.tanh(on_core), np.tanh(x), 1e-5)
    check_equal("split", tf.concat(tf.split(on_core, 5, axis=1), axis=1), x)
    check_equal("top_k", tf.math.top_k(on_core, 3).indices, np.argsort(-x, axis=1, kind="stable")[:, :3])
for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_, np.float64,
              np.complex64, tf.bfloat16.as_numpy_dtype):
    values = (10 * np.abs(x)).astype(dtype)
    with tf.device("/TPU:2"):
        check_equal(f"values of {np.dtype(dtype).name}", tf.identity(tf.gather(tf.constant(values), [4, 2])),
                    values[[4, 2]])

works("devices, `tf.device`, eager operations", "on any core; one operation is one program")
works("types", "bool, s8 to s64, u8 to u64, bf16, f32, f64, c64; f16 is an error")

# From core to core.
with tf.device("/TPU:6"):
    moved = tf.identity(on_core)
    check_equal("a copy to another core", moved * 2.0, x * np.float32(2))

works("copies between cores", "over the links of the board")

with tf.device("/TPU:5"):
    variable = tf.Variable(x)
    for _ in range(3):
        variable.assign_add(tf.ones_like(variable))
    check_equal("a variable", variable, ((x + np.float32(1)) + np.float32(1)) + np.float32(1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    check_equal("a gradient", tape.gradient(loss, variable), 2 * variable.numpy())

with tf.device("/TPU:1"):
    @tf.function
    def doubled_until(limit: tf.Tensor) -> tf.Tensor:
        value = tf.constant(1.0)
        while value < limit:
            value *= 2.0
        return value

    check_equal("a loop in tf.function", doubled_until(tf.constant(100.0)), 128.0)


def half() -> None:
    with tf.device("/TPU:0"):
        tf.constant([1.0], tf.float16) + tf.constant([2.0], tf.float16)


check_raises("f16", tf.errors.OpError, ("f16",), half)
with tf.device("/TPU:0"):
    check_equal("an operation after an error", a + a, 2 * a.numpy())
works("`tf.function` on one core, loops, gradients, `tf.Variable`", "yes")
print("all passed")
