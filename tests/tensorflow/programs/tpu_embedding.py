"""TPUEmbedding: tables on the cores beside the same lookups and optimizers in NumPy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, check_raises, open_board, works
from twins import highest_precision

tpu_embedding = tf.tpu.experimental.embedding
WIDTH, BATCH, STEPS, LONGEST = 8, 64, 4, 3
ROWS = {"user": 21, "movie": 50, "genre": 10}  # 21 does not divide by the cores
TABLE_OF = {"user": "user", "watched": "movie", "seen": "movie", "genre": "genre", "history": "movie"}
random = np.random.default_rng(2)
initial = {name: random.standard_normal((rows, WIDTH)).astype(np.float32) for name, rows in ROWS.items()}
ratings = random.random(BATCH).astype(np.float32)
dense = {"user": random.integers(0, ROWS["user"], BATCH), "watched": random.integers(0, ROWS["movie"], (BATCH, 3, 1))}
lists = {name: [list(random.integers(0, ROWS[TABLE_OF[name]], random.integers(0, 6))) for _ in range(BATCH)]
         for name in ("seen", "genre", "history")}
weights = {name: [list(random.random(len(ids)).astype(np.float32) + 0.1) for ids in rows]
           for name, rows in lists.items()}
RATE = 0.1
OPTIMIZERS = {
    "SGD": lambda: tpu_embedding.SGD(RATE, low_dimensional_packing_status=0),
    "Adagrad": lambda: tpu_embedding.Adagrad(RATE, 0.2, clipvalue=(-0.05, 0.05),
                                             low_dimensional_packing_status=0),
    "Adam": lambda: tpu_embedding.Adam(RATE, low_dimensional_packing_status=0),
    "FTRL": lambda: tpu_embedding.FTRL(RATE, l1_regularization_strength=0.001, l2_regularization_strength=0.01,
                                       low_dimensional_packing_status=0),
}


def updated(name: str, arrays: list[np.ndarray], gradient: np.ndarray) -> list[np.ndarray]:
    """By the formulas of optimization_parameters.proto."""
    table, *slots = arrays
    if name == "SGD":
        return [table - RATE * gradient]
    if name == "Adagrad":
        gradient = np.clip(gradient, -0.05, 0.05)
        squares = slots[0] + gradient ** 2
        return [table - RATE * gradient / np.sqrt(squares), squares]
    if name == "Adam":
        momenta, velocities = 0.9 * slots[0] + 0.1 * gradient, 0.999 * slots[1] + 0.001 * gradient ** 2
        return [table - RATE * momenta / np.sqrt(velocities + 1e-14), momenta, velocities]
    squares = slots[0] + gradient ** 2
    linear = slots[1] + gradient - (np.sqrt(squares) - np.sqrt(slots[0])) / RATE * table
    quadratic = np.sqrt(squares) / RATE + 2 * 0.01
    return [np.where(np.abs(linear) > 0.001, (np.sign(linear) * 0.001 - linear) / quadratic, 0), squares, linear]


def slots_of(name: str, table: np.ndarray) -> list[np.ndarray]:
    first = {"SGD": [], "Adagrad": [0.2], "Adam": [0, 0], "FTRL": [0.1, 0]}[name]
    return [np.full_like(table, value) for value in first]


def shares(combiner: str, weighted: bool) -> dict[str, np.ndarray]:
    """By feature: for each sample and row of the table, with what factor the row is in the vector of the sample."""
    made = {"user": np.eye(ROWS["user"])[dense["user"]], "watched": np.eye(ROWS["movie"])[dense["watched"][..., 0]]}
    for name, rows in lists.items():
        size = ROWS[TABLE_OF[name]]
        if name == "history":
            made[name] = np.zeros((BATCH, LONGEST, size))
            for sample, ids in enumerate(rows):
                for place, number in enumerate(ids[:LONGEST]):
                    made[name][sample, place, number] = 1
            continue
        made[name] = np.zeros((BATCH, size))
        for sample, ids in enumerate(rows):
            factors = np.array(weights[name][sample] if weighted else np.ones(len(ids)))
            divisor = {"mean": factors.sum(), "sqrtn": np.sqrt((factors ** 2).sum()), "sum": 1}[combiner]
            for number, factor in zip(ids, factors, strict=True):
                made[name][sample, number] += factor / divisor
    return made


def loss_of(vectors: dict[str, tf.Tensor], rating: tf.Tensor) -> tf.Tensor:
    taste = vectors["user"] + tf.reduce_mean(vectors["watched"], 1) + vectors["genre"]
    other = vectors["seen"] + tf.reduce_sum(vectors["history"], 1)
    return tf.reduce_sum((tf.reduce_mean(taste * other, 1) - rating) ** 2) / BATCH


def expected_training(name: str, combiner: str, weighted: bool) -> tuple[list[float], dict[str, np.ndarray]]:
    arrays = {table: [rows.astype(np.float64), *slots_of(name, rows.astype(np.float64))]
              for table, rows in initial.items()}
    factors, losses = shares(combiner, weighted), []
    for _ in range(STEPS):
        vectors = {feature: tf.constant(factor @ arrays[TABLE_OF[feature]][0]) for feature, factor in factors.items()}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = loss_of(vectors, tf.constant(ratings, tf.float64))
        gradients = tape.gradient(loss, vectors)
        losses.append(float(loss))
        for table, old in arrays.items():
            own = [feature for feature in factors if TABLE_OF[feature] == table]
            gradient = sum(np.tensordot(factors[f], gradients[f].numpy(), (range(factors[f].ndim - 1),) * 2)
                           for f in own)
            touched = sum(factors[f].reshape(-1, ROWS[table]).sum(0) for f in own)[:, None] > 0
            arrays[table] = [np.where(touched, new, was)
                             for new, was in zip(updated(name, old, gradient), old, strict=True)]
    return losses, {table: values[0] for table, values in arrays.items()}


def configuration(combiner: str = "mean") -> dict[str, object]:
    """One combiner: TensorFlow 2.20 passes that of the last table for all of them."""
    tables = {name: tpu_embedding.TableConfig(rows, WIDTH, tf.constant_initializer(initial[name]),
                                              combiner=combiner, name=name) for name, rows in ROWS.items()}
    return {name: tpu_embedding.FeatureConfig(tables[table], LONGEST if name == "history" else 0, name=name)
            for name, table in TABLE_OF.items()}


def batch_of(sparse: bool, weighted: bool) -> tuple[dict[str, object], dict[str, object], np.ndarray]:
    """Features, weights and ratings. TensorFlow takes ragged or sparse ids, but not both in a call."""
    ids = {name: tf.ragged.constant(rows, tf.int64) for name, rows in lists.items()}
    factors = {name: tf.ragged.constant(rows, tf.float32) for name, rows in weights.items()}
    if sparse:
        ids = {name: rows.to_sparse() for name, rows in ids.items()}
        factors = {name: rows.to_sparse() for name, rows in factors.items()}
    factors.pop("history")
    return dense | ids, (factors if weighted else {}), ratings


def assignment_of(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> tf.tpu.experimental.DeviceAssignment:
    """A replica on each core, as TPUStrategy has them without an assignment."""
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=8)


class Trained:
    """The loop of the documentation of TPUEmbedding."""

    def __init__(self, optimizer: object, combiner: str = "mean", sparse: bool = False,
                 weighted: bool = False, assigned: bool = False) -> None:
        resolver = open_board()
        self.strategy = tf.distribute.TPUStrategy(resolver, assignment_of(resolver) if assigned else None)
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(configuration(combiner), optimizer)
        check_equal("hardware for embeddings", self.strategy.extended.tpu_hardware_feature.embedding_feature.name, "V1")
        dataset = tf.data.Dataset.from_tensors(batch_of(sparse, weighted)).unbatch().batch(BATCH, True).repeat()
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        self.iterator = iter(self.strategy.experimental_distribute_dataset(dataset, options=options))

    def step(self, rating: tf.Tensor) -> tf.Tensor:
        vectors = self.embedding.dequeue()
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = loss_of(vectors, rating)
        self.embedding.apply_gradients(tape.gradient(loss, vectors))
        return loss

    def enqueue(self, training: bool) -> tf.Tensor:
        features, factors, rating = next(self.iterator)
        if factors:
            factors = {name: factors.get(name) for name in features}
        self.embedding.enqueue(features, factors or None, training=training)
        return rating

    @tf.function
    def train(self) -> tf.Tensor:
        rating = self.enqueue(True)
        return self.strategy.reduce("SUM", self.strategy.run(self.step, (rating,)), axis=None)

    @tf.function
    def evaluate(self) -> tf.Tensor:
        rating = self.enqueue(False)
        losses = self.strategy.run(lambda given: loss_of(self.embedding.dequeue(), given), (rating,))
        return self.strategy.reduce("SUM", losses, axis=None)


def tables_of(path: str, optimizer: object) -> dict[str, np.ndarray]:
    """Of a checkpoint, as it is read where there is no TPU."""
    other = tpu_embedding.TPUEmbedding(configuration(), optimizer)
    other.build()
    tf.train.Checkpoint(embedding=other).restore(path).assert_existing_objects_matched()
    return {table.name: value.numpy() for table, value in other.embedding_tables.items()}


def check_optimizers(folder: Path) -> None:
    for name, combiner, sparse, weighted in (("SGD", "mean", True, False), ("Adagrad", "sqrtn", False, True),
                                             ("Adam", "sum", True, True), ("FTRL", "mean", False, False)):
        make = OPTIMIZERS[name]
        trained = Trained(make(), combiner, sparse, weighted)
        losses = [float(trained.train()) for _ in range(STEPS)]
        expected_losses, expected = expected_training(name, combiner, weighted)
        what = f"TPUEmbedding with {name}, {combiner} of {'sparse' if sparse else 'ragged'} ids"
        check_close(f"{what}: losses", losses, expected_losses, 1e-4)
        path = tf.train.Checkpoint(embedding=trained.embedding).save(str(folder / name))
        for table, rows in tables_of(path, make()).items():
            check_close(f"{what}: table {table}", rows, expected[table], 1e-4)

    # From the checkpoint it goes on as if it had not stopped, with the slots of the optimizer.
    next_loss = float(trained.train())
    again = Trained(make())
    checkpoint = tf.train.Checkpoint(embedding=again.embedding)
    checkpoint.restore(path)
    check_equal("the step behind a checkpoint", float(again.train()), next_loss)
    loss = float(again.evaluate())
    check_equal("an evaluation changes nothing", float(again.evaluate()), loss)
    check_equal("a training behind an evaluation", float(again.train()), loss)


def check_rates() -> None:
    rate = tf.Variable(0.0)
    trained = Trained(tpu_embedding.SGD(lambda: rate.read_value(), low_dimensional_packing_status=0))
    first = float(trained.train())
    check_equal("a learning rate of 0", float(trained.train()), first)
    rate.assign(RATE)
    losses = [float(trained.train()) for _ in range(STEPS)]
    check_close("a learning rate that becomes another one", losses, expected_training("SGD", "mean", False)[0], 1e-4)


class LookedUp:
    """Row r of the table has numbers r: so a step tells which ids it got. The table is 0, 1, ... 15."""

    def __init__(self) -> None:
        self.strategy = tf.distribute.TPUStrategy(open_board())
        rows = np.repeat(np.arange(16, dtype=np.float32)[:, None], WIDTH, 1)
        table = tpu_embedding.TableConfig(16, WIDTH, tf.constant_initializer(rows), name="number")
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(
                {"id": tpu_embedding.FeatureConfig(table, name="id")},
                tpu_embedding.SGD(RATE, low_dimensional_packing_status=0))
        self.embedding.build(per_replica_batch_size=2)
        self.checkpoint = tf.train.Checkpoint(embedding=self.embedding)

    def ids(self, number: int, wrong: int | None = None) -> tf.distribute.DistributedValues:
        """The same id for all samples; `wrong`: that of core 3."""
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant([number, number] if wrong is None or context.replica_id_in_sync_group != 3
                                        else [number, wrong], tf.int64))

    @tf.function
    def enqueue(self, ids: tf.Tensor) -> None:
        self.embedding.enqueue({"id": ids}, training=False)

    @tf.function
    def enqueue_rows(self, ids: tf.RaggedTensor) -> None:
        self.embedding.enqueue({"id": ids}, training=False, device=self.strategy.extended.worker_devices[0])

    @tf.function
    def look_up(self) -> tf.distribute.DistributedValues:
        return self.strategy.run(lambda: self.embedding.dequeue()["id"][:, 0])

    @tf.function
    def both(self, ids: tf.Tensor) -> tf.distribute.DistributedValues:
        self.embedding.enqueue({"id": ids}, training=False)
        return self.strategy.run(lambda: self.embedding.dequeue()["id"][:, 0])

    @tf.function
    def train(self) -> None:
        def step() -> None:
            self.embedding.apply_gradients({"id": tf.zeros_like(self.embedding.dequeue()["id"])})

        self.strategy.run(step)

    @tf.function
    def train_by_host(self, ids: tf.Tensor, fails: tf.Tensor) -> None:
        """The gradients, ones, come from the host, which may fail to give them."""
        def on_host(shape: tf.Tensor, fail: tf.Tensor) -> tf.Tensor:
            def given(like: tf.Tensor, fail: tf.Tensor) -> np.ndarray:
                if fail:
                    raise ValueError("no gradients")
                return np.ones_like(like)

            return tf.ensure_shape(tf.py_function(given, [shape, fail], tf.float32), [2, WIDTH])

        def step(fail: tf.Tensor) -> None:
            vectors = self.embedding.dequeue()["id"]
            self.embedding.apply_gradients({"id": tf.compat.v1.tpu.outside_compilation(on_host, vectors, fail)})

        self.embedding.enqueue({"id": ids}, training=True)
        self.strategy.run(step, (fails,))

    def check(self, what: str, found: tf.distribute.DistributedValues, number: int) -> None:
        check_equal(what, [value.numpy() for value in self.strategy.experimental_local_results(found)],
                    [[number] * 2] * 8)


def check_lost_batches(folder: Path) -> None:
    table = LookedUp()
    path = table.checkpoint.save(str(folder / "number"))
    refused = ("a batch of TPUEmbedding is lost", "restore()", "initialize_tpu_system")

    def check_refused(what: str, kind: type[tf.errors.OpError]) -> None:
        check_raises(f"an enqueue behind {what}", kind, refused, lambda: table.enqueue(table.ids(2)))
        check_raises(f"a step behind {what}", kind, refused, table.look_up)
        table.checkpoint.restore(path)

    # The other cores have their ids of the batch.
    wrong = table.ids(1, wrong=99)
    check_raises("an id that the table does not have", tf.errors.InvalidArgumentError,
                 ("feature id of table number", "found the id 99, expected 0 to 15"), lambda: table.enqueue(wrong))
    check_refused("a wrong id", tf.errors.InvalidArgumentError)
    table.enqueue(table.ids(2))
    table.check("the ids behind a wrong one", table.look_up(), 2)

    # Some of the steps wait for the batch, and some of the cores enqueue it when it is lost.
    for number in range(3, 7):
        check_raises("a wrong id beside its step", tf.errors.InvalidArgumentError, ("found the id 99",),
                     lambda: table.both(wrong))
        check_raises("the next step", tf.errors.InvalidArgumentError, refused, lambda: table.both(table.ids(2)))
        table.checkpoint.restore(path)
        table.check("the step behind it", table.both(table.ids(number)), number)

    rows = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3], tf.int64), tf.constant([0, 40_000_000, 3], tf.int64),
                                           validate=False)
    check_raises("row splits that are not in order", tf.errors.InvalidArgumentError,
                 ("feature id of table number", "the row splits are not in order"), lambda: table.enqueue_rows(rows))
    check_refused("wrong row splits", tf.errors.InvalidArgumentError)
    table.check("the step behind wrong row splits", table.both(table.ids(7)), 7)

    # A batch that no step has taken is not used after an error, either.
    table.enqueue(table.ids(8))
    check_raises("gradients without a training", tf.errors.FailedPreconditionError, ("training=True",),
                 table.train)
    table.checkpoint.restore(path)
    table.check("the step behind it", table.both(table.ids(9)), 9)


def check_failed_step(folder: Path) -> None:
    tf.config.set_soft_device_placement(True)  # for the part on the host
    table = LookedUp()
    learned = np.float32(RATE) * np.float32(16)  # each of 16 samples has the id
    table.train_by_host(table.ids(3), tf.constant(False))
    expected = np.arange(16, dtype=np.float32)
    expected[3] -= learned
    for number in range(2):
        check_raises("a step whose part on the host fails", tf.errors.OpError, ("no gradients",),
                     lambda: table.train_by_host(table.ids(3), tf.constant(True)))
        reader = tf.train.load_checkpoint(table.checkpoint.save(str(folder / f"failed{number}")))
        rows = [reader.get_tensor(name) for name, shape in reader.get_variable_to_shape_map().items()
                if shape == [16, WIDTH]]
        check_equal("the tables behind it", rows, [np.repeat(expected[:, None], WIDTH, 1)])
    table.train_by_host(table.ids(5), tf.constant(False))


def check_errors() -> None:
    trained = Trained(OPTIMIZERS["SGD"](), sparse=True, assigned=True)
    check_close("a training behind the errors, with a device assignment", float(trained.train()),
                expected_training("SGD", "mean", False)[0][0], 1e-4)

    def momentum() -> None:
        resolver = open_board()
        with tf.distribute.TPUStrategy(resolver).scope():
            embedding = tpu_embedding.TPUEmbedding(
                configuration(), tpu_embedding.AdagradMomentum(0.1, low_dimensional_packing_status=0))
            embedding.build(per_replica_batch_size=BATCH // 8)

    check_raises("an optimizer that is not supported", tf.errors.UnimplementedError,
                 ("table genre", "expected tf.tpu.experimental.embedding.SGD"), momentum)


with highest_precision(), tempfile.TemporaryDirectory() as name_of_folder:
    check_optimizers(Path(name_of_folder))
    check_rates()
    check_lost_batches(Path(name_of_folder))
    check_errors()
    check_failed_step(Path(name_of_folder))
works("`TPUEmbedding`: SGD, Adagrad, Adam, FTRL", "[tables by row on all cores](#tables-of-tpuembedding)")
works("`TPUEmbedding`: dense, ragged, sparse ids, sequences", "mean, sum and sqrtn, with weights")
works("`TPUEmbedding`: checkpoints, evaluation, learning rates by step", "training continues bit by bit")
works("`TPUEmbedding`: a step that fails on the host", "exception; the tables stay as they were")
works("`TPUEmbedding`: wrong ids, other optimizers", "exceptions; training continues from a checkpoint")
print("all passed")
