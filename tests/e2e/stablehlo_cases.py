"""Cases of op_matrix_test.py: StableHLO operations and forms that JAX does not make (--x64 for 64-bit types)."""

from __future__ import annotations

from case_runner import Case
from op_cases import SPECIALS, _ints, _random

import jax.numpy as jnp
import numpy as np

INTEGERS = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16, "i32": np.int32, "ui32": np.uint32,
            "i64": np.int64, "ui64": np.uint64}


def _module(arguments: dict[str, str], results: list[str], body: str) -> str:
    """A module whose function main has typed arguments and returns %0 (or %0#0, %0#1, ..) of the given types."""
    names = ", ".join(f"%{name}: tensor<{kind}>" for name, kind in arguments.items())
    types = ", ".join(f"tensor<{kind}>" for kind in results)
    values = ", ".join(f"%0#{i}" for i in range(len(results))) if len(results) > 1 else "%0"
    return f"module {{\nfunc.func public @main({names}) -> ({types}) {{\n{body}\nreturn {values} : {types}\n}}\n}}"


def _generic(op: str, arguments: dict[str, str], results: list[str], attributes: str, regions: str = "") -> str:
    """A module of one op in MLIR's generic form."""
    count = f":{len(results)}" if len(results) > 1 else ""
    operands = ", ".join(f"%{name}" for name in arguments)
    types = [", ".join(f"tensor<{kind}>" for kind in kinds) for kinds in (arguments.values(), results)]
    line = f'%0{count} = "stablehlo.{op}"({operands}) {regions} {{{attributes}}} : ({types[0]}) -> ({types[1]})'
    return _module(arguments, results, line)


def _block(arguments: str, body: str) -> str:
    """A region of scalars %p and %q that returns %r."""
    return f"{{\n^bb0({arguments}):\n{body}\nstablehlo.return %r\n}}"


def batch_norms() -> list[Case]:
    """batch_norm_training, _inference and _grad over each dimension, in f32 and bf16."""
    cases = []
    shape = (3, 5, 7, 4)
    for element, l2 in (("f32", 2e-5), ("bf16", 1e-2)):
        def arrays(*shapes: tuple, t: str = element) -> tuple:
            values = [_random(*s, seed=i) for i, s in enumerate(shapes)]
            return tuple(np.asarray(jnp.asarray(v, jnp.bfloat16)) for v in values) if t == "bf16" else tuple(values)

        whole = "x".join(map(str, shape)) + f"x{element}"
        for axis in (0, 1, 3) if element == "f32" else (3,):
            n = (shape[axis],)
            one = f"{n[0]}x{element}"
            attributes = f"epsilon = 1.0e-3 : f32, feature_index = {axis} : i64"
            x, scale, offset, mean, variance, gradient = arrays(shape, n, n, n, n, shape)
            variance, tag = abs(variance), f"{element}_{axis}"
            cases += [Case(f"training_{tag}",
                           _generic("batch_norm_training", {"x": whole, "s": one, "o": one}, [whole, one, one],
                                                       attributes), (x, scale, offset), l2=l2),
                      Case(f"inference_{tag}",
                           _generic("batch_norm_inference", {"x": whole, "s": one, "o": one, "m": one, "v": one},
                                                        [whole], attributes), (x, scale, offset, mean, variance),
                           l2=l2),
                      Case(f"gradient_{tag}",
                           _generic("batch_norm_grad", {"x": whole, "s": one, "m": one, "v": one, "g": whole},
                                                       [whole, one, one], attributes),
                           (x, scale, mean, variance, gradient), l2=l2)]
    return cases


def _powers() -> list[Case]:
    cases = []
    for name, dtype in INTEGERS.items():
        info = np.iinfo(dtype)
        bases = np.array([0, 1, 2, 3, 7, 10, 15, info.max, info.max - 1, info.max // 3, info.min, info.min + 1]
                         + [-1, -2, -3] * (info.min < 0), dtype)
        # XLA on the CPU looks at six bits of the exponent: larger ones are in the unit tests.
        exponents = np.array([0, 1, 2, 3, 5, 31, 32, 33, 62, 63] + [-1, -2, info.min] * (info.min < 0), dtype)
        a, b = np.meshgrid(bases, exponents)
        kind = f"{a.shape[0]}x{a.shape[1]}x{name}"
        cases.append(Case(f"power_{name}", _generic("power", {"a": kind, "b": kind}, [kind], ""), (a, b)))
    return cases


def _convolution(x: tuple, w: tuple, out: tuple, numbers: str, window: str) -> Case:
    kinds = ["x".join(map(str, s)) + "xf32" for s in (x, w, out)]
    body = (f"%0 = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} "
            "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
            f"(tensor<{kinds[0]}>, tensor<{kinds[1]}>) -> tensor<{kinds[2]}>")
    return Case("", _module({"x": kinds[0], "w": kinds[1]}, [kinds[2]], body), (_random(*x), _random(*w, seed=1)),
                l2=3e-6)


def others() -> list[Case]:
    """map, integer powers, clamps with bounds that cross, windows larger than the input, reversed windows,
    case, values that nothing reads."""
    scalars = "%p: tensor<f32>, %q: tensor<f32>"
    map_body = _block(scalars, "%m = stablehlo.multiply %p, %q : tensor<f32>\n%r = stablehlo.tanh %m : tensor<f32>")
    cases = [Case("map", _generic("map", {"a": "5x7xf32", "b": "5x7xf32"}, ["5x7xf32"], "dimensions = array<i64: 0, 1>",
                                  "("
                                  + map_body.replace("return %r", "return %r : tensor<f32>") + ")"),
                  (_random(5, 7), _random(5, 7, seed=1)), ulp=8),
             *_powers()]
    bounds = (np.float32(1), SPECIALS, np.float32(-1))
    cases.append(Case("clamp_crossed", _generic("clamp", {"l": "f32", "x": f"{SPECIALS.size}xf32", "h": "f32"},
                                                [f"{SPECIALS.size}xf32"], ""), bounds))
    window = "array<i64: {}>"
    for compare in ("GE", "GT", "LE", "LT"):
        select = _block(scalars, f"%r = stablehlo.compare {compare}, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>")
        scatter = _block(scalars, "%r = stablehlo.multiply %p, %q : tensor<f32>")
        regions = (f"({select.replace('return %r', 'return %r : tensor<i1>')}, "
                   f"{scatter.replace('return %r', 'return %r : tensor<f32>')})")
        for size, positions in ((3, 4), (10, 0)):  # the second: no window fits
            attributes = (f"window_dimensions = {window.format(size)}, window_strides = {window.format(2)}, "
                          "padding = dense<[[0, 0]]> : tensor<1x2xi64>")
            cases.append(Case(f"select_{compare}_scatter_{size}", _generic(
                "select_and_scatter", {"a": "9xf32", "b": f"{positions}xf32", "i": "f32"}, ["9xf32"], attributes,
                regions),
                (np.round(_random(9)), _random(positions, seed=1), np.float32(2)), ulp=2))
    forms = {"reversed": _convolution((2, 7, 6, 3), (3, 2, 3, 5), (2, 4, 7, 5),
                                      "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
                                      "stride = [2, 1], pad = [[2, 1], [1, 1]], reverse = [true, false]"),
             "odd_dimensions": _convolution((7, 2, 3, 6), (5, 3, 3, 2), (5, 7, 2, 5),
                                            "[0, b, f, 1]x[o, 0, i, 1]->[0, 1, b, f]",
                                            "stride = [1, 1], pad = [[0, 0], [1, 1]], reverse = [true, true]"),
             "window_too_large": _convolution((2, 4, 6, 3), (5, 2, 3, 5), (2, 0, 5, 5),
                                              "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
                                              "stride = [1, 1]")}
    cases += [Case(f"convolution_{name}", case.function, case.inputs, l2=case.l2) for name, case in forms.items()]
    for index in (-(2**31), -1, 0, 1, 2, 2**31 - 1):  # anything outside is the last branch
        branches = ", ".join(f"{{\n%{n} = stablehlo.{op} %x : tensor<7xf32>\nstablehlo.return %{n} : tensor<7xf32>\n}}"
                             for n, op in (("n", "negate"), ("t", "floor")))
        line = f'%0 = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> tensor<7xf32>'
        cases.append(Case(f"case_{index}", _module({"i": "i32", "x": "7xf32"}, ["7xf32"], line),
                          (np.int32(index), _random(7))))
    sunk = ("%y = stablehlo.negate %x : tensor<7xf32>\n"
            "stablehlo.custom_call @dce_sink(%y) {has_side_effect = true} : (tensor<7xf32>) -> ()\n"
            "%0 = stablehlo.floor %x : tensor<7xf32>")
    cases.append(Case("dce_sink", _module({"x": "7xf32"}, ["7xf32"], sunk), (_random(7),), oracle=jnp.floor))
    return cases


def wide_contractions() -> list[Case]:
    """Contractions of 64-bit integers (by way of JAX): products wrap."""
    import jax
    from jax import lax

    a, b = (np.random.default_rng(s).integers(-(2**63), 2**63, shape, dtype=np.int64)
            for s, shape in ((0, (9, 13)), (1, (13, 5))))
    image, kernel = _ints(2, 3, 6, 5).astype(np.int64) << 40, _ints(4, 3, 3, 2).astype(np.int64)
    return [Case("dot_i64", lambda x, y: x @ y, (a, b)),
            Case("dot_u64", lambda x, y: x @ y, (a.view(np.uint64), b.view(np.uint64))),
            Case("dot_batch_i64", lambda x, y: jnp.einsum("bij,bkj->bik", x, y), (a[None], a[None] >> 3)),
            Case("dot_i32_to_i64", lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int64),
                 (a.astype(np.int32), b.astype(np.int32))),
            Case("convolution_i64", lambda x, w: lax.conv(x, w, (2, 1), "SAME"), (image, kernel)),
            Case("dot_in_loop_i64", lambda x: lax.fori_loop(0, 3, lambda i, c: c @ c + i, x), (a[:5, :5],)),
            Case("vmap_dot_i64", jax.vmap(lambda x, y: jnp.vdot(x, y)), (a, a[::-1].copy()))]
