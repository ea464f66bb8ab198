"""`steps_per_execution`: several steps in a call of Python train as steps in calls of their own do, bit by bit.

Usage: executions.py [--steps 50] [--dispatch CYCLES]
CYCLES: host.dispatch_cycles of the board. TensorFlow launches each step, in a loop of its own: so the cores run as many
programs, and the host spends the cycles for each step, as the timing model says of a launch.
"""

from __future__ import annotations

import argparse

import tpuboard

import numpy as np
import tensorflow as tf
from checks import check_equal, open_board, works

BATCH, EPOCHS = 64, 2
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--dispatch", type=int, default=0)
options = parser.parse_args()
strategy = tf.distribute.TPUStrategy(open_board())
random = np.random.default_rng(3)
labels = random.integers(0, 4, BATCH * options.steps)
inputs = (np.eye(4, 12)[labels] + random.standard_normal((len(labels), 12))).astype(np.float32)
layers = tf.keras.layers


def train(steps: int) -> tuple[list[np.ndarray], list[float], list[tuple[int, int]]]:
    """Weights and optimizer's state at the end, the loss of each epoch, and its programs and simulated cycles."""
    tf.keras.utils.set_random_seed(5)
    with strategy.scope():
        model = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"), layers.Dense(4)])
        model.compile(optimizer=tf.keras.optimizers.Adam(0.01), steps_per_execution=steps, jit_compile=False,
                      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    epochs, losses = [], []
    for _ in range(EPOCHS):
        with tpuboard.measure(output=None) as figures:
            losses += model.fit(inputs, labels, batch_size=BATCH, shuffle=False, verbose=0).history["loss"]
        epochs.append((figures.programs, figures.cycles))
    state = [*model.get_weights(), *(variable.numpy() for variable in model.optimizer.variables())]
    return state, losses, epochs


one, several = train(1), train(options.steps)
check_equal("number of arrays", len(one[0]), len(several[0]))
for number, (each, other) in enumerate(zip(one[0], several[0], strict=True)):
    check_equal(f"array {number}", other, each)
check_equal("losses", several[1], one[1])
(programs, cycles), (fewer_programs, fewer_cycles) = one[2][-1], several[2][-1]
print(f"an epoch in {options.steps} calls: {programs} programs, {cycles} cycles; in one: {fewer_programs} programs, "
      f"{fewer_cycles} cycles")
assert min(programs, fewer_programs) >= 8 * options.steps, "a step is a program of each core"
check_equal("programs of an epoch", fewer_programs <= programs, True)
check_equal("simulated time of an epoch", fewer_cycles <= 1.01 * cycles, True)
if options.dispatch:
    check_equal("dispatch cost", fewer_cycles >= options.steps * options.dispatch, True)
works("`steps_per_execution=50`", "weights as with one step, bit by bit; [each step is a launch](#speed)")
