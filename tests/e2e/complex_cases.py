"""Complex numbers and Fourier transforms. Cases as in op_cases.py; the real and the imaginary parts are compared."""

from __future__ import annotations

from dataclasses import replace

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import signal


def _random(*shape: int, seed: int = 1, scale: float = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    parts = random.standard_normal((2, *shape)) * scale
    return (parts[0] + 1j * parts[1]).astype(np.complex64)


def _real(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _pairs(values: list[float]) -> np.ndarray:
    return np.array([complex(a, b) for a in values for b in values], np.complex64)


X, Y = _random(6, 50), _random(6, 50, seed=2)
SQUARE, OTHER = _random(12, 12, seed=3), _random(12, 12, seed=4)
TALL = _random(9, 6, seed=6)
# Of all sizes, on and off the axes; e^ and sinh of them stay in range.
SPREAD = np.concatenate([_random(200, scale=s, seed=int(10 * s) + 5) for s in (0.01, 1, 10)]
                        + [_pairs([0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 7.25])])
INF, NAN = float("inf"), float("nan")
SPECIAL = _pairs([0.0, -0.0, 1.0, -2.0, INF, -INF, NAN])


def elementwise() -> list[Case]:
    """Arithmetic and functions."""
    cases = [Case(name, function, (X, Y), l2=1e-6) for name, function in (
        ("add", lax.add), ("sub", lax.sub), ("mul", lax.mul), ("div", lax.div),
        ("integer_pow", lambda x, y: lax.integer_pow(x, 3) + y), ("where", lambda x, y: jnp.where(x.real > 0, x, y)))]
    cases += [Case(name, function, (X, Y)) for name, function in (
        ("parts", lambda x, y: (jnp.real(x), jnp.imag(y), jnp.conj(x), lax.complex(x.real, y.imag))),
        ("equal", lambda x, y: (x == y, x != y, x == x)), ("neg", lambda x, y: (-x, -y)),
        ("maximum", lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y))))]
    cases += [Case(name, function, (SPREAD,), l2=2e-6) for name, function in (
        ("abs", jnp.abs), ("sign", lax.sign), ("angle", jnp.angle), ("sqrt", jnp.sqrt), ("expm1", jnp.expm1),
        ("exp", jnp.exp), ("sin", jnp.sin), ("cos", jnp.cos), ("sinh", jnp.sinh), ("cosh", jnp.cosh),
        ("tanh", jnp.tanh), ("reciprocal", lambda x: 1 / (x + 2.5)))]
    cases += [Case(name, function, (SPREAD[np.abs(SPREAD) > 0],), l2=2e-6) for name, function in (
        ("log", jnp.log), ("log1p", lambda x: jnp.log1p(x + 0.5j)), ("rsqrt", lax.rsqrt), ("log10", jnp.log10),
        ("cbrt", lambda x: x ** (1 / 3)))]
    small = SPREAD[np.abs(SPREAD.imag) < 8]
    cases += [Case(name, function, (small,), l2=5e-6) for name, function in (
        ("tan", jnp.tan), ("sinc", jnp.sinc), ("logistic", jax.nn.sigmoid), ("arcsin", jnp.arcsin),
        ("arccos", jnp.arccos),
        ("arctan", lambda x: jnp.arctan(x / 3 + 0.2)), ("arcsinh", jnp.arcsinh), ("arccosh", jnp.arccosh))]
    cases += [Case("power", lambda x, y: x**y, (X + 0.1, Y), l2=5e-6),
              Case("power_of_real", lambda x: x**2.5, (X,), l2=5e-6),
              Case("iota", lambda x: x[0] + jnp.arange(50, dtype=jnp.complex64), (X,), l2=1e-6),
              Case("converts", lambda r, i: (r.astype(jnp.complex64), i.astype(jnp.complex64),
                                             (i * 1j).imag.astype(jnp.int32)),
                   (_real(40), np.arange(40, dtype=np.int32))),
              Case("views", lambda x: (x.view(jnp.float32), x.view(jnp.uint32),
                                       x.view(jnp.float32).view(jnp.complex64)), (X,))]
    return cases


def special() -> list[Case]:
    """Signed zeros, infinities and NaN."""
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    finite = SPECIAL[np.isfinite(SPECIAL)]
    large = np.array([1e30 + 1e30j, 3e37 - 1e37j, 1e-25 + 1e-25j, 1e-18j, 1e18 + 1e-18j, -1e37], np.complex64)
    return [Case("mul", lax.mul, (a, b)), Case("add", lambda x, y: (x + y, x - y), (a, b)),
            Case("equal", lambda x, y: (x == y, x != y), (a, b)),
            Case("div", lax.div, (finite, finite[::-1].copy()), l2=1e-6),
            Case("div_zero", lax.div, (SPECIAL, np.zeros_like(SPECIAL))),
            Case("div_range", lambda x: (x / x, x / (2 * x), (x / x[::-1] * x[::-1])), (large[:5],), l2=1e-6),
            Case("abs", lambda x: (jnp.abs(x), jnp.isfinite(x), jnp.isnan(x), jnp.isinf(x)), (SPECIAL,), l2=1e-6),
            Case("abs_range", jnp.abs, (large,), l2=1e-6), Case("sqrt", jnp.sqrt, (SPECIAL,), l2=1e-6),
            Case("sqrt_range", lambda x: jnp.sqrt(x), (large,), l2=1e-6),
            Case("log", jnp.log, (SPECIAL,), l2=1e-6),
            Case("tanh", jnp.tanh, (SPECIAL[np.isfinite(SPECIAL.imag)],), l2=1e-6),
            Case("exp_range", jnp.exp, (np.array([88 + 1j, 89 + 1.57j, 90 + 1.5j, -90 + 1j, -3 + 0j], np.complex64),),
                 l2=2e-5),
            Case("sort", jnp.sort, (SPECIAL[~np.isnan(SPECIAL)],))]


def arrays() -> list[Case]:
    """Shapes, moves, indices."""
    index = np.array([4, 0, 4, 2], np.int32)
    return [
        Case("shapes", lambda x: (x.T, x.reshape(3, 100), x[::-1], x[1:5:2, ::3], jnp.pad(x, ((1, 2), (0, 3))),
                                  jnp.broadcast_to(x[:, :1], (6, 4)), jnp.concatenate([x, x * 1j], 0)), (X,)),
        Case("scalar", lambda x: x[0, 0] * (2 + 1j), (X,), l2=1e-6),
        Case("empty", lambda x: (x[:0] + 1, jnp.sum(x[:0], 0)), (X,)),
        Case("constants", lambda x: x + jnp.asarray(Y), (X,), l2=1e-6),
        Case("take", lambda x, i: (x[i], jnp.take(x, i, 1), x.at[i].set(1j)), (X, index)),
        Case("scatter_add", lambda x, i: x.at[i].add(x[:4]), (X, index), l2=1e-6),
        Case("scatter_mul", lambda x, i: x.at[i].multiply(x[:4]), (X, index), l2=1e-6),
        Case("dynamic", lambda x, i: (lax.dynamic_slice(x, (i[0], i[1]), (2, 5)),
                                      lax.dynamic_update_slice(x, x[:2] * 1j, (i[0], i[3]))), (X, index)),
        Case("sort", lambda x: (jnp.sort(x.ravel()), jnp.argsort(x, 1)), (np.round(X),)),
        Case("stack", lambda x: jnp.stack([jnp.triu(x), jnp.tril(x), jnp.diag(jnp.diag(x))]), (SQUARE,)),
    ]


def reductions() -> list[Case]:
    """Sums, products, windows, extremes."""
    return [
        Case("sum", lambda x: (jnp.sum(x), jnp.sum(x, 0), jnp.mean(x, 1), jnp.var(x, 1)), (X,), l2=2e-6),
        Case("prod", lambda x: (jnp.prod(x, 1), jnp.prod(x, 0)), (X[:, :12],), l2=1e-5),
        Case("cumsum", lambda x: jnp.cumsum(x, 1), (X,), l2=5e-6),
        Case("cumprod", lambda x: jnp.cumprod(x, 1), (X[:, :20],), l2=1e-5),
        Case("max", lambda x: (jnp.max(x, 1), jnp.min(x, 0)), (np.round(X),)),
        Case("norm", lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1)), (X,), l2=2e-6),
        Case("any", lambda x: (jnp.any(x, 1), jnp.all(x, 0), jnp.count_nonzero(x)), (np.round(X),)),
    ]


def products() -> list[Case]:
    """Contractions at full precision, and at the board's own."""
    high = lax.Precision.HIGHEST
    image, kernel = _random(2, 9, 9, 3), _random(3, 3, 3, 4, seed=5)

    def convolved(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                        precision=high)

    return [
        Case("matmul", lambda x, y: jnp.matmul(x, y, precision=high), (SQUARE, OTHER), l2=2e-6),
        Case("matmul_default", lambda x, y: x @ y, (X, Y.T.copy()), l2=1e-2),
        Case("vdot", lambda x, y: (jnp.vdot(x, y, precision=high), jnp.outer(x[0], y[1])), (X, Y), l2=3e-6),
        Case("batched", lambda x, y: jnp.einsum("bij,bjk->bik", x, y, precision=high),
             (_random(3, 5, 7), _random(3, 7, 4)), l2=2e-6),
        Case("with_real", lambda x, r: (jnp.matmul(x, r, precision=high), jnp.matmul(r.T, x.T, precision=high)),
             (SQUARE, _real(12, 9)), l2=2e-6),
        Case("conv", lambda x, w: (convolved(x, w), convolved(x, w, 2)), (image, kernel), l2=3e-6),
    ]


def control() -> list[Case]:
    """Loops, branches, functions of several values."""

    def mandelbrot(c: jax.Array) -> tuple:
        def step(carried: tuple) -> tuple:
            z, count, i = carried
            z = jnp.where(jnp.abs(z) < 4, z * z + c, z)
            return z, count + (jnp.abs(z) < 2), i + 1

        return lax.while_loop(lambda v: v[2] < 20, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32), 0))[1]

    def scanned(x: jax.Array) -> tuple:
        return lax.scan(lambda s, row: (s * 0.5j + row, jnp.sum(s)), jnp.zeros_like(x[0]), x)

    grid = (np.linspace(-2.03, 0.51, 24)[None] + 1j * np.linspace(-1.21, 1.17, 20)[:, None]).astype(np.complex64)
    return [
        Case("mandelbrot", mandelbrot, (grid,)), Case("scan", scanned, (X,), l2=3e-6),
        Case("cond", lambda x, i: lax.cond(i[0] > 2, lambda v: v * 1j, lambda v: jnp.conj(v), x),
             (X, np.array([3], np.int32)), l2=1e-6),
        Case("switch", lambda x, i: lax.switch(i[0], [lambda v: v, lambda v: v + 1j, jnp.conj], x),
             (X, np.array([1], np.int32)), l2=1e-6),
        Case("map", lambda x: lax.map(lambda row: jnp.fft.fft(row) * row[0], x), (_random(3, 16),), l2=3e-6),
    ]


LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 30, 64, 97, 128, 129, 243, 255, 256, 257, 360, 500, 509, 512, 514, 521, 600, 1000,
           1021, 1024, 1042, 2187, 4096)


def transforms() -> list[Case]:
    """All types, lengths and ranks."""
    cases = []
    for n in LENGTHS:
        bound = 4e-7 * (2 + np.log2(n)) ** 0.5
        cases += [Case(f"complex_{n}", lambda x: (jnp.fft.fft(x), jnp.fft.ifft(x)), (_random(3, n),), l2=bound),
                  Case(f"real_{n}", jnp.fft.rfft, (_real(3, n),), l2=bound),
                  Case(f"to_real_{n}", lambda x, n=n: jnp.fft.irfft(x, n), (_random(3, n // 2 + 1),), l2=bound)]
    cases += [
        Case("fft2", lambda x: (jnp.fft.fft2(x), jnp.fft.ifft2(x)), (_random(2, 12, 20),), l2=1e-6),
        Case("fftn", lambda x: (jnp.fft.fftn(x), jnp.fft.ifftn(x)), (_random(6, 12, 20),), l2=1e-6),
        Case("rfft2", jnp.fft.rfft2, (_real(2, 12, 21),), l2=1e-6),
        Case("rfftn", jnp.fft.rfftn, (_real(6, 9, 20),), l2=1e-6),
        Case("irfftn", lambda x: (jnp.fft.irfft2(x), jnp.fft.irfftn(x)), (_random(6, 9, 11),), l2=1e-6),
        Case("axes", lambda x: (jnp.fft.fft(x, axis=0), jnp.fft.fft(x, n=40, axis=1),
                                jnp.fft.fft(x, n=64, norm="ortho")),
             (X,), l2=1e-6),
        Case("hfft", lambda x: (jnp.fft.hfft(x), jnp.fft.ihfft(x.real), jnp.fft.fftshift(x)), (X,), l2=1e-6),
        Case("empty", lambda x: jnp.fft.fft(x[:0]), (X,)),
        Case("one_of_all", lambda x: jnp.fft.fft(x), (np.eye(1, 1000, 7, dtype=np.complex64),), l2=1e-6),
    ]
    return cases


def signals() -> list[Case]:
    """What stands on transforms."""
    x, h = _real(500), _real(37, seed=2)
    return [
        Case("fftconvolve", signal.fftconvolve, (x, h), l2=2e-6),
        Case("fftconvolve_2d", lambda a, b: signal.fftconvolve(a, b, "same"), (_real(30, 40), _real(5, 7)), l2=2e-6),
        Case("stft", lambda v: signal.stft(v, nperseg=64), (x,), l2=2e-6),
        Case("istft", lambda v: signal.istft(signal.stft(v, nperseg=64)[2], nperseg=64), (x,), l2=3e-6),
        Case("welch", lambda v: signal.welch(v, nperseg=64), (x,), l2=5e-6),
    ]


def gradients() -> list[Case]:
    """Of real functions through complex numbers."""

    def spectrum(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 1.5)

    def through(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(jnp.sin(x) * jnp.exp(x * 1j) / (x + 2j)) ** 2)

    high = lax.Precision.HIGHEST
    return [
        Case("rfft", jax.grad(spectrum), (_real(4, 60),), l2=5e-6),
        Case("irfft", jax.grad(lambda x: jnp.sum(jnp.fft.irfft(x * (1 + 2j)) ** 3)), (_real(4, 31),), l2=5e-6),
        Case("functions", jax.grad(through), (_real(40),), l2=5e-6),
        Case("holomorphic", jax.grad(lambda z: jnp.sum(z**3 + jnp.exp(z)), holomorphic=True), (X,), l2=5e-6),
        Case("matmul", jax.grad(lambda z: jnp.sum(jnp.abs(jnp.matmul(z, SQUARE, precision=high)) ** 2)), (OTHER,),
             l2=5e-6),
        Case("fft2", jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft2(x)) ** 4) ** 0.25), (_real(16, 18),), l2=1e-5),
    ]


def matrices() -> list[Case]:
    """Factors and solutions."""
    positive = (SQUARE @ SQUARE.conj().T + 12 * np.eye(12)).astype(np.complex64)
    triangle = (np.tril(SQUARE) + 5 * np.eye(12)).astype(np.complex64)
    solve = lax.linalg.triangular_solve

    def choleskies(a: jax.Array) -> tuple:
        return jnp.linalg.cholesky(a), jnp.linalg.cholesky(a, upper=True)

    cases = [Case("cholesky", choleskies, (positive,), l2=5e-6, platform="tpu", oracle=choleskies)]
    for left in (True, False):
        for transpose, conjugate in ((False, False), (True, False), (True, True)):
            for unit in (False, True):
                def run(a: jax.Array, b: jax.Array, left: bool = left, transpose: bool = transpose,
                        conjugate: bool = conjugate, unit: bool = unit) -> tuple:
                    how = {"left_side": left, "transpose_a": transpose, "conjugate_a": conjugate,
                           "unit_diagonal": unit}
                    scale = 0.1 if unit else 1
                    return solve(a * scale, b, lower=True, **how), solve(a.T * scale, b, lower=False, **how)

                name = f"triangular_{left:d}{transpose:d}{conjugate:d}{unit:d}"
                cases.append(Case(name, run, (triangle, OTHER), l2=1e-5, platform="tpu", oracle=run))
    for name, function, matrix in (
        ("qr", jnp.linalg.qr, TALL), ("qr_wide", jnp.linalg.qr, TALL.T.copy()),
        ("qr_complete", lambda a: jnp.linalg.qr(a, "complete"), TALL), ("lu", lax.linalg.lu, SQUARE),
        ("lu_tall", lax.linalg.lu, TALL), ("lu_batch", lax.linalg.lu, _random(2, 3, 5, 5, seed=7)),
        ("det", jnp.linalg.det, SQUARE), ("inv", jnp.linalg.inv, SQUARE), ("pinv", jnp.linalg.pinv, TALL),
        ("solve", lambda a: jnp.linalg.solve(a, OTHER), SQUARE), ("slogdet", jnp.linalg.slogdet, SQUARE),
        ("eigvalsh", jnp.linalg.eigvalsh, positive),
        ("singular_values", lambda a: jnp.linalg.svd(a, compute_uv=False), TALL),
        # Vectors have a free phase: what they make of the matrix has none.
        ("eigh", lambda a: _rebuilt(*jnp.linalg.eigh(a)), positive),
        ("eigh_odd", lambda a: _rebuilt(*jnp.linalg.eigh(a)), positive[:7, :7].copy()),
        ("eigh_equal", lambda a: _rebuilt(*jnp.linalg.eigh(a)),
         np.kron(np.eye(3), positive[:3, :3]).astype(np.complex64)),
        ("svd", lambda a: _rebuilt_of_svd(*jnp.linalg.svd(a, full_matrices=False)), TALL),
    ):
        cases.append(Case(name, function, (matrix,), l2=2e-5, platform="tpu", oracle=function))
    return cases


def _rebuilt(values: jax.Array, vectors: jax.Array) -> tuple:
    high = lax.Precision.HIGHEST
    adjoint = jnp.conj(vectors.T)
    return (values, jnp.matmul(vectors * values, adjoint, precision=high), jnp.matmul(adjoint, vectors, precision=high))


def _rebuilt_of_svd(u: jax.Array, s: jax.Array, v: jax.Array) -> tuple:
    return s, jnp.matmul(u * s, v, precision=lax.Precision.HIGHEST)


GROUPS = (elementwise, special, arrays, reductions, products, control, transforms, signals, gradients, matrices)


def sharded() -> list[Case]:
    """Bodies of a shard_map over eight cores."""
    mesh = {"d": 8}
    x = _random(16, 40)

    def permuted(v: jax.Array) -> jax.Array:
        return lax.ppermute(v, "d", [(i, (i + 1) % 8) for i in range(8)])

    return [
        Case("psum", lambda v: lax.psum(v, "d") * v, (x,), l2=1e-6, mesh=mesh),
        Case("pmean", lambda v: lax.pmean(jnp.fft.fft(v), "d")[:1], (x,), l2=2e-6, mesh=mesh),
        Case("all_gather", lambda v: jnp.sum(lax.all_gather(v, "d"), 0), (x,), l2=1e-6, mesh=mesh),
        Case("psum_scatter", lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True), (x,), l2=1e-6,
             mesh=mesh),
        Case("all_to_all", lambda v: lax.all_to_all(v, "d", 1, 0, tiled=True), (x,), mesh=mesh),
        Case("permute", permuted, (x,), mesh=mesh),
    ]


def all_cases() -> list[Case]:
    """Every case."""
    return [replace(case, name=f"{group.__name__}_{case.name}") for group in (*GROUPS, sharded) for case in group()]
