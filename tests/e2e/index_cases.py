"""Cases of op_matrix_test.py: gather and scatter as JAX programs make them (embeddings, cross-entropy, .at[], take)."""

from __future__ import annotations

from collections.abc import Callable

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _ints(*shape: int, low: int, high: int, seed: int = 0, dtype: type = np.int32) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def reads() -> list[Case]:
    """take, indexing, take_along_axis, embeddings, batched gathers."""
    x, table = _random(50, 8), _random(3000, 64)
    inside, outside = _ints(7, 3, low=0, high=50), _ints(7, 3, low=-120, high=120, seed=1)
    tokens = _ints(16, 32, low=0, high=3000, seed=2)
    cases = [Case(f"take_{mode}", lambda v, i, m=mode: jnp.take(v, i, axis=0, mode=m),
                  (x, outside)) for mode in ("clip", "fill", "wrap")]
    cases += [Case(f"take_axis1_{mode}", lambda v, i, m=mode: jnp.take(v, i, axis=1, mode=m), (table, outside))
              for mode in ("clip", "fill")]
    cases += [
        Case("rows", lambda v, i: v[i], (x, inside)),
        Case("rows_negative", lambda v, i: v[i], (x, _ints(9, low=-50, high=0))),
        Case("one_row", lambda v, i: v[i], (x, np.int32(7))),
        Case("element", lambda v, i, j: v[i, j], (x, np.int32(49), np.int32(-1))),
        Case("elements", lambda v, i, j: v[i, j], (x, _ints(9, low=0, high=50), _ints(9, low=0, high=8))),
        Case("columns", lambda v, i: v[:, i], (x, _ints(5, low=0, high=8))),
        Case("mixed", lambda v, i, j: v[i, 1:3, j],
             (_random(6, 5, 7), _ints(4, low=0, high=6), _ints(4, low=0, high=7))),
        Case("embedding", lambda v, i: v[i], (table, tokens)),
        Case("embedding_bf16", lambda v, i: v.astype(jnp.bfloat16)[i], (table, tokens)),
        Case("take_along_0", lambda v, i: jnp.take_along_axis(v, i, axis=0), (x, _ints(4, 8, low=0, high=50))),
        Case("take_along_1", lambda v, i: jnp.take_along_axis(v, i, axis=1), (x, _ints(50, 3, low=-8, high=8))),
        Case("take_along_wide", lambda v, i: jnp.take_along_axis(v, i, axis=1),
             (_random(20, 3000), _ints(20, 30, low=0, high=3000))),
        Case("vmap_rows", jax.vmap(lambda v, i: v[i]), (_random(5, 40, 6), _ints(5, 7, low=0, high=40))),
        Case("vmap_dynamic", jax.vmap(lambda v, i: lax.dynamic_slice(v, (i, 0), (3, 4))),
             (_random(5, 20, 6), _ints(5, low=-3, high=30))),
        Case("u8_index", lambda v, i: v[i], (x, _ints(30, low=0, high=50, dtype=np.uint8))),
        Case("u32_index", lambda v, i: jnp.take(v, i, axis=0, mode="clip"),
             (x, _ints(30, low=0, high=90, dtype=np.uint32))),
        Case("bool_table", lambda v, i: (v > 0)[i], (x, inside)),
        Case("specials", lambda v, i: v[i],
             (np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 3.0], np.float32), _ints(40, low=0, high=6))),
        # The reshaped table is the array that the product wrote, with other dimensions.
        Case("rows_reshaped", lambda a, b, i: (a[:, :, None] * b[:, None, :]).reshape(-1, 8)[i],
             (_random(32, 6), _random(32, 8), _ints(192, low=0, high=192))),
        Case("windows_reshaped", lambda v, i: jax.vmap(
            lambda at: lax.dynamic_slice((v * 2).reshape(3, 8, 10), (0, at, 0), (2, 2, 7)))(i),
             (_random(8, 30), _ints(9, low=0, high=7))),
        Case("empty_list", lambda v, i: v[i], (x, np.zeros((0,), np.int32))),
        Case("diagonal", lambda v: jnp.diagonal(v), (_random(9, 9),)),
        Case("one_hot", lambda i: jax.nn.one_hot(i, 10), (_ints(25, low=-2, high=12),)),
        Case("used_twice", lambda v, i: v[i] * 2 + jnp.sum(v[i], axis=-1, keepdims=True), (x, inside), l2=1e-6),
    ]
    return cases


def writes() -> list[Case]:
    """.at[] updates with duplicates and indices outside, gradients of reads."""
    x = _random(50, 8)
    index, many = _ints(30, low=-60, high=70), _ints(4096, low=0, high=10, seed=1)
    rows, values = _random(30, 8, seed=2), _random(30, seed=3)
    pair = _ints(30, low=0, high=50, seed=4), _ints(30, low=0, high=8, seed=5)
    cases = [Case(f"at_{name}", lambda v, i, u, n=name: getattr(v.at[i], n)(u), (x, index, rows), l2=1e-6)
             for name in ("set", "add", "max", "min", "multiply")]
    cases += [Case(f"at_{name}_{mode}", lambda v, i, u, n=name, m=mode: getattr(v.at[i], n)(u, mode=m),
                   (x, index, rows), l2=1e-6)
              for name in ("set", "add") for mode in ("drop", "clip")]
    cases += [Case(f"at_large_{name}", lambda v, i, u, n=name: getattr(v.at[i], n)(u),
                   (_random(2000, 40), _ints(500, low=0, high=60), _random(500, 40)), l2=1e-6)
              for name in ("set", "add", "max", "multiply")]
    cases += [
        Case("at_pairs", lambda v, i, j, u: v.at[i, j].add(u), (x, *pair, values), l2=1e-6),
        Case("at_pairs_set", lambda v, i, j, u: v.at[i, j].set(u), (x, *pair, values)),
        Case("at_column", lambda v, i, u: v.at[:, i].set(u), (x, np.int32(3), _random(50))),
        Case("at_row_add", lambda v, i, u: v.at[i].add(u), (x, np.int32(-1), _random(8))),
        Case("at_row_outside", lambda v, i, u: v.at[i].set(u), (x, np.int32(50), _random(8))),
        Case("at_i32", lambda i: jnp.zeros(10, jnp.int32).at[i].add(1), (many,)),
        Case("bincount", lambda i: jnp.bincount(i, length=16), (many,)),
        Case("at_unique", lambda v, i, u: v.at[i].multiply(u, unique_indices=True),
             (_random(2000, 40), np.arange(0, 2000, 7, dtype=np.int32), _random(286, 40)), l2=1e-6),
        Case("at_window", lambda v, i, u: v.at[i, 2:5].add(u),
             (_random(400, 300), _ints(90, low=0, high=20), _random(90, 3)), l2=1e-6),
        Case("at_apply", lambda v, i: v.at[i].apply(jnp.abs), (x, _ints(20, low=0, high=50))),
        Case("vmap_at", jax.vmap(lambda v, i, u: v.at[i].add(u)),
             (_random(5, 40), _ints(5, 7, low=0, high=40), _random(5, 7)), l2=1e-6),
        Case("at_bf16", lambda v, i, u: v.astype(jnp.bfloat16).at[i].max(u.astype(jnp.bfloat16)), (x, index, rows)),
        Case("at_nan", lambda v, i, u: v.at[i].min(u), (x, index, np.where(rows > 1, np.nan, rows))),
        Case("embedding_grad", jax.grad(lambda v, i: jnp.sum(v[i] ** 2)),
             (_random(3000, 64), _ints(16, 32, low=0, high=3000)), l2=1e-6),
        Case("embedding_grad_small", jax.grad(lambda v, i: jnp.sum(v[i] ** 2)),
             (_random(64, 128), _ints(16, 32, low=0, high=64)), l2=1e-6),
        Case("embedding_grad_equal", jax.grad(lambda v, i: jnp.sum(v[i] ** 2)),
             (_random(3000, 64), np.full((64,), 5, np.int32)), l2=1e-6),
        Case("take_along_grad", jax.grad(lambda v, i: jnp.sum(jnp.take_along_axis(v, i, axis=1) ** 2)),
             (_random(20, 3000), _ints(20, 30, low=0, high=90)), l2=1e-6),
        Case("cross_entropy", lambda z, i: optax.softmax_cross_entropy_with_integer_labels(z, i).mean(),
             (_random(25, 10), _ints(25, low=0, high=10)), l2=1e-5),
        Case("cross_entropy_grad",
             jax.grad(lambda z, i: optax.softmax_cross_entropy_with_integer_labels(z, i).mean()),
             (_random(25, 10), _ints(25, low=0, high=10)), l2=1e-5),
        Case("cross_entropy_wide_grad",
             jax.value_and_grad(lambda z, i: optax.softmax_cross_entropy_with_integer_labels(z, i).mean()),
             (_random(25, 1000), _ints(25, low=0, high=1000)), l2=1e-5),
    ]
    return cases


def _window_gather(offset: tuple[int, ...]) -> lax.GatherDimensionNumbers:
    """Of windows that begin anywhere along the last of three dimensions."""
    return lax.GatherDimensionNumbers(offset_dims=offset, collapsed_slice_dims=(), start_index_map=(2,))


WINDOW_SCATTER = lax.ScatterDimensionNumbers(update_window_dims=(0, 1, 3), inserted_window_dims=(),
                                             scatter_dims_to_operand_dims=(2,))


def columns() -> list[Case]:
    """Reads and updates of many columns, whose elements are far apart: the operand is transposed first."""
    x, index, more = _random(40, 1500), _ints(600, low=-1700, high=1700), _ints(600, low=0, high=300, seed=1)
    u, cube = _random(40, 600, seed=2), _random(20, 30, 700, seed=3)
    i, j, starts = _ints(900, low=0, high=30), _ints(900, low=0, high=700, seed=1), _ints(300, 1, low=-9, high=709)
    special = np.where(u > 0.3, np.nan, np.where(u < -0.3, -0.0, u))
    cases = [Case(f"take_{mode}", lambda v, i, m=mode: jnp.take(v, i, axis=1, mode=m), (x, index))
             for mode in ("clip", "fill", "wrap")]
    cases += [Case(f"take_{np.dtype(dtype).name}", lambda v, i, d=dtype: (v * 9).astype(d)[..., i], (x, more))
              for dtype in (jnp.bfloat16, np.int8, np.uint16, np.bool_, np.complex64)]
    cases += [Case(f"at_{name}_{mode}", lambda v, i, u, n=name, m=mode: getattr(v.at[:, i], n)(u, mode=m),
                   (x, where, u), l2=1e-6)
              for name in ("set", "add", "max", "multiply") for mode, where in (("drop", index), ("clip", more))]
    cases += [
        Case("middle", lambda v, i: v[:, i], (_random(60, 300, 3), more)),
        Case("pairs", lambda v, i, j: v[:, i, j], (cube, i, j)),
        Case("apart", lambda v, i, j: v[i, :, j], (_random(30, 20, 700), i, j)),
        Case("vmap", jax.vmap(lambda v, i: v[:, i]), (_random(5, 30, 400), _ints(5, 300, low=0, high=400))),
        Case("parts", lambda v, i: lax.gather(v, i, _window_gather((0, 1, 3)), (20, 30, 7), mode="clip"),
             (cube, starts)),
        Case("parts_cut", lambda v, i: lax.gather(v, i, _window_gather((1, 2, 3)), (20, 11, 7), mode="clip"),
             (cube, starts)),
        Case("grad", jax.grad(lambda v, i: jnp.sum(v[:, i] ** 2)), (x, more), l2=1e-6),
        Case("at_pairs", lambda v, i, j, u: v.at[:, i, j].add(u), (cube, i, j, _random(20, 900)), l2=1e-6),
        Case("at_apart", lambda v, i, j, u: v.at[i, :, j].min(u), (_random(30, 20, 700), i, j, _random(900, 20))),
        Case("at_vmap", jax.vmap(lambda v, i, u: v.at[:, i].set(u)),
             (_random(5, 30, 400), _ints(5, 300, low=0, high=400), _random(5, 30, 300))),
        Case("at_parts", lambda v, i, u: (lax.scatter(v, i, u, WINDOW_SCATTER, mode="drop"),
                                          lax.scatter_add(v, i, u, WINDOW_SCATTER, mode="drop")),
             (cube, starts, _random(20, 30, 300, 7)), l2=1e-6),
        Case("at_i16", lambda v, i, u: (v * 99).astype(np.int16).at[:, i].add((u * 99).astype(np.int16)),
             (x, index, u)),
        Case("at_unique", lambda v, i, u: v.at[:, i].multiply(u, unique_indices=True),
             (x, np.arange(0, 1200, 2, dtype=np.int32), u), l2=1e-6),
        Case("at_special", lambda v, i, u: (v.at[:, i].set(u), v.at[:, i].max(u)), (x, index, special)),
    ]
    return cases


def _heads_of(k: int) -> Callable:
    return lambda v, i: (lax.top_k(v, k), lax.top_k(i, k), jnp.argsort(v, 0)[:k], jnp.sort(i, 0)[:k],
                         lax.sort((i, v), dimension=0)[1][1:k:2], lax.top_k(v.astype(jnp.bfloat16), k))


def heads() -> list[Case]:
    """The first elements of sorted arrays, with equal ones, NaN and zeros of both signs, of lengths around powers of
    two."""
    cases = []
    for n in (2, 5, 8, 9, 33, 100, 128, 257):
        rng = np.random.default_rng(n)
        special = np.where(rng.random((n, n)) < 0.3, rng.choice([np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf], (n, n)),
                           np.round(_random(n, n), 1)).astype(np.float32)
        cases += [Case(f"heads_{n}_{k}", _heads_of(k), (special, _ints(n, n, low=0, high=7))) for k in (1, 2, 3, 8, 17)
                  if k <= n]
    wide = _random(3, 9, 70)
    cases += [
        Case("several_readers", lambda v: (lambda s: (s[0][..., :2], s[0][..., 5], s[1][..., 2:3]))(
            lax.sort((v, -v), num_keys=1)), (wide,)),
        Case("whole_reader", lambda v: (lambda s: (s[0][..., :2], s[1].sum(-1)))(
            lax.sort((v, lax.broadcasted_iota(jnp.int32, v.shape, 2)), num_keys=1)), (wide,)),
        Case("in_loop", lambda v: lax.fori_loop(0, 3, lambda _, x: x + lax.top_k(x, 3)[0][..., 2:], v), (wide,)),
        Case("other_dim_cut", lambda v: jnp.sort(v, 1)[:2, :, 3:9], (wide,)),
        Case("row_comparator", lambda v: lax.sort((v, v[::-1]), dimension=0, num_keys=2)[0][:1], (wide,)),
    ]
    return cases


def _one_of_each(v: jax.Array, i: jax.Array, u: jax.Array) -> tuple:
    """Updates of one window of a large array: a row, an element, a part of a row."""
    return v.at[i].set(u), v.at[i].add(u), v.at[i, 7].multiply(u[0]), v.at[i, 3:9].max(u[3:9]), v.at[:, i].min(v[:, 2])


def _written_in_turn(v: jax.Array, u: jax.Array) -> jax.Array:
    """A loop that carries a large array; some of its updates lie outside."""
    return lax.fori_loop(0, 30, lambda k, x: x.at[k * 17, k].set(u[k]).at[k * 13].add(u[k], mode="drop"), v)


def windows() -> list[Case]:
    """One update of an array that is too large to be rewritten, inside, partly outside and far outside."""
    x, row = _random(300, 400), _random(400, seed=1)
    rng = np.random.default_rng(7)
    special = np.where(rng.random((300, 400)) < 0.2, rng.choice([np.nan, -np.nan, -0.0, np.inf, 1e-40], (300, 400)), x)
    cases = [Case(f"one_at_{i}", _one_of_each, (x, np.int32(i), row))
             for i in (0, 299, -1, -300, 300, -301, 399, 2**31 - 1, -2**31)]
    cases += [Case(f"one_{np.dtype(dtype).name}_{i}", lambda v, k, d=dtype: (
        v.astype(d).at[k, k + 2].set(3), v.astype(d).at[k].set(v[5].astype(d)), v.astype(d).at[k, 1:4].add(1)),
                   (_ints(300, 400, low=-90, high=90), np.int32(i)))
              for dtype in (jnp.bfloat16, np.int8, np.uint8, np.int16) for i in (1, 298, 777)]
    cases += [Case(f"one_bool_{i}", lambda v, k: (v > 0).at[k, k].set(True), (x, np.int32(i))) for i in (3, 500)]
    one = lax.ScatterDimensionNumbers((0, 1), (), (0, 1))
    for start in ((3, 5), (295, 393), (296, 0), (0, 394), (-1, 0), (2**30, 2**30)):
        name = "_".join(map(str, start))
        at = np.array(start, np.int32)
        cases += [Case(f"window_{name}", lambda v, i, u, d=one: (lax.scatter(v, i, u, d), lax.scatter_add(v, i, u, d)),
                       (special.astype(np.float32), at, _random(5, 7))),
                  Case(f"window_large_{name}", lambda v, i, u, d=one: lax.scatter(v, i, u, d),
                       (x, at, _random(290, 390)))]
    return [*cases,
            Case("one_u32_place", lambda v, k: v.at[k].set(2.0), (x.ravel(), np.uint32(70001))),
            Case("one_u8_place", lambda v, k: v.at[k].add(2.0), (x, np.uint8(255))),
            Case("one_known", lambda v: (v.at[17].set(1), v.at[300].set(1), v.at[:, 3].add(1), v.at[9:27].set(0)),
                 (x,)),
            Case("one_kept", lambda v, k: (v.at[k].set(1.0), v + 1, v.at[k, 2].add(v[k, 2])), (x, np.int32(8))),
            Case("one_in_turn", _written_in_turn, (x, _random(30)))]


def all_cases() -> list[Case]:
    """Everything."""
    return [*reads(), *writes(), *windows()]
