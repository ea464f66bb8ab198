"""Cases of op_matrix_test.py: pad, general reductions, windows (pooling, cumulative sums), sorts."""

from __future__ import annotations

from case_runner import Case
from op_cases import SPECIALS, _ints, _random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

INF = float("inf")


def _ties(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers as floats: many equal elements."""
    return np.round(_random(*shape, seed=seed, scale=2.0))


def _tag(*parts: object) -> str:
    return "_".join("x".join(map(str, p)) if isinstance(p, tuple) else str(p) for p in parts)


def pads() -> list[Case]:
    """lax.pad with every sign, interior padding, computed values; reverse as a result."""
    forms = {(7,): ((2, 3, 0), (-2, -3, 0), (3, -9, 1), (-3, 2, 2), (-20, 25, 0)), (1,): ((0, 1, 5),),
             (0,): ((2, 1, 3),)}
    cases = [Case(_tag("pad", shape, *form), lambda v, form=form: lax.pad(v, jnp.float32(2.5), [form]),
                  (_random(*shape),))
             for shape, each in forms.items() for form in each]
    images = ((0, 0, 0), (1, 2, 0), (2, -1, 1), (0, 0, 0))
    cases += [Case(f"pad_image_{dtype}", lambda v, t=dtype: lax.pad(v, jnp.zeros((), t), images),
                   (_random(2, 9, 11, 3).astype(dtype),))
              for dtype in ("float32", "bfloat16", "int32")]
    # Between the elements of rows, of arrays that are large enough to be transposed.
    between = (((40, 64), ((0, 0, 0), (0, 1, 1))), ((40, 64), ((0, 0, 0), (1, 0, 1))),
               ((40, 64), ((1, 0, 1), (-3, 5, 2))), ((40, 64), ((0, -2, 0), (9, -11, 7))),
               ((40, 64), ((0, 0, 0), (2, 2, 8))), ((3, 140, 3), ((1, 0, 0), (-1, 4, 2), (0, 0, 0))),
               ((40, 30, 2), ((0, 0, 2), (2, -4, 1), (-1, 1, 3))),
               ((2, 9, 70, 4), ((0, 0, 0), (1, 2, 1), (0, 1, 1), (0, 0, 0))))
    cases += [Case(f"pad_between_{number}_{dtype}", lambda v, f=forms, t=dtype: lax.pad(v, jnp.asarray(3, t), f),
                   (_random(*shape, scale=3.0).astype(dtype),))
              for number, (shape, forms) in enumerate(between)
              for dtype in ("float32", "bfloat16", "int8", "bool")]
    cases += [Case("pad_between_computed", lambda v: lax.pad(v * 2, jnp.max(v), [(1, 2, 0), (3, 0, 1)]) + 1,
                   (_random(40, 90),)),
              Case("strided_gradient", jax.grad(lambda v: jnp.sum(v[:, 1::3] ** 2 * v[:, ::3])), (_random(60, 99),),
                   l2=1e-6)]
    cases += [Case("pad_i1", lambda v: jnp.pad(v, 2), (_random(5, 9) > 0,)),
              Case("pad_nan_value", lambda v: lax.pad(v, jnp.float32(jnp.nan), [(1, 1, 1)]), (SPECIALS,)),
              Case("pad_computed_value", lambda v: lax.pad(v, jnp.max(v), [(1, 2, 0), (3, 0, 1)]), (_random(9, 40),)),
              Case("pad_between_kernels", lambda v: jnp.sum(jnp.pad(v * 2, ((1, 1), (0, 3))) + 1, 1), (_random(9, 40),),
                   l2=1e-6),
              Case("reverse", lambda v: (v[::-1], v[:, ::-1], jnp.flip(v)), (_random(5, 130),)),
              Case("reverse_3d", lambda v: lax.rev(v, (0, 2)), (_random(3, 4, 5),))]
    return cases


def _affine(a: tuple, b: tuple) -> tuple:
    return a[0] * b[0], a[1] * b[0] + b[1]


def general_reductions() -> list[Case]:
    """Bodies of several ops and operands, integer types, initial values other than the identity."""
    cases = []
    for shape, axis in (((7,), 0), ((1,), 0), ((25, 10), 1), ((25, 10), 0), ((5, 130), 1), ((5, 1000), 1),
                        ((300, 33), 0), ((4, 5, 6), 1), ((2, 3, 1), 2), ((4097,), 0)):
        x = _ties(*shape)
        for name in ("argmax", "argmin"):
            function = getattr(jnp, name)
            cases.append(Case(_tag(name, shape, axis), lambda v, f=function, a=axis: f(v, a), (x,)))
        cases.append(Case(_tag("argmax_i32", shape, axis), lambda v, a=axis: jnp.argmax(v, a), (_ints(*shape),)))
    special = np.stack([SPECIALS, np.roll(SPECIALS, 3), np.where(np.isnan(SPECIALS), 0, SPECIALS)])
    cases += [Case("argmax_specials", lambda v: (jnp.argmax(v, 1), jnp.argmin(v, 1), jnp.argmax(v)), (special,)),
              Case("argmax_bf16", lambda v: jnp.argmax(v, 1), (jnp.asarray(_ties(9, 40), jnp.bfloat16),)),
              Case("argmax_all", lambda v: jnp.argmax(v), (_ties(9, 40),)),
              Case("nanmax", lambda v: jnp.nanmax(v, 1), (special,)),
              Case("initial_value",
                   lambda v: (lax.reduce(v, np.float32(0.5), lax.max, (1,)),
                              lax.reduce(v, np.float32(-0.5), lax.min, (0,))),
                   (_random(9, 40),)),
              Case("computed_initial_value", lambda v, w: lax.reduce(v, w, lax.add, (1,)),
                   (_random(9, 0), np.float32(3))),
              Case("affine_maps", lambda a, c: lax.reduce((a, c), (np.float32(1), np.float32(0)), _affine, (1,)),
                   (1 + _random(6, 100, scale=0.1), _random(6, 100, seed=1)), l2=1e-5),
              Case("two_sums", lambda a,
                   c: lax.reduce((a, c), (np.int32(0), np.int32(0)), lambda x, y: (x[0] + y[0], x[1] ^ y[1]), (0, 2)),
                   (_ints(5, 6, 7), _ints(5, 6, 7, seed=1))),
              Case("many_runs", lambda v: jnp.max(v, (0, 2, 4)), (_random(3, 4, 5, 6, 7, 2),)),
              Case("many_runs_sum", lambda v: jnp.sum(v, (1, 3, 5)), (_random(3, 4, 5, 6, 7, 2),), l2=1e-6),
              Case("empty_argmax_rows", lambda v: jnp.argmax(v, 1), (_random(0, 4),))]
    cases += [Case(f"reduce_{name}_i32", lambda v, f=f, i=i: lax.reduce(v, np.int32(i), f, (1,)), (_ints(9, 40),))
              for name, f, i in
              (("and", lax.bitwise_and, -1), ("or", lax.bitwise_or, 0), ("xor", lax.bitwise_xor, 0),
               ("mul", lax.mul, 1))]
    return cases


def windows() -> list[Case]:
    """reduce_window: pooling, dilation, strides, large windows, cumulative sums, bad sizes."""
    x = _random(2, 12, 13, 5)
    cases = []
    for name, init, f in (("max", -INF, lax.max), ("sum", 0.0, lax.add), ("min", INF, lax.min)):
        for size, stride, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (3, 2, "VALID"), (1, 2, "VALID"),
                                      (5, 3, "SAME"), (2, 3, "VALID")):
            cases.append(Case(_tag("pool", name, size, stride, padding), lambda v, i=init, f=f, s=size, t=stride,
                              p=padding:
                              lax.reduce_window(v, np.float32(i), f, (1, s, s, 1), (1, t, t, 1), p), (x,),
                              l2=1e-6 if name == "sum" else None))
    line = _ties(50)
    for size, stride, pad, base, dilation in ((3, 1, (0, 0), 1, 2), (3, 2, (4, 1), 2, 1), (2, 1, (3, 3), 3, 2),
                                              (20, 1, (0, 0), 1, 1), (20, 7, (5, 9), 1, 1),
                                              (17, 17, (0, 3), 1, 1), (50, 1, (0, 0), 1, 1), (50, 1, (49, 0), 1, 1),
                                              (50, 1, (0, 49), 1, 1), (4, 1, (-3, -2), 1, 1)):
        for name, init, f in (("max", -INF, lax.max), ("sum", 0.0, lax.add)):
            cases.append(Case(_tag("window", name, size, stride, pad, base, dilation), lambda v, i=init, f=f, s=size,
                              t=stride, p=pad, b=base, d=dilation:
                              lax.reduce_window(v, np.float32(i), f, (s,), (t,), (p,), (b,), (d,)), (line,)))
    cases += [Case(f"{name}_{_tag(shape, axis, back)}", lambda v, n=name, a=axis,
                   r=back: getattr(lax, n)(v, a, reverse=r), (_ties(*shape) + 0.0,),
                   l2=1e-5 if name in ("cumlogsumexp", "cumprod") else None)
              for name in ("cumsum", "cummax", "cummin", "cumprod", "cumlogsumexp")
              for shape, axis in (((9, 40), 1), ((130,), 0), ((9, 40), 0), ((1,), 0))
              for back in (False, True)]
    special = np.tile(SPECIALS, 2)
    cases += [Case("cumsum_i32", lambda v: jnp.cumsum(v), (_ints(1000),)),
              Case("pool_specials", lambda v: lax.reduce_window(v, np.float32(-INF), lax.max, (3,), (2,), "SAME"),
                   (special,)),
              Case("pool_bf16", lambda v: lax.reduce_window(v, jnp.bfloat16(-INF), lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                                            "VALID"), (jnp.asarray(x, jnp.bfloat16),)),
              Case("pool_i32", lambda v: lax.reduce_window(v, np.int32(-2**31), lax.max, (3, 3), (2, 2), "SAME"),
                   (_ints(11, 40),)),
              Case("window_and_i1", lambda v: lax.reduce_window(v, True, lax.bitwise_and, (2, 3), (1, 1), "SAME"),
                   (_random(9, 20) > -0.5,)),
              Case("window_initial_value", lambda v: lax.reduce_window(v, np.float32(0.5), lax.max, (3,), (1,), "SAME"),
                   (line,)),
              Case("average_pool_keras",
                   lambda v: lax.reduce_window(v, np.float32(0), lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "VALID") / 49,
                   (_random(3, 7, 7, 20),), l2=1e-6),
              Case("larger_than_input", lambda v: lax.reduce_window(v, np.float32(0), lax.add, (9,), (1,), "VALID"),
                   (_random(5),)),
              Case("window_scalar", lambda v: lax.reduce_window(v, np.float32(0), lax.add, (), (), ()),
                   (np.float32(3),)),
              Case("associative_scan", lambda a, c: lax.associative_scan(_affine, (a, c)),
                   (1 + _random(45, scale=0.1), _random(45, seed=1)), l2=1e-5),
              Case("argmax_window", lambda v,
                   i: lax.reduce_window((v, i), (np.float32(-INF), np.int32(0)), lambda a, b: (
                  jnp.where(a[0] >= b[0], a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])), (3, 3), (2, 2), "VALID"),
                   (_ties(11, 12), np.arange(132, dtype=np.int32).reshape(11, 12)))]
    return cases


def window_gradients() -> list[Case]:
    """select_and_scatter (with ties) and the gradients of average pools."""
    def pool(f: object, init: float, size: int, stride: int, padding: object) -> object:
        return lambda v: lax.reduce_window(v, np.float32(init), f, (1, size, size, 1), (1, stride, stride, 1), padding)

    cases = []
    for size, stride, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (3, 3, "VALID"), (2, 3, "VALID"),
                                  (3, 2, ((0, 0), (2, 1), (0, 2), (0, 0)))):
        x, tag = _ties(2, 11, 12, 3), _tag(size, stride, padding if isinstance(padding, str) else "explicit")
        for name, f, init in (("max", lax.max, -INF), ("min", lax.min, INF), ("sum", lax.add, 0.0)):
            forward = pool(f, init, size, stride, padding)
            dy = _random(*jax.eval_shape(forward, x).shape, seed=3)
            cases.append(Case(f"grad_{name}_pool_{tag}", lambda v, g, p=forward: jax.vjp(p, v)[1](g)[0], (x, dy),
                              l2=1e-6))
    # Phases within the stride that windows of different numbers cover; ties and NaN; three dimensions.
    for dtype, shape, size, stride, padding in (
            ("bfloat16", (2, 11, 12, 3), (3, 3), (2, 2), "SAME"), ("float32", (1, 9, 14, 40), (2, 3), (1, 2), "SAME"),
            ("bfloat16", (2, 13, 12, 5), (5, 4), (3, 2), "VALID"),
            ("float32", (2, 7, 6, 9, 4), (3, 3, 3), (2, 2, 2), "SAME")):
        x = _ties(*shape)
        x[_random(*shape, seed=4) > 1] = np.nan
        x = x.astype(dtype)

        def forward(v: object, s: tuple = (1, *size, 1), t: tuple = (1, *stride, 1), p: str = padding) -> object:
            return lax.reduce_window(v, np.array(-INF, v.dtype), lax.max, s, t, p)

        dy = _random(*jax.eval_shape(forward, x).shape, seed=3).astype(dtype)
        cases.append(Case(_tag("grad_max_phases", dtype, size, stride, padding),
                          lambda v, g, p=forward: jax.vjp(p, v)[1](g)[0], (x, dy)))
    line = np.tile(SPECIALS, 2)
    cases += [Case("grad_max_specials", lambda v,
                   g: jax.vjp(lambda u: lax.reduce_window(u, np.float32(-INF), lax.max, (3,), (2,), "VALID"),
                              v)[1](g)[0],
                   (line, _random(19, seed=2))),
              Case("grad_cumsum", jax.grad(lambda v: jnp.sum(jnp.cumsum(v, 1) ** 2)), (_random(9, 40),), l2=1e-5),
              Case("grad_cummax", jax.grad(lambda v: jnp.sum(lax.cummax(v, 1) ** 2)), (_random(9, 40),), l2=1e-5),
              Case("pool_loss_and_gradient",
                   jax.value_and_grad(lambda v: jnp.mean(jax.nn.relu(pool(lax.max, -INF, 2, 2, "VALID")(v)) ** 2)),
                   (_random(2, 12, 12, 20),), l2=1e-5)]
    return cases


def sorts() -> list[Case]:
    """sort: one and several operands, keys, dims, sizes, NaN and zeros of both signs; top_k, argsort."""
    cases = [Case(_tag("sort", shape, axis), lambda v, a=axis: jnp.sort(v, a), (_ties(*shape),))
             for shape, axis in (((7,), 0), ((1,), 0), ((0,), 0), ((5, 130), 1), ((5, 130), 0), ((3, 16, 4), 1),
                                 ((2, 3, 8), 2), ((1000,), 0))]
    cases += [Case(_tag("argsort", shape), lambda v: jnp.argsort(v, -1), (_ties(*shape),))
              for shape in ((9,), (6, 40), (256,))]
    cases += [Case("sort_specials", lambda v: (jnp.sort(v), jnp.argsort(v), jnp.sort(v, descending=True)),
                   (np.tile(SPECIALS, 2),)),
              Case("sort_i32", lambda v: jnp.sort(v), (_ints(300),)),
              Case("sort_u32", lambda v: jnp.sort(v), (_ints(100).view(np.uint32),)),
              Case("sort_i1", lambda v: jnp.sort(v, 0), (_random(20, 5) > 0,)),
              Case("sort_bf16", lambda v: jnp.sort(v), (jnp.asarray(_random(5, 33), jnp.bfloat16),)),
              Case("sort_key_value", lambda k, v: lax.sort((k, v), num_keys=1), (_ties(77), _ints(77))),
              Case("sort_two_keys", lambda a, c, v: lax.sort((a, c, v), num_keys=2),
                   (_ties(77), _ints(77, low=0, high=3), _random(77, seed=5))),
              Case("top_k", lambda v: lax.top_k(v, 3), (_ties(4, 50),)),
              Case("top_k_row", lambda v: lax.top_k(v, 5), (_random(100),))]
    return cases


def all_cases() -> list[Case]:
    """Everything, with unique names."""
    cases = [*pads(), *general_reductions(), *windows(), *window_gradients(), *sorts()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "case names must be unique"
    return cases
