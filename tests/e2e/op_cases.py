"""Small JAX programs, one or a few operations each, with inputs that hit odd shapes and special values.

Each case: name, function, inputs, largest allowed distance in ulp (0 = equal bits; NaN equals NaN). Dots are compared
with the reference whose operands are rounded to bf16, by relative L2.
"""

from __future__ import annotations

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SPECIALS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan,
                     88.0, -88.0, 0.1, -0.1, 1e-3, 100.0], np.float32)


def _random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(0.0, scale, shape)).astype(np.float32)


def _positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(_random(*shape, seed=seed)) + np.float32(0.01)


def _ints(*shape: int, seed: int = 0, low: int = -50, high: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(SPECIALS, SPECIALS)
    return a.astype(np.float32), b.astype(np.float32)


def elementwise() -> list[Case]:
    """Unary and binary arithmetic on special values and odd sizes."""
    a, b = _grid()
    cases = [Case(f"{name}_specials", function, (a, b)) for name, function in {
        "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "max": lax.max, "min": lax.min}.items()]
    cases += [Case(f"{name}_specials", function, (SPECIALS,)) for name, function in {
        "abs": lax.abs, "neg": lax.neg, "sign": lax.sign, "sqrt": lax.sqrt}.items()]
    wide = np.concatenate([_random(1000, scale=5.0), SPECIALS[np.isfinite(SPECIALS)]])
    cases += [Case(name, function, (wide,), ulp=8) for name, function in {
        "exp": lax.exp, "tanh": lax.tanh, "logistic": lax.logistic}.items()]
    cases += [Case(name, function, (_positive(777),), ulp=8) for name, function in {
        "log": lax.log, "rsqrt": lax.rsqrt}.items()]
    cases += [Case("pow", lax.pow, (_positive(500), _random(500, seed=1, scale=3.0)), ulp=16),
              Case("rem", lax.rem, (_random(301, scale=9.0), _random(301, seed=1))),
              Case("fused_chain", lambda x, y: jnp.where(x > y, x * 2 - y, jnp.maximum(x, 0) + y) / 3,
                   (_random(7, 129), _random(7, 129, seed=1)), l2=1e-6)]
    # JAX on the CPU contracts x * y + x to one rounding, the board rounds twice: compare by L2.
    for shape in ((), (1,), (0,), (7,), (1, 1), (3, 1), (1, 129), (5, 127), (9, 128), (2, 3, 5), (8, 1024), (300, 300)):
        cases.append(Case(f"add_mul_{'x'.join(map(str, shape)) or 'scalar'}", lambda x, y: x * y + x,
                          (_random(*shape), _random(*shape, seed=1)), l2=1e-6))
    return cases


def integers() -> list[Case]:
    """i32, ui32 and i1 arithmetic, compare, select, convert."""
    x, y = _ints(13, 37), _ints(13, 37, seed=1)
    edge = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 3], np.int32)
    ex, ey = (m.astype(np.int32) for m in np.meshgrid(edge, edge))
    u = ex.view(np.uint32), ey.view(np.uint32)
    bools = (x > 0, y > 0)
    cases = [Case(f"i32_{name}", function, (ex, ey)) for name, function in {
        "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max, "min": lax.min,
        "and": lax.bitwise_and, "or": lax.bitwise_or}.items()]
    cases += [Case(f"u32_{name}", function, u) for name, function in {
        "add": lax.add, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max, "min": lax.min,
        "lt": lax.lt}.items()]
    cases += [Case(f"i1_{name}", function, bools) for name, function in {
        "and": jnp.logical_and, "or": jnp.logical_or, "eq": lax.eq, "max": lax.max}.items()]
    cases += [Case("i1_not", jnp.logical_not, bools[:1]), Case("i32_not", lax.bitwise_not, (x,)),
              Case("i32_abs_neg_sign", lambda v: (jnp.abs(v), -v, jnp.sign(v)), (edge,))]
    a, b = _grid()
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        cases.append(Case(f"f32_{name}", getattr(lax, name), (a, b)))
        cases.append(Case(f"i32_{name}", getattr(lax, name), (ex, ey)))
    cases += [Case("f32_to_i32", lambda v: v.astype(jnp.int32), (np.append(_random(50, scale=1e4), SPECIALS),)),
              Case("i32_to_f32", lambda v: v.astype(jnp.float32), (edge,)),
              Case("u32_to_f32", lambda v: v.astype(jnp.float32), (edge.view(np.uint32),)),
              Case("f32_to_bf16_to_f32", lambda v: v.astype(jnp.bfloat16).astype(jnp.float32),
                   (np.append(_random(100), SPECIALS),)),
              Case("i1_to_f32", lambda v: v.astype(jnp.float32), (x > 0,)),
              Case("i32_to_i1", lambda v: v.astype(bool), (x,)),
              Case("select_scalar_like", lambda p, s, t: jnp.where(p, s, t), (x > 3, x, y))]
    return cases


def bfloat16() -> list[Case]:
    """bf16 values: every operation rounds."""
    x, y = (jnp.asarray(v, jnp.bfloat16) for v in (_random(5, 130), _random(5, 130, seed=1)))
    return [Case("bf16_add_mul", lambda a, b: a * b + a, (x, y)), Case("bf16_div", lax.div, (x, y)),
            Case("bf16_max", lax.max, (x, y)), Case("bf16_neg_abs", lambda a: (-a, abs(a)), (x,)),
            Case("bf16_compare_select", lambda a, b: jnp.where(a > b, a, b), (x, y)),
            Case("bf16_dot", lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((), ())),
                                                          preferred_element_type=jnp.float32), (x, y), l2=1e-6),
            Case("bf16_dot_bf16_out", lambda a, b: a @ b.T, (x, y), l2=1e-3)]  # one of 25 results rounds the other way


def movement() -> list[Case]:
    """Shapes: broadcast, reshape, transpose, slice, concatenate, iota."""
    x = _random(6, 5, 7)
    return [Case("broadcast_row", lambda v: jnp.broadcast_to(v, (9, 130)), (_random(130),)),
            Case("broadcast_col", lambda v: jnp.broadcast_to(v[:, None], (9, 130)), (_random(9),)),
            Case("broadcast_middle", lambda v: lax.broadcast_in_dim(v, (4, 3, 5, 6), (1, 3)), (_random(3, 6),)),
            Case("broadcast_one", lambda v: jnp.broadcast_to(v, (3, 200)), (_random(3, 1),)),
            Case("reshape", lambda v: v.reshape(35, 6) * 2, (x,)),
            Case("reshape_only", lambda v: v.reshape(2, 105), (x,)),
            Case("transpose_2d", lambda v: v.T, (_random(130, 70),)),
            Case("transpose_3d_201", lambda v: v.transpose(2, 0, 1), (x,)),
            Case("transpose_3d_102", lambda v: v.transpose(1, 0, 2), (x,)),
            Case("transpose_3d_021", lambda v: v.transpose(0, 2, 1), (x,)),
            Case("transpose_i1", lambda v: v.T, (_random(33, 20) > 0,)),
            Case("transpose_bf16", lambda v: v.T, (jnp.asarray(_random(33, 20), jnp.bfloat16),)),
            Case("slice", lambda v: v[1:5, 2:4, 3:], (x,)),
            Case("slice_strided", lambda v: v[::2, 1::3, ::2], (x,)),
            # Full tiles lie in VMEM row by row, the last one in a sequence would be one run with the holes.
            Case("slice_with_short_tiles", lambda v, w: v[:, :, :1000] * w,
                 (_random(2, 248, 2008), _random(248, 1000, seed=1))),
            Case("slice_with_short_rows", lambda v, w: v[:, :, :8192] * w,
                 (_random(2, 31, 9286), _random(31, 8192, seed=1))),
            Case("concatenate_0", lambda a, b: jnp.concatenate([a, b, a], 0), (_random(3, 40), _random(5, 40, seed=1))),
            Case("concatenate_1", lambda a, b: jnp.concatenate([a, b], 1), (_random(5, 33), _random(5, 100, seed=1))),
            *(Case(f"stack_last_{np.dtype(dtype).name}", lambda *v: jnp.stack(v, -1),
                   tuple(_random(13, 40, seed=i, scale=90).astype(dtype) for i in range(3)))
              for dtype in (np.float32, jnp.bfloat16, np.int8, np.uint16, np.bool_)),
            Case("stack_last_of_results", lambda a, b: jnp.stack([a * 2 + b, a - b], -1).reshape(33, 80),
                 (_random(33, 40), _random(33, 40, seed=1))),
            Case("concatenate_short_rows", lambda a, b: jnp.concatenate([a, b, a[:, :1]], 1),
                 (_random(300, 2), _random(300, 3, seed=1))),
            Case("iota", lambda v: v + lax.broadcasted_iota(jnp.int32, v.shape, 1) * 10 +
                 lax.broadcasted_iota(jnp.int32, v.shape, 0), (_ints(9, 140),)),
            Case("iota_f32", lambda v: v + jnp.arange(300, dtype=jnp.float32), (_random(300),)),
            Case("constant_array", lambda v: v * jnp.asarray(_random(12, 20, seed=9)), (_random(12, 20),)),
            *(Case(f"broadcast_empty_{'x'.join(map(str, shape))}", lambda v: jnp.broadcast_to(v, (2, *v.shape)),
                   (_random(*shape),)) for shape in ((0,), (3, 0), (0, 5), (1, 0, 2))),
            Case("constant_only", lambda v: (v, jnp.full((3, 4), 7, jnp.int32)), (_random(2),)),
            Case("identity", lambda v: v, (_random(11),)),
            Case("returned_twice", lambda v: (v + 1, v + 1, v), (_random(11),)),
            Case("one_hot", lambda v: (v[:, None] == jnp.arange(10)).astype(jnp.float32), (_ints(25, low=0, high=10),))]


def reductions() -> list[Case]:
    """Reduce over any dims; sums compare by L2, the others exactly."""
    cases = []
    for shape, axes in (((37,), (0,)), ((25, 10), (1,)), ((25, 10), (0,)), ((25, 10), (0, 1)), ((300, 300), (1,)),
                        ((300, 300), (0,)), ((4, 5, 6), (0, 2)), ((4, 5, 6), (1,)), ((1, 1), (0,)), ((3, 0), (1,)),
                        ((2, 3, 4, 5), (1, 3)), ((5000,), (0,)), ((129, 257), (0, 1))):
        x, tag = _random(*shape), f"{'x'.join(map(str, shape))}_{''.join(map(str, axes))}"
        # Terms that cancel leave a small sum with the roundings of large ones: four units of them.
        condition = np.linalg.norm(np.abs(x).sum(axes)) / max(np.linalg.norm(x.sum(axes)), 1e-30) if x.size else 1
        cases.append(Case(f"sum_{tag}", lambda v, axes=axes: jnp.sum(v, axes), (x,), l2=max(1e-6, 2**-22 * condition)))
        if 0 not in shape:
            cases.append(Case(f"max_{tag}", lambda v, axes=axes: jnp.max(v, axes), (x,)))
            cases.append(Case(f"min_i32_{tag}", lambda v, axes=axes: jnp.min(v, axes), (_ints(*shape),)))
        cases.append(Case(f"any_{tag}", lambda v, axes=axes: jnp.any(v, axes), (x > 1.5,)))
        cases.append(Case(f"all_{tag}", lambda v, axes=axes: jnp.all(v, axes), (x > -3,)))
        cases.append(Case(f"sum_i32_{tag}", lambda v, axes=axes: jnp.sum(v, axes), (_ints(*shape),)))
    cases += [Case("softmax", lambda v: jax.nn.softmax(v), (_random(25, 10),), l2=1e-6),
              Case("log_softmax_grad", jax.grad(lambda v: jnp.sum(jax.nn.log_softmax(v)[:, 0])), (_random(25, 10),),
                   l2=1e-5),
              Case("layer_norm", lambda v: (v - v.mean(-1, keepdims=True)) / jnp.sqrt(v.var(-1, keepdims=True) + 1e-5),
                   (_random(40, 200),), l2=1e-5),
              Case("max_with_nan", lambda v: jnp.max(v, 0),
                   (np.where(_random(9, 5) > 1, np.nan, 1).astype(np.float32),))]
    return cases


def dots() -> list[Case]:
    """dot_general in all arrangements of dims."""
    def dg(a, b, contract, batch=((), ())):
        return Case(f"dot_{a.shape}_{b.shape}_{contract}_{batch}".replace(" ", ""),
                    lambda x, y: lax.dot_general(x, y, (contract, batch)), (a, b), l2=1e-5)

    cases = [dg(_random(m, k), _random(k, n, seed=1), ((1,), (0,)))
             for m, k, n in ((1, 1, 1), (25, 784, 512), (128, 128, 128), (7, 129, 3), (130, 50, 260), (200, 10, 1),
                             (1, 300, 70))]
    cases += [dg(_random(70, 30), _random(70, 40, seed=1), ((0,), (0,))),
              dg(_random(30, 70), _random(40, 70, seed=1), ((1,), (1,))),
              dg(_random(70, 30), _random(40, 70, seed=1), ((0,), (1,))),
              dg(_random(300), _random(300, seed=1), ((0,), (0,))),
              dg(_random(33), _random(33, 17, seed=1), ((0,), (0,))),
              dg(_random(17, 33), _random(33, seed=1), ((1,), (0,))),
              dg(_random(9), _random(11, seed=1), ((), ())),
              dg(_random(4, 5, 6), _random(4, 6, 7, seed=1), ((2,), (1,)), ((0,), (0,))),
              dg(_random(5, 4, 6), _random(6, 7, 4, seed=1), ((2,), (0,)), ((1,), (2,))),
              dg(_random(3, 4, 5, 6), _random(5, 6, 7, seed=1), ((2, 3), (0, 1))),
              dg(_random(3, 4, 5, 6), _random(6, 2, 3, 9, seed=1), ((3,), (0,)), ((0,), (2,))),
              dg(_random(0, 5), _random(5, 3, seed=1), ((1,), (0,))),
              dg(_random(4, 0), _random(0, 3, seed=1), ((1,), (0,)))]
    cases += [Case("dense_relu_grad",
                   jax.grad(lambda w, x, b: jnp.sum(jnp.maximum(x @ w + b, 0) ** 2), argnums=(0, 1, 2)),
                   (_random(50, 30), _random(20, 50, seed=1), _random(30, seed=2)), l2=1e-5),
              Case("attention", lambda q, k, v: jax.nn.softmax(q @ k.transpose(0, 2, 1) / 8) @ v,
                   (_random(3, 20, 64), _random(3, 20, 64, seed=1), _random(3, 20, 64, seed=2)), l2=1e-5)]
    # Values of attention with a few queries: the products of four heads are one command.
    for batch, heads, queries, keys, features in ((2, 8, 1, 512, 128), (3, 4, 2, 300, 64), (1, 12, 8, 700, 80)):
        p, v = (jnp.asarray(_random(*shape, seed=i), jnp.bfloat16) for i, shape in
                enumerate(((batch, heads, queries, keys), (batch, keys, heads, features))))
        cases.append(Case(f"few_rows_{heads}_{queries}_{keys}_{features}",
                          lambda p, v: jnp.einsum("bhqk,bkhd->bqhd", p, v), (p, v), l2=1e-3))
    return cases


def all_cases() -> list[Case]:
    """Everything, with unique names."""
    cases = [*elementwise(), *integers(), *bfloat16(), *movement(), *reductions(), *dots()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "case names must be unique"
    return cases
