"""Cases of op_matrix_test.py: arrays of 1 to 13 dimensions through code that differs by rank."""

from __future__ import annotations

from case_runner import Case
from op_cases import _ints, _random

import numpy as np
from jax import lax

RANKS = range(1, 14)


def _dims(rank: int) -> tuple[int, ...]:
    """At most 2,304 elements, with sizes of 1 among them."""
    return tuple((3, 2, 1, 2, 3, 2, 2, 1, 2, 2, 2, 2, 1)[:rank])


def _order(rank: int) -> tuple[int, ...]:
    return tuple(int(d) for d in np.random.default_rng(rank).permutation(rank))


def _halves(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    order = _order(rank)
    return tuple(sorted(order[: (rank + 1) // 2])), tuple(sorted(order[(rank + 1) // 2 :]))


def moves() -> list[Case]:
    """Nothing is computed: permuted, repeated, cut, reversed, put together, padded."""

    def function(v):  # noqa: ANN001, ANN202
        rank = v.ndim
        left, right = _halves(rank)
        part = v[tuple(0 if d in right else slice(None) for d in range(rank))]
        return (lax.transpose(v, _order(rank)),
                lax.broadcast_in_dim(part, v.shape, left),
                lax.rev(v, left),
                lax.slice(v, [n // 2 for n in v.shape], v.shape),
                lax.concatenate([v, v * 2], rank - 1),
                lax.pad(v, np.float32(7), [(1, -1, 1) if d == rank // 2 else (0, d % 5 // 4, 0) for d in range(rank)]))

    return [Case(f"moves_{rank}", function, (_random(*_dims(rank), seed=rank),)) for rank in RANKS]


def reductions() -> list[Case]:
    """Over half of the dimensions, and over the others; whole numbers, so that every order has the same sum."""

    def function(v):  # noqa: ANN001, ANN202
        left, right = _halves(v.ndim)
        return (v.sum(left), v.max(left), v.sum(right) if right else v.sum(), lax.cumsum(v, v.ndim - 1))

    return [Case(f"reductions_{rank}", function, (_ints(*_dims(rank), seed=rank).astype(np.float32),))
            for rank in RANKS]


def dots() -> list[Case]:
    """lax.dot_general with a third of the dimensions for the batch and a third summed."""

    def case(rank: int) -> Case:
        order = _order(rank)
        batch = tuple(sorted(order[: rank // 3]))
        summed = tuple(sorted(order[rank // 3 : rank // 3 + (rank + 2) // 3]))
        numbers = ((summed, summed), (batch, batch))
        # The right operand is smaller in its own dimensions: the result has up to 2,304 elements.
        left = _dims(rank)
        right = tuple(n if d in (*batch, *summed) else min(n, 2 if d % 2 else 1) for d, n in enumerate(left))
        return Case(f"dots_{rank}", lambda a, b: lax.dot_general(a, b, numbers),
                    (_random(*left, seed=rank), _random(*right, seed=rank + 100)), l2=1e-5)

    return [case(rank) for rank in RANKS]


def all_cases() -> list[Case]:
    """All of the above."""
    return moves() + reductions() + dots()
