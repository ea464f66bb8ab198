"""Cases of op_matrix_test.py: operations that only move values, or change their sign, keep all bits.

Arrays go in and come out as integers and are bf16 or f32 between bit casts, so that NaN payloads, subnormals and signs
count: all 65,536 bf16, and words of f32 of every kind. XLA on the CPU says many operations on bf16 by f32, which loses
NaN payloads (not in all: transposes keep them); without its pass for that it keeps all bits, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Read with the first array. Code that is not optimized takes halves through f32, which changes NaNs.
os.environ["XLA_FLAGS"] = (f"{os.environ.get('XLA_FLAGS', '')} --xla_disable_hlo_passes=float-normalization-bf16 "
                           "--xla_backend_optimization_level=3")

HALVES = np.arange(65536, dtype=np.uint16).reshape(256, 256)
INTEGERS = {jnp.bfloat16: jnp.uint16, jnp.float32: jnp.uint32}


def _words() -> np.ndarray:
    """Words of f32: bf16 of all exponents with noise below, NaNs and subnormals of both signs."""
    random = np.random.default_rng(8)
    words = random.integers(0, 2**32, (64, 96), dtype=np.uint64).astype(np.uint32)
    words[:16] &= np.uint32(0x807FFFFF)  # subnormals
    words[16:32] |= np.uint32(0x7F800000)  # NaNs
    words[0, :6] = 0, 0x80000000, 1, 0x80000001, 0x00010000, 0x807FFFFF
    words[20, :6] = 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 0x7FC00000, 0xFFFFFFFF
    return words


def _bits(function: Callable, dtype: type) -> Callable:
    """`function` of arrays of `dtype`, from integers to integers; other arguments and results stay."""

    def to_float(x: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(x, dtype) if x.dtype == INTEGERS[dtype] else x

    def to_bits(x: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(x, INTEGERS[x.dtype.type]) if x.dtype.type in INTEGERS else x

    return lambda *args: jax.tree.map(to_bits, function(*map(to_float, args)))


def _cases(prefix: str, functions: dict[str, Callable], mesh: dict[str, int] | None = None) -> list[Case]:
    arrays = {"bf16": (jnp.bfloat16, HALVES), "f32": (jnp.float32, _words())}
    return [Case(f"{prefix}{name}_{kind}", _bits(function, dtype), (words,), mesh=mesh)
            for name, function in functions.items() for kind, (dtype, words) in arrays.items()]


def _constant(bits: int) -> Callable:
    """A number of the dtype of an array, by the bits of a bf16."""

    def make(like: jax.Array) -> jax.Array:
        half = lax.bitcast_convert_type(np.uint16(bits), jnp.bfloat16)
        return half if like.dtype == jnp.bfloat16 else lax.bitcast_convert_type(np.uint32(bits << 16), jnp.float32)

    return make


NAN, SMALL = _constant(0xFF81), _constant(0x8001)  # a signalling NaN and a subnormal, both negative


def moves() -> list[Case]:
    """Shapes, slices, indices, choices, loops, conversions that are exact."""

    def swap(v: jax.Array) -> tuple:
        return lax.fori_loop(0, 3, lambda i, s: (s[1], jnp.roll(s[0], 1, 0)), (v, v[::-1]))

    def picked(v: jax.Array) -> tuple:
        rows = jnp.arange(v.shape[0])
        return jnp.take_along_axis(v, (rows[:, None] * 7) % v.shape[1], 1), v[rows * 5 % v.shape[0], rows % 9]

    functions = {
        "none": lambda v: v,
        "transpose": lambda v: (v.T, v.reshape(4, -1, v.shape[1]).transpose(1, 2, 0)),
        "reshape": lambda v: v.reshape(-1, 2, 64).transpose(1, 0, 2),
        "concatenate": lambda v: jnp.concatenate([v[:, 3:], v[:, :3]], 1),
        "pad": lambda v: (jnp.pad(v, 1), jnp.pad(v, 2, mode="edge"), lax.pad(v, NAN(v), [(2, -1, 1), (-3, 5, 0)]),
                          lax.pad(v, SMALL(v), [(0, 9, 0), (1, 0, 2)])),
        "reverse": lambda v: v[::-1, ::-1],
        "roll": lambda v: jnp.roll(v, (3, 5), (0, 1)),
        "broadcast": lambda v: (jnp.broadcast_to(v[3], (5, *v[3].shape)), jnp.repeat(v[:9], 3, 1), jnp.tile(v[:5], 2)),
        "constants": lambda v: (jnp.full((9, 9), NAN(v)), jnp.where(v[:9] > 0, v[:9], SMALL(v)),
                                jnp.full((3, 200), SMALL(v)).at[1].set(NAN(v))),
        "slice": lambda v: (v[1:50:3, 2:40], v[:, 7], v[5]),
        "select": lambda v: (jnp.where(jnp.arange(v.shape[1]) % 2 == 0, v, v[::-1]), lax.select(v > v[::-1], v, v)),
        "gather": lambda v: v[jnp.arange(v.shape[0])[::-1]],
        "gather_small": lambda v: (v[:7, :9][jnp.array([3, 0, 6, 3])], jnp.take(v[0, :9], jnp.arange(30) % 9)),
        "gather_elements": picked,
        "dynamic_slice": lambda v: lax.dynamic_slice(v, (3, 5), (40, 80)),
        "update": lambda v: lax.dynamic_update_slice(v, v[:9, :9], (7, 3)),
        "scatter": lambda v: (v.at[jnp.array([3, 9])].set(v[:2]),
                              v.at[jnp.array([3, 1]), jnp.array([4, 7])].set(v[0, 0])),
        "scatter_max": lambda v: (v.at[40:].max(1)[:40], v.at[jnp.array([41, 42, 41])].max(v[:3] * 0)[:40]),
        "scatter_small": lambda v: tuple(getattr(v[:30, :20].at[jnp.array([2, 9, 2]), 3], name)(1)[10:]
                                         for name in ("max", "min", "multiply", "add", "set")),
        "while": lambda v: lax.fori_loop(0, 3, lambda i, x: jnp.roll(x, 1, 0), v),
        "swap": swap,
        "scan": lambda v: lax.scan(lambda c, x: (x, c), v[0], v),
        "branch": lambda v: (lax.cond(v[0, 0] == 0, lambda x: x[::-1], lambda x: x, v),
                             lax.switch(1, [lambda x: x, lambda x: x.T.reshape(x.shape)], v)),
        "barrier": lax.optimization_barrier,
        "negate": lambda v: -v,
        "abs": jnp.abs,
        "copysign": lambda v: jnp.copysign(v, v[::-1]),
        "reduce_precision": lambda v: lax.reduce_precision(v, 8, 7 if v.dtype == jnp.bfloat16 else 23),
        "map": lambda v: lax.map(lambda r: r[::-1], v[:20]),
    }
    cases = _cases("", functions)
    cases += [Case("widen", _bits(lambda v: v.astype(jnp.float32), jnp.bfloat16), (HALVES,)),
              Case("widen_and_back", _bits(lambda v: v.astype(jnp.float32).T.astype(jnp.bfloat16), jnp.bfloat16),
                   (HALVES,)),
              Case("packed", lambda v: lax.bitcast_convert_type(
                  lax.bitcast_convert_type(v, jnp.bfloat16).transpose(1, 0, 2), jnp.uint32), (_words(),)),
              Case("words_of_halves", lambda v: lax.bitcast_convert_type(
                  jnp.roll(lax.bitcast_convert_type(v, jnp.bfloat16), 1, 0), jnp.uint32), (_words(),))]
    return cases


def orders() -> list[Case]:
    """Sorts by total order, top_k, comparisons: NaNs of both signs and payloads have their places."""

    def compares(v: jax.Array) -> tuple:
        u = v[::-1]
        return v < u, v <= u, v == u, v != u, jnp.signbit(v), jnp.isnan(v), v == 0

    def pairs(v: jax.Array) -> tuple:
        keys = v[:, ::2]
        return lax.sort((keys, v[:, 1::2], lax.broadcasted_iota(jnp.int32, keys.shape, 1)), num_keys=1)

    return _cases("", {
        "sort": lambda v: (jnp.sort(v), jnp.sort(v, 0)),
        "argsort": lambda v: (jnp.argsort(v), jnp.argsort(v, descending=True, stable=True)),
        "descending": lambda v: jnp.sort(v, descending=True),
        "sort_pairs": pairs,
        "top_k": lambda v: (*lax.top_k(v, 17), *lax.top_k(v, v.shape[1])),
        "compare": compares,
    })


def cores() -> list[Case]:
    """Collectives that only move."""
    return _cases("", {
        "all_gather": lambda v: lax.all_gather(v, "d"),
        "all_to_all": lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True),
        "permute": lambda v: lax.ppermute(v, "d", [(i, (i + 3) % 8) for i in range(8)]),
        "some": lambda v: lax.ppermute(v, "d", [(0, 3), (3, 1), (6, 7)]),
        "shuffle": lambda v: lax.pshuffle(v, "d", [7, 6, 5, 4, 0, 1, 2, 3]),
    }, mesh={"d": 8})


def all_cases() -> list[Case]:
    """All of them."""
    return moves() + orders() + cores()
