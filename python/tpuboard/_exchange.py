"""Rows of a table cut over cores, fetched and updated: what one core does, inside of `jax.shard_map`.

Row r of a table lies on core r % cores, at position r // cores. A core sends each distinct row that it needs once, in
one of `capacity` slots for each owner; owners answer with the rows, and get the gradients back in the same slots.
Distinct rows are found by a sort and summed by scans over equal neighbours, so every sum is a tree over the positions
of the examples: the same bits in every run. Several cores may want a row: their sums are added at its owner, so that
its optimiser sees one gradient.
"""

# JAX's collectives have no types.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Layout(NamedTuple):
    """A table over the cores of an axis of a mesh."""

    axis: str
    cores: int
    rows: int
    """Of one core."""
    capacity: int
    """Distinct rows that a core can ask of another."""

    @property
    def slots(self) -> int:
        """Of the exchange of a core."""
        return self.cores * self.capacity


class Route(NamedTuple):
    """Where the ids of a core went; its gradients take the same way back."""

    order: jax.Array
    """[ids] positions of the ids, by row."""
    group: jax.Array
    """[ids] number of the distinct row, in that order."""
    slot: jax.Array
    """[ids] its slot, in that order; `slots` where there is none."""
    asked: jax.Array
    """[slots] own rows that other cores ask for, -1 in slots without."""


class Counts(NamedTuple):
    """Of all cores together."""

    dropped: jax.Array
    fullest: jax.Array


def _same_as_before(x: jax.Array, distance: int) -> jax.Array:
    return jnp.concatenate([jnp.zeros(distance, bool), x[distance:] == x[:-distance]])


def sums_of_groups(group: jax.Array, values: jax.Array, longest: int) -> jax.Array:
    """Sum of each group at its last member: groups are neighbours, of `longest` members at most."""
    distance = 1
    while distance < min(longest, len(group)):
        before = jnp.concatenate([jnp.zeros_like(values[:distance]), values[:-distance]])
        values = values + jnp.where(_same_as_before(group, distance)[:, None], before, 0)
        distance *= 2
    return values


def ends_of_groups(group: jax.Array) -> jax.Array:
    """True at the last member of each group."""
    return jnp.concatenate([group[1:] != group[:-1], jnp.ones(1, bool)])


def _sorted(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    ordered, order = lax.sort((keys, lax.iota(jnp.int32, len(keys))), num_keys=1)
    return ordered, order


def route(layout: Layout, rows: jax.Array) -> tuple[Route, jax.Array, Counts]:
    """Way of the ids of a core, which are rows of the table or -1 for none; and [slots] the rows asked for, or -1."""
    cores, nowhere = layout.cores, layout.cores * layout.rows
    place, order = _sorted(jnp.where(rows >= 0, rows % cores * layout.rows + rows // cores, nowhere))
    first = ~_same_as_before(place, 1)
    group = jnp.cumsum(first.astype(jnp.int32)) - 1
    owner = place // layout.rows
    # Distinct rows in front of those of each owner, and of the owner of each id.
    bounds = lax.iota(jnp.int32, cores + 1)[:, None]
    starts = jnp.sum(first & (owner < bounds), axis=1, dtype=jnp.int32)
    start = jnp.sum(jnp.where(owner == bounds[:-1], starts[:-1, None], 0), axis=0)
    within = group - start
    present = place < nowhere
    fits = present & (within < layout.capacity)
    slot = jnp.where(fits, owner * layout.capacity + within, layout.slots)
    send = jnp.full(layout.slots, -1, jnp.int32)
    send = send.at[jnp.where(first, slot, layout.slots)].set(place % layout.rows, mode="drop", unique_indices=True)
    asked = lax.all_to_all(send, layout.axis, 0, 0, tiled=True)
    counts = Counts(lax.psum(jnp.sum(present & ~fits, dtype=jnp.int32), layout.axis),
                    lax.pmax(jnp.max(starts[1:] - starts[:-1]), layout.axis))
    of_slots = jnp.where(send < 0, -1, send * cores + lax.iota(jnp.int32, layout.slots) // layout.capacity)
    return Route(order, group, slot, asked), of_slots, counts


def fetch(layout: Layout, way: Route, table: jax.Array) -> jax.Array:
    """[slots, dim] rows that the slots ask for, from their owners; zero in slots without."""
    own = jnp.where(way.asked[:, None] >= 0, table[jnp.maximum(way.asked, 0)], jnp.zeros((), table.dtype))
    rows: jax.Array = lax.all_to_all(own, layout.axis, 0, 0, tiled=True)
    return rows


def slots_of_ids(layout: Layout, way: Route) -> jax.Array:
    """[ids] slot of each id, `slots` where there is none."""
    return jnp.zeros_like(way.slot).at[way.order].set(way.slot, unique_indices=True)


def collect(layout: Layout, way: Route, gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradients [ids, dim] brought to the owners of their rows: [slots] own rows, each once, `rows` where there is
    none, and [slots, dim] their gradients."""
    sums = sums_of_groups(way.group, gradients[way.order], len(way.order))
    slot = jnp.where(ends_of_groups(way.group), way.slot, layout.slots)
    send = jnp.zeros((layout.slots, gradients.shape[1]), gradients.dtype)
    send = send.at[slot].set(sums, mode="drop", unique_indices=True)
    received = lax.all_to_all(send, layout.axis, 0, 0, tiled=True)
    row, order = _sorted(jnp.where(way.asked >= 0, way.asked, layout.rows))
    sums = sums_of_groups(row, received[order], layout.cores)  # a core asks for a row once
    return jnp.where(ends_of_groups(row), row, layout.rows), sums
