"""Functions of jax.numpy, lax, nn, random, scipy.special and image for cut_functions_test.py.

A case is a function and the arrays it takes, in words like "f8,4,16": f32 of both signs, "p" f32 above zero, "i" i32
from 0 to 3, "u" ui32, "b" bool; all from a seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special as special
from jax import lax, nn, random as jr


class Case(NamedTuple):
    """One function; `arrays` as said above."""

    name: str
    function: Callable
    arrays: str
    bound: float = 2e-5  # relative L2: sums of both signs in another order


X = "f8,16"  # what most functions take: both dimensions can be cut in 8
CUBE = "f8,4,16"


def _named(module, names: str, arrays: str) -> list[Case]:
    return [Case(f"{module.__name__.split('.')[-1]}.{n}", getattr(module, n), arrays) for n in names.split()]


def _along(module, names: str, axis: int | None, arrays: str) -> list[Case]:
    return [Case(f"{n} {axis}", functools.partial(getattr(module, n), axis=axis), arrays) for n in names.split()]


def elementwise() -> list[Case]:
    """One element in, one out."""
    cases = _named(jnp, "abs ceil cos exp exp2 expm1 floor negative positive reciprocal rint round sign signbit sin "
                        "sinc sinh square tan tanh trunc arctan arcsinh cbrt deg2rad rad2deg isfinite isinf isnan "
                        "isneginf isposinf nan_to_num fabs modf frexp", X)
    cases += _named(jnp, "sqrt log log1p log2 log10 arcsin arccos arctanh", "p8,16")
    cases += _named(jnp, "add arctan2 copysign divide equal float_power fmax fmin fmod greater greater_equal hypot "
                         "less logaddexp logaddexp2 maximum minimum multiply not_equal subtract true_divide "
                         "heaviside isclose remainder", "p8,16 p8,16")
    cases += _named(jnp, "bitwise_and bitwise_or bitwise_xor left_shift right_shift floor_divide", "u8,16 u8,16")
    cases += _named(jnp, "logical_and logical_or logical_xor", "b8,16 b8,16")
    cases += _named(nn, "relu relu6 sigmoid softplus soft_sign silu log_sigmoid leaky_relu hard_sigmoid hard_silu "
                        "hard_tanh elu celu selu gelu mish squareplus", X)
    cases += _named(special, "erf erfc expit log_ndtr ndtr gammaln digamma i0e i1e entr", "p8,16")
    return cases + [
        Case("bias", lambda x, b: x + b, "f8,16 f16"),
        Case("scale rows", lambda x, s: x * s[:, None], "f8,16 f8"),
        Case("outer sum", lambda x, y: x[:, None] + y[None, :], "f8 f16"),
        Case("where", lambda c, x, y: jnp.where(c, x, y), "b8,16 f8,16 f16"),
        Case("clip", lambda x, lo: jnp.clip(x, lo, 0.5), "f8,16 f16"),
        Case("clamp by scalars", lambda x: lax.clamp(-0.5, x, 0.5), X),
        Case("cast", lambda x: (x * 100).astype(jnp.int32), X),
        Case("bits", lambda x: lax.bitcast_convert_type(x, jnp.uint32), X),
        Case("bytes", lambda x: lax.bitcast_convert_type(x, jnp.uint8), X),
        Case("bf16", lambda x: x.astype(jnp.bfloat16) * 2, X),
    ]


def movement() -> list[Case]:
    """Shapes, order and selection of elements."""
    cases = _named(jnp, "ravel transpose fliplr flipud flip atleast_2d atleast_3d squeeze copy rot90 tril triu "
                        "zeros_like ones_like", X)
    return cases + [
        Case("reshape merge", lambda x: x.reshape(32, 16), CUBE),
        Case("reshape split", lambda x: x.reshape(2, 4, 4, 16), CUBE),
        Case("reshape micro batches", lambda x: x.reshape(4, 16, 8), "f64,8"),
        Case("reshape across", lambda x: x.reshape(4, 32), X),
        Case("reshape out of step", lambda x: x.reshape(3, 2, 8), "f2,3,8"),
        Case("reshape staggered", lambda x: x.reshape(8, 16) + 1, "f4,32"),
        Case("reshape minor cut", lambda x: x.reshape(4, 4) * 2, "f2,8"),
        Case("swapaxes", lambda x: jnp.swapaxes(x, 0, 2), CUBE),
        Case("moveaxis", lambda x: jnp.moveaxis(x, 0, -1), CUBE),
        Case("expand_dims", lambda x: x[None, :, None], X),
        Case("broadcast_to", lambda x: jnp.broadcast_to(x, (4, 8, 16)), X),
        Case("repeat", lambda x: jnp.repeat(x, 2, axis=0), X),
        Case("repeat last", lambda x: jnp.repeat(x, 3, axis=1), X),
        Case("tile", lambda x: jnp.tile(x, (2, 3)), X),
        Case("concatenate 0", lambda x, y: jnp.concatenate([x, y], 0), "f8,16 f8,16"),
        Case("concatenate 1", lambda x, y: jnp.concatenate([x, y], 1), "f8,16 f8,4"),
        Case("stack", lambda x, y: jnp.stack([x, y]), "f8,16 f8,16"),
        Case("stack last", lambda x, y: jnp.stack([x, y], -1), "f8,16 f8,16"),
        Case("split", lambda x: jnp.split(x, 4), CUBE),
        Case("split last", lambda x: jnp.split(x, 4, -1), CUBE),
        Case("pad", lambda x: jnp.pad(x, ((0, 0), (2, 3))), X),
        Case("pad 0", lambda x: jnp.pad(x, ((1, 7), (0, 0))), X),
        Case("pad reflect", lambda x: jnp.pad(x, ((0, 0), (2, 2)), mode="reflect"), X),
        Case("pad interior", lambda x: lax.pad(x, 1.0, ((0, 1, 1), (0, 0, 2))), X),
        Case("roll", lambda x: jnp.roll(x, 3, 0), X),
        Case("roll last", lambda x: jnp.roll(x, 3, 1), X),
        Case("slice", lambda x: x[2:6, ::2], X),
        Case("slice every other", lambda x: x[::2], "f16,16"),
        Case("slice odd", lambda x: x[1::2, 1::4], "f16,16"),
        Case("row", lambda x: x[3], X),
        Case("column", lambda x: x[:, 3], X),
        Case("last", lambda x: x[-1, ..., -1], CUBE),
        Case("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (8, 4)), "f8,16 i2"),
        Case("dynamic_slice 0", lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (4, 16)), "f8,16 i2"),
        Case("dynamic row", lambda x, i: lax.dynamic_index_in_dim(x, i[0], 0), "f8,16 i2"),
        Case("dynamic_update_slice",
             lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i[0])), "f8,16 f8,4 i2"),
        Case("dynamic_update 0", lambda x, y, i: lax.dynamic_update_slice(x, y, (i[0], 0)), "f8,16 f1,16 i2"),
        Case("iota", lambda x: x + lax.broadcasted_iota(jnp.float32, x.shape, 0), X),
        Case("iota last", lambda x: x * jnp.arange(16.0), X),
        Case("eye", lambda x: x + jnp.eye(8, 16), X),
        Case("diag", jnp.diag, "f16,16"),
        Case("diagonal of vector", jnp.diag, "f16"),
        Case("one_hot", lambda i: nn.one_hot(i, 16), "i32"),
        Case("meshgrid", jnp.meshgrid, "f8 f16"),
        Case("causal mask", lambda x: jnp.where(jnp.tril(jnp.ones((16, 16), bool)), x, -1e9), "f8,16,16"),
    ]


def reductions() -> list[Case]:
    """Sums and other folds, along each dimension and all, and what runs along one."""
    cases = []
    for axis in (0, 1, None):
        cases += _along(jnp, "sum prod max min mean var std all any argmax argmin ptp nansum nanmax count_nonzero "
                             "median", axis, X)
        cases += _along(nn, "logsumexp", axis, X)
    for axis in (0, 1):
        cases += _along(jnp, "cumsum cumprod sort argsort", axis, X)
    for axis in (0, -1):
        cases += _along(nn, "softmax log_softmax standardize", axis, CUBE)
    return cases + [
        Case("sum of three", lambda x: jnp.sum(x, (0, 2)), CUBE),
        Case("sum keepdims", lambda x: x - jnp.sum(x, 0, keepdims=True), X),
        Case("sum from 3", lambda x: lax.reduce(x, 3.0, lax.add, (0,)), X),
        Case("product from 2", lambda x: lax.reduce(x, 2.0, lax.mul, (0, 1)), "f8,2"),
        Case("max from 0", lambda x: lax.reduce(x, 0.0, lax.max, (0,)), X),
        Case("xor", lambda x: lax.reduce(x, jnp.uint32(5), lax.bitwise_xor, (0,)), "u8,16"),
        Case("and", lambda x: lax.reduce(x, jnp.uint32(7), lax.bitwise_and, (0,)), "u8,16"),
        Case("integers", lambda x: jnp.sum(x, 0), "i8,16"),
        Case("bf16 sum", lambda x: jnp.sum(x.astype(jnp.bfloat16), 0, dtype=jnp.float32), X),
        Case("top_k", lambda x: lax.top_k(x, 3), X),
        Case("cummax", lambda x: lax.cummax(x, 0), X),
        Case("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), X),
        Case("diff", lambda x: jnp.diff(x, axis=0), X),
        Case("trapezoid", jnp.trapezoid, X),
        Case("average", lambda x, w: jnp.average(x, axis=0, weights=w), "f8,16 p8"),
        Case("norm", jnp.linalg.norm, X),
        Case("norm rows", lambda x: jnp.linalg.norm(x, axis=1), X),
        Case("trace", jnp.trace, "f16,16"),
        Case("cov", jnp.cov, X),
        Case("histogram", lambda x: jnp.histogram(x, bins=4, range=(-1, 1))[0], X),
        Case("bincount", lambda i: jnp.bincount(i, length=4), "i32"),
        Case("searchsorted", lambda x, v: jnp.searchsorted(jnp.sort(x), v), "f32 f8,16"),
        Case("sort pairs", lambda x, y: lax.sort((x, y), num_keys=1), "f8,16 i8,16"),
        Case("layer norm", lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
             CUBE),
        Case("batch norm", lambda x: (x - x.mean((0, 1))) * lax.rsqrt(x.var((0, 1)) + 1e-5), CUBE),
    ]


def contractions() -> list[Case]:
    """Products of matrices, convolutions and their gradients."""
    def conv(**keys) -> Callable:
        return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                     **({"window_strides": (1, 1), "padding": "SAME"} | keys))

    def grads(f: Callable) -> Callable:
        return jax.grad(lambda *a: jnp.sum(jnp.sin(f(*a))), argnums=(0, 1))

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        weights = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    image, kernel = "f8,8,8,4", "f3,3,4,8"
    return [
        Case("matmul", jnp.matmul, "f8,16 f16,8"),
        Case("matmul of parts", jnp.matmul, "f16,8 f8,16"),
        Case("matmul batched", jnp.matmul, "f8,4,16 f8,16,4"),
        Case("matmul gradients", grads(jnp.matmul), "f8,16 f16,8"),
        Case("dot vectors", jnp.dot, "f16 f16"),
        Case("matvec", jnp.dot, "f8,16 f16"),
        Case("outer", jnp.outer, "f8 f16"),
        Case("inner", jnp.inner, "f8,16 f8,16"),
        Case("tensordot", lambda x, y: jnp.tensordot(x, y, axes=2), "f8,4,16 f4,16,8"),
        Case("einsum", lambda x, y: jnp.einsum("abc,cbd->adb", x, y), "f8,4,16 f16,4,8"),
        Case("kron", jnp.kron, "f8,2 f2,4"),
        Case("vdot", jnp.vdot, "f8,16 f8,16"),
        Case("bf16 matmul", lambda x, y: (x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16)).astype(jnp.float32),
             "f8,16 f16,8", 4e-3),
        Case("attention", attention, "f8,4,2,8 f8,4,2,8 f8,4,2,8"),
        Case("attention gradients", grads(attention), "f8,4,2,8 f8,4,2,8 f8,4,2,8"),
        Case("convolution", conv(), f"{image} {kernel}"),
        Case("convolution stride", conv(window_strides=(2, 2)), f"{image} {kernel}"),
        Case("convolution 1x1", conv(), f"{image} f1,1,4,8"),
        Case("patches", conv(window_strides=(2, 2), padding="VALID"), f"{image} f2,2,4,8"),
        Case("convolution gradients", grads(conv()), f"{image} {kernel}"),
        Case("convolution stride gradients", grads(conv(window_strides=(2, 2))), f"{image} {kernel}"),
        Case("depthwise", conv(feature_group_count=4), f"{image} f3,3,1,8"),
        Case("depthwise gradients", grads(conv(feature_group_count=4)), f"{image} f3,3,1,8"),
        Case("dilated convolution", conv(rhs_dilation=(2, 2)), f"{image} {kernel}"),
        Case("convolve", lambda x, w: jnp.convolve(x, w, mode="same"), "f64 f5"),
    ]


def indices() -> list[Case]:
    """Gather, scatter and windows."""
    def pool(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def average(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9

    image = "f8,8,8,4"
    return [
        Case("embedding", lambda t, i: t[i], "f16,8 i8,4"),
        Case("embedding gradient", jax.grad(lambda t, i: jnp.sum(jnp.sin(t[i]))), "f16,8 i8,4"),
        Case("take", lambda x, i: jnp.take(x, i, axis=1), "f8,16 i4"),
        Case("take of truths", lambda x, i: jnp.take(x, i, axis=0), "b16,4 i8"),
        Case("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), "f8,16 i8,2"),
        Case("take_along_axis 0", lambda x, i: jnp.take_along_axis(x, i, axis=0), "f8,16 i2,16"),
        Case("labels", lambda x, i: jnp.take_along_axis(nn.log_softmax(x), i[:, None], 1).mean(), "f8,16 i8"),
        Case("label gradients", jax.grad(
            lambda x, i: -jnp.take_along_axis(nn.log_softmax(x), i[:, None], 1).mean()), "f8,16 i8"),
        Case("pairs", lambda x, i, j: x[i, j], "f8,16 i8 i8"),
        Case("rows by vmap", jax.vmap(lambda x, i: x[i]), "f8,16 i8"),
        Case("windows by vmap", jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (4,))), "f8,16 i8"),
        Case("updates by vmap", jax.vmap(lambda x, i, v: x.at[i].set(v)), "f8,16 i8 f8"),
        Case("at add", lambda x, i, v: x.at[i].add(v), "f16,8 i8 f8,8"),
        Case("at set", lambda x, i, v: x.at[i].set(v), "f16,8 i8 f8,8"),
        Case("at max", lambda x, i, v: x.at[i].max(v), "f16,8 i8 f8,8"),
        Case("at multiply", lambda x, i, v: x.at[i].multiply(v), "f16,8 i8 f8,8"),
        Case("at column", lambda x, v: x.at[:, 3].set(v), "f8,16 f8"),
        Case("segment_sum", lambda v, i: jax.ops.segment_sum(v, i, 4), "f32,8 i32"),
        Case("segment_max", lambda v, i: jax.ops.segment_max(v, i, 4), "f32,8 i32"),
        Case("max pool", pool, image),
        Case("max pool gradient", jax.grad(lambda x: jnp.sum(jnp.sin(pool(x)))), image),
        Case("average pool", average, image),
        Case("average pool gradient", jax.grad(lambda x: jnp.sum(jnp.sin(average(x)))), image),
        Case("resize nearest", lambda x: jax.image.resize(x, (8, 16, 16, 4), "nearest"), image),
        Case("resize linear", lambda x: jax.image.resize(x, (8, 4, 4, 4), "linear"), image),
        Case("scale_and_translate", lambda x: jax.image.scale_and_translate(
            x, (16, 16, 4), (0, 1), jnp.array([2.0, 2.0]), jnp.zeros(2), "linear"), "f8,8,4"),
        Case("unique", lambda i: jnp.unique(i, size=4), "i32"),
        Case("nonzero", lambda i: jnp.nonzero(i, size=8), "i32"),
    ]


def control() -> list[Case]:
    """Loops, branches, vmap, remat."""
    def cell(h: jax.Array, x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(x + h @ w)
        return h, h

    def recurrent(h: jax.Array, xs: jax.Array, w: jax.Array) -> jax.Array:
        return lax.scan(lambda h, x: cell(h, x, w), h, xs)[1]

    return [
        Case("scan", recurrent, "f8,16 f4,8,16 f16,16"),
        Case("scan gradients", jax.grad(lambda *a: jnp.sum(recurrent(*a)), argnums=(0, 1, 2)),
             "f8,16 f4,8,16 f16,16"),
        Case("scan over rows", lambda x: lax.scan(lambda s, r: (s + r, s * 2), jnp.zeros(16), x), X),
        Case("scan of remat", jax.grad(lambda x, w: jnp.sum(lax.scan(
            jax.checkpoint(lambda h, _: (jnp.sin(h @ w), None)), x, None, length=3)[0]), argnums=(0, 1)),
             "f8,16 f16,16"),
        Case("fori", lambda x: lax.fori_loop(0, 3, lambda i, s: s * x + i, x), X),
        Case("while", lambda x: lax.while_loop(lambda s: jnp.max(s) < 8, lambda s: s * 2, x), "p8,16"),
        Case("while over rows", lambda x: lax.while_loop(
            lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + jnp.sum(x, 0)), (0, jnp.zeros(16))), X),
        Case("while by vmap", jax.vmap(lambda x: lax.while_loop(lambda s: s < 8, lambda s: s * 2, x)), "p8"),
        Case("cond", lambda x: lax.cond(jnp.sum(x) > 0, lambda v: v * 2, lambda v: v - 1, x), X),
        Case("cond of i", lambda x, i: lax.cond(i[0] > 1, jnp.sin, jnp.cos, x), "f8,16 i2"),
        Case("switch", lambda x, i: lax.switch(i[0], [jnp.sin, jnp.cos, jnp.tanh], x), "f8,16 i2"),
        Case("switch by vmap", jax.vmap(lambda x, i: lax.switch(i, [jnp.sin, jnp.cos], x)), "f8,16 i8"),
        Case("map", lambda x: lax.map(lambda r: r / jnp.sum(r), x), X),
        Case("associative_scan", lambda x: lax.associative_scan(jnp.add, x, axis=1), X),
        Case("associative_scan 0", lambda x: lax.associative_scan(jnp.add, x), X),
        Case("gradients of rows", lambda w, x: jax.vmap(jax.grad(lambda w, r: jnp.sum(jnp.sin(r @ w))),
                                                        (None, 0))(w, x), "f16,4 f8,16"),
        Case("jacobian", lambda x: jax.jacfwd(lambda v: jnp.sin(v) * jnp.sum(v))(x), "f8"),
        Case("hessian", lambda x: jax.hessian(lambda v: jnp.sum(v) ** 3)(x), "f8"),
        Case("barrier", lambda x, y: lax.optimization_barrier((x * 2, y)), "f8,16 f16"),
    ]


def randoms() -> list[Case]:
    """Bits must be those of the program that is not cut."""
    def draw(f: Callable) -> Callable:
        return lambda k, x: f(k[:2]) + x

    return [
        Case("uniform", draw(lambda k: jr.uniform(k, (8, 16))), "u2 f8,16"),
        Case("normal", draw(lambda k: jr.normal(k, (8, 16))), "u2 f8,16"),
        Case("bernoulli", draw(lambda k: jr.bernoulli(k, 0.3, (8, 16)).astype(jnp.float32)), "u2 f8,16"),
        Case("randint", draw(lambda k: jr.randint(k, (8, 16), 0, 9).astype(jnp.float32)), "u2 f8,16"),
        Case("truncated_normal", draw(lambda k: jr.truncated_normal(k, -1, 1, (8, 16))), "u2 f8,16"),
        Case("gumbel", draw(lambda k: jr.gumbel(k, (8, 16))), "u2 f8,16"),
        Case("exponential", draw(lambda k: jr.exponential(k, (8, 16))), "u2 f8,16"),
        Case("permutation", lambda k, x: jr.permutation(k, x), "u2 f8,16"),
        Case("categorical", lambda k, x: jr.categorical(k, x), "u2 f8,16"),
        Case("bits", lambda k, x: jr.bits(k, (8, 16)) ^ x, "u2 u8,16"),
        Case("split", lambda k, x: jax.vmap(lambda k, r: jr.uniform(k, (4,)) + r)(jr.split(k, 8), x), "u2 f8,4"),
        Case("dropout", lambda k, x: jnp.where(jr.bernoulli(k, 0.5, x.shape), x / 0.5, 0), "u2 f8,16"),
    ]


def groups() -> dict[str, list[Case]]:
    """All cases by group."""
    return {f.__name__: f() for f in (elementwise, movement, reductions, contractions, indices, control, randoms)}
