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


def of_hlo() -> list[Case]:
    """Operations of HLO that StableHLO does not have: custom calls, as PyTorch/XLA and JAX's exports write them."""
    from jax import lax

    cases = []
    x = {"x": "6x50xf32"}
    anything, unit = _random(6, 50, scale=3.0), np.tanh(_random(6, 50))
    for name, oracle, values in (("erf", lax.erf, anything), ("tan", jnp.tan, anything), ("sinh", jnp.sinh, anything),
                                 ("cosh", jnp.cosh, anything), ("asinh", jnp.arcsinh, anything),
                                 ("acosh", jnp.arccosh, 1 + abs(anything)), ("atanh", jnp.arctanh, unit),
                                 ("asin", jnp.arcsin, unit), ("acos", jnp.arccos, unit), ("atan", jnp.arctan, anything),
                                 ("erf_inv", lax.erf_inv, unit)):
        call = (f"%0 = stablehlo.custom_call @mhlo.{name}(%x) {{mhlo.attributes = {{}}, mhlo.version = 1 : i64}}"
                " : (tensor<6x50xf32>) -> tensor<6x50xf32>")
        cases.append(Case(f"mhlo_{name}", _module(x, ["6x50xf32"], call), (values,), oracle=oracle, l2=2e-6))
    for largest in (True, False):
        attributes = f"mhlo.attributes = {{k = 4 : i64, largest = {str(largest).lower()}}}"
        call = (f"%0:2 = stablehlo.custom_call @mhlo.topk(%x) {{{attributes}, mhlo.version = 1 : i64}}"
                " : (tensor<6x50xf32>) -> (tensor<6x4xf32>, tensor<6x4xi32>)")
        cases.append(Case(f"mhlo_topk_{largest}", _module(x, ["6x4xf32", "6x4xi32"], call), (anything,),
                          oracle=(lambda a: lax.top_k(a, 4)) if largest else
                          lambda a: (-lax.top_k(-a, 4)[0], lax.top_k(-a, 4)[1])))
    return cases


def _sizes(name: str, *values: int, kind: str = "i32") -> str:
    return f"%{name} = stablehlo.constant dense<{list(values)}> : tensor<{len(values)}x{kind}>\n"


def forms() -> list[Case]:
    """Operations that are other ones: sizes of arrays, sizes as operands, tuples, those of einsum and PyTorch."""
    import jax
    from jax import lax

    x, image, kernel = _random(4, 7), _random(2, 9, 8, 3), _random(3, 2, 3, 5, seed=1)
    vector, table = _random(6), _random(3, 5, 4)
    t = {"x": "4x7xf32"}
    size = "%s = stablehlo.get_dimension_size %x, dim = 1 : (tensor<4x7xf32>) -> tensor<i32>\n"
    zero = "%z = stablehlo.constant dense<0.5> : tensor<f32>\n"
    cases = [
        Case("dimension_size", _module(t, ["i32"], size + "%0 = stablehlo.add %s, %s : tensor<i32>"), (x,),
             oracle=lambda _: jnp.int32(14)),
        Case("dimension_set", _module(t, ["4x7xf32"], size + "%0 = stablehlo.set_dimension_size %x, %s, dim = 1 : "
                                      "(tensor<4x7xf32>, tensor<i32>) -> tensor<4x7xf32>"), (x,), oracle=lambda v: v),
        Case("dynamic_broadcast", _module({"x": "6xf32"}, ["2x6xf32"], _sizes("n", 2, 6)
             + "%0 = stablehlo.dynamic_broadcast_in_dim %x, %n, dims = [1] : (tensor<6xf32>, tensor<2xi32>) -> "
               "tensor<2x6xf32>"), (vector,), oracle=lambda v: jnp.broadcast_to(v, (2, 6))),
        Case("dynamic_reshape", _module(t, ["2x14xf32"], _sizes("n", 2, 14, kind="i64")
             + "%0 = stablehlo.dynamic_reshape %x, %n : (tensor<4x7xf32>, tensor<2xi64>) -> tensor<2x14xf32>"), (x,),
             oracle=lambda v: v.reshape(2, 14)),
        Case("dynamic_iota", _module({}, ["3x5xi32"], _sizes("n", 3, 5)
             + "%0 = stablehlo.dynamic_iota %n, dim = 1 : (tensor<2xi32>) -> tensor<3x5xi32>"), (),
             oracle=lambda: lax.broadcasted_iota(jnp.int32, (3, 5), 1)),
        # The sizes are computed of a dimension's: [0, 7] behind, [-1, 0] in front, [1, 0] between.
        Case("dynamic_pad", _module(t, ["6x14xf32"], size + zero + _sizes("o", 0) + _sizes("l", -1, 0)
             + _sizes("i", 1, 0) + "%r = stablehlo.reshape %s : (tensor<i32>) -> tensor<1xi32>\n"
               "%h = stablehlo.concatenate %o, %r, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
               "%0 = stablehlo.dynamic_pad %x, %z, %l, %h, %i : (tensor<4x7xf32>, tensor<f32>, tensor<2xi32>, "
               "tensor<2xi32>, tensor<2xi32>) -> tensor<6x14xf32>"), (x,),
             oracle=lambda v: lax.pad(v, np.float32(0.5), ((-1, 0, 1), (0, 7, 0)))),
        Case("real_dynamic_slice", _module(t, ["2x3xf32"], _sizes("a", 1, 0) + _sizes("b", 4, 6) + _sizes("c", 2, 2)
             + "%0 = stablehlo.real_dynamic_slice %x, %a, %b, %c : (tensor<4x7xf32>, tensor<2xi32>, tensor<2xi32>, "
               "tensor<2xi32>) -> tensor<2x3xf32>"), (x,), oracle=lambda v: v[1:4:2, 0:6:2]),
        Case("real_dynamic_slice_start", _module(t | {"a": "2xi32", "b": "2xi32"}, ["2x3xf32"], _sizes("c", 1, 2)
             + "%0 = stablehlo.real_dynamic_slice %x, %a, %b, %c : (tensor<4x7xf32>, tensor<2xi32>, tensor<2xi32>, "
               "tensor<2xi32>) -> tensor<2x3xf32>"), (x, np.array([2, 1], np.int32), np.array([4, 7], np.int32)),
             oracle=lambda v, *_: v[2:4, 1:7:2]),
        Case("dynamic_gather", _module(t | {"i": "3x1xi32"}, ["3x5xf32"], _sizes("n", 1, 5)
             + "%0 = \"stablehlo.dynamic_gather\"(%x, %i, %n) {dimension_numbers = #stablehlo.gather<offset_dims = "
               "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = "
               "false} : (tensor<4x7xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x5xf32>"),
             (x, np.array([[3], [0], [1]], np.int32)), oracle=lambda v, i: v[i[:, 0], :5]),
        Case("dynamic_conv", _module({"x": "2x9x8x3xf32", "w": "3x2x3x5xf32"}, ["2x5x7x5xf32"],
             "%n = stablehlo.constant dense<[[2, 0], [0, 0]]> : tensor<2x2xi32>\n"
             "%0 = \"stablehlo.dynamic_conv\"(%x, %w, %n) {dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x"
             "[0, 1, i, o]->[b, 0, 1, f]>, window_strides = array<i64: 2, 1>, batch_group_count = 1 : i64, "
             "feature_group_count = 1 : i64} : (tensor<2x9x8x3xf32>, tensor<3x2x3x5xf32>, tensor<2x2xi32>) -> "
             "tensor<2x5x7x5xf32>"), (image, kernel), l2=3e-6,
             oracle=lambda v, w: lax.conv_general_dilated(v, w, (2, 1), ((2, 0), (0, 0)),
                                                          dimension_numbers=("NHWC", "HWIO", "NHWC"))),
        Case("tuple", _module(t, ["4x7xf32"],
             "%p = stablehlo.negate %x : tensor<4x7xf32>\n"
             "%q = stablehlo.tuple %p, %x : tuple<tensor<4x7xf32>, tensor<4x7xf32>>\n"
             "%r = stablehlo.tuple %x, %q : tuple<tensor<4x7xf32>, tuple<tensor<4x7xf32>, tensor<4x7xf32>>>\n"
             "%u = stablehlo.get_tuple_element %r[1] : (tuple<tensor<4x7xf32>, tuple<tensor<4x7xf32>, "
             "tensor<4x7xf32>>>) -> tuple<tensor<4x7xf32>, tensor<4x7xf32>>\n"
             "%0 = stablehlo.get_tuple_element %u[0] : (tuple<tensor<4x7xf32>, tensor<4x7xf32>>) -> tensor<4x7xf32>"),
             (x,), oracle=lambda v: -v),
    ]
    for config, b, out in (("ab,bc->ca", (7, 5), (5, 4)), ("ab,ab->a", (4, 7), (4,)), ("ab,c->ac", (6,), (4, 6)),
                           ("ab,cb->", (3, 7), ())):
        kinds = ["x".join((*map(str, s), "f32")) for s in (b, out)]
        cases.append(Case(f"einsum_{config}", _module(t | {"y": kinds[0]}, [kinds[1]],
                     f'%0 = stablehlo.einsum %x, %y, config = "{config}" : (tensor<4x7xf32>, tensor<{kinds[0]}>) -> '
                     f"tensor<{kinds[1]}>"), (np.round(x * 4), np.round(_random(*b, seed=2) * 4)), l2=1e-6,
                     oracle=lambda v, w, c=config: jnp.einsum(c, v, w)))
    for config, out in (("abc->cab", "4x3x5xf32"), ("abc->b", "5xf32")):
        cases.append(Case(f"unary_einsum_{config}", _module({"x": "3x5x4xf32"}, [out],
                     f'%0 = "stablehlo.unary_einsum"(%x) {{einsum_config = "{config}"}} : (tensor<3x5x4xf32>) -> '
                     f"tensor<{out}>"), (table,), l2=1e-6, oracle=lambda v, c=config: jnp.einsum(c, v)))
    for dim, batch, index, out, pick in (
            (1, 0, (2, 3), (3, 2, 3, 4), lambda v, i: jnp.take(v, i, 1)),
            (2, 1, (3, 2), (3, 5, 2), lambda v, i: jax.vmap(lambda u, j: jnp.take(u, j, 1))(v, i)),
            (1, 1, (3, 2), (3, 2, 4), lambda v, i: jax.vmap(lambda u, j: jnp.take(u, j, 0))(v, i))):
        kinds = ["x".join((*map(str, s), e)) for s, e in ((index, "i32"), (out, "f32"))]
        cases.append(Case(f"index_select_{dim}_{batch}", _module({"x": "3x5x4xf32", "i": kinds[0]}, [kinds[1]],
                     f'%0 = "stablehlo.torch_index_select"(%x, %i) {{dim = {dim} : i64, batch_dims = {batch} : i64}} : '
                     f"(tensor<3x5x4xf32>, tensor<{kinds[0]}>) -> tensor<{kinds[1]}>"),
                     (table, _ints(*index).astype(np.int32) % 4), oracle=pick))
    return cases


def random_numbers() -> list[Case]:
    """rng: how often numbers are below a bound, to three deviations."""
    def below(kind: str, low: float, high: float, bound: float, share: float) -> Case:
        n = 40000
        element = "f32" if "." in str(low) else "i32"
        body = (f"%a = stablehlo.constant dense<{low}> : tensor<{element}>\n"
                f"%b = stablehlo.constant dense<{high}> : tensor<{element}>\n"
                f"%m = stablehlo.constant dense<{bound}> : tensor<{n}x{element}>\n" + _sizes("n", n)
                + f"%x = stablehlo.rng %a, %b, %n, distribution = {kind} : (tensor<{element}>, tensor<{element}>, "
                f"tensor<1xi32>) -> tensor<{n}x{element}>\n"
                f"%c = stablehlo.compare LT, %x, %m : (tensor<{n}x{element}>, tensor<{n}x{element}>) -> "
                f"tensor<{n}xi1>\n%d = stablehlo.convert %c : (tensor<{n}xi1>) -> tensor<{n}xf32>\n"
                "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
                f"%s = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0] : (tensor<{n}xf32>, "
                "tensor<f32>) -> tensor<f32>\n"
                f"%w = stablehlo.constant dense<{float(share * n)}> : tensor<f32>\n"
                "%e = stablehlo.subtract %s, %w : tensor<f32>\n%f = stablehlo.abs %e : tensor<f32>\n"
                f"%g = stablehlo.constant dense<{3 * (n * share * (1 - share)) ** 0.5 + 0.5}> : tensor<f32>\n"
                "%0 = stablehlo.compare LE, %f, %g : (tensor<f32>, tensor<f32>) -> tensor<i1>")
        return Case(f"{kind}_{low}_{high}_{bound}", _module({"i": "i32"}, ["i1"], body), (np.int32(0),),
                    oracle=lambda _: jnp.bool_(True))

    return [below("UNIFORM", -1.0, 3.0, bound, share)
            for bound, share in ((-1.0, 0), (0.0, 0.25), (2.5, 0.875), (3.0, 1))
            ] + [below("UNIFORM", -3, 5, bound, share) for bound, share in ((-3, 0), (-2, 0.125), (4, 0.875), (5, 1))
            ] + [below("NORMAL", 1.0, 2.0, 1 + 2 * z, share) for z, share in (
                (-2.0, 0.02275013), (-1.0, 0.15865525), (0.0, 0.5), (0.5, 0.69146246), (2.5, 0.99379033))]


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
