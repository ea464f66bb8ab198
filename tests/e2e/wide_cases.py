"""64-bit integers (run with --x64) and random numbers. Cases as in op_cases.py; all integers must be equal."""

from __future__ import annotations

from case_runner import Case
from number_cases import integer_operations
from op_cases import _random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _edges(dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 10, 31, 32, 33, 63, 64, 65, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
              2**32 + 1, 2**47 + 3,
              10**18, info.max, info.max - 1, info.max // 3]
    if info.min < 0:
        values += [-1, -2, -7, -32, -64, -(2**31), -(2**32), -(2**32) - 1, -(10**17), info.min, info.min + 1]
    return np.array(values, dtype)


def _pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """The edges with each other, and random numbers of all lengths."""
    a, b = np.meshgrid(_edges(dtype), _edges(dtype))
    random = np.random.default_rng(7)
    raw = random.integers(0, 2**64, (2, 400), dtype=np.uint64) >> random.integers(0, 64, (2, 400), dtype=np.uint64)
    return np.append(a.ravel(), raw[0].view(dtype)), np.append(b.ravel(), raw[1].view(dtype))


def arithmetic() -> list[Case]:
    """Operations on i64 and ui64."""
    cases = []
    for dtype in (np.int64, np.uint64):
        x, y = _pairs(dtype)
        tag = np.dtype(dtype).name
        cases += integer_operations(tag, x, y)
        cases += [Case(f"{tag}_abs", jnp.abs, (x,)), Case(f"{tag}_integer_pow", lambda a: lax.integer_pow(a, 3), (x,)),
                  Case(f"{tag}_shift_by", lambda a,
                       dtype=dtype: tuple(f(a, dtype(n)) for n in (0, 1, 31, 32, 33, 63, 64)
                                                          for f in (lax.shift_left, lax.shift_right_logical,
                                                                    lax.shift_right_arithmetic)), (x[:99],)),
                  Case(f"{tag}_clamp_select", lambda a, b,
                       dtype=dtype: (lax.clamp(dtype(3), a, dtype(2**40)), jnp.where(a > b, a, b)), (x, y)),
                  Case(f"{tag}_divide_by_7", lambda a, dtype=dtype: (a // dtype(7), a % dtype(7)), (x,))]
    return cases


def arrays() -> list[Case]:
    """Conversions, shapes, reductions, control flow."""
    i, _ = _pairs(np.int64)
    u, _ = _pairs(np.uint64)
    m = i[:600].reshape(20, 30)
    floats = np.concatenate([_random(200, scale=1e3), _random(200, scale=1e12), _random(200, scale=1e19),
                             np.array([0, -0.0, np.inf, -np.inf, np.nan, 2**63, -(2**63), 2**64, 0.9, -0.9, 1e30,
                                       -1e30], np.float32)]
                            ).astype(np.float32)
    cases = []
    for name, value in (("int64", i), ("uint64", u)):
        for to in (np.int8, np.uint16, np.int32, np.uint32, np.float32, np.bool_, np.int64, np.uint64):
            cases.append(Case(f"{name}_to_{to.__name__}", lambda v, to=to: v.astype(to), (value,)))
    for to in (np.int64, np.uint64):
        for source in (floats, i.astype(np.int8), i.astype(np.int32), u.astype(np.uint32), i > 0):
            cases.append(Case(f"{source.dtype}_to_{to.__name__}", lambda v, to=to: v.astype(to), (source,)))
        cases.append(Case(f"bfloat16_to_{to.__name__}", lambda v, to=to: v.astype(to),
                          (jnp.asarray(floats, jnp.bfloat16),)))
    words = u[:40].view(np.uint32).reshape(-1, 2)
    cases += [Case("bitcast_u64_u32", lambda v: lax.bitcast_convert_type(v, jnp.uint32), (u,)),
              Case("bitcast_u32_i64", lambda v: lax.bitcast_convert_type(v, jnp.int64), (words,)),
              Case("bitcast_u64_u8", lambda v: lax.bitcast_convert_type(v, jnp.uint8), (u[:40],)),
              Case("bitcast_u16_u64", lambda v: lax.bitcast_convert_type(v, jnp.uint64),
                   (words.view(np.uint16).reshape(-1, 4),)),
              Case("identity", lambda v: v, (i,)), Case("scalar", lambda v: v * 3 + 1, (np.int64(2**40),)),
              Case("empty", lambda v: v + 1, (np.zeros((0, 3), np.int64),)),
              Case("constant", lambda v: v + jnp.asarray(np.arange(600, dtype=np.int64).reshape(20, 30) << 30), (m,)),
              Case("iota", lambda v: v + lax.broadcasted_iota(jnp.int64, (20, 30), 0) * (2**33), (m,)),
              Case("shapes", lambda v: (v.T, v.reshape(30, 20), v[3:9, ::2], jnp.flip(v, 1),
                                        jnp.broadcast_to(v[:1], (4, 30))), (m,)),
              Case("concatenate", lambda v: jnp.concatenate([v, v + 1], 1), (m,)),
              Case("pad", lambda v: jnp.pad(v, 2, constant_values=-5), (m,)),
              Case("sum", lambda v: (jnp.sum(v), jnp.sum(v, 0), jnp.sum(v, 1)), (m,)),
              Case("max_min", lambda v: (jnp.max(v, 0), jnp.min(v, 1), jnp.max(v)), (m,)),
              Case("prod", lambda v: jnp.prod(v | 1, 1), (m,)),
              Case("bit_reduce", lambda v: (lax.reduce(v, np.int64(0), lax.bitwise_xor, (1,)),
                                            lax.reduce(v, np.int64(-1), lax.bitwise_and, (0,))),
                   (m,)),
              Case("gather", lambda v, k: v[k], (m, np.array([3, 5, -1, 19], np.int64))),
              Case("sort", lambda v: jnp.sort(v), (i[:200],))]
    return cases


def _scatters(dtype: type) -> list[Case]:
    """Updates of equal places, of a table that is compared as a whole and of one that is not."""
    rng = np.random.default_rng(11)
    tag = np.dtype(dtype).name
    updates = rng.integers(0, 2**64, 700, dtype=np.uint64).view(dtype)
    cases = []
    for size in (50, 30000):
        table = rng.integers(0, 2**64, size, dtype=np.uint64).view(dtype)
        places = rng.integers(-3, size + 3, 700).astype(np.int64)
        numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
        cases += [
            Case(f"{tag}_scatter_{size}", lambda v, k, u: v.at[k].set(u), (table, np.unique(places % size),
                                                                          updates[:np.unique(places % size).size])),
            Case(f"{tag}_scatter_add_{size}", lambda v, k, u: v.at[k].add(u), (table, places, updates)),
            Case(f"{tag}_scatter_extremes_{size}", lambda v, k, u: (v.at[k].max(u), v.at[k].min(u)),
                 (table, places, updates)),
            Case(f"{tag}_scatter_one_{size}", lambda v, u: (v.at[7].set(u), v.at[7].add(u)), (table, updates[0])),
            Case(f"{tag}_scatter_multiply_{size}",
                 lambda v, k, u, n=numbers: lax.scatter_mul(v, k[:, None], u, n), (table, places, updates))]
    # One update of a table that is too large to be rewritten.
    table = rng.integers(0, 2**64, 100_000, dtype=np.uint64).view(dtype)
    cases += [Case(f"{tag}_scatter_one_at_{place}", lambda v, k, u: (v.at[k].set(u), v.at[k].add(u), v.at[k].max(u)),
                   (table, np.int64(place), updates[0]))
              for place in (0, 99_999, -1, 100_000, 2**32, -2**40)]
    return cases


def large() -> list[Case]:
    """Reductions of more elements than 16-bit digits can be added of, extremes over long rows, updates, orders."""
    rng = np.random.default_rng(12)
    cases = []
    for dtype in (np.int64, np.uint64):
        tag = np.dtype(dtype).name
        x = rng.integers(0, 2**64, 300_000, dtype=np.uint64).view(dtype)
        few = x[:81920].reshape(20, 4096) & dtype(0x7fffffff00000003)
        few[:, ::2] |= few[:, :1] & dtype(0x7fffffff00000000)
        cases += [
            Case(f"{tag}_sum_300000", jnp.sum, (x,)),
            Case(f"{tag}_sum_of_ones", jnp.sum, (np.full(70_000, -1, np.int64).view(dtype),)),
            Case(f"{tag}_extremes", lambda v: (jnp.max(v), jnp.min(v), jnp.max(v, 1), jnp.min(v, 1), jnp.max(v, 0),
                                               jnp.max(v, (0, 1), keepdims=True)), (few,)),
            Case(f"{tag}_extremes_3", lambda v: (jnp.max(v, (0, 2)), jnp.min(v, (1, 2))), (few.reshape(8, 10, 1024),)),
            Case(f"{tag}_extremes_uneven", lambda v: (jnp.max(v), jnp.min(v, 1), jnp.max(v, 0)), (few[:, :777],)),
            Case(f"{tag}_arguments", lambda v: (jnp.argmax(v, 1), jnp.argmin(v, 0)), (few[:, :300],)),
            Case(f"{tag}_cumulative", lambda v: (jnp.cumsum(v, 1), lax.cummax(v, 0)), (few[:, :200],)),
            Case(f"{tag}_update", lambda v, u, k: lax.dynamic_update_slice(v, u, (k, k + 100)),
                 (few, few[3:5, 9:99] + dtype(5), np.int64(17))),
            Case(f"{tag}_orders", lambda v: (jnp.sort(v, 1), jnp.argsort(v, 1)), (few[:, :100],)),
            Case(f"{tag}_bitcasts", lambda v: (lax.bitcast_convert_type(v, jnp.uint32),
                                               lax.bitcast_convert_type(v, jnp.int16)), (few[:, :130],)),
        ]
    return cases


def scatters() -> list[Case]:
    """Updates at places of a list."""
    return _scatters(np.int64) + _scatters(np.uint64)


def control() -> list[Case]:
    """64-bit values carried by loops and branches, 64-bit positions."""
    m = _pairs(np.int64)[0][:600].reshape(20, 30)
    return [Case("fori", lambda v: lax.fori_loop(0, 12, lambda k, c: c * 3 + k, v), (m,)),
            Case("while", lambda v: lax.while_loop(lambda c: c[0] < 2**50, lambda c: (c[0] * 5, c[1] + 1), (v, 0)),
                 (np.int64(3),)),
            Case("cond", lambda v: lax.cond(v[0, 0] > 5, lambda x: x + 1, lambda x: x - 1, v), (m,)),
            Case("dynamic_slice", lambda v, k: lax.dynamic_slice(v, (k, k), (3, 4)), (m, np.int64(2**40)))]


def bit_generators() -> list[Case]:
    """rng_bit_generator: bits and new state."""
    key = np.array([1, 2, 0xfffffffe, 0xffffffff], np.uint32)
    cases = []
    for name in ("RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"):
        algorithm = getattr(lax.RandomAlgorithm, name)
        for shape in ((), (1,), (8,), (7, 5), (3, 4), (1030,)):
            for dtype in (np.uint32, np.uint8, np.uint16):
                if dtype == np.uint32 or shape == (7, 5):
                    cases.append(Case(f"{name.lower()}_{'x'.join(map(str, shape))}_{np.dtype(dtype).name}",
                                      lambda k, s=shape, d=dtype,
                                      a=algorithm: lax.rng_bit_generator(k, s, d, algorithm=a), (key,)))
    return cases


def random() -> list[Case]:
    """jax.random: equal bits where only integers, bit patterns and exact float steps are used."""
    key = np.array([0x12345678, 0x9abcdef0], np.uint32)
    r = jax.random
    exact = {"split": lambda k: r.split(k, 3), "fold_in": lambda k: r.fold_in(k, 7),
             "seed": lambda k: r.key_data(r.key(k[0])),
             "bits": lambda k: r.bits(k, (33, 5)), "bits8": lambda k: r.bits(k, (100,), np.uint8),
             "bits16": lambda k: r.bits(k, (9,), np.uint16),
             "uniform": lambda k: r.uniform(k, (40, 7)),
             "uniform_range": lambda k: r.uniform(k, (100,), minval=-2.0, maxval=2.0),
             "uniform_bf16": lambda k: r.uniform(k, (100,), jnp.bfloat16),
             "bernoulli": lambda k: r.bernoulli(k, 0.3, (200,)),
             "randint": lambda k: r.randint(k, (100,), -5, 1000),
             "dropout": lambda k: jnp.where(r.bernoulli(k, 0.8, (50, 30)), 1.25, 0.0),
             "permutation": lambda k: r.permutation(k, 100), "large": lambda k: r.bits(k, (300, 300)),
             "two_keys": lambda k: [r.uniform(s, (50,)) for s in r.split(k)]}
    close = {"normal": (lambda k: r.normal(k, (300,)), 1e-6),
             "truncated_normal": (lambda k: r.truncated_normal(k, -2, 2, (300,)), 2e-6),
             "exponential": (lambda k: r.exponential(k, (300,)), 1e-6), "gumbel": (lambda k: r.gumbel(k, (300,)), 1e-6),
             "glorot_uniform": (lambda k: jax.nn.initializers.glorot_uniform()(k, (30, 20)), 1e-6),
             "he_normal": (lambda k: jax.nn.initializers.he_normal()(k, (30, 20)), 2e-6),
             "lecun_normal": (lambda k: jax.nn.initializers.lecun_normal()(k, (3, 3, 4, 5)), 2e-6)}
    cases = [Case(name, function, (key,)) for name, function in exact.items()]
    cases += [Case(name, function, (key,), l2=gap) for name, (function, gap) in close.items()]
    cases.append(Case("categorical", lambda k: r.categorical(k, jnp.log(jnp.arange(1.0, 11.0)) * jnp.ones((40, 1))),
                      (key,)))
    return cases
