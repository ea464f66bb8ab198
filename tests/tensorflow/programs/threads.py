"""Steps of eight Python threads at a time: each gets its own results, from one program and from several."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from checks import check_equal, open_board, works

strategy = tf.distribute.TPUStrategy(open_board())
THREADS, STEPS = 8, 6
with strategy.scope():
    offset = tf.Variable(0.5)
    own_totals = [tf.Variable(0.0) for _ in range(THREADS)]


@tf.function
def summed(value: tf.Tensor) -> tf.Tensor:
    def body(own: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own + offset)

    return strategy.run(body, args=(value,))


@tf.function
def sized(value: tf.Tensor) -> tf.Tensor:
    # Results whose size is known at run time only: a thread of TensorFlow waits for each.
    return strategy.run(lambda own: tf.boolean_mask(tf.range(16.0) + own, tf.range(16.0) < own), args=(value,))


def training(total: tf.Variable) -> Callable[[tf.Tensor], None]:
    @tf.function
    def train(value: tf.Tensor) -> None:
        def body(own: tf.Tensor) -> None:
            total.assign_add(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own))

        for _ in tf.range(3):
            strategy.run(body, args=(value,))

    return train


trains = [training(total) for total in own_totals]
wrong: list[str] = []


def work(thread: int) -> None:
    try:
        for step in range(STEPS):
            value = float(10 * thread + step)
            found = [part.numpy() for part in strategy.experimental_local_results(summed(tf.constant(value)))]
            np.testing.assert_array_equal(found, [8 * (value + 0.5)] * 8)
            trains[thread](tf.constant(value))
            count = float((thread + step) % 5 + 1)
            for part in strategy.experimental_local_results(sized(tf.constant(count))):
                np.testing.assert_array_equal(part, np.arange(count) + count)
    except Exception as error:  # of any kind: all of them are shown
        wrong.append(f"thread {thread}: {type(error).__name__}: {error}")


for function in (summed, sized, *trains):  # traced once: what is tested is the steps
    function.get_concrete_function(tf.TensorSpec((), tf.float32))
threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert not wrong, "\n".join(wrong)
print(f"{THREADS} threads: passed")
check_equal("their variables", [total.numpy() for total in own_totals],
            [sum(3 * 8.0 * (10 * thread + step) for step in range(STEPS)) for thread in range(THREADS)])
works("steps from several Python threads", "each meets its own shares, in any order")
print("all passed")
