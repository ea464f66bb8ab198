"""f64 (run with --x64): pairs of f32 on the board, so 46 bits or so of what JAX has on the CPU. Cases as in
op_cases.py."""

from __future__ import annotations

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NEAR = 1e-13  # relative L2: 2^-43


def _random(*shape: int, seed: int = 1, scale: float = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) * scale


X, Y = _random(20, 30), _random(20, 30, seed=2)
POSITIVE = np.abs(X) + 1e-3
SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 0.5, 1e30, 2.0**-100, 1 + 2.0**-40])
A, B = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))


def elementwise() -> list[Case]:
    """Arithmetic and functions."""
    cases = [Case(name, function, (X, Y), l2=NEAR) for name, function in (
        ("add", lax.add), ("sub", lax.sub), ("mul", lax.mul), ("div", lax.div), ("rem", lax.rem), ("atan2", lax.atan2),
        ("max", lax.max), ("min", lax.min), ("where", lambda x, y: jnp.where(x > y, x, y * 2)),
        ("clamp", lambda x, y: lax.clamp(-0.5, x, 0.1)), ("integer_pow", lambda x, y: lax.integer_pow(x, 5) + y))]
    cases += [Case(name, function, (X,), l2=NEAR) for name, function in (
        ("exp", jnp.exp), ("expm1", jnp.expm1), ("sin", jnp.sin), ("cos", jnp.cos), ("tanh", jnp.tanh),
        ("logistic", jax.nn.sigmoid), ("tan", jnp.tan), ("erf", jax.scipy.special.erf),
        ("abs", jnp.abs), ("sign", jnp.sign), ("cbrt", jnp.cbrt),
        ("constant", lambda x: x * 0.1 + np.pi))]
    cases += [Case(name, function, (POSITIVE,), l2=NEAR) for name, function in (
        ("log", jnp.log), ("log1p", jnp.log1p), ("sqrt", jnp.sqrt), ("rsqrt", lax.rsqrt),
        ("pow", lambda x: x ** 2.5))]
    cases += [Case(name, function, (X * 10,)) for name, function in (
        ("floor", jnp.floor), ("ceil", jnp.ceil), ("round", jnp.round), ("trunc", jnp.trunc),
        ("is_finite", jnp.isfinite))]
    cases += [Case("compare", lambda a, b: (a < b, a <= b, a == b, a != b, a > b, a >= b), (A, B)),
              Case("extremes", lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b)), (A, B), l2=NEAR)]
    return cases


def arrays() -> list[Case]:
    """Conversions, shapes, reductions, sorts, control flow, contractions."""
    near = NEAR * 10
    cases = [Case(f"to_{to.__name__}", lambda x, to=to: x.astype(to), (X * 50,)) for to in (
        np.int8, np.uint16, np.int32, np.int64, np.uint64, np.bool_, np.float32)]
    cases += [Case(f"from_{np.dtype(of).name}", lambda x: x.astype(np.float64) / 3, ((X * 50).astype(of),), l2=NEAR)
              for of in (np.int8, np.int32, np.uint32, np.int64, np.bool_, np.float32)]
    cases += [
        Case("bits", lambda x: lax.bitcast_convert_type(x, jnp.uint64), (X.astype(np.float32).astype(np.float64),)),
        Case("from_bits", lambda x: lax.bitcast_convert_type(x, jnp.float64) * 2, (X.view(np.uint64),), l2=NEAR),
        Case("identity", lambda x: x, (X,)), Case("scalar", lambda x: x / 3, (np.float64(2),), l2=NEAR),
        Case("empty", lambda x: x + 1, (np.zeros((0, 3)),)),
        Case("iota", lambda x: x + lax.broadcasted_iota(jnp.float64, (20, 30), 1), (X,), l2=NEAR),
        Case("shapes", lambda x: (x.T, x.reshape(30, 20), x[3:9, ::2], jnp.flip(x, 1), jnp.pad(x, 2),
                                  x[17:], jnp.concatenate([x, -x])), (X,), l2=NEAR),
        Case("sums", lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean(), jnp.cumsum(x, 1)), (X,), l2=near),
        Case("reductions", lambda x: (x.max(), x.min(0), x.prod(1), jnp.argmax(x, 1)), (X,), l2=near),
        Case("sort", lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), (X,), l2=NEAR),
        Case("gather", lambda x, i: x[i], (X, np.array([3, 1, 19, 3])), l2=NEAR),
        Case("scatter", lambda x, i: (x.at[i].add(0.1), x.at[i].set(2.5)), (X, np.array([3, 1, 19, 3])), l2=NEAR),
        Case("update", lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 3, (i, i)), (X, np.int32(4)), l2=NEAR),
        Case("loop", lambda x: lax.fori_loop(0, 5, lambda i, v: v * 1.1 + i, x), (X,), l2=near),
        Case("branch", lambda x, p: lax.cond(p, jnp.sin, lambda v: v / 3, x), (X, np.bool_(True)), l2=NEAR),
        Case("dot", lambda x, y: x @ y.T, (X, Y), l2=near),
        Case("dot_highest", lambda x, y: jnp.dot(x, y.T, precision="highest"), (X, Y), l2=near),
        Case("matvec", lambda x, y: x @ y[0], (X, Y), l2=near),
        Case("convolve", lambda x, y: jnp.convolve(x[0], y[0, :5], mode="same"), (X, Y), l2=near),
        Case("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 1), "VALID"), (X,), l2=NEAR),
        Case("softmax", jax.nn.softmax, (X,), l2=near),
        Case("adam_scalars", lambda x, t: x * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t),
             (X.astype(np.float32), np.float64(3)), l2=1e-6)]
    return cases


def _convolve(x: jax.Array, w: jax.Array, strides: tuple = (1, 1), **more: object) -> jax.Array:
    return lax.conv_general_dilated(x, w, strides, ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def _max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def contractions() -> list[Case]:
    """Products on the matrix units."""
    near = NEAR * 10
    images, kernel = _random(4, 12, 12, 8, seed=5), _random(3, 3, 8, 6, seed=6)
    a, b = _random(48, 160, seed=7), _random(160, 40, seed=8, scale=1e8)
    return [
        Case("matmul", lambda x, y: x @ y, (a, b), l2=near),
        Case("mixed", lambda x, y: x.astype(jnp.float64) @ y, (a.astype(np.float32), b), l2=near),
        Case("batched", lambda x, y: jnp.einsum("bij,bkj->bik", x, y),
             (_random(3, 40, 100), _random(3, 40, 100, seed=9)), l2=near),
        Case("gram", lambda x: jnp.einsum("ij,ik->jk", x, x), (a,), l2=near),
        Case("convolution", _convolve, (images, kernel), l2=near),
        Case("strided", lambda x, w: _convolve(x, w, (2, 2), rhs_dilation=(2, 2)), (images, kernel), l2=near),
        Case("transposed", lambda x, w: _convolve(x, w, lhs_dilation=(2, 2)), (images, kernel), l2=near),
        Case("groups", lambda x, w: _convolve(x, w, feature_group_count=2), (images, _random(3, 3, 4, 6)), l2=near),
        Case("depthwise", lambda x, w: _convolve(x, w, feature_group_count=8), (images, _random(3, 3, 1, 8)), l2=near),
        Case("gradients", jax.grad(lambda x, w: jnp.sum(jnp.sin(_convolve(x, w))), (0, 1)), (images, kernel), l2=near),
        Case("group_gradients",
             jax.grad(lambda x, w: jnp.sum(jnp.sin(_convolve(x, w, feature_group_count=2))), (0, 1)),
             (images, _random(3, 3, 4, 6)), l2=near),
        Case("pool_gradient", jax.grad(lambda x: jnp.sum(_max_pool(x) ** 3)), (images,), l2=near)]


def matrices() -> list[Case]:
    """Factorizations and solvers."""
    square = _random(8, 8, seed=3) + 4 * np.eye(8)
    positive = square @ square.T
    return [Case(name, function, inputs, l2=NEAR * 100, platform="tpu", oracle=function) for name, function, inputs in (
        ("cholesky", jnp.linalg.cholesky, (positive,)), ("solve", jnp.linalg.solve, (square, _random(8, 2))),
        ("inverse", jnp.linalg.inv, (square,)), ("qr", lambda x: jnp.linalg.qr(x)[1], (square,)),
        ("eigenvalues", jnp.linalg.eigvalsh, (positive,)), ("det", jnp.linalg.det, (square,)),
        ("triangular", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
         (np.tril(square), _random(8, 3))))]


def sharded() -> list[Case]:
    """Over cores."""
    mesh = {"i": 4}
    images, kernel = _random(8, 8, 8, 4, seed=5), _random(12, 3, 4, 6, seed=6)
    return [Case("psum", lambda x: lax.psum(x, "i"), (X,), l2=NEAR, mesh=mesh),
            Case("dot_of_parts", lambda x, y: lax.psum(x @ y, "i"), (_random(320, 80), _random(320, 64)), l2=NEAR * 10,
                 mesh=mesh),
            Case("convolution_of_parts", lambda x, w: _convolve(x, w), (images, kernel), l2=NEAR * 10, mesh=mesh),
            Case("pool_gradient_of_parts", jax.grad(lambda x: jnp.sum(_max_pool(x) ** 3)), (images,), l2=NEAR * 10,
                 mesh=mesh),
            Case("pmax", lambda x: lax.pmax(x, "i"), (X,), l2=NEAR, mesh=mesh),
            Case("all_gather", lambda x: lax.all_gather(x, "i").sum(0), (X,), l2=NEAR, mesh=mesh),
            Case("ppermute", lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]), (X,), l2=NEAR,
                 mesh=mesh)]


def all_cases() -> list[Case]:
    """All of them."""
    return elementwise() + arrays() + contractions() + matrices() + sharded()
