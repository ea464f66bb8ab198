"""Cases of op_matrix_test.py: NaN, infinities and zeros of both signs through every operation.

The elementwise functions have theirs in op_cases.py and number_cases.py (`_specials`, `_wide`), sorts and argmax in
window_cases.py. Rows of finite numbers hold one special value each, so that sums keep what they should.
"""

from __future__ import annotations

from case_runner import Case
from op_cases import SPECIALS, _ints, _random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NEAR = 3e-6


def _rows(width: int, seed: int = 0) -> np.ndarray:
    """One row of finite numbers for each special value, which stands somewhere in it."""
    x = _random(SPECIALS.size, width, seed=seed)
    x[np.arange(SPECIALS.size), np.arange(SPECIALS.size) * 7 % width] = SPECIALS
    return x


def _image() -> np.ndarray:
    x = _random(2, 8, 9, 3)
    x[0, 2, 3, 1], x[0, 6, 6, 0], x[1, 0, 0, 2], x[1, 7, 8, 0] = np.nan, np.inf, -np.inf, -0.0
    return x


def sums() -> list[Case]:
    """Contractions, reductions, windows, batch norm, softmax: what one special value does to a sum."""
    x, image, w = _rows(33), _image(), _random(33, 17, seed=1)
    w_special = w.copy()
    w_special[3, 4], w_special[5, 6] = np.inf, np.nan
    kernel = _random(3, 3, 3, 5, seed=2)

    def convolve(v, k):
        return lax.conv_general_dilated(v, k, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def finite(*values):
        return tuple((jnp.isnan(v), jnp.isposinf(v), jnp.isneginf(v)) for v in values)

    def gradients(function):
        return lambda *args: finite(*jax.vjp(function, *args)[1](jnp.ones_like(function(*args))))

    def pool(v, f, i):
        return lax.reduce_window(v, np.float32(i), f, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")

    def depthwise(v, k):
        return lax.conv_general_dilated(v, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                        feature_group_count=3)

    def normal(v):
        return (v - v.mean(0)) * lax.rsqrt(v.var(0) + 1e-3)

    cases = [
        Case("dot", lambda a, b: finite(a @ b, (a @ b).T, jnp.maximum(a @ b, 0)), (x, w)),
        Case("dot_both", lambda a, b: finite(a @ b), (x, w_special)),
        # An infinity that meets a part of zero is NaN there: only finite or not is the same.
        Case("dot_high", lambda a, b: tuple(jnp.isfinite(jnp.dot(a, b, precision=p)) for p in ("high", "highest")),
             (x, w)),
        Case("dot_bf16", lambda a, b: finite(a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)), (x, w_special)),
        Case("dot_gradients", gradients(lambda a, b: a @ b), (x, w_special)),
        Case("convolution", lambda v, k: finite(convolve(v, k), jax.nn.relu(convolve(v, k) + 1)), (image, kernel)),
        Case("convolution_gradients", gradients(convolve), (image, kernel)),
        Case("depthwise", lambda v, k: finite(depthwise(v, k)), (image, _random(3, 3, 1, 6))),
        Case("reductions", lambda v: (v.sum(1), v.sum(0), v.max(1), v.min(0), v.sum(), jnp.mean(v, 1)), (x,), l2=NEAR),
        Case("products", lambda v: (jnp.prod(v[:, :3], 1), jnp.cumprod(v[:, :3], 1)), (x,), l2=NEAR),
        Case("norms", lambda v: (v.var(1), jnp.linalg.norm(v, axis=1), normal(v)),
             (np.where((np.abs(x) > 1e4) & np.isfinite(x), np.float32(5), x),), l2=1e-5),
        Case("softmax", lambda v: (jax.nn.softmax(v), jax.nn.log_softmax(v), jax.nn.logsumexp(v, 1)), (x,), l2=1e-5),
        Case("cumulative", lambda v: (jnp.cumsum(v, 1), lax.cummax(v, 1), lax.cummin(v, 1), lax.cumlogsumexp(v, 1)),
             (x,), l2=1e-5),
        Case("pools", lambda v: (pool(v, lax.max, -np.inf), pool(v, lax.min, np.inf), pool(v, lax.add, 0)), (image,),
             l2=NEAR),
        Case("pool_gradients", lambda v: tuple(jax.grad(lambda u, f=f, i=i: pool(u, f, i).sum())(v)
                                               for f, i in ((lax.max, -np.inf), (lax.min, np.inf), (lax.add, 0))),
             (image,), l2=NEAR),
    ]
    return cases


def moves() -> list[Case]:
    """Shapes, slices, indices, choices: values pass through with their signs."""
    x, at = _rows(11), np.array([0, 3, 13, 19, 11], np.int32)

    def loop(v):
        return lax.while_loop(lambda s: (s[0] < 9) & ~(jnp.max(s[1]) > 1e6), lambda s: (s[0] + 1, s[1] * 2),
                                        (0, v))

    return [
        Case("shapes", lambda v: (v.T, v[::-1], v[3:17:2, 1:], v.reshape(11, 20), jnp.concatenate([v, v], 1),
                                  v[:, :, None] * jnp.ones(3)),
             (x,)),
        Case("pads", lambda v: (lax.pad(v, jnp.float32(-np.inf), [(1, -1, 1), (-1, 2, 0)]), jnp.pad(v, 1, mode="edge")),
             (x,)),
        Case("dynamic", lambda v,
             i: (lax.dynamic_slice(v, (i, i), (4, 3)), lax.dynamic_update_slice(v, v[5:9, :4], (i, i))),
             (x, np.int32(11))),
        Case("gathers", lambda v, i: (v[i], v[:, i % 11], jnp.take_along_axis(v, i[None] % 11, 1)), (x, at)),
        Case("scatters", lambda v,
             i: tuple(getattr(v.at[i], name)(v[6:11]) for name in ("set", "add", "min", "max", "multiply")), (x, at),
             l2=NEAR),
        Case("scatters_large", lambda v,
             i: tuple(getattr(v.at[i], name)(v[6:11]) for name in ("set", "add", "min", "max", "multiply")),
             (np.tile(x, (60, 1)), at), l2=NEAR),
        Case("choices", lambda v: (jnp.where(v > 0, v, -v), lax.clamp(-1.0, v, 1.0), jnp.clip(v, v[::-1], 2.0),
                                   jnp.maximum(v, 0), v == v), (x,)),
        Case("sorts", lambda v: (jnp.sort(v, 0), jnp.argsort(v, 1), lax.top_k(v, 4)[1],
                                 jnp.sort(-v, 1, descending=True)), (x,)),
        Case("loop", loop, (x,)), Case("loop_without_nan", loop, (np.abs(_random(9, 4)),)),
        Case("branch", lambda v: tuple(lax.cond(u > 0, lambda a: a + 1, lambda a: -a, v)
                                       for u in (v[13, 3], v[11, 0], v[2, 0])), (x,)),
        Case("scan", lambda v: lax.scan(lambda c, r: (jnp.maximum(c, r), c * 0), v[0], v), (x,)),
        Case("bits", lambda v: (lax.bitcast_convert_type(v, jnp.int32), lax.reduce_precision(v, 5, 10),
                                v.astype(jnp.bfloat16),
                                jnp.signbit(v), v.astype(jnp.int8), v.astype(bool)), (x,)),
        Case("division_by_zero",
             lambda i: (lax.div(i, i * 0), lax.rem(i, i * 0), lax.div(1.0 * i, 0.0 * i), lax.rem(1.0 * i, 0.0 * i)),
             (_ints(50),)),
    ]


def cores() -> list[Case]:
    """Collectives. XLA on the CPU drops NaN in pmax and pmin, so those have gathers as their oracle."""
    x = _rows(8)[:16] * np.float32(0.5)
    mesh = {"d": 8}
    # Sums with one special value in each column, and of equal infinities.
    column = _random(16, 20, seed=4)
    column[np.arange(20) % 16, np.arange(20)] = SPECIALS
    column[:, 11] = np.inf
    return [
        Case("psum", lambda v: (lax.psum(v, "d"), lax.psum_scatter(v[:, :16], "d", scatter_dimension=1, tiled=True)),
             (column,), l2=NEAR, mesh=mesh),
        Case("extremes", lambda v: (lax.pmax(v, "d"), lax.pmin(v, "d")), (column,), mesh=mesh,
             oracle=lambda v: (lax.all_gather(v, "d").max(0), lax.all_gather(v, "d").min(0))),
        Case("moved", lambda v: (lax.all_gather(v, "d"), lax.all_to_all(v, "d", 1, 0, tiled=True),
                                 lax.ppermute(v, "d", [(0, 3), (3, 1), (6, 7)])), (x,), mesh=mesh)]
