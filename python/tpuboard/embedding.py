"""Embedding tables that lie cut by rows over the cores of a mesh: lookup, gradient, update; larger than one core's HBM.

A training step::

    items = embedding.TableConfig("items", vocabulary=80_000_000, dim=64, optimizer=embedding.Adagrad(0.1))
    layer = embedding.Embedding({"clicked": embedding.FeatureConfig(items, max_ids=20)}, mesh, batch=1024)
    state = layer.init()                                     # zeros: takes no memory of the host

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids, labels):
        vectors, lookup = layer.lookup(state, ids)           # {"clicked": f32[1024, 64]}
        loss, gradients = jax.value_and_grad(loss_of)(vectors, labels)
        return layer.apply_gradients(state, lookup, gradients), loss, lookup.stats

    ids = {"clicked": embedding.ragged(values, row_splits, max_ids=20)}
    layer.check_ids(ids)                                     # IndexError names feature, example and id
    state, loss, stats = step(state, ids, labels)
    layer.check_stats(stats)                                 # ids that the device left out

Tables hold what rows and optimizer state have changed since their initial values: a row's value is that plus
`initializer`, a function of (seed, row), so a table of any size begins as zeros and only rows that were trained take
memory. Works on every backend of JAX and exports (`Embedding.shapes`). docs/embedding.md tells more.
"""

# JAX's PartitionSpec and collectives have no types.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P

from . import _exchange as exchange

State: TypeAlias = dict[str, Any]
"""``{"step": i32[], "tables": {stack: {"rows": [..], slot of the optimizer: [..]}}}``, arrays cut over the cores."""
Rate: TypeAlias = float | Callable[[jax.Array], jax.Array]
"""Learning rate, or a function of the number of updates before this one."""
Initializer: TypeAlias = Callable[[jax.Array, tuple[int, ...], Any], jax.Array]
"""(key, shape, dtype) -> array, as those of `jax.nn.initializers` that take a shape of one dimension."""


def uniform(scale: float) -> Initializer:
    """Uniform numbers in [-scale, scale): the same bits on every backend when `scale` is a power of two, since then
    nothing rounds."""
    def draw(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return (2 * jax.random.uniform(key, shape, dtype) - 1) * scale
    return draw


@dataclass(frozen=True)
class SGD:
    """row -= learning_rate * gradient."""

    learning_rate: Rate

    slots = ()

    def changes(self, gradient: jax.Array, slots: dict[str, jax.Array],
                step: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """What is added to rows, and the new slots; `step` counts from 0."""
        return -_rate(self.learning_rate, step) * gradient, {}


@dataclass(frozen=True)
class Adagrad:
    """row -= learning_rate * gradient / sqrt(initial_accumulator + sum of squares)."""

    learning_rate: Rate
    initial_accumulator: float = 0.1

    slots = ("accumulator",)

    def changes(self, gradient: jax.Array, slots: dict[str, jax.Array],
                step: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """As `SGD.changes`."""
        squares = slots["accumulator"] + gradient * gradient
        change = -_rate(self.learning_rate, step) * gradient * jax.lax.rsqrt(squares + self.initial_accumulator)
        return change, {"accumulator": squares}


@dataclass(frozen=True)
class Adam:
    """Lazy Adam: the moments of a row move only in steps that look it up; bias correction counts all steps."""

    learning_rate: Rate
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    slots = ("mean", "variance")

    def changes(self, gradient: jax.Array, slots: dict[str, jax.Array],
                step: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """As `SGD.changes`."""
        mean = self.beta1 * slots["mean"] + (1 - self.beta1) * gradient
        variance = self.beta2 * slots["variance"] + (1 - self.beta2) * gradient * gradient
        count = (step + 1).astype(jnp.float32)
        corrected = jnp.sqrt(variance / (1 - self.beta2 ** count)) + self.epsilon
        change = -_rate(self.learning_rate, step) * (mean / (1 - self.beta1 ** count)) / corrected
        return change, {"mean": mean, "variance": variance}


def _rate(rate: Rate, step: jax.Array) -> jax.Array | float:
    return rate(step) if callable(rate) else rate


Optimizer: TypeAlias = SGD | Adagrad | Adam
Combiner: TypeAlias = Literal["sum", "mean", "sqrtn"]


@dataclass(frozen=True)
class TableConfig:
    """A table of `vocabulary` rows. Tables that agree in dim, optimizer, initializer and dtype are stacked into one."""

    name: str
    vocabulary: int
    dim: int
    combiner: Combiner = "mean"
    """sum: sum of w * row; mean: that by the sum of w; sqrtn: by the root of the sum of w * w."""
    optimizer: Optimizer = field(default_factory=lambda: SGD(0.01))
    initializer: Initializer | None = None
    """None: `uniform` of the power of two that is next to 1 / sqrt(dim)."""
    dtype: str = "float32"
    """Of the rows, also when they are sent: float32 or bfloat16. Sums, gradients and optimizer state are float32."""

    def __post_init__(self) -> None:
        if self.vocabulary < 1 or self.dim < 1:
            raise ValueError(f"table {self.name!r}: vocabulary and dim must be at least 1, found {self.vocabulary} "
                             f"and {self.dim}")
        if self.combiner not in ("sum", "mean", "sqrtn"):
            raise ValueError(f"table {self.name!r}: invalid combiner {self.combiner!r}: expected sum, mean or sqrtn")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"table {self.name!r}: invalid dtype {self.dtype!r}: expected float32 or bfloat16")


@dataclass(frozen=True)
class FeatureConfig:
    """A feature of the examples: up to `max_ids` rows of a table each, combined to one vector."""

    table: TableConfig
    max_ids: int = 1


class Ids(NamedTuple):
    """Ragged lists of ids: those of example b are ids[b, :lengths[b]]."""

    ids: Any
    """i32[batch, max_ids]"""
    lengths: Any = None
    """i32[batch]; None: all `max_ids`."""
    weights: Any = None
    """f32[batch, max_ids]; None: 1. They have no gradient."""


def ragged(values: Any, row_splits: Any, max_ids: int, weights: Any = None) -> Ids:
    """Lists from a row-split form: those of example b are values[row_splits[b] : row_splits[b + 1]]."""
    values, splits = np.asarray(values), np.asarray(row_splits)
    values = values if len(values) else values.astype(np.int32)  # of no list NumPy makes floats
    lengths = np.diff(splits)
    if splits.ndim != 1 or len(splits) < 1 or splits[0] != 0 or splits[-1] != len(values) or (lengths < 0).any():
        raise ValueError(f"row_splits must ascend from 0 to the number of values, {len(values)}")
    if (lengths > max_ids).any():
        longest = int(np.argmax(lengths))
        raise ValueError(f"example {longest} has {lengths[longest]} ids: expected at most {max_ids} (max_ids)")
    inside = np.arange(max_ids) < lengths[:, None]

    def padded(flat: Any, dtype: Any) -> np.ndarray:
        out = np.zeros((len(lengths), max_ids), dtype)
        out[inside] = flat
        return out
    return Ids(padded(values, values.dtype), lengths.astype(np.int32),
               None if weights is None else padded(weights, np.float32))


class Stats(NamedTuple):
    """What a lookup met; i32[] each, of all cores together. `Embedding.check_stats` raises by them."""

    out_of_range: jax.Array
    """Ids outside of their table; they count as absent."""
    dropped: jax.Array
    """Ids without a slot because more than `capacity` distinct rows of one core were asked for."""
    fullest: jax.Array
    """Most distinct rows that a core asked of another: what `capacity` had to be."""


class Lookup(NamedTuple):
    """What `apply_gradients` needs of `lookup`."""

    routes: dict[str, exchange.Route]
    coefficients: dict[str, jax.Array]
    stats: Stats


class EmbeddingError(RuntimeError):
    """Ids that a step on the device left out."""


@dataclass(frozen=True)
class _Stack:
    """Tables in one array: the rows of each behind those of the one before it."""

    name: str
    tables: dict[str, tuple[TableConfig, int]]  # with its first row
    features: dict[str, FeatureConfig]
    layout: exchange.Layout
    seed: int

    @property
    def like(self) -> TableConfig:
        return next(iter(self.tables.values()))[0]

    def initial(self, rows: jax.Array) -> jax.Array:
        """[n, dim] initial values of rows."""
        key, dim = jax.random.key(self.seed), self.like.dim
        draw = self.like.initializer or uniform(2.0 ** -round(math.log2(dim) / 2))
        return jax.vmap(lambda row: draw(jax.random.fold_in(key, row), (dim,), jnp.float32))(rows)


class Embedding:
    """Features and their tables on the cores along `axis` of a mesh (default: its only one).

    `batch` counts the examples of all cores. `capacity` is the number of distinct rows that a core can ask of another
    in a step, for each stack; default: twice the mean of ids that are spread evenly, and some. Ids beyond it are
    counted (`Stats.dropped`) and left out of their example; with `overflow="error"` tables stay as they are in such a
    step.
    """

    def __init__(self, features: Mapping[str, FeatureConfig], mesh: Mesh | AbstractMesh, *, batch: int,
                 axis: str | None = None, seed: int = 0, capacity: int | None = None,
                 overflow: Literal["error", "drop"] = "error") -> None:
        if axis is None and len(mesh.axis_names) != 1:
            raise ValueError(f"the mesh has axes {mesh.axis_names}: choose one with axis=")
        self.mesh, self.axis = mesh, axis or mesh.axis_names[0]
        self.features, self.batch, self.overflow = dict(features), batch, overflow
        cores = mesh.shape[self.axis]
        if not features or batch < 1 or batch % cores:
            raise ValueError(f"expected at least one feature and a batch that is a multiple of the {cores} cores, "
                             f"found {len(features)} features and a batch of {batch}")
        if overflow not in ("error", "drop"):
            raise ValueError(f"invalid overflow {overflow!r}: expected 'error' or 'drop'")
        self._stacks = _stacks(self.features, self.axis, cores, batch // cores, capacity, seed)
        self._readers: dict[str, Callable[..., jax.Array]] = {}

    def shapes(self) -> State:
        """Shapes, types and shardings of the state, for `jax.export` and checkpoints."""
        def array(shape: tuple[int, ...], dtype: str, spec: P) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, spec))
        tables = {}
        for stack in self._stacks:
            shape = (stack.layout.cores * stack.layout.rows, stack.like.dim)
            tables[stack.name] = {"rows": array(shape, stack.like.dtype, P(self.axis))} | {
                slot: array(shape, "float32", P(self.axis)) for slot in stack.like.optimizer.slots}
        return {"step": array((), "int32", P()), "tables": tables}

    def init(self) -> State:
        """State before the first step: zeros, on the devices."""
        state: State = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype, device=like.sharding), self.shapes())
        return state

    def lookup(self, state: State, ids: Mapping[str, Any]) -> tuple[dict[str, jax.Array], Lookup]:
        """A vector f32[batch, dim] for each feature (zero for an empty list), and what its gradient needs.

        `ids`: `Ids` for each feature, or an array of ids [batch, max_ids] or [batch].
        """
        lists = {name: self._ids_of(name, ids) for name in self.features}

        def local(tables: State, mine: dict[str, Ids]) -> Any:
            vectors: dict[str, jax.Array] = {}
            routes, coefficients, stats = {}, {}, []
            for stack in self._stacks:
                way, found, counted = _lookup_stack(stack, tables[stack.name]["rows"], mine)
                routes[stack.name] = way
                stats.append(counted)
                for feature, (vector, coefficient) in found.items():
                    vectors[feature], coefficients[feature] = vector, coefficient
            total = Stats(jnp.stack([each.out_of_range for each in stats]).sum(),
                          jnp.stack([each.dropped for each in stats]).sum(),
                          jnp.stack([each.fullest for each in stats]).max())
            return vectors, routes, coefficients, total
        cut = P(self.axis)
        vectors, *rest = self._on_cores(local, (cut, cut), (cut, cut, cut, P()))(state["tables"], lists)
        return vectors, Lookup(*rest)

    def apply_gradients(self, state: State, lookup: Lookup, gradients: Mapping[str, jax.Array]) -> State:
        """State after a step; `gradients` are those of the vectors, f32[batch, dim] for each feature."""
        if set(gradients) != set(self.features):
            raise ValueError(f"gradients: expected the features {sorted(self.features)}, found {sorted(gradients)}")

        def local(tables: State, step: jax.Array, parts: tuple[Any, Any, Any], grads: dict[str, jax.Array]) -> State:
            given = Lookup(*parts)
            keep = (given.stats.dropped > 0) if self.overflow == "error" else jnp.zeros((), bool)
            return {stack.name: _update_stack(stack, tables[stack.name], step, given, grads, keep)
                    for stack in self._stacks}
        cut = P(self.axis)
        run = self._on_cores(local, (cut, P(), (cut, cut, P()), cut), cut)
        tables = run(state["tables"], state["step"], tuple(lookup), dict(gradients))
        return {"step": state["step"] + 1, "tables": tables}

    def rows(self, state: State, table: str, ids: Any) -> jax.Array:
        """Values f32[n, dim] of rows of a table, on all cores; NaN for ids outside of it."""
        stack = next((each for each in self._stacks if table in each.tables), None)
        if stack is None:
            tables = sorted(t for s in self._stacks for t in s.tables)
            raise ValueError(f"unknown table {table!r}: expected one of {tables}")
        if table not in self._readers:
            self._readers[table] = self._reader(stack, *stack.tables[table])
        if not isinstance(ids, jax.Array):  # of 64 bits, perhaps, of which JAX would keep 32
            ids = np.asarray(ids)
            ids = np.where((ids >= 0) & (ids < stack.tables[table][0].vocabulary), ids, -1)
        return self._readers[table](state["tables"][stack.name]["rows"], jnp.asarray(ids, jnp.int32))

    def check_ids(self, ids: Mapping[str, Any]) -> None:
        """IndexError for an id outside of its table, ValueError for a length that no list has, with feature and place;
        for arrays of the host."""
        for name, feature in self.features.items():
            given = self._ids_of(name, ids)
            values = np.asarray(given.ids)
            lengths = np.full(len(values), feature.max_ids) if given.lengths is None else np.asarray(given.lengths)
            wrong = np.flatnonzero((lengths < 0) | (lengths > feature.max_ids))
            if len(wrong):
                raise ValueError(f"feature {name!r}, example {wrong[0]}: invalid length {lengths[wrong[0]]}: "
                                 f"expected 0 to {feature.max_ids}")
            used = np.arange(feature.max_ids) < lengths[:, None]
            bad = np.argwhere(used & ((values < 0) | (values >= feature.table.vocabulary)))
            if len(bad):
                example, place = bad[0]
                more = f" ({len(bad) - 1} more)" if len(bad) > 1 else ""
                raise IndexError(f"feature {name!r}, example {example}, position {place}: id {values[example, place]} "
                                 f"is outside of table {feature.table.name!r}, 0 to {feature.table.vocabulary - 1}"
                                 f"{more}")

    def check_stats(self, stats: Stats) -> None:
        """EmbeddingError if the device left ids out against the options."""
        out_of_range, dropped, fullest = (int(each) for each in stats)
        if out_of_range:
            raise EmbeddingError(f"{out_of_range} ids are outside of their tables; check_ids() names the first")
        if dropped and self.overflow == "error":
            capacities = {stack.name: stack.layout.capacity for stack in self._stacks}
            raise EmbeddingError(f"{dropped} ids have no slot: a core needs {fullest} distinct rows of another core, "
                                 f"capacity is {capacities}; give capacity={fullest} or overflow='drop'. The step did "
                                 "not change the tables")

    def _reader(self, stack: _Stack, config: TableConfig, first: int) -> Callable[..., jax.Array]:
        cores = stack.layout.cores

        def local(stored: jax.Array, ids: jax.Array) -> jax.Array:
            inside = (ids >= 0) & (ids < config.vocabulary)
            row = jnp.where(inside, ids, 0) + first
            mine = row % cores == jax.lax.axis_index(self.axis)
            change = jnp.where(mine[:, None], stored[row // cores].astype(jnp.float32), 0)
            value = stack.initial(row) + jax.lax.psum(change, self.axis)
            return jnp.where(inside[:, None], value, jnp.nan)
        return jax.jit(self._on_cores(local, (P(self.axis), P()), P()))

    def _ids_of(self, name: str, ids: Mapping[str, Any]) -> Ids:
        feature = self.features[name]
        if name not in ids:
            raise ValueError(f"feature {name!r}: no ids are given; found ids of {sorted(ids)}")
        given = ids[name] if isinstance(ids[name], Ids) else Ids(ids[name])
        values = given.ids if hasattr(given.ids, "ndim") else np.asarray(given.ids)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != (self.batch, feature.max_ids) or not jnp.issubdtype(values.dtype, jnp.integer):
            raise ValueError(f"feature {name!r}: ids: expected integers of shape [{self.batch}, {feature.max_ids}], "
                             f"found {values.dtype}{list(values.shape)}")
        for what, array, shape in (("lengths", given.lengths, (self.batch,)), ("weights", given.weights, values.shape)):
            if array is not None and np.shape(array) != shape:
                raise ValueError(f"feature {name!r}: {what}: expected shape {list(shape)}, "
                                 f"found {list(np.shape(array))}")
        return Ids(values, given.lengths, given.weights)

    def _on_cores(self, function: Callable[..., Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
        mapped: Callable[..., Any] = jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs,
                                                   axis_names={self.axis}, check_vma=False)
        return mapped


def _stacks(features: dict[str, FeatureConfig], axis: str, cores: int, batch: int, capacity: int | None,
            seed: int) -> list[_Stack]:
    tables: dict[str, TableConfig] = {}
    for name, feature in features.items():
        if feature.max_ids < 1:
            raise ValueError(f"feature {name!r}: max_ids must be at least 1, found {feature.max_ids}")
        if tables.setdefault(feature.table.name, feature.table) != feature.table:
            raise ValueError(f"two different tables have the name {feature.table.name!r}; rename one")
    groups: dict[Any, list[TableConfig]] = {}
    for table in sorted(tables.values(), key=lambda each: each.name):
        groups.setdefault((table.dim, table.optimizer, table.initializer, table.dtype), []).append(table)
    stacks = []
    for group in groups.values():
        first, total = {}, 0
        for table in group:
            first[table.name] = (table, total)
            total += table.vocabulary
        name = "+".join(first)
        if total >= 2**31 - cores:
            raise ValueError(f"tables {name}: expected fewer than {2**31 - cores} rows together (ids are i32), "
                             f"found {total}")
        used = {key: feature for key, feature in features.items() if feature.table.name in first}
        rows, ids = -(-total // cores), batch * sum(feature.max_ids for feature in used.values())
        slots = capacity if capacity is not None else min(ids, -(-2 * ids // cores // 8) * 8 + 16)
        if slots < 1:
            raise ValueError(f"capacity must be at least 1, found {slots}")
        layout = exchange.Layout(axis, cores, rows, min(slots, ids, rows))
        stacks.append(_Stack(name, first, used, layout, (zlib.crc32(name.encode()) + seed) % 2**31))
    return stacks


def _used(ids: Ids) -> jax.Array:
    places = jax.lax.broadcasted_iota(jnp.int32, ids.ids.shape, 1)
    return jnp.ones(ids.ids.shape, bool) if ids.lengths is None else places < jnp.asarray(ids.lengths)[:, None]


def _lookup_stack(stack: _Stack, table: jax.Array, lists: dict[str, Ids]) -> tuple[
        exchange.Route, dict[str, tuple[jax.Array, jax.Array]], Stats]:
    """For each feature of a stack its vectors, and [batch, max_ids] what each row counts in them."""
    layout, flat, outside = stack.layout, [], jnp.zeros((), jnp.int32)
    for name, feature in stack.features.items():
        ids, used = jnp.asarray(lists[name].ids), _used(lists[name])
        if ids.dtype.itemsize < 4:  # does not hold every number of rows
            ids = ids.astype(jnp.int32)
        inside = used & (ids >= 0) & (ids < feature.table.vocabulary)
        outside += jnp.sum(used & ~inside, dtype=jnp.int32)
        first = stack.tables[feature.table.name][1]
        flat.append(jnp.where(inside, ids.astype(jnp.int32) + first, -1).reshape(-1))
    way, asked, counts = exchange.route(layout, jnp.concatenate(flat))
    values = exchange.fetch(layout, way, table).astype(jnp.float32) + stack.initial(asked)
    slots = exchange.slots_of_ids(layout, way)
    found, at = {}, 0
    for name, feature in stack.features.items():
        shape = lists[name].ids.shape
        slot = slots[at:at + shape[0] * shape[1]]
        at += shape[0] * shape[1]
        present = slot < layout.slots
        rows = jnp.where(present[:, None], values[jnp.where(present, slot, 0)], 0).reshape(*shape, stack.like.dim)
        weight = jnp.ones(shape, jnp.float32) if lists[name].weights is None else jnp.asarray(lists[name].weights)
        weight = jnp.where(present.reshape(shape), weight, 0)
        coefficient = weight * _scale(feature.table.combiner, weight)
        found[name] = (jnp.sum(coefficient[:, :, None] * rows, axis=1), coefficient)
    return way, found, Stats(jax.lax.psum(outside, layout.axis), counts.dropped, counts.fullest)


def _scale(combiner: Combiner, weight: jax.Array) -> jax.Array | float:
    """By what the weights of an example are multiplied; 0 if there are none."""
    if combiner == "sum":
        return 1.0
    total = jnp.sum(weight if combiner == "mean" else weight * weight, axis=1, keepdims=True)
    safe = jnp.where(total == 0, 1, total)
    return jnp.where(total == 0, 0, 1 / safe if combiner == "mean" else jax.lax.rsqrt(safe))


def _update_stack(stack: _Stack, arrays: dict[str, jax.Array], step: jax.Array, lookup: Lookup,
                  gradients: dict[str, jax.Array], keep: jax.Array) -> dict[str, jax.Array]:
    flat = [(lookup.coefficients[name][:, :, None] * gradients[name].astype(jnp.float32)[:, None, :])
            .reshape(-1, stack.like.dim) for name in stack.features]
    row, gradient = exchange.collect(stack.layout, lookup.routes[stack.name], jnp.concatenate(flat))
    read = jnp.minimum(row, stack.layout.rows - 1)
    write = jnp.where(keep, stack.layout.rows, row)
    change, slots = stack.like.optimizer.changes(
        gradient, {name: arrays[name][read] for name in stack.like.optimizer.slots}, step)
    rows = arrays["rows"]
    new = {"rows": (rows[read].astype(jnp.float32) + change).astype(rows.dtype)} | slots
    return {name: arrays[name].at[write].set(new[name], mode="drop", unique_indices=True) for name in arrays}
