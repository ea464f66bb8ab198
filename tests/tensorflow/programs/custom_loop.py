"""Keras 2 or 3: a custom training loop with metrics, beside the same on the CPU; several strategies."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, open_board, works
from twins import IS_2, check_weights, classes, highest_precision, twins

layers = tf.keras.layers
EXAMPLES, BATCH, STEPS = 256, 64, 12
inputs, labels = classes(EXAMPLES)
resolver = open_board()
strategy = tf.distribute.TPUStrategy(resolver)
tf.keras.utils.set_random_seed(7)


def make_model() -> tf.keras.Model:
    return tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(16, activation="relu"), layers.Dense(4)])


def reset(metric: tf.keras.metrics.Metric) -> None:
    metric.reset_states() if IS_2 else metric.reset_state()


class Loop:
    """The guide's loop. `strategy` may be the default one: then it runs on the CPU."""

    def __init__(self, over: tf.distribute.Strategy, model: tf.keras.Model) -> None:
        self.over, self.model = over, model
        with over.scope():
            self.optimizer = tf.keras.optimizers.Adam(0.01)
            self.loss = tf.keras.metrics.Mean("loss", dtype=tf.float32)
            self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy("accuracy", dtype=tf.float32)
            self.top = tf.keras.metrics.SparseTopKCategoricalAccuracy(2, name="top", dtype=tf.float32)
            self.optimizer.build(model.trainable_variables)
        dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(BATCH, drop_remainder=True).repeat()
        self.iterator = iter(over.experimental_distribute_dataset(dataset))

    def step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> None:
        x, y = batch
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        self.loss.update_state(loss * self.over.num_replicas_in_sync)
        self.accuracy.update_state(y, logits)
        self.top.update_state(y, logits)

    @tf.function
    def one(self) -> None:
        self.over.run(self.step, args=(next(self.iterator),))

    @tf.function
    def several(self, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            self.over.run(self.step, args=(next(self.iterator),))

    def results(self) -> list[float]:
        found = [float(metric.result()) for metric in (self.loss, self.accuracy, self.top)]
        for metric in (self.loss, self.accuracy, self.top):
            reset(metric)
        return found

    def train(self) -> list[list[float]]:
        """Metrics of each step, and of as many steps in one call."""
        found = []
        for _ in range(STEPS):
            self.one()
            found.append(self.results())
        self.several(tf.constant(STEPS))
        return [*found, self.results()]


def same_on_the_cpu(over: tf.distribute.Strategy, what: str, tolerance: float) -> None:
    on_cores, on_cpu = twins(over, make_model)
    found, expected = (np.asarray(Loop(*each).train()) for each in
                       ((over, on_cores), (tf.distribute.get_strategy(), on_cpu)))
    check_close(f"losses of {what}", found[:, 0], expected[:, 0], tolerance)
    # An example whose two largest logits are nearly equal may change sides.
    check_close(f"accuracies of {what}", found[:, 1:], expected[:, 1:], max(tolerance, 1.5 / BATCH))
    check_weights(f"weights of {what}", on_cores, on_cpu, tolerance)


def of_cores(cores: list[int]) -> tf.distribute.TPUStrategy:
    """A strategy of these cores: a replica for each."""
    coordinates = [[[core // 2 % 2, core // 4, 0, core % 2]] for core in cores]
    assignment = tf.tpu.experimental.DeviceAssignment(tf.tpu.experimental.initialize_tpu_system(resolver), coordinates)
    return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)


with highest_precision():
    same_on_the_cpu(strategy, "a loop in highest precision", 1e-3)
same_on_the_cpu(strategy, "a loop", 2e-2)


@tf.function
def summed(over: tf.distribute.Strategy, x: tf.Tensor) -> tf.Tensor:
    return over.run(lambda value: tf.distribute.get_replica_context().all_reduce("SUM", value * value), args=(x,))


works("custom training loops with metrics, also several steps in a call", "Keras 2 and 3, losses of the CPU")

# Strategies over all and over some cores take turns.
part = of_cores([2, 3, 6])
again = tf.distribute.TPUStrategy(resolver)
for _ in range(2):
    for over, cores in ((strategy, range(8)), (part, (2, 3, 6)), (again, range(8))):
        check_equal("replicas of a strategy", over.num_replicas_in_sync, len(cores))
        results = over.experimental_local_results(summed(over, tf.constant(3.0)))
        check_equal("a sum over its replicas", results, len(cores) * [9.0 * len(cores)])
        with over.scope():
            variable = tf.Variable(1.0)
        check_equal("cores of a strategy", [int(value.device[-1]) for value in variable.values], list(cores))
with tf.distribute.OneDeviceStrategy("/TPU:5").scope():
    variable = tf.Variable(2.0)
assert variable.device.endswith("TPU:5"), variable.device
check_equal("a strategy of one core", tf.distribute.OneDeviceStrategy("/TPU:5").run(lambda: variable * 4.0), 8.0)
works("several strategies in a process, strategies over some cores, `OneDeviceStrategy`", "yes")
print("all passed")
