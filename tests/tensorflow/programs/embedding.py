"""Embeddings in a training on the cores: TPUEmbeddingV0 beside the same tables on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, check_raises, open_board, works
from twins import highest_precision

tpu_embedding = tf.tpu.experimental.embedding
USERS, MOVIES, WIDTH, BATCH, STEPS = 20, 50, 8, 64, 6
resolver = open_board()
strategy = tf.distribute.TPUStrategy(resolver)
random = np.random.default_rng(2)
tables = {"user": random.standard_normal((USERS, WIDTH)).astype(np.float32),
          "movie": random.standard_normal((MOVIES, WIDTH)).astype(np.float32)}
features = {"user": random.integers(0, USERS, (BATCH,)), "watched": random.integers(0, MOVIES, (BATCH, 3)),
            "movie": random.integers(0, MOVIES, (BATCH,))}
ratings = random.random(BATCH).astype(np.float32)


def configuration() -> dict[str, object]:
    """Two features share the table of movies."""
    configs = {name: tpu_embedding.TableConfig(len(rows), WIDTH, tf.constant_initializer(rows), combiner="mean",
                                               name=name) for name, rows in tables.items()}
    return {"user": tpu_embedding.FeatureConfig(configs["user"], name="user"),
            "watched": tpu_embedding.FeatureConfig(configs["movie"], name="watched"),
            "movie": tpu_embedding.FeatureConfig(configs["movie"], name="movie")}


def loss_of(vectors: dict[str, tf.Tensor], rating: tf.Tensor) -> tf.Tensor:
    taste = vectors["user"] + tf.reduce_mean(vectors["watched"], 1)
    errors = (tf.reduce_mean(taste * vectors["movie"], 1) - rating) ** 2
    return tf.nn.compute_average_loss(errors, global_batch_size=BATCH)


def trained_on_cpu(make_optimizer: Callable[[], object]) -> tuple[list[float], list[np.ndarray]]:
    weights = {name: tf.Variable(rows) for name, rows in tables.items()}
    optimizer, losses = make_optimizer(), []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            vectors = {name: tf.nn.embedding_lookup(weights["user" if name == "user" else "movie"], ids)
                       for name, ids in features.items()}
            loss = loss_of(vectors, ratings)
        values = list(weights.values())
        # Keras 3 squares the parts of a sparse gradient one by one, instead of their sum for each row.
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, values)]
        optimizer.apply_gradients(zip(gradients, values, strict=True))
        losses.append(float(loss))
    return losses, [value.numpy() for value in values]


class Trained:
    """The loop of the documentation of TPUEmbeddingV0."""

    def __init__(self, make_optimizer: Callable[[], object]) -> None:
        with strategy.scope():
            self.embedding = tpu_embedding.TPUEmbeddingV0(configuration(), tpu_embedding.SGD(0.1))
            by_name = {table.name: value for table, value in self.embedding.embedding_tables.items()}
            self.values = [by_name[name] for name in tables]
            self.optimizer = make_optimizer()
            self.optimizer.build(self.values)
        dataset = tf.data.Dataset.from_tensor_slices((features, ratings)).batch(BATCH, drop_remainder=True).repeat()
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        self.iterator = iter(strategy.experimental_distribute_dataset(dataset, options=options))

    def step(self, ids: dict[str, tf.Tensor], rating: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(self.embedding(ids), rating)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.values), self.values, strict=True))
        return loss

    @tf.function
    def one(self) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(self.step, args=next(self.iterator)), axis=None)

    def weights(self) -> list[np.ndarray]:
        return [value.numpy() for value in self.values]


def check_v0() -> None:
    optimizers = {"SGD": lambda: tf.keras.optimizers.SGD(2.0), "Adagrad": lambda: tf.keras.optimizers.Adagrad(0.5),
                  "Adam": lambda: tf.keras.optimizers.Adam(0.05), "FTRL": lambda: tf.keras.optimizers.Ftrl(0.5)}
    for name, make_optimizer in optimizers.items():
        trained = Trained(make_optimizer)
        losses = [float(trained.one()) for _ in range(STEPS)]
        expected_losses, expected = trained_on_cpu(make_optimizer)
        assert losses[-1] < losses[0], losses
        check_close(f"TPUEmbeddingV0 with {name}: losses", losses, expected_losses, 1e-4)
        for found, wanted in zip(trained.weights(), expected, strict=True):
            check_close(f"TPUEmbeddingV0 with {name}: table", found, wanted, 1e-4)

    # Tables from a checkpoint.
    options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(embedding=trained.embedding).save(str(Path(folder) / "tables"), options=options)
        other = Trained(lambda: tf.keras.optimizers.SGD(2.0))
        status = tf.train.Checkpoint(embedding=other.embedding).restore(path, options=options)
        status.assert_existing_objects_matched()
        for found, wanted in zip(other.weights(), trained.weights(), strict=True):
            check_equal("a table from a checkpoint", found, wanted)
    check_raises("TPUEmbeddingV0 without a strategy", RuntimeError, ("under TPUStrategy",),
                 lambda: tpu_embedding.TPUEmbeddingV0(configuration(), tpu_embedding.SGD(0.1)))


with highest_precision():
    check_v0()
works("`TPUEmbeddingV0` with SGD, Adagrad, Adam, FTRL; its checkpoints", "a table is a variable; dense ids")
print("all passed")
