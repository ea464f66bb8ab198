"""Cases of functions_test.py: single functions of jax.numpy, jax.lax, jax.nn, jax.random, jax.scipy and jax.image.

A line names functions and the inputs that all of them take; `_of` puts a case beside each name. Each is exported for
TPUs and compared with what the CPU backend makes of the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from case_runner import Case
from op_cases import _ints, _random

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

# Of elementwise chains in f32; sums and products are as near.
NEAR = 2e-5

X, Y = _random(4, 6), _random(4, 6, seed=1)
POSITIVE = np.abs(X) + np.float32(0.1)
UNIT = (np.tanh(X) * np.float32(0.9)).astype(np.float32)
SQUARE = _random(5, 5, seed=2)
VECTOR, OTHER = _random(12), _random(12, seed=3)
INTS, OTHER_INTS = _ints(4, 6), _ints(4, 6, seed=1)
SMALL = np.abs(INTS) % 5
BITS = (INTS % 2 == 0)
SORTED = np.sort(VECTOR)
KEY = np.array([3, 7], np.uint32)
IMAGE = _random(6, 8, 3)


def _case(name: str, function: Callable, *inputs: np.ndarray, l2: float = NEAR) -> Case:
    return Case(name, function, inputs, l2=l2, oracle=function, platform="tpu")


def _of(prefix: str, module: ModuleType, names: str, *inputs: np.ndarray, l2: float = NEAR) -> list[Case]:
    return [_case(f"{prefix}.{name}", getattr(module, name), *inputs, l2=l2) for name in names.split()]


def _lambdas(prefix: str, *cases: tuple, l2: float = NEAR) -> list[Case]:
    return [_case(f"{prefix}.{name}", function, *inputs, l2=l2) for name, function, *inputs in cases]


def numpy_elementwise() -> list[Case]:
    """Functions of numbers."""
    wide = np.where(BITS, X, np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], np.float32))
    return [
        *_of("np", jnp, "abs absolute angle arcsinh arctan around asinh atan cbrt ceil conj conjugate cos cosh "
             "deg2rad degrees exp exp2 expm1 fabs floor imag isreal iscomplex negative positive rad2deg radians real "
             "reciprocal rint round sign sin sinc sinh square tan tanh trunc i0", X),
        *_of("np", jnp, "log log10 log1p log2 sqrt", POSITIVE),
        *_of("np", jnp, "acosh arccosh", POSITIVE + np.float32(1)),
        *_of("np", jnp, "acos arccos asin arcsin arctanh atanh", UNIT),
        *_of("np", jnp, "isfinite isinf isnan isneginf isposinf nan_to_num signbit logical_not", wide),
        *_of("int", jnp, "bitwise_count bitwise_invert bitwise_not invert abs sign square negative", INTS),
        *_of("np2", jnp, "add subtract multiply divide true_divide maximum minimum fmax fmin arctan2 atan2 hypot "
             "copysign equal not_equal greater greater_equal less less_equal logaddexp logaddexp2 logical_and "
             "logical_or logical_xor nextafter fmod mod remainder floor_divide heaviside isclose allclose array_equal "
             "array_equiv divmod", X, Y),
        *_of("np2", jnp, "power float_power pow", POSITIVE, Y),
        *_of("int2", jnp, "add subtract multiply floor_divide mod remainder bitwise_and bitwise_or bitwise_xor maximum "
             "minimum equal less fmod gcd lcm divmod", INTS,
             OTHER_INTS + np.where(OTHER_INTS == 0, 1, 0).astype(np.int32)),
        *_of("int2", jnp, "bitwise_left_shift bitwise_right_shift left_shift right_shift power ldexp", INTS, SMALL),
        *_lambdas("np", ("clip", lambda x: jnp.clip(x, -0.5, 0.5), X), ("frexp", jnp.frexp, X),
                  ("modf", jnp.modf, X), ("ldexp", jnp.ldexp, X, SMALL), ("where", jnp.where, BITS, X, Y),
                  ("select", lambda m, x, y: jnp.select([m, ~m], [x, y]), BITS, X, Y),
                  ("piecewise", lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2]), X),
                  ("interp", jnp.interp, VECTOR, SORTED, OTHER), ("unwrap", lambda x: jnp.unwrap(x * 4), VECTOR),
                  ("astype_int", lambda x: (x * 9).astype(jnp.int32), X), ("i8", lambda x: x.astype(jnp.int8), INTS),
                  ("bool", lambda x: x.astype(bool), INTS), ("bf16", lambda x: x.astype(jnp.bfloat16), X)),
    ]


def numpy_reductions() -> list[Case]:
    """Sums, orders, counts, histograms."""
    holes = np.where(X > 1, np.float32(np.nan), X)
    return [
        *_of("np", jnp, "all any amax amin argmax argmin average count_nonzero cumprod cumsum "
             "max mean median min prod ptp std sum var nanargmax nanargmin nancumprod nancumsum nanmax nanmean "
             "nanmedian nanmin nanprod nanstd nansum nanvar", X),
        *_of("nan", jnp, "nanmax nanmin nanmean nansum nanvar nanstd nanprod nancumsum nanmedian", holes),
        *_of("int", jnp, "sum prod max min argmax argmin cumsum cumprod any all sort argsort", INTS),
        *_of("np1", jnp, "cumulative_sum cumulative_prod sort argsort diff ediff1d gradient trapezoid flip", VECTOR),
        *_lambdas("np", ("sum_axis", lambda x: jnp.sum(x, axis=0), X), ("max_keep", lambda x: x.max(1, keepdims=True),
                                                                        X),
                  ("quantile", lambda x: jnp.quantile(x, jnp.array([0.2, 0.5])), X),
                  ("percentile", lambda x: jnp.percentile(x, 30.0, axis=1), X),
                  ("nanquantile", lambda x: jnp.nanquantile(x, 0.4), holes),
                  ("nanpercentile", lambda x: jnp.nanpercentile(x, 40.0), holes),
                  ("bincount", lambda i: jnp.bincount(i.ravel(), length=6), SMALL),
                  ("histogram", lambda x: jnp.histogram(x, bins=5, range=(-2, 2)), VECTOR),
                  ("histogram2d", lambda x, y: jnp.histogram2d(x, y, bins=3, range=[(-2, 2), (-2, 2)])[0], VECTOR,
                   OTHER),
                  ("digitize", lambda x: jnp.digitize(x, jnp.array([-1.0, 0, 1])), VECTOR),
                  ("searchsorted", jnp.searchsorted, SORTED, OTHER),
                  ("partition", lambda x: jnp.sort(jnp.partition(x, 3)[:3]), VECTOR),
                  ("argpartition", lambda x: jnp.sort(x[jnp.argpartition(x, 3)[:3]]), VECTOR),
                  ("lexsort", lambda a, b: jnp.lexsort((a, b)), INTS[0], OTHER_INTS[0]),
                  ("unique", lambda x: jnp.unique(x, size=5), SMALL), ("cov", jnp.cov, X),
                  ("union1d", lambda a, b: jnp.union1d(a, b, size=20), INTS[0], OTHER_INTS[0]),
                  ("intersect1d", lambda a, b: jnp.intersect1d(a, b, size=6), SMALL[0], SMALL[1]),
                  ("setdiff1d", lambda a, b: jnp.setdiff1d(a, b, size=6), SMALL[0], SMALL[1]),
                  ("isin", jnp.isin, SMALL, SMALL[0]), ("corrcoef", jnp.corrcoef, X),
                  ("nonzero", lambda x: jnp.nonzero(x, size=8), SMALL),
                  ("flatnonzero", lambda x: jnp.flatnonzero(x, size=8), SMALL),
                  ("argwhere", lambda x: jnp.argwhere(x, size=8), SMALL), l2=1e-4),
    ]


def numpy_products() -> list[Case]:
    """Contractions and polynomials."""
    a, b = _random(3, 4, 5), _random(3, 5, 2, seed=1)
    return [
        *_of("np", jnp, "matmul", a, b),
        *_of("np1", jnp, "convolve correlate dot inner kron outer vdot polyadd polymul polysub vecdot", VECTOR, OTHER),
        *_of("square", jnp, "tensordot matmul dot inner", SQUARE, SQUARE.T.copy()),
        *_of("np", jnp, "trace diag diagonal tril triu transpose matrix_transpose diagflat", SQUARE),
        *_lambdas("np", ("einsum", lambda x, y: jnp.einsum("bij,bjk->bki", x, y), a, b),
                  ("cross", jnp.cross, X[:, :3].copy(), Y[:, :3].copy()), ("matvec", jnp.matvec, SQUARE, SQUARE[0]),
                  ("vecmat", jnp.vecmat, SQUARE[0], SQUARE), ("polyval", jnp.polyval, VECTOR[:4], OTHER),
                  ("polyder", jnp.polyder, VECTOR), ("polyint", jnp.polyint, VECTOR),
                  ("polydiv", jnp.polydiv, VECTOR, OTHER[:4]), ("poly", jnp.poly, VECTOR[:4]),
                  ("vander", jnp.vander, VECTOR[:5]), l2=1e-4),
    ]


def _with(function: Callable, *more: object, **options: object) -> Callable:
    """The function of one array, with these arguments behind it."""
    return lambda x: function(x, *more, **options)


def _on_pair(function: Callable) -> Callable:
    """A function of a list, of two arrays."""
    return lambda x, y: function([x, y])


def numpy_shapes() -> list[Case]:
    """Functions that move, make, and index."""
    return [
        *_of("np", jnp, "atleast_1d atleast_2d atleast_3d fliplr flipud ravel rot90 zeros_like ones_like "
             "argsort squeeze copy unstack diag_indices_from", SQUARE),
        *_of("np2", jnp, "append", X, Y),
        *_lambdas("np", *((name, _on_pair(getattr(jnp, name)), X, Y) for name in
                          ["column_stack", "concatenate", "concat", "hstack", "vstack", "dstack", "stack", "block"])),
        *_lambdas("np", *((name, _with(getattr(jnp, name), 2), X) for name in
                          ["array_split", "hsplit", "vsplit", "split", "repeat", "tile", "roll"])),
        *_lambdas("np", ("broadcast_to", lambda x: jnp.broadcast_to(x, (2, 4, 6)), X),
                  ("dsplit", lambda x: jnp.dsplit(x, 3), IMAGE), ("expand_dims", lambda x: jnp.expand_dims(x, 1), X),
                  ("moveaxis", lambda x: jnp.moveaxis(x, 0, 2), IMAGE), ("swapaxes", lambda x: x.swapaxes(0, 2), IMAGE),
                  ("rollaxis", lambda x: jnp.rollaxis(x, 2), IMAGE), ("reshape", lambda x: x.reshape(3, -1), X),
                  ("resize", lambda x: jnp.resize(x, (5, 7)), X), ("delete", lambda x: jnp.delete(x, 2), VECTOR),
                  ("insert", lambda x: jnp.insert(x, 2, 9.0), VECTOR),
                  ("meshgrid", lambda x, y: jnp.meshgrid(x, y), VECTOR, OTHER),
                  ("choose", lambda i, x, y: jnp.choose(i, [x, y], mode="clip"), SMALL, X, Y),
                  ("compress", lambda m, x: jnp.compress(m, x, axis=0, size=3), BITS[:, 0].copy(), X),
                  ("extract", lambda m, x: jnp.extract(m, x, size=8, fill_value=0), BITS, X),
                  ("take", lambda x, i: jnp.take(x, i, axis=1), X, SMALL[0]),
                  ("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), X, SMALL),
                  ("put_along_axis", lambda x, i: jnp.put_along_axis(x, i[:, :1], 3.0, axis=1, inplace=False), X,
                   SMALL),
                  ("put", lambda x: jnp.put(x, jnp.array([1, 3]), 5.0, inplace=False), VECTOR),
                  ("place", lambda m, x: jnp.place(x, m, jnp.array([5.0]), inplace=False), BITS, X),
                  ("fill_diagonal", lambda x: jnp.fill_diagonal(x, 7.0, inplace=False), SQUARE),
                  ("pad", lambda x: jnp.pad(x, 2), X), ("pad_reflect", lambda x: jnp.pad(x, 2, "reflect"), X),
                  ("pad_edge", lambda x: jnp.pad(x, 1, "edge"), X), ("pad_wrap", lambda x: jnp.pad(x, 1, "wrap"), X),
                  ("tri", lambda x: jnp.tri(4) * x, X[:, :4].copy()), ("packbits", jnp.packbits, BITS),
                  ("unpackbits", lambda x: jnp.unpackbits(x.astype(jnp.uint8)), SMALL),
                  ("ravel_multi_index", lambda i: jnp.ravel_multi_index((i, i), (9, 9), mode="clip"), SMALL),
                  ("unravel_index", lambda i: jnp.unravel_index(i, (2, 3)), SMALL),
                  ("apply_along_axis", lambda x: jnp.apply_along_axis(jnp.sum, 1, x), X),
                  ("vectorize", lambda x: jnp.vectorize(lambda v: v * 2)(x), X),
                  ("indices", lambda x: jnp.indices((4, 6))[0] + x, X), ("eye", lambda x: jnp.eye(5) + x, SQUARE),
                  ("linspace", lambda x: jnp.linspace(x[0], x[1], 5), VECTOR),
                  ("logspace", lambda x: jnp.logspace(x[0], x[1], 5), VECTOR),
                  ("geomspace", lambda x: jnp.geomspace(x[0], x[1], 5), POSITIVE[0]),
                  ("arange", lambda x: x + jnp.arange(12), VECTOR), ("hamming", lambda x: x * jnp.hamming(12), VECTOR),
                  ("kaiser", lambda x: x * jnp.kaiser(12, 3.0), VECTOR),
                  ("blackman", lambda x: x * jnp.blackman(12), VECTOR), ("ix", lambda x: x[jnp.ix_(np.array([0, 2]),
                                                                                               np.array([1, 3]))], X),
                  ("set", lambda x: x.at[1].set(0), X), ("add", lambda x, i: x.at[i].add(1), VECTOR, SMALL[0]),
                  ("mul", lambda x, i: x.at[i].multiply(2), VECTOR, SMALL[0]),
                  ("at_max", lambda x, i: x.at[i].max(0), VECTOR, SMALL[0]), l2=1e-4),
    ]


def lax_functions() -> list[Case]:
    """jax.lax."""
    key, scalar = _random(3, 3, 3, 4), np.float32(0.3)
    image = IMAGE[None]
    channels_last = ("NHWC", "HWIO", "NHWC")

    def root(x: jax.Array) -> jax.Array:
        return lax.custom_root(lambda v: v * v - x, jnp.ones_like(x),
                               lambda f, g: lax.fori_loop(0, 20, lambda _, v: (v + x / v) / 2, g),
                               lambda g, y: y / g(jnp.ones_like(y)))

    return [
        *_of("lax", lax, "abs asinh atan cbrt ceil cos cosh erf erfc exp exp2 expm1 floor is_finite logistic "
             "neg round sign sin sinh square tan tanh bessel_i0e bessel_i1e stop_gradient", X),
        *_of("lax", lax, "digamma lgamma log log1p rsqrt sqrt reciprocal", POSITIVE),
        *_of("lax", lax, "erf_inv atanh asin acos", UNIT),
        *_of("lax", lax, "bitwise_not clz population_count", INTS),
        *_of("lax2", lax, "add sub mul div max min rem atan2 nextafter eq ne lt le gt ge", X, Y),
        *_of("lax2", lax, "igamma igammac pow igamma_grad_a random_gamma_grad", POSITIVE,
             POSITIVE[::-1].copy(), l2=1e-4),
        *_of("lax.int2", lax, "bitwise_and bitwise_or bitwise_xor mulhi add sub mul max min eq lt", INTS, OTHER_INTS),
        *_of("int2", lax, "shift_left shift_right_arithmetic shift_right_logical", INTS, SMALL),
        *_lambdas("lax", ("betainc", lax.betainc, POSITIVE, POSITIVE[::-1].copy(), np.abs(UNIT)),
                  ("zeta", lambda x, y: lax.zeta(x + 1.5, y), POSITIVE, POSITIVE),
                  ("polygamma", lambda x: lax.polygamma(jnp.ones_like(x), x), POSITIVE), l2=1e-4),
        *_lambdas("lax", ("integer_pow", lambda x: lax.integer_pow(x, 5), X),
                  ("clamp", lambda x: lax.clamp(-0.5, x, 0.5), X),
                  ("bitcast", lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
                  ("reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), X),
                  ("argmax", lambda x: lax.argmax(x, 1, jnp.int32), X),
                  ("argmin", lambda x: lax.argmin(x, 0, jnp.int32), X),
                  *((n, _with(getattr(lax, n), axis=1), X) for n in
                    ["cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]),
                  *((n, _with(getattr(lax, n), (0,)), X) for n in
                    ["reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "rev"]),
                  *((n, _with(getattr(lax, n), (0,)), INTS) for n in ["reduce_xor", "reduce_and", "reduce_or"]),
                  ("sort", lambda x: lax.sort(x, dimension=0), X), ("top_k", lambda x: lax.top_k(x, 2), X),
                  ("sort_key_val", lambda x, y: lax.sort_key_val(x, y), X, Y),
                  ("approx_max_k", lambda x: lax.approx_max_k(x, 2), X),
                  ("associative_scan", lambda x: lax.associative_scan(jnp.add, x), VECTOR),
                  ("scan", lambda x: lax.scan(lambda c, v: (c + v, c * v), 0.0, x), VECTOR),
                  ("map", lambda x: lax.map(lambda v: v * 2, x), VECTOR),
                  ("fori", lambda x: lax.fori_loop(0, 5, lambda i, v: v * 0.9 + i, x), X),
                  ("while", lambda x: lax.while_loop(lambda v: v.sum() < 50, lambda v: v + 1, x), X),
                  ("cond", lambda x: lax.cond(x[0, 0] > 0, lambda v: v + 1, lambda v: v - 1, x), X),
                  ("switch", lambda i, x: lax.switch(i[0, 0], [lambda v: v, lambda v: v * 2, lambda v: -v], x), SMALL,
                   X),
                  ("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i[0, 0], i[0, 1]), (2, 3)), X, SMALL),
                  ("dynamic_update", lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :2], (i[0, 0], i[0, 1])), X, Y,
                   SMALL),
                  ("conv", lambda v, k: lax.conv_general_dilated(v, k, (1, 1), "SAME", dimension_numbers=channels_last),
                   image, key),
                  ("conv_transpose", lambda v, k: lax.conv_transpose(v, k, (2, 2), "SAME"), image, key),
                  ("patches", lambda v: lax.conv_general_dilated_patches(v, (2, 2), (1, 1), "VALID",
                                                                         dimension_numbers=channels_last), image),
                  ("reduce_window", lambda v: lax.reduce_window(v, -np.inf, lax.max, (2, 2), (2, 2), "VALID"), X),
                  ("ragged_dot", lambda x, w: lax.ragged_dot(x, w, jnp.array([1, 3], jnp.int32)), X,
                   _random(2, 6, 3)),
                  ("rng_bits", lambda k: lax.rng_bit_generator(jnp.concatenate([k, k]), (5,), jnp.uint32)[1], KEY),
                  ("select_n", lambda m, x, y: lax.select_n(m, x, y), BITS, X, Y),
                  ("scaled", lambda x: x * scalar, X),
                  ("custom_root", root, POSITIVE),
                  l2=1e-4),
    ]


def nn_functions() -> list[Case]:
    """jax.nn and its initialisers."""
    q = _random(2, 5, 2, 4)
    return [
        *_of("nn", jax.nn, "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
             "log_sigmoid log_softmax logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus "
             "sparse_plus sparse_sigmoid squareplus standardize swish tanh logmeanexp", X),
        *_of("nn", jax.nn, "log1mexp", POSITIVE),
        *_lambdas("nn", ("one_hot", lambda i: jax.nn.one_hot(i, 5), SMALL),
                  ("gelu_exact", lambda x: jax.nn.gelu(x, approximate=False), X),
                  ("attention", jax.nn.dot_product_attention, q, q + 1, q - 1),
                  ("causal", lambda a, b, c: jax.nn.dot_product_attention(a, b, c, is_causal=True), q, q + 1, q - 1),
                  l2=5e-3),
        *_lambdas("init", *((n, _with(getattr(jax.nn.initializers, n)(), (6, 4)), KEY) for n in
                            ["glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal",
                             "lecun_uniform", "normal", "orthogonal", "truncated_normal", "uniform"]), l2=1e-4),
    ]


def random_functions() -> list[Case]:
    """jax.random; bits and integers are the same, floats as near as their transcendentals."""
    shape = (5, 7)
    plain = ("bernoulli cauchy exponential gumbel laplace logistic maxwell normal rademacher uniform "
             "lognormal")
    r = jax.random

    def shaped(function: Callable) -> Callable:
        return lambda k: function(k, shape=shape)

    return [
        *_lambdas("random", *((n, shaped(getattr(r, n)), KEY) for n in plain.split()),
                  *((f"dropout_{p}", lambda k, x, p=p: jnp.where(r.bernoulli(k, p, x.shape), x / p, 0), KEY, X)
                    for p in (0.9, 0.25, 1e-7)),
                  ("mask_of_rows", lambda k: r.bernoulli(k, 0.3, (3, 17, 129)), KEY),
                  ("below", lambda k: r.uniform(k, shape, minval=-2.0, maxval=3.0) > 0.7, KEY),
                  ("below_bf16", lambda k: r.uniform(k, (40, 9), dtype=jnp.bfloat16) <= 0.4, KEY),
                  ("bits", lambda k: r.bits(k, shape), KEY), ("split", lambda k: r.split(k, 3), KEY),
                  ("fold_in", lambda k: r.fold_in(k, 7), KEY), ("randint", lambda k: r.randint(k, shape, -5, 90), KEY),
                  ("permutation", lambda k: r.permutation(k, 10), KEY),
                  ("choice", lambda k: r.choice(k, 10, (4,)), KEY),
                  ("choice_unique", lambda k, x: r.choice(k, x, (4,), replace=False), KEY, VECTOR),
                  ("categorical", lambda k, x: r.categorical(k, x), KEY, X),
                  ("truncated_normal", lambda k: r.truncated_normal(k, -1, 2, shape), KEY),
                  ("ball", lambda k: r.ball(k, 3, shape=(4,)), KEY),
                  ("beta", lambda k: r.beta(k, 2.0, 3.0, shape), KEY),
                  ("binomial", lambda k: r.binomial(k, 10.0, 0.3, shape), KEY),
                  ("chisquare", lambda k: r.chisquare(k, 3.0, shape=shape), KEY),
                  ("double_sided_maxwell", lambda k: r.double_sided_maxwell(k, 1.0, 2.0, shape), KEY),
                  ("dirichlet", lambda k: r.dirichlet(k, jnp.ones(4), (3,)), KEY),
                  ("f", lambda k: r.f(k, 3.0, 4.0, shape=shape), KEY),
                  ("gamma", lambda k: r.gamma(k, 2.0, shape), KEY),
                  ("loggamma", lambda k: r.loggamma(k, 2.0, shape), KEY),
                  ("generalized_normal", lambda k: r.generalized_normal(k, 1.5, shape), KEY),
                  ("geometric", lambda k: r.geometric(k, 0.3, shape=shape), KEY),
                  ("orthogonal", lambda k: r.orthogonal(k, 4), KEY),
                  ("pareto", lambda k: r.pareto(k, 2.0, shape), KEY),
                  ("poisson", lambda k: r.poisson(k, 3.0, shape), KEY),
                  ("rayleigh", lambda k: r.rayleigh(k, 2.0, shape=shape), KEY),
                  ("t", lambda k: r.t(k, 3.0, shape), KEY),
                  ("triangular", lambda k: r.triangular(k, -1.0, 0.0, 2.0, shape=shape), KEY),
                  ("wald", lambda k: r.wald(k, 2.0, shape=shape), KEY),
                  ("weibull_min", lambda k: r.weibull_min(k, 2.0, 3.0, shape), KEY),
                  ("multinomial", lambda k: r.multinomial(k, 5.0, jnp.array([0.2, 0.3, 0.5])), KEY),
                  ("multivariate_normal",
                   lambda k: r.multivariate_normal(k, jnp.zeros(3), jnp.eye(3) + 0.2, (4,)), KEY),
                  l2=2e-3),
    ]


def scipy_functions() -> list[Case]:
    """jax.scipy.special, stats, signal, linalg, ndimage, and jax.image."""
    s, a = jsp.special, POSITIVE
    return [
        *_of("special", s, "erf erfc expit i0 i0e i1 i1e log_ndtr log_softmax logsumexp ndtr sici dawsn erfcx "
             "fresnel", X, l2=1e-4),
        *_of("special", s, "digamma entr exp1 expi gamma gammaln gammasgn loggamma factorial spence", a, l2=1e-4),
        *_of("special", s, "erfinv", UNIT, l2=1e-4),
        *_of("special", s, "logit ndtri", np.abs(UNIT) * np.float32(0.9) + np.float32(0.05), l2=1e-4),
        *_of("special2", s, "beta betaln gammainc gammaincc kl_div rel_entr xlog1py xlogy poch boxcox boxcox1p "
             "owens_t", a, a[::-1].copy(), l2=1e-4),
        *_lambdas("special", ("betainc", s.betainc, a, a[::-1].copy(), np.abs(UNIT)),
                  ("comb", lambda x: s.comb(x + 4, 2.0), a), ("zeta", lambda x, y: s.zeta(x + 1.5, y), a, a),
                  ("polygamma", lambda x: s.polygamma(2, x), a),
                  ("multigammaln", lambda x: s.multigammaln(x + 3, 2), a),
                  ("expn", lambda x: s.expn(2, x), a), ("hyp1f1", lambda x: s.hyp1f1(1.5, 2.5, x), UNIT),
                  ("bessel_jn", lambda x: s.bessel_jn(x, v=3), VECTOR), l2=1e-3),
        *_lambdas("stats", ("rankdata", jsp.stats.rankdata, X), ("mode", lambda x: jsp.stats.mode(x), SMALL),
                  ("sem", jsp.stats.sem, X), ("norm", lambda x: (jsp.stats.norm.logpdf(x), jsp.stats.norm.cdf(x)), X),
                  ("gamma", lambda x: jsp.stats.gamma.logpdf(x, 2.0), a),
                  ("beta", lambda x: jsp.stats.beta.logpdf(x, 2.0, 3.0), np.abs(UNIT)),
                  ("poisson", lambda i: jsp.stats.poisson.logpmf(i, 3.0), SMALL),
                  ("t", lambda x: jsp.stats.t.logpdf(x, 3.0), X), l2=1e-4),
        *_lambdas("signal", ("convolve", jsp.signal.convolve, VECTOR, OTHER[:4]),
                  ("correlate", jsp.signal.correlate, VECTOR, OTHER[:4]),
                  ("convolve2d", jsp.signal.convolve2d, X, SQUARE[:3, :3].copy()),
                  ("correlate2d", jsp.signal.correlate2d, X, SQUARE[:3, :3].copy()),
                  ("detrend", lambda x: jsp.signal.detrend(x), VECTOR), l2=2e-3),
        *_lambdas("splinalg", ("block_diag", jsp.linalg.block_diag, X, SQUARE),
                  ("toeplitz", jsp.linalg.toeplitz, VECTOR),
                  ("solve", jsp.linalg.solve, SQUARE, SQUARE[0]), ("det", jsp.linalg.det, SQUARE),
                  ("inv", jsp.linalg.inv, SQUARE), ("hilbert", lambda x: x + jsp.linalg.hilbert(5), SQUARE),
                  ("svd", lambda x: jsp.linalg.svd(x, compute_uv=False), X), l2=1e-4),
        *_lambdas("image", *((m, lambda x, m=m: jax.image.resize(x, (9, 12, 3), m), IMAGE) for m in
                             ["nearest", "linear", "cubic", "lanczos3", "lanczos5"]),
                  ("scale_and_translate", lambda x: jax.image.scale_and_translate(
                      x, (7, 9, 3), (0, 1), jnp.array([1.3, 0.8]), jnp.array([0.5, 1.0]), "linear"), IMAGE),
                  ("map_coordinates", lambda x: jsp.ndimage.map_coordinates(
                      x, [jnp.array([0.5, 2.3]), jnp.array([1.1, 3])], order=1), X), l2=5e-3),
    ]


def complex_functions() -> list[Case]:
    """Complex numbers and transforms; more of them in complex_cases.py."""
    z = (X + 1j * X[::-1]).astype(np.complex64)
    return [
        *_of("fft", jnp.fft, "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn "
             "fftshift ifftshift", X, l2=2e-6),
        *_of("complex", jnp, "abs angle conj real imag exp log sqrt sin cos tan sinh cosh tanh square sum mean cumsum "
             "transpose ravel isfinite isnan iscomplex", z, l2=5e-6),
        *_lambdas("complex", ("complex64", lambda x: x.astype(jnp.complex64) * 2, X),
                  ("multiply", lambda x: x * x[::-1], z), ("divide", lambda x: x / (x[::-1] + 3), z),
                  ("power", lambda x: x**2.5, z), l2=5e-6),
        *_lambdas("signal", ("fftconvolve", jsp.signal.fftconvolve, VECTOR, OTHER[:4]),
                  ("stft", lambda x: jsp.signal.stft(x, nperseg=8), np.tile(VECTOR, 4)), l2=5e-6),
    ]


GROUPS = (numpy_elementwise, numpy_reductions, numpy_products, numpy_shapes, lax_functions, nn_functions,
          random_functions, scipy_functions, complex_functions)


def refused() -> list[Case]:
    """What the board does not have: f16; what JAX does not make for TPUs."""
    return [
        *_of("linalg", jnp.linalg, "eig eigvals", SQUARE),
        *_lambdas("np", ("roots", lambda x: jnp.roots(x, strip_zeros=False), VECTOR[:4]),
                  ("float16", lambda x: x.astype(jnp.float16) * 2, X)),
    ]


def all_cases() -> list[Case]:
    """Every function."""
    return [case for group in GROUPS for case in group()]
