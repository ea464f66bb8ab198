"""A program that others are killed beside, or that is: steps on eight cores with a variable of 4 MB on each.

Usage: long_run.py [--steps N] [--fit | --leave]
Prints "ready" after the first step and at the end "sum VALUE", what the steps have added. --fit: training by Keras
without an end in sight instead; --leave: the steps are dispatched, and the program ends without waiting for them.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tensorflow as tf
from checks import open_board


def fit(strategy: tf.distribute.Strategy) -> None:
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.InputLayer((16,)), tf.keras.layers.Dense(4)])
        model.compile(optimizer="adam", loss="mse", jit_compile=False)
    ready = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, _: print("ready") if epoch == 0 else None)
    data = np.ones((800, 16), np.float32)
    model.fit(data, data[:, :4], batch_size=80, epochs=100_000, verbose=0, callbacks=[ready])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--leave", action="store_true")
    options = parser.parse_args()
    strategy = tf.distribute.TPUStrategy(open_board())
    if options.fit:
        fit(strategy)
        return
    with strategy.scope():
        total = tf.Variable(tf.zeros([1024, 1024]))

    @tf.function
    def step() -> tf.Tensor:
        def add() -> tf.Tensor:
            total.assign_add(tf.ones([1024, 1024]))
            return tf.distribute.get_replica_context().all_reduce("sum", total[0, 0])
        return strategy.run(add)

    step()
    print("ready", flush=True)
    for _ in range(options.steps - 1):
        step()
    if options.leave:
        sys.exit(0)
    print(f"sum {float(total[7, 7]):.0f}", flush=True)


if __name__ == "__main__":
    main()
