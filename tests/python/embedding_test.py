"""tpuboard.embedding against tables in NumPy: on the board, on JAX's CPU backend, on one core and on eight.

Options: --huge (steps on 20 GiB of table with a bound on the memory of this process, and the program of the docs).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import sys
import unittest
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

from tpuboard import embedding

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

BATCH = 32
SQUARES = 0.1  # Adagrad's first accumulator
# Sums of up to a hundred f32 of size 4, each rounded by 2^-24 of it: 2.4e-5 at worst for a gradient, of which a step
# takes a small part.
CLOSE = 2e-5


def mesh_of(platform: str, cores: int) -> Mesh:
    return Mesh(np.array(jax.devices(platform)[:cores]), ("core",))


def whole_numbers(key, shape, dtype):
    """Initial values with few bits, so that sums of them are exact in any order."""
    return (jax.random.bits(key, shape) % 64).astype(dtype) / 16 - 2


def make_ids(seed: int, vocabulary: int, max_ids: int, weighted: bool = False) -> embedding.Ids:
    """Many duplicates, some empty lists; what lies behind the end of a list is no id."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, max_ids + 1, BATCH).astype(np.int32)
    lengths[:2] = 0, max_ids
    ids = (vocabulary * random.random((BATCH, max_ids)) ** 3).astype(np.int32)
    ids[np.arange(max_ids) >= lengths[:, None]] = -7
    weights = random.integers(1, 9, ids.shape).astype(np.float32) / 4 if weighted else None
    return embedding.Ids(ids, lengths, weights)


def step_of(layer: embedding.Embedding):
    """Loss: half the squared distance of the vectors from targets, summed."""
    def step(state, ids, targets):
        vectors, lookup = layer.lookup(state, ids)
        gradients = {name: vectors[name] - targets[name] for name in vectors}
        return layer.apply_gradients(state, lookup, gradients), vectors, lookup.stats
    return jax.jit(step, donate_argnums=0)


def run(layer: embedding.Embedding, ids, targets, steps: int = 1, state=None):
    """States, vectors and counts after steps on the same examples."""
    state = layer.init() if state is None else state
    cut = NamedSharding(layer.mesh, P("core"))
    ids, targets = jax.device_put((ids, targets), cut)
    step = step_of(layer)
    for _ in range(steps):
        state, vectors, stats = step(state, ids, targets)
    return state, jax.tree.map(np.asarray, vectors), stats


class Dense:
    """A table of one core in f64, updated by the same rules."""

    def __init__(self, config: embedding.TableConfig, rows: np.ndarray) -> None:
        self.config, self.rows = config, rows.astype(np.float64)
        self.slots = {name: np.zeros_like(self.rows) for name in config.optimizer.slots}

    def coefficients(self, ids: embedding.Ids) -> np.ndarray:
        """[batch, rows]"""
        out = np.zeros((len(ids.ids), len(self.rows)))
        for b, values in enumerate(ids.ids):
            weights = np.ones(len(values)) if ids.weights is None else ids.weights[b].astype(np.float64)
            total = {"sum": 1.0, "mean": weights[:ids.lengths[b]].sum(),
                     "sqrtn": (weights[:ids.lengths[b]] ** 2).sum() ** 0.5}[self.config.combiner]
            for value, weight in zip(values[:ids.lengths[b]], weights, strict=False):
                out[b, value] += weight / total
        return out

    def update(self, gradient: np.ndarray, touched: np.ndarray, step: int) -> None:
        rule, slots = self.config.optimizer, self.slots
        gradient = gradient[touched]
        if isinstance(rule, embedding.SGD):
            change = -rule.learning_rate * gradient
        elif isinstance(rule, embedding.Adagrad):
            slots["accumulator"][touched] += gradient**2
            change = -rule.learning_rate * gradient / np.sqrt(slots["accumulator"][touched] + SQUARES)
        else:
            slots["mean"][touched] = 0.9 * slots["mean"][touched] + 0.1 * gradient
            slots["variance"][touched] = 0.999 * slots["variance"][touched] + 0.001 * gradient**2
            variance = slots["variance"][touched] / (1 - 0.999 ** (step + 1))
            change = -rule.learning_rate * slots["mean"][touched] / (1 - 0.9 ** (step + 1)) / (variance**0.5 + 1e-8)
        self.rows[touched] += change


def dense_run(layer: embedding.Embedding, ids, targets, steps: int):
    """What `run` gives, of the tables in NumPy: rows of each table, vectors."""
    state = layer.init()
    tables = {}
    for feature in layer.features.values():
        config = feature.table
        rows = np.asarray(layer.rows(state, config.name, np.arange(config.vocabulary)))
        tables[config.name] = Dense(config, rows)
    for step in range(steps):
        vectors, gradients = {}, {name: np.zeros_like(table.rows) for name, table in tables.items()}
        touched = {name: np.zeros(len(table.rows), bool) for name, table in tables.items()}
        for name, feature in layer.features.items():
            table = tables[feature.table.name]
            share = table.coefficients(ids[name])
            vectors[name] = share @ table.rows
            gradients[feature.table.name] += share.T @ (vectors[name] - targets[name])
            touched[feature.table.name] |= share.any(axis=0)
        for name, table in tables.items():
            table.update(gradients[name], touched[name], step)
    return {name: table.rows for name, table in tables.items()}, vectors


def three_features(optimizer, initializer=None) -> dict[str, embedding.FeatureConfig]:
    """Two tables that are stacked, one of them looked up by two features, and one of another dim."""
    def table(name: str, vocabulary: int, dim: int, combiner: str) -> embedding.TableConfig:
        return embedding.TableConfig(name, vocabulary, dim, combiner, optimizer, initializer)
    items = table("items", 61, 8, "mean")
    return {"clicked": embedding.FeatureConfig(items, 5), "bought": embedding.FeatureConfig(items, 3),
            "user": embedding.FeatureConfig(table("users", 100, 8, "sum"), 2),
            "words": embedding.FeatureConfig(table("words", 40, 12, "sqrtn"), 6)}


def data_of(features, seed: int = 1):
    random = np.random.default_rng(seed)
    ids = {name: make_ids(seed + at, feature.table.vocabulary, feature.max_ids, weighted=at % 2 == 1)
           for at, (name, feature) in enumerate(features.items())}
    targets = {name: random.integers(-8, 9, (BATCH, feature.table.dim)).astype(np.float32) / 4
               for name, feature in features.items()}
    return ids, targets


class Numbers(unittest.TestCase):
    """Values after steps."""

    def test_equals_dense_tables(self) -> None:
        for optimizer in (embedding.SGD(0.05), embedding.Adagrad(0.2, SQUARES), embedding.Adam(0.1)):
            features = three_features(optimizer)
            ids, targets = data_of(features)
            with self.subTest(optimizer=optimizer):
                layer = embedding.Embedding(features, mesh_of("tpu", 8), batch=BATCH)
                layer.check_ids(ids)
                state, vectors, stats = run(layer, ids, targets, steps=3)
                layer.check_stats(stats)
                tables, expected = dense_run(layer, ids, targets, steps=3)
                for name, rows in tables.items():
                    got = layer.rows(state, name, np.arange(len(rows)))
                    np.testing.assert_allclose(got, rows, rtol=CLOSE, atol=CLOSE)
                for name in features:
                    np.testing.assert_allclose(vectors[name], expected[name], rtol=CLOSE, atol=CLOSE)

    def test_one_core_and_eight_give_the_same_bits(self) -> None:
        """Numbers of few bits, so that no sum rounds: whatever differs is an id or a gradient in a wrong place."""
        features = {name: embedding.FeatureConfig(
            embedding.TableConfig(each.table.name, each.table.vocabulary, each.table.dim, "sum", embedding.SGD(2**-6),
                                  whole_numbers), each.max_ids)
            for name, each in three_features(None).items()}
        ids, targets = data_of(features)
        states = []
        both = Mesh(np.array(jax.devices("tpu")).reshape(2, 4), ("model", "core"))
        for mesh in (mesh_of("tpu", 8), mesh_of("tpu", 1), mesh_of("cpu", 8), both):
            layer = embedding.Embedding(features, mesh, batch=BATCH, axis="core")
            state, vectors, _ = run(layer, ids, targets)
            rows = {name: np.asarray(layer.rows(state, name, np.arange(40))) for name in ("items", "users", "words")}
            states.append((vectors, rows))
        for vectors, rows in states[1:]:
            for name, first in states[0][0].items():
                np.testing.assert_array_equal(vectors[name], first)
            for name, first in states[0][1].items():
                np.testing.assert_array_equal(rows[name], first)

    def test_bfloat16_rows_and_rates_that_change(self) -> None:
        table = embedding.TableConfig("t", 50, 16, "sum", embedding.Adagrad(lambda step: 0.5 / (step + 1), 1.0),
                                      dtype="bfloat16")
        layer = embedding.Embedding({"f": embedding.FeatureConfig(table)}, mesh_of("tpu", 8), batch=BATCH)
        start = np.asarray(layer.rows(layer.init(), "t", np.arange(50)))
        ids = np.arange(BATCH, dtype=np.int32) // 2  # each row twice
        targets = {"f": start[ids] - 2}
        state, vectors, _ = run(layer, {"f": ids}, targets, steps=2)
        self.assertEqual(state["tables"]["t"]["rows"].dtype, jnp.bfloat16)
        change = -0.5 * 4 / np.sqrt(1 + 16)  # both gradients of 2 in one
        self.assertLess(np.abs(vectors["f"] - start[ids] - change).max(), 2**-8)
        gradient = 2 * (2 + float(change))
        change += -0.25 * gradient / np.sqrt(1 + 16 + gradient**2)
        got = np.asarray(layer.rows(state, "t", np.arange(50)))
        self.assertLess(np.abs(got[:16] - start[:16] - change).max(), 2**-7)
        np.testing.assert_array_equal(got[16:], start[16:])  # never looked up

    def test_initial_values(self) -> None:
        table = embedding.TableConfig("t", 1000, 16)
        rows = [np.asarray(layer.rows(layer.init(), "t", np.arange(1000))) for layer in (
            embedding.Embedding({"f": embedding.FeatureConfig(table)}, mesh_of(platform, cores), batch=8, seed=seed)
            for platform, cores, seed in (("tpu", 8, 0), ("cpu", 1, 0), ("tpu", 8, 1)))]
        np.testing.assert_array_equal(rows[0], rows[1])
        self.assertFalse((rows[0] == rows[2]).any(axis=1).all())
        self.assertLess(np.abs(rows[0]).max(), 0.25)
        self.assertLess(abs(rows[0].std() - 0.25 / 3**0.5), 0.003)
        self.assertEqual(len(np.unique(rows[0][:, 0])), 1000)


class BadInput(unittest.TestCase):
    """Ids outside of a table, slots that run out, wrong shapes."""

    def layer(self, **options) -> embedding.Embedding:
        table = embedding.TableConfig("items", 64, 8, "sum", embedding.SGD(0.5), whole_numbers)
        return embedding.Embedding({"clicked": embedding.FeatureConfig(table, 2)}, mesh_of("tpu", 8), batch=BATCH,
                                   **options)

    def test_id_outside_of_its_table(self) -> None:
        layer = self.layer()
        ids = np.arange(2 * BATCH, dtype=np.int32).reshape(BATCH, 2)
        ids[5, 1], ids[9, 0] = 64, -1
        text = r"feature 'clicked', example 5, position 1: id 64 is outside of table 'items', 0 to 63 \(1 more\)"
        with self.assertRaisesRegex(IndexError, text):
            layer.check_ids({"clicked": ids})
        with self.assertRaisesRegex(IndexError, f"id {2**40}"):
            layer.check_ids({"clicked": np.full((BATCH, 2), 2**40)})
        layer.check_ids({"clicked": embedding.Ids(ids, np.where((ids < 0) | (ids > 63), 0, 2).min(axis=1))})
        targets = {"clicked": np.zeros((BATCH, 8), np.float32)}
        state, vectors, stats = run(layer, {"clicked": ids}, targets)
        self.assertEqual([int(each) for each in stats[:2]], [2, 0])
        with self.assertRaisesRegex(embedding.EmbeddingError, "2 ids are outside of their tables"):
            layer.check_stats(stats)
        start = np.asarray(layer.rows(layer.init(), "items", np.arange(64)))
        np.testing.assert_array_equal(vectors["clicked"][5], start[10])  # the other id of the example
        after = np.asarray(layer.rows(state, "items", np.arange(64)))
        np.testing.assert_array_equal(after[[11, 18]], start[[11, 18]])  # whose places the two ids have taken
        self.assertTrue(np.isnan(np.asarray(layer.rows(state, "items", [64, -1]))).all())

    def test_ids_of_any_integer_type(self) -> None:
        table = embedding.TableConfig("bytes", 256, 8, "sum", embedding.SGD(0.5), whole_numbers)
        layer = embedding.Embedding({"f": embedding.FeatureConfig(table)}, mesh_of("tpu", 8), batch=BATCH)
        ids, rows = np.arange(BATCH) + 90, np.asarray(layer.rows(layer.init(), "bytes", np.arange(BATCH) + 90))
        for dtype in (np.uint8, np.int64):
            given = {"f": ids.astype(dtype)}
            layer.check_ids(given)
            vectors, lookup = layer.lookup(layer.init(), given)
            np.testing.assert_array_equal(vectors["f"], rows, str(dtype))
            layer.check_stats(lookup.stats)
        outside = np.asarray(layer.rows(layer.init(), "bytes", [2**32 + 90, 2**40, -2**32]))
        self.assertTrue(np.isnan(outside).all())

    def test_lengths_and_weights_that_no_lists_have(self) -> None:
        layer, ids = self.layer(), np.zeros((BATCH, 2), np.int32)
        for length in (3, -1):
            lengths = np.full(BATCH, 2)
            lengths[5] = length
            text = f"feature 'clicked', example 5: invalid length {length}: expected 0 to 2"
            with self.assertRaisesRegex(ValueError, text):
                layer.check_ids({"clicked": embedding.Ids(ids, lengths)})
        for given, text in (
                (embedding.Ids(ids, np.full(2 * BATCH, 1)), r"lengths: expected shape \[32\], found \[64\]"),
                (embedding.Ids(ids, None, np.ones(BATCH)), r"weights: expected shape \[32, 2\], found \[32\]")):
            with self.assertRaisesRegex(ValueError, text):
                layer.lookup(layer.init(), {"clicked": given})

    def test_slots_run_out(self) -> None:
        ids = {"clicked": np.tile(np.arange(8, dtype=np.int32) * 8, (BATCH, 2))[:, :2]}
        ids["clicked"][:4] = 8 * np.arange(8, dtype=np.int32).reshape(4, 2)  # core 0: eight rows, all of core 0
        targets = {"clicked": np.zeros((BATCH, 8), np.float32)}
        layer = self.layer(capacity=3)
        start = np.asarray(layer.rows(layer.init(), "items", np.arange(64)))
        state, vectors, stats = run(layer, ids, targets)
        self.assertEqual([int(each) for each in stats], [0, 5, 8])
        text = ("5 ids have no slot: a core needs 8 distinct rows of another core, capacity is {'items': 3}; "
                "give capacity=8")
        with self.assertRaisesRegex(embedding.EmbeddingError, text):
            layer.check_stats(stats)
        np.testing.assert_array_equal(np.asarray(layer.rows(state, "items", np.arange(64))), start)
        layer = self.layer(capacity=3, overflow="drop")
        state, vectors, stats = run(layer, ids, targets)
        layer.check_stats(stats)
        self.assertEqual(int(stats.dropped), 5)
        none = np.zeros(8)
        np.testing.assert_array_equal(vectors["clicked"][:4], [start[0] + start[8], start[16], none, none])
        after = np.asarray(layer.rows(state, "items", np.arange(64)))
        self.assertEqual(sorted(np.flatnonzero((after != start).any(axis=1))), [0, 8, 16])
        run(self.layer(capacity=8), ids, targets)

    def test_lists_by_row_splits(self) -> None:
        ids = embedding.ragged([4, 5, 6], [0, 2, 2, 3], 2, weights=[1, 2, 3])
        np.testing.assert_array_equal(ids.ids, [[4, 5], [0, 0], [6, 0]])
        np.testing.assert_array_equal(ids.lengths, [2, 0, 1])
        np.testing.assert_array_equal(ids.weights, [[1, 2], [0, 0], [3, 0]])
        none = embedding.ragged([], [0, 0, 0], 2)
        np.testing.assert_array_equal((none.ids.dtype, none.lengths.sum()), (np.int32, 0))
        with self.assertRaisesRegex(ValueError, "example 0 has 2 ids: expected at most 1"):
            embedding.ragged([4, 5, 6], [0, 2, 2, 3], 1)
        for splits in ([0, 2, 1, 3], [0, 2], [1, 3], []):
            with self.assertRaisesRegex(ValueError, "row_splits must ascend from 0 to the number of values, 3"):
                embedding.ragged([4, 5, 6], splits, 4)

    def test_refused_configurations(self) -> None:
        mesh, table = mesh_of("tpu", 8), embedding.TableConfig("items", 64, 8)
        feature = embedding.FeatureConfig(table)
        for text, make in (
                ("vocabulary and dim must be at least 1", lambda: embedding.TableConfig("t", 0, 8)),
                ("combiner 'max': expected sum, mean or sqrtn", lambda: embedding.TableConfig("t", 8, 8, "max")),
                ("invalid dtype 'float16'", lambda: embedding.TableConfig("t", 8, 8, dtype="float16")),
                ("multiple of the 8 cores, found 1 features and a batch of 12", lambda: embedding.Embedding(
                    {"f": feature}, mesh, batch=12)),
                ("multiple of the 8 cores, found 1 features and a batch of 0", lambda: embedding.Embedding(
                    {"f": feature}, mesh, batch=0)),
                ("max_ids must be at least 1", lambda: embedding.Embedding(
                    {"f": embedding.FeatureConfig(table, 0)}, mesh, batch=8)),
                ("two different tables have the name 'items'", lambda: embedding.Embedding(
                    {"f": feature, "g": embedding.FeatureConfig(embedding.TableConfig("items", 65, 8))}, mesh,
                    batch=8)),
                ("expected fewer than 2147483640 rows", lambda: embedding.Embedding(
                    {"f": embedding.FeatureConfig(embedding.TableConfig("t", 2**31, 8))}, mesh, batch=8)),
                ("capacity must be at least 1", lambda: embedding.Embedding({"f": feature}, mesh, batch=8, capacity=0)),
                ("choose one with axis=", lambda: embedding.Embedding(
                    {"f": feature}, Mesh(np.array(jax.devices("tpu")).reshape(2, 4), ("model", "core")), batch=8)),
                ("invalid overflow 'grow'", lambda: embedding.Embedding({"f": feature}, mesh, batch=8,
                                                                           overflow="grow"))):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                make()
        layer = self.layer()
        with self.assertRaisesRegex(ValueError, r"ids: expected integers of shape \[32, 2\], found int32\[4, 2\]"):
            layer.check_ids({"clicked": np.zeros((4, 2), np.int32)})
        with self.assertRaisesRegex(ValueError, "feature 'clicked': no ids are given"):
            layer.check_ids({"viewed": np.zeros((4, 2), np.int32)})
        with self.assertRaisesRegex(ValueError, "unknown table 'item': expected one of .'items'."):
            layer.rows(layer.init(), "item", [1])


class Huge(unittest.TestCase):
    """Run with --huge: more table than one core has memory."""

    def test_only_what_is_touched_takes_memory(self) -> None:
        # 20 GiB, and its accumulators.
        table = embedding.TableConfig("items", 80 << 20, 64, "mean", embedding.Adagrad(0.5, SQUARES))
        layer = embedding.Embedding({"clicked": embedding.FeatureConfig(table, 2)}, mesh_of("tpu", 8), batch=BATCH)
        random = np.random.default_rng(0)
        ids = {"clicked": random.integers(0, 80 << 20, (BATCH, 2)).astype(np.int32)}
        targets = {"clicked": random.normal(size=(BATCH, 64)).astype(np.float32)}
        state, _, stats = run(layer, ids, targets, steps=2)
        layer.check_stats(stats)
        self.assertEqual(state["tables"]["items"]["rows"].nbytes, 20 << 30)
        small = embedding.TableConfig("items", BATCH * 2, 64, "mean", table.optimizer)
        self.assertEqual(len(np.unique(ids["clicked"])), BATCH * 2)
        dense = Dense(small, np.asarray(layer.rows(layer.init(), "items", ids["clicked"].reshape(-1))))
        lists = embedding.Ids(np.arange(BATCH * 2).reshape(BATCH, 2), np.full(BATCH, 2))
        share = dense.coefficients(lists)
        for step in range(2):
            dense.update(share.T @ (share @ dense.rows - targets["clicked"]), np.ones(BATCH * 2, bool), step)
        got = layer.rows(state, "items", ids["clicked"].reshape(-1))
        np.testing.assert_allclose(got, dense.rows, rtol=CLOSE, atol=CLOSE)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 1 << 20)  # KiB

    def test_program_of_the_page(self) -> None:
        page = Path(__file__).parents[2] / "docs/embedding.md"
        (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, {})
        losses = [float(line) for line in printed.getvalue().splitlines()]
        self.assertEqual(len(losses), 3)
        self.assertTrue(1.1 > losses[0] > losses[1] > losses[2], losses)


if __name__ == "__main__":
    if "--huge" in sys.argv:
        sys.argv.remove("--huge")
        sys.argv.append("Huge")
    else:
        del Huge
    unittest.main()
