"""Numbers: transcendental functions, integers of all widths, conversions, bit casts, narrow float formats.

Cases as in op_cases.py. Integer results must be equal; floats within the stated ulp (0: equal bits).
"""

from __future__ import annotations

from case_runner import Case
from op_cases import SPECIALS, _grid, _random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)


def _edges(dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, info.max, info.max - 1, info.max // 2, info.max // 3]
    if info.min < 0:
        values += [-1, -2, -3, -7, -8, -31, -32, info.min, info.min + 1, info.min // 2]
    return np.array([v for v in values if info.min <= v <= info.max], dtype)


def _pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    edges = _edges(dtype)
    a, b = np.meshgrid(edges, edges)
    info = np.iinfo(dtype)
    more = np.random.default_rng(3).integers(info.min, info.max, (2, 200), dtype=dtype, endpoint=True)
    return np.append(a.ravel(), more[0]), np.append(b.ravel(), more[1])


def _any_floats(count: int, seed: int = 0) -> np.ndarray:
    """Floats of all exponents and both signs, the specials first."""
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([SPECIALS, bits.view(np.float32)])


def _normal_floats(count: int, seed: int = 0) -> np.ndarray:
    """As _any_floats, without NaN payloads and subnormal numbers: the board has one NaN and one zero of each sign."""
    x = _any_floats(count, seed)
    x = np.where(np.isnan(x), np.float32(np.nan), x)
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x).astype(np.float32)


def transcendental() -> list[Case]:
    """Functions over all exponents and special values. JAX's own error stands in the bound."""
    wide = np.concatenate([_normal_floats(3000), _random(1000, scale=3.0)])
    turns = np.concatenate([_random(2000, scale=30.0), _normal_floats(2000)])
    inside = np.concatenate([np.linspace(-0.999, 0.999, 999).astype(np.float32), SPECIALS])
    cases = [Case(name, function, (turns,), ulp=ulp) for name, function, ulp in
             (("sin", lax.sin, 4), ("cos", lax.cos, 4), ("tan", lax.tan, 8))]
    cases += [Case(f"{name}_wide", function, (wide,), ulp=ulp) for name, function, ulp in (
        ("cbrt", lax.cbrt, 4), ("erf", lax.erf, 8), ("erfc", lax.erfc, 24), ("log", lax.log, 4), ("exp", lax.exp, 8),
        ("log1p", lax.log1p, 6), ("expm1", lax.expm1, 8), ("tanh", lax.tanh, 8), ("logistic", lax.logistic, 8),
        ("rsqrt", lax.rsqrt, 4), ("sqrt", lax.sqrt, 0), ("atan", lax.atan, 4), ("exp2", lax.exp2, 200))]
    cases += [Case("erf_inv", lax.erf_inv, (inside,), ulp=16), Case("asin", lax.asin, (inside,), ulp=16),
              Case("acos", lax.acos, (inside,), ulp=16), Case("atanh", lax.atanh, (inside,), ulp=16),
              Case("sinh", lax.sinh, (_random(500, scale=5.0),), ulp=16),
              Case("cosh", lax.cosh, (_random(500, scale=5.0),), ulp=16),
              Case("asinh", lax.asinh, (_random(500, scale=50.0),), ulp=16),
              Case("acosh", lax.acosh, (1 + np.abs(_random(500, scale=50.0)),), ulp=16),
              Case("lgamma", lax.lgamma, (np.abs(_random(500, scale=9.0)) + np.float32(0.1),), l2=1e-6),
              Case("digamma", lax.digamma, (np.abs(_random(500, scale=9.0)) + np.float32(0.1),), l2=1e-6),
              Case("gelu_exact", lambda v: jax.nn.gelu(v, approximate=False), (_random(999, scale=2.0),), l2=1e-6),
              Case("gelu", jax.nn.gelu, (_random(999, scale=2.0),), l2=1e-6),
              Case("erf_grad", jax.vmap(jax.grad(lax.erf)), (_random(99),), ulp=16)]
    a, b = _grid()
    far = _normal_floats(2000, 1), _normal_floats(2000, 2)
    cases += [Case("atan2_specials", lax.atan2, (a, b), ulp=4), Case("atan2_wide", lax.atan2, far, ulp=4),
              Case("pow_specials", lax.pow, (a, b), ulp=40), Case("rem_specials", lax.rem, (a, b))]
    half = jnp.asarray(np.concatenate([_random(600, scale=4.0), SPECIALS]), jnp.bfloat16)
    for name, function in {"sin": lax.sin, "cos": lax.cos, "tan": lax.tan, "erf": lax.erf, "cbrt": lax.cbrt,
                           "log1p": lax.log1p,
                           "expm1": lax.expm1, "exp": lax.exp, "tanh": lax.tanh}.items():
        # One step of bf16 is 65,536 of f32: roundings next to a half may go either way.
        cases.append(Case(f"bf16_{name}", function, (half,), ulp=65536))
    return cases


def rounding() -> list[Case]:
    """Roundings, tests and sign rules of floats, equal to the bit."""
    halves = np.concatenate([np.arange(-9, 9, 0.5, np.float32),
                             [0.49999997, -0.49999997, 8388607.5, -8388607.5, 8388609.0],
                             _normal_floats(500)]).astype(np.float32)
    cases = [Case(name, function, (halves,)) for name, function in {
        "floor": lax.floor, "ceil": lax.ceil, "is_finite": lax.is_finite, "sign": lax.sign, "abs": lax.abs,
        "round_afz": lax.round, "round_even": lambda v: lax.round(v, lax.RoundingMethod.TO_NEAREST_EVEN)}.items()]
    for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (5, 2), (8, 0), (8, 22), (2, 1), (6, 23), (1, 3)):
        cases.append(Case(f"reduce_precision_{exponent}_{mantissa}", lambda v, e=exponent,
                          m=mantissa: lax.reduce_precision(v, e, m),
                          (halves,)))
    half = jnp.asarray(halves, jnp.bfloat16)
    cases += [Case("bf16_reduce_precision_5_2", lambda v: lax.reduce_precision(v, 5, 2), (half,)),
              Case("bf16_round", lambda v: (lax.round(v), lax.floor(v), lax.ceil(v)), (half,)),
              Case("optimization_barrier", lambda v: lax.optimization_barrier((v, v + 1)), (_random(40),)),
              Case("clamp_scalar", lambda v: lax.clamp(-1.0, v, 2.0), (halves,)),
              Case("clamp_arrays", lambda v: lax.clamp(-jnp.abs(v), v * 2, jnp.abs(v)), (_random(77),)),
              Case("nextafter", lax.nextafter, (_random(300), _random(300, seed=1)))]
    return cases


def integer_operations(tag: str, x: np.ndarray, y: np.ndarray) -> list[Case]:
    """What is the same for every integer type: two operands, comparisons, one operand."""
    two = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max,
           "min": lax.min,
           "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "shl": lax.shift_left,
           "shr": lax.shift_right_logical, "sar": lax.shift_right_arithmetic}
    compares, one = ((lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge),
                     (lax.bitwise_not, lax.population_count, lax.clz, lax.sign, lax.neg))
    return [*(Case(f"{tag}_{name}", function, (x, y)) for name, function in two.items()),
            Case(f"{tag}_compare", lambda a, b: tuple(f(a, b) for f in compares), (x, y)),
            Case(f"{tag}_unary", lambda a: tuple(f(a) for f in one), (x,))]


def integers() -> list[Case]:
    """All operations on all integer types up to 32 bits, at the edges of their ranges."""
    cases = []
    for dtype in INTEGERS:
        x, y = _pairs(dtype)
        tag = np.dtype(dtype).name
        cases += integer_operations(tag, x, y)
        cases += [Case(f"{tag}_abs", jnp.abs, (x,)), Case(f"{tag}_integer_pow", lambda a: lax.integer_pow(a, 5), (x,)),
                  Case(f"{tag}_clamp_select", lambda a, b,
                       dtype=dtype: (lax.clamp(dtype(3), a, dtype(100)), jnp.where(a > b, a, b)), (x, y)),
                  Case(f"{tag}_sum", lambda a, dtype=dtype: (jnp.sum(a, dtype=dtype), jnp.max(a), jnp.min(a)), (x,)),
                  Case(f"{tag}_reduce_rows", lambda a,
                       dtype=dtype: (lax.reduce(a, dtype(1), lax.mul, (1,)), lax.reduce(a, dtype(0), lax.max, (0,)),
                                                        lax.reduce(a, dtype(7), lax.bitwise_xor, (1,))),
                       (x[:300].reshape(20, 15),)),
                  Case(f"{tag}_iota", lambda a, dtype=dtype: a + lax.iota(dtype, 400), (np.zeros(400, dtype),)),
                  Case(f"{tag}_transpose", lambda a, dtype=dtype: a.T + dtype(1), (x[:300].reshape(20, 15),)),
                  Case(f"{tag}_concatenate", lambda a, b: jnp.concatenate([a[:77], b[:33]]), (x, y))]
    flags = np.random.default_rng(0).integers(0, 2, (2, 99)).astype(bool)
    cases.append(Case("i1_all", lambda a,
                      b: (lax.bitwise_and(a, b), lax.bitwise_or(a, b), lax.bitwise_xor(a, b), lax.bitwise_not(a),
                                              lax.eq(a, b), lax.ne(a, b), lax.lt(a, b), lax.le(a, b), lax.gt(a, b),
                          lax.ge(a, b)),
                      tuple(flags)))
    return cases


def converts() -> list[Case]:
    """Conversions between all types and bit casts."""
    cases = []
    floats = np.concatenate([_normal_floats(300), _random(300, scale=100.0), _random(200, scale=1e5),
                             _random(99, scale=3e9)])
    sources = {np.dtype(t).name: _pairs(t)[0] for t in INTEGERS}
    sources |= {"float32": floats, "bfloat16": jnp.asarray(floats, jnp.bfloat16), "bool": _random(99) > 0}
    targets = [np.dtype(t) for t in INTEGERS] + [np.dtype(np.float32), np.dtype(jnp.bfloat16), np.dtype(bool)]
    for name, value in sources.items():
        for to in targets:
            if name != to.name:
                cases.append(Case(f"{name}_to_{to.name}", lambda v, to=to: v.astype(to), (value,)))
    raw = np.random.default_rng(5).integers(0, 2**32, 240, dtype=np.uint64).astype(np.uint32)
    clean = _normal_floats(240)
    by_size = {1: (np.int8, np.uint8), 2: (np.int16, np.uint16), 4: (np.int32, np.uint32)}
    for size_from, types in by_size.items():
        words = raw.view(types[0])
        for size_to, others in by_size.items():
            shaped = words.reshape(-1, size_to // size_from) if size_to > size_from else words
            for source in types:
                for to in others:
                    if source != to:
                        cases.append(Case(f"bitcast_{source.__name__}_{to.__name__}",
                                          lambda v, to=to: lax.bitcast_convert_type(v, to), (shaped.view(source),)))
    half = jnp.asarray(clean, jnp.bfloat16)
    pairs = np.asarray(half).view(np.uint16).reshape(-1, 2)
    cases += [Case("bitcast_f32_u32", lambda v: lax.bitcast_convert_type(v, jnp.uint32), (clean,)),
              Case("bitcast_u32_f32", lambda v: lax.bitcast_convert_type(v, jnp.float32), (clean.view(np.uint32),)),
              Case("bitcast_f32_i32_math", lambda v: lax.bitcast_convert_type(-v, jnp.int32) + 1,
                   (clean[~np.isnan(clean)],)),
              Case("bitcast_bf16_u16", lambda v: lax.bitcast_convert_type(v, jnp.uint16), (half,)),
              Case("bitcast_bf16_i16", lambda v: lax.bitcast_convert_type(v, jnp.int16), (half,)),
              Case("bitcast_u16_bf16", lambda v: lax.bitcast_convert_type(v, jnp.bfloat16), (pairs.ravel(),)),
              Case("bitcast_f32_u8", lambda v: lax.bitcast_convert_type(v, jnp.uint8), (clean,)),
              Case("bitcast_f32_bf16", lambda v: lax.bitcast_convert_type(v, jnp.bfloat16),
                   (clean[np.isfinite(clean)],)),
              Case("bitcast_bf16_f32", lambda v: lax.bitcast_convert_type(v, jnp.float32),
                   (half[:240].reshape(-1, 2),)),
              Case("bitcast_u8_f32", lambda v: lax.bitcast_convert_type(v, jnp.float32),
                   (clean.view(np.uint8).reshape(-1, 4),)),
              Case("bitcast_any_u32",
                   lambda v: lax.bitcast_convert_type(lax.bitcast_convert_type(v, jnp.float32), jnp.uint32), (raw,))]
    return cases
