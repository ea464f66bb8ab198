"""Cases of op_matrix_test.py: convolutions in all forms, precision and types of contractions.

Floats are compared with a reference whose f32 operands are rounded to bf16 (not at precision high and highest).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from case_runner import Case
from op_cases import _ints, _random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

IMAGES = ("NHWC", "HWIO", "NHWC")
NEAR = 3e-6  # sums in another order
BF16 = 5e-4  # some of 600 results or more round the other way


def _conv(strides: tuple[int, ...], padding: object, **options: object) -> Callable:
    options.setdefault("dimension_numbers", IMAGES)
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, **options)


def _with_gradients(function: Callable) -> Callable:
    def run(x: jax.Array, w: jax.Array, dy: jax.Array) -> tuple:
        y, pull = jax.vjp(function, x, w)
        return y, *pull(dy)
    return run


def _images(name: str, x: tuple, w: tuple, function: Callable, scale: float = 1.0) -> Case:
    a, b = _random(*x), _random(*w, seed=1, scale=scale)
    out = jax.eval_shape(function, a, b)
    return Case(name, _with_gradients(function), (a, b, _random(*out.shape, seed=2)), l2=NEAR)


def convolutions() -> list[Case]:
    """Layers of usual networks: value, input gradient and weight gradient."""
    layers = {
        "3x3": ((4, 12, 12, 16), (3, 3, 16, 32), (1, 1), "VALID"),
        "3x3_same": ((3, 9, 11, 8), (3, 3, 8, 24), (1, 1), "SAME"),
        "3x3_same_large": ((8, 60, 61, 40), (3, 3, 40, 32), (1, 1), "SAME"),
        "3x3_stride2_large": ((8, 60, 61, 40), (3, 3, 40, 32), (2, 2), "SAME"),
        "3x3_stride2": ((2, 17, 17, 64), (3, 3, 64, 96), (2, 2), "SAME"),
        "7x7_stride2_rgb": ((2, 30, 30, 3), (7, 7, 3, 40), (2, 2), "SAME"),
        "7x7_stride2_rgb_many_images": ((128, 20, 20, 3), (7, 7, 3, 24), (2, 2), "SAME"),
        "7x7_stride2_rgb_odd_images": ((259, 13, 15, 3), (7, 7, 3, 20), (2, 2), [(3, 3), (3, 3)]),
        "1x1": ((3, 7, 7, 33), (1, 1, 33, 130), (1, 1), "VALID"),
        "1x1_stride2": ((2, 8, 8, 20), (1, 1, 20, 9), (2, 2), "VALID"),
        "one_channel": ((5, 28, 28, 1), (3, 3, 1, 256), (1, 1), "VALID"),
        "crop": ((2, 9, 9, 4), (3, 2, 4, 6), (1, 2), [(-2, 1), (3, -1)]),
        "whole_input": ((4, 5, 6, 7), (5, 6, 7, 8), (1, 1), "VALID"),
        "one_pixel": ((6, 1, 1, 9), (3, 3, 9, 10), (1, 1), "SAME"),
    }
    cases = [_images(f"layer_{name}", x, w, _conv(strides, padding))
             for name, (x, w, strides, padding) in layers.items()]
    cases += [_images("dilated", (2, 14, 14, 40), (3, 3, 40, 72), _conv((1, 1), "SAME", rhs_dilation=(2, 2))),
              _images("transposed", (2, 5, 6, 8), (4, 4, 8, 5), _conv((1, 1), [(2, 2), (2, 2)], lhs_dilation=(2, 2))),
              _images("stride2_dilation3", (1, 19, 17, 6), (3, 3, 6, 5),
                      _conv((2, 2), [(4, 2), (1, 5)], rhs_dilation=(3, 3))),
              _images("groups", (2, 10, 10, 12), (3, 3, 3, 8), _conv((1, 1), "SAME", feature_group_count=4)),
              _images("batch_groups", (6, 7, 7, 4), (3, 3, 4, 9), _conv((1, 1), "VALID", batch_group_count=3)),
              _images("depthwise", (2, 12, 12, 32), (3, 3, 1, 32), _conv((1, 1), "SAME", feature_group_count=32)),
              _images("depthwise_stride2", (2, 13, 14, 24), (3, 3, 1, 24),
                      _conv((2, 2), "SAME", feature_group_count=24)),
              _images("depthwise_dilated", (2, 11, 12, 10), (3, 2, 1, 10),
                      _conv((1, 1), [(2, 1), (0, 3)], rhs_dilation=(2, 3), feature_group_count=10)),
              _images("depthwise_7x7", (2, 12, 13, 16), (7, 7, 1, 16), _conv((1, 1), "SAME", feature_group_count=16)),
              _images("depthwise_nchw_stride2", (2, 16, 9, 10), (16, 1, 3, 3),
                      _conv((2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=16)),
              _images("depthwise_many", (16, 19, 19, 136), (3, 3, 1, 136),
                      _conv((1, 1), "SAME", feature_group_count=136)),
              _images("depthwise_nchw", (2, 20, 9, 8), (20, 1, 3, 3),
                      _conv((1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=20)),
              _images("depthwise_1d", (3, 40, 12), (4, 1, 12),
                      _conv((1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=12)),
              _images("depthwise_3d", (2, 4, 5, 6, 3), (2, 3, 2, 1, 3),
                      _conv((1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"), feature_group_count=3)),
              _images("depthwise_multiplier", (2, 8, 8, 6), (3, 3, 1, 12),
                      _conv((2, 2), "SAME", feature_group_count=6)),
              _images("depthwise_multiplier_dilated", (2, 9, 8, 5), (2, 3, 1, 15),
                      _conv((1, 2), [(2, 1), (0, 3)], lhs_dilation=(2, 3), rhs_dilation=(2, 1),
                            feature_group_count=5)),
              _images("depthwise_multiplier_nchw", (2, 7, 9, 8), (28, 1, 3, 3),
                      _conv((2, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=7)),
              _images("depthwise_multiplier_1x1", (2, 6, 7, 9), (1, 1, 1, 63),
                      _conv((1, 1), "SAME", feature_group_count=9)),
              _images("depthwise_multiplier_1d", (3, 40, 12), (4, 1, 24),
                      _conv((1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=12)),
              _images("one_feature_a_group", (2, 8, 9, 12), (3, 3, 4, 3), _conv((1, 1), "SAME", feature_group_count=3)),
              Case("patches", lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 2), "SAME",
                                                                         dimension_numbers=IMAGES),
                   (_random(2, 9, 9, 5),), l2=NEAR),
              _images("nchw", (2, 16, 9, 9), (24, 16, 3, 3),
                      _conv((1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))),
              _images("1d", (3, 40, 5), (7, 5, 11), _conv((3,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))),
              _images("3d", (2, 6, 7, 5, 3), (2, 3, 2, 3, 4),
                      _conv((1, 2, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))),
              Case("no_window_dims", _conv((), (), dimension_numbers=("NC", "IO", "NC")),
                   (_random(9, 20), _random(20, 7)), l2=NEAR),
              Case("conv_transpose", lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=IMAGES),
                   (_random(2, 5, 5, 8), _random(3, 3, 8, 4)), l2=NEAR),
              Case("jnp_convolve", lambda v, w: jnp.convolve(v, w), (_random(37), _random(5, seed=1)), l2=NEAR)]
    empty = (((0, 5, 5, 2), (3, 3, 2, 4)), ((2, 5, 5, 0), (3, 3, 0, 4)), ((2, 5, 5, 2), (3, 3, 2, 0)),
             ((2, 0, 5, 2), (1, 3, 2, 4)))
    cases += [Case(f"empty_{i}", _conv((1, 1), [(1, 1), (1, 1)]), (_random(*x), _random(*w)))
              for i, (x, w) in enumerate(empty)]
    special = _random(2, 6, 6, 3)
    special[0, 2, 3, 1], special[1, 0, 0, 0] = np.nan, np.inf
    weights = _random(3, 3, 3, 4)
    weights[1, 1, 0, 2] = np.inf  # meets the zeros of the padding
    cases.append(Case("specials", lambda x, w: jnp.isnan(_conv((1, 1), "SAME")(x, w)), (special, weights)))
    return cases


def _random_case(seed: int) -> Case:
    """One convolution with everything drawn: sizes, strides, paddings, dilations, groups, orders of dimensions."""
    draw = random.Random(seed)
    dims = draw.choice([1, 2, 2, 2, 3])
    groups, batch_groups = draw.choice([(1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (8, 1)])
    sizes = {"N": draw.choice([1, 2, 3, 5]) * batch_groups, "C": draw.choice([1, 2, 3, 5, 16]) * groups}
    outs = draw.choice([1, 2, 3, 4, 17]) * groups * batch_groups
    names, kernel, padding = "DHW"[-dims:], {}, []
    order = ["".join(draw.sample(text, len(text))) if draw.random() < 0.4 else text
             for text in (draw.choice(["N" + names + "C", "NC" + names]), names + "IO", "N" + names + "C")]
    strides, lhs, rhs = ([draw.choice([1, 1, 2, 3]) for _ in names] for _ in range(3))
    for i, name in enumerate(names):
        kernel[name] = draw.choice([1, 1, 2, 3, 4])
        # XLA on the CPU reads past the input when a grouped convolution crops; JAX refuses more crops than it should
        # unless the spatial dimensions stand last.
        least = -2 if groups == 1 and order[0] == "NC" + names else 0
        low, high = draw.randint(least, 3), draw.randint(least, 3)
        reach = (kernel[name] - 1) * rhs[i] + 1
        sizes[name] = draw.choice([1, 2, 3, 5, 7, 9])
        while min((sizes[name] - 1) * lhs[i] + 1 + low + high,
                  sizes[name] + min(low, 0) + min(high, 0)) < max(reach, 1):
            sizes[name] += 1
        padding.append((low, high))
    kernel |= {"I": sizes["C"] // groups, "O": outs}
    function = _conv(tuple(strides), padding, lhs_dilation=lhs, rhs_dilation=rhs, dimension_numbers=tuple(order),
                     feature_group_count=groups, batch_group_count=batch_groups)
    return _images(f"random_{seed}", tuple(sizes[c] for c in order[0]), tuple(kernel[c] for c in order[1]), function)


def random_convolutions() -> list[Case]:
    """Random forms with their gradients (whose convolutions have reversed windows and dilated inputs)."""
    return [_random_case(seed) for seed in range(40)]


def _dot(precision: str | None = None, result: object = None) -> Callable:
    return lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=precision,
                                        preferred_element_type=result)


def contraction_types() -> list[Case]:
    """Precision high and highest; bf16, mixed and integer operands and results."""
    conv, images = _conv((1, 1), "SAME"), ((2, 7, 7, 5), (3, 3, 5, 6))
    x, w = _random(*images[0]), _random(*images[1], seed=1)
    a, b = _random(33, 150), _random(150, 20, seed=1)
    large = (a * np.float32(1e30), b)
    cases = [Case(f"dot_{name}", _dot(name), (a, b), l2=limit) for name, limit in (("high", 2e-5), ("highest", 5e-7))]
    cases += [Case(f"conv_{name}", _conv((1, 1), "SAME", precision=name), (x, w), l2=limit)
              for name, limit in (("high", 2e-5), ("highest", 5e-7))]
    cases += [Case("dot_highest_large", _dot("highest"), large, l2=5e-7),
              Case("dot_highest_infinite", lambda p, q: jnp.isfinite(_dot("highest")(p, q)),
                   (np.where(a > 2.9, np.float32(np.inf), a), b)),
              Case("dot_batch_highest", lambda p, q: jnp.einsum("bmk,bnk->bmn", p, q, precision="highest"),
                   (_random(3, 9, 40), _random(3, 7, 40, seed=1)), l2=5e-7)]
    depthwise = _with_gradients(_conv((1, 1), "SAME", feature_group_count=5, precision="highest"))
    cases.append(Case("conv_depthwise_highest", depthwise, (x, w[:, :, :1, :5], _random(2, 7, 7, 5, seed=2)), l2=5e-7))
    cases.append(Case("conv_depthwise_multiplier_highest", depthwise,
                      (x, _random(3, 3, 1, 10, seed=1), _random(2, 7, 7, 10, seed=2)), l2=5e-7))
    half = [jnp.asarray(v, jnp.bfloat16) for v in (a, b, x, w)]
    cases.append(Case("conv_depthwise_multiplier_bf16", _conv((1, 1), "SAME", feature_group_count=5),
                      (half[2], jnp.asarray(_random(3, 3, 1, 10, seed=1), jnp.bfloat16)), l2=BF16))
    cases += [Case("dot_bf16", _dot(), tuple(half[:2]), l2=BF16),
              Case("dot_bf16_to_f32", _dot(result=jnp.float32), tuple(half[:2]), l2=NEAR),
              Case("dot_bf16_high", _dot("high"), tuple(half[:2]), l2=BF16),
              Case("conv_bf16", conv, tuple(half[2:]), l2=BF16),
              Case("conv_bf16_to_f32", _conv((1, 1), "SAME", preferred_element_type=jnp.float32), tuple(half[2:]),
                   l2=NEAR)]
    i, j = _ints(17, 40), _ints(40, 9, seed=1)
    for name in ("int32", "uint32", "int16", "int8", "uint8"):
        cases.append(Case(f"dot_{name}", _dot(), (i.astype(name), j.astype(name))))
        cases.append(Case(f"conv_{name}", conv,
                          (_ints(2, 6, 5, 3).astype(name), _ints(3, 2, 3, 4, seed=1).astype(name))))
    cases += [Case("dot_int8_to_int32", _dot(result=jnp.int32), (i.astype("int8"), j.astype("int8"))),
              Case("conv_int8_to_int32", _conv((2, 1), "SAME", preferred_element_type=jnp.int32),
                   (_ints(2, 6, 5, 3).astype("int8"), _ints(3, 2, 3, 4, seed=1).astype("int8"))),
              Case("dot_batch_i32", lambda p, q: jnp.einsum("kbm,nbk->bmn", p, q),
                   (_ints(7, 3, 5), _ints(4, 3, 7, seed=1)))]
    return cases


def _batch_norm(x: jax.Array, w: jax.Array, scale: jax.Array, shift: jax.Array) -> tuple:
    y = _conv((1, 1), "SAME")(x, w).astype(jnp.float32)
    mean = y.mean((0, 1, 2))
    variance = (y * y).mean((0, 1, 2)) - mean * mean
    return jax.nn.relu((y - mean) * lax.rsqrt(variance + 1e-5) * scale + shift), mean


def epilogues() -> list[Case]:
    """Loops that work on the blocks of a contraction: bias, activation, masks, sums over rows, several readers."""
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.relu(_conv((1, 1), "VALID")(x, w) + b)

    def both(x: jax.Array, w: jax.Array, b: jax.Array, dy: jax.Array) -> tuple:
        y, pull = jax.vjp(layer, x, w, b)
        return y, *pull(dy)

    def network(x: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array) -> tuple:
        return jax.grad(lambda *p: jnp.mean(layer(layer(x, p[0], p[1]), p[2], p[3]) ** 2), (0, 1, 2, 3))(w1, b1, w2, b2)

    half = [jnp.asarray(v, jnp.bfloat16)
            for v in (_random(4, 12, 12, 16), _random(3, 3, 16, 32, seed=1), _random(32, seed=2))]
    cases = [Case("layer_gradients", both, (_random(4, 12, 12, 16), _random(3, 3, 16, 32, seed=1), _random(32, seed=2),
                                            _random(4, 10, 10, 32, seed=3)), l2=NEAR),
             Case("network", network, (_random(5, 14, 14, 1), _random(3, 3, 1, 40, seed=1), _random(40, seed=2),
                                       _random(3, 3, 40, 24, seed=3, scale=0.1), _random(24, seed=4)), l2=2e-5),
             Case("layer_bf16", layer, tuple(half), l2=BF16),
             Case("batch_norm", _batch_norm,
                  (_random(24, 32, 32, 16), _random(3, 3, 16, 64, seed=1), _random(64, seed=2),
                                              _random(64, seed=3)), l2=NEAR),
             # The parts of the left operand together are longer than may lie in VMEM whole, those of the right are not.
             Case("bias_highest", lambda p, q, r: jax.nn.relu(jnp.dot(p.T, q, precision="highest") + r),
                  (_random(512, 1024), _random(512, 64, seed=1), _random(64, seed=2)), l2=5e-7)]
    for m, k, n in ((100, 64, 200), (1000, 64, 200), (25, 30, 300), (5000, 64, 300), (1, 7, 1), (9, 1, 130)):
        x, w, r = _random(m, k), _random(k, n, seed=1), _random(m, n, seed=2)
        cases += [Case(f"residual_{m}x{n}", lambda p, q, z: (p @ q + z, (p @ q + z).sum(0)), (x, w, r), l2=NEAR),
                  Case(f"kept_{m}x{n}", lambda p, q: (p @ q, jnp.tanh(p @ q), (p @ q).max(0)), (x, w), l2=NEAR),
                  Case(f"softmax_{m}x{n}", lambda p, q: jax.nn.softmax(p @ q * 0.1), (x, w), l2=NEAR),
                  Case(f"transposed_{m}x{n}", lambda p, q, z: jnp.maximum((p @ q).T, z.T), (x, w, r), l2=NEAR)]
    return cases


def all_cases() -> list[Case]:
    """Every case."""
    return convolutions() + random_convolutions() + contraction_types() + epilogues()
