"""Control flow and dynamic slices: while, if, case, scan, fori_loop, nested, with gradients."""

from __future__ import annotations

from collections.abc import Callable

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Matmuls in loops: 1e-7 measured. Sums in another order reach more only where one rounds to the other bf16 neighbour as
# an operand of the next matmul, which none does here; a missing rounding of operands makes 2e-3.
NEAR = 1e-5


def _random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(0.0, scale, shape)).astype(np.float32)


def _i32(value: int) -> np.ndarray:
    return np.asarray(value, np.int32)


def slices() -> list[Case]:
    """dynamic_slice and dynamic_update_slice: clamping, index types, sizes, copies and updates in place."""
    m = _random(9, 130)
    cases = []
    for i, j in ((0, 0), (3, 7), (-5, 200), (8, 129), (2**31 - 1, -(2**31))):
        at = (_i32(i), _i32(j))
        cases.append(Case(f"slice_{i}_{j}", lambda v, a, b: lax.dynamic_slice(v, (a, b), (3, 17)) * 2, (m, *at)))
        cases.append(Case(f"update_{i}_{j}", lambda v, u, a, b: lax.dynamic_update_slice(v, u, (a, b)),
                          (m, _random(2, 5, seed=1), *at)))
    for kind in (np.uint8, np.uint16, np.uint32):
        cases.append(Case(f"slice_{kind.__name__}", lambda v, a: lax.dynamic_slice(v, (a, a), (4, 4)),
                          (m, np.asarray(200, kind))))
        cases.append(Case(f"slice_negative_{kind.__name__}", lambda v, a: lax.dynamic_slice(v, (a, a), (4, 4)),
                          (m, np.asarray(-1).astype(kind))))
    big = _random(1500, 1000)
    cases += [
        Case("slice_big", lambda v, a: lax.dynamic_slice(v, (a, a), (1400, 900)), (big, _i32(50))),
        Case("update_big", lambda v, u, a: lax.dynamic_update_slice(v, u, (a, a)) + v[0, 0],
             (big, _random(700, 900, seed=1), _i32(70))),
        Case("update_twice", lambda v, u, a: (lambda w: (lax.dynamic_update_slice(w, u, (a,)), w))(
            lax.dynamic_update_slice(v * 2, u, (a + 3,))), (_random(40), _random(5, seed=1), _i32(2))),
        Case("update_alive", lambda v, u, a: lax.dynamic_update_slice(v * 2, u, (a,)) - v * 2,
             (_random(40), _random(5, seed=1), _i32(2))),
        Case("slice_of_transpose", lambda v, a: lax.dynamic_slice(v.T, (a, a), (5, 3)), (m, _i32(4))),
        Case("slice_of_reverse", lambda v, a: lax.dynamic_slice(lax.rev(v, (1,)), (a, a), (5, 3)), (m, _i32(2))),
        Case("update_with_view", lambda v, u, a: lax.dynamic_update_slice(v, u.T, (a, a)), (m, _random(4, 3), _i32(2))),
        Case("index_from_data", lambda v, k: lax.dynamic_index_in_dim(v, jnp.sum(k), 0),
             (m, np.arange(4, dtype=np.int32))),
        Case("slice_bf16", lambda v, a: lax.dynamic_slice(v.astype(jnp.bfloat16), (a, a), (2, 3)), (m, _i32(3))),
        Case("slice_bool", lambda v, a: lax.dynamic_slice(v > 0, (a, a), (2, 3)), (m, _i32(3))),
        Case("slice_i8", lambda v, a: lax.dynamic_slice(v, (a, a), (2, 3)), ((m * 20).astype(np.int8), _i32(3))),
        Case("slice_one", lambda v, a: lax.dynamic_slice(v, (a,), (1,)), (_random(1), _i32(3))),
        Case("slice_rank6", lambda v, a: lax.dynamic_slice(v, (a,) * 6, (2, 1, 2, 1, 2, 2)),
             (_random(3, 2, 4, 3, 4, 5), _i32(1))),
        Case("update_empty", lambda v, u, a: lax.dynamic_update_slice(v, u, (a,)), (_random(5), _random(0), _i32(1))),
    ]
    return cases


def _collatz(n):
    return lax.while_loop(lambda s: s[0] != 1, lambda s: (jnp.where(s[0] & 1 == 1, 3 * s[0] + 1, s[0] >> 1), s[1] + 1),
                          (n, jnp.int32(0)))


def _chosen_by_index(dims, across, number):
    """a, b = (a or w, chosen by the first index), a + b: the new a may lie over the old one, which b reads."""
    def f(a, b, w, n):
        index = lax.broadcasted_iota(jnp.int32, dims, 0)
        other = lax.broadcast_in_dim(w, dims, across)
        return lax.fori_loop(0, n, lambda i, s: (jnp.where(index == number, s[0], other), s[0] + s[1]), (a, b))
    return f


def _stacks(v: np.ndarray) -> list[Case]:
    """Rows written into an array that all iterations together overwrite, or only in part."""
    def rows(count: int, at: Callable, trips: int, seen: Callable = lambda s: 0.0) -> Callable:
        def body(i: jax.Array, s: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice(s, (_row(i) + seen(s)).reshape(-1, v.size), (at(i), 0))

        def _row(i: jax.Array) -> jax.Array:
            return jnp.stack([v * (i + k).astype(jnp.float32) for k in range(6 // count)])
        return lambda x: lax.fori_loop(0, trips, body, jnp.full((6, v.size), 7.0) + 0 * jnp.sum(x[:1]))

    return [Case(f"stack_{name}", rows(*how), (v,), l2=1e-6) for name, how in {
        "whole": (6, lambda i: i, 6), "reversed": (6, lambda i: 5 - i, 6), "in_pairs": (3, lambda i: 2 * i, 3),
        "again": (6, lambda i: jnp.minimum(i, 5), 9), "part": (6, lambda i: i, 4), "gaps": (6, lambda i: 2 * i, 3),
        "shifted": (3, lambda i: 2 * i + 1, 3), "clamped": (6, lambda i: i + 1, 6),
        "read": (6, lambda i: i, 6, lambda s: s[5, 0])}.items()]


def loops() -> list[Case]:
    """fori_loop, while_loop, map: counters, zero trips, carried values of all sizes, circles, nests."""
    v, m = _random(8), _random(20, 30)
    big = _random(1200, 1100)
    return [
        Case("fori_add", lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, x), (v,)),
        Case("fori_counter_value", lambda x: lax.fori_loop(2, 9, lambda i, c: c * 0.5 + i.astype(jnp.float32), x),
             (v,)),
        Case("fori_down", lambda x: lax.while_loop(lambda s: s[0] > 0,
                                                   lambda s: (s[0] - 2, s[1] + s[0].astype(jnp.float32)),
                                                   (jnp.int32(9), x)), (v,)),
        Case("fori_zero", lambda x: lax.fori_loop(5, 3, lambda i, c: c + 1, x), (v,)),
        Case("fori_dynamic", lambda x, n: lax.fori_loop(0, n, lambda i, c: c + i.astype(jnp.float32), x), (v, _i32(6))),
        Case("fori_dynamic_zero", lambda x, n: lax.fori_loop(0, n, lambda i, c: c + 1, x), (v, _i32(-3))),
        Case("while_data", lambda x: lax.while_loop(lambda s: jnp.sum(s * s) > 1.0, lambda s: s * 0.7, x), (v * 10,),
             l2=1e-6),
        Case("while_zero", lambda x: lax.while_loop(lambda s: s[0] > 100.0, lambda s: s * 0.7, x), (v,)),
        Case("collatz", _collatz, (_i32(27),)),
        Case("swap", lambda a, b: lax.fori_loop(0, 3, lambda i, s: (s[1], s[0]), (a, b)), (v, v * 2)),
        Case("rotate", lambda a, b, c: lax.fori_loop(0, 4, lambda i, s: (s[1], s[2], s[0] + 1), (a, b, c)),
             (v, v * 2, v * 3)),
        Case("rotate_big", lambda a: lax.fori_loop(0, 4, lambda i, s: (s[1], s[2], s[0]), (a, a * 2, a * 3)), (big,)),
        Case("swap_dynamic", lambda a, b, n: lax.fori_loop(0, n, lambda i, s: (s[1], s[0] * 2), (a, b)),
             (v, v * 2, _i32(5))),
        Case("same_twice", lambda a: lax.fori_loop(0, 2, lambda i, s: (s[0] + s[1], s[0]), (a, a)), (v,)),
        Case("reversed_old", lambda a: lax.fori_loop(0, 3, lambda i, s: lax.rev(s, (0,)) + s, a), (v,)),
        Case("fibonacci", lambda n: lax.fori_loop(0, n, lambda i, s: (s[1], s[0] + s[1]), (jnp.int32(0), jnp.int32(1))),
             (_i32(20),)),
        Case("matmul_loop", lambda x, w: lax.fori_loop(0, 4, lambda i, c: jnp.tanh(c @ w), x),
             (m, _random(30, 30, seed=1, scale=0.2)),
             l2=NEAR),
        Case("big_carry", lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + 1, x), (big,)),
        Case("big_carry_two", lambda x: lax.fori_loop(0, 3, lambda i, s: (s[0] + s[1], s[0] * 0.5), (x, x + 1)), (big,),
             l2=1e-6),
        Case("outer_value", lambda x, w: lax.fori_loop(0, 3, lambda i, c: c + w * x, x), (v, v * 0.5), l2=1e-6),
        Case("update_loop", lambda x: lax.fori_loop(0, 5, lambda i, c: lax.dynamic_update_index_in_dim(
            c, c[i] * 2 + i.astype(jnp.float32), i, 0), x), (m,), l2=1e-6),
        Case("update_loop_dynamic", lambda x, n: lax.fori_loop(
            1, n, lambda i, c: lax.dynamic_update_index_in_dim(c, c[i - 1] + c[i], i, 0), x), (m, _i32(9))),
        Case("update_then_reverse", lambda x: lax.fori_loop(0, 3, lambda i, c: lax.rev(
            lax.dynamic_update_index_in_dim(c, c[0] * 2, i, 0), (0,)), x), (m,)),
        *_stacks(v),
        Case("residual", lambda x, w: lax.fori_loop(0, 4, lambda i, c: c + jnp.tanh(c * 0.5) @ w, x),
             (m, _random(30, 30, seed=1, scale=0.2)), l2=NEAR),
        Case("residual_of_operand", lambda x, w: lax.fori_loop(0, 4, lambda i, c: c + c @ w, x),
             (m, _random(30, 30, seed=1, scale=0.2)), l2=NEAR),
        Case("map", lambda x: lax.map(lambda r: jnp.sum(r) * r, x), (m,), l2=1e-6),
        Case("map_i32", lambda x: lax.map(lambda r: r * r + 1, x), (np.arange(12, dtype=np.int32).reshape(4, 3),)),
        Case("nested_fori", lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(
            0, 4, lambda j, d: d + (i * 10 + j).astype(jnp.float32), c), x), (v,)),
        Case("nested_update", lambda x: lax.fori_loop(0, 4, lambda i, c: lax.fori_loop(
            0, 3, lambda j, d: lax.dynamic_update_slice(d, lax.dynamic_slice(d, (j, i), (1, 1)) + 1, (i, j)), c), x),
             (m,)),
        Case("nested_dynamic", lambda n: lax.fori_loop(0, n, lambda i, c: lax.fori_loop(
            0, i, lambda j, d: d + j, c), jnp.int32(0)), (_i32(7),)),
        Case("while_in_scan", lambda x: lax.scan(lambda c, r: (c + 1, lax.while_loop(
            lambda s: jnp.sum(s) > 1.0, lambda s: s * 0.5, r)), 0, x), (np.abs(m),), l2=1e-6),
        Case("unused_result", lambda x: lax.fori_loop(0, 3, lambda i, s: (s[0] + 1, s[1] * 2), (x, x))[0], (v,)),
        Case("invariant", lambda x: lax.fori_loop(0, 3, lambda i, s: (s[0] + s[1], s[1]), (x, x * 2)), (v,)),
        Case("bool_carry", lambda x: lax.while_loop(lambda s: s[0], lambda s: (jnp.sum(s[1]) < 40, s[1] + 1),
                                                    (True, x)), (np.abs(v),)),
        Case("empty_carry", lambda x: lax.fori_loop(0, 3, lambda i, s: (s[0] + 1, s[1] * 2), (x, jnp.zeros((0, 3)))),
             (v,)),
        Case("two_loops", lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, lax.fori_loop(0, 2, lambda i, c: c + 1, x)),
             (v,)),
        Case("iota_in_loop", lambda x: lax.fori_loop(0, 3, lambda i, c: c + jnp.arange(8, dtype=jnp.float32), x), (v,)),
        *(Case(f"carried_over_another_{name}", _chosen_by_index(dims, across, number),
               (a := _random(*dims), a * 3 + 1, _random(*(dims[d] for d in across), seed=1), _i32(trips)))
          for name, dims, across, number, trips in (
              ("zero", (1, 4), (1,), 1, 1), ("one", (1, 2, 2, 4), (3,), 1, 3),
              ("phases", (2, 2, 2, 2, 2), (1, 3), 0, 2), ("views", (2, 3, 2, 3, 2, 5), (1, 3, 5), 0, 1))),
        Case("constant_in_loop",
             lambda x: lax.fori_loop(0, 3, lambda i, c: c * np.array([1, 2, 1, .5, 1, 1, 2, 1], np.float32), x), (v,)),
        Case("constant_result", lambda x: lax.fori_loop(0, 3, lambda i, s: (jnp.zeros(8), s[0] + s[1]), (x, x)), (v,)),
        Case("update_in_condition", lambda x: lax.while_loop(
            lambda s: jnp.sum(lax.dynamic_update_slice(s, jnp.full(3, 9.0), (2,))) < 60, lambda s: s + 1, x), (v,),
             l2=1e-6),
        Case("scatter_loop", lambda x, k: lax.fori_loop(0, 3, lambda i, c: c.at[k].set(c[k[::-1]] + i), x),
             (m, np.array([1, 4, 7], np.int32)), l2=1e-6),
        Case("many_carried", lambda x: lax.fori_loop(
            0, 3, lambda i, s: tuple(a + b for a, b in zip(s, s[1:] + s[:1], strict=True)),
            tuple(x + k for k in range(12))), (v,)),
    ]


def _choose(k, x):
    return lax.switch(k, [lambda a: a + 1, lambda a: a * 2, lambda a: -a], x)


def branches() -> list[Case]:
    """cond and switch: both ways, clamped indices, results from outside, nests, loops inside."""
    v, big = _random(8), _random(1200, 1100)
    cases = []
    for p in (False, True):
        flag = np.asarray(p)
        tag = str(p).lower()
        cases += [
            Case(f"cond_{tag}", lambda q, x: lax.cond(q, lambda a: a * 2, lambda a: a - 1, x), (flag, v)),
            Case(f"cond_two_{tag}", lambda q, x: lax.cond(q, lambda a: (a, a * 3), lambda a: (a * 2, a), x), (flag, v)),
            Case(f"cond_outer_{tag}", lambda q, x, y: lax.cond(q, lambda: x @ y, lambda: jnp.sum(y)), (flag, v, v * 2),
                 l2=NEAR),
            Case(f"cond_big_{tag}", lambda q, x: lax.cond(q, lambda a: a * 2, lambda a: lax.rev(a, (0,)), x) + 1,
                 (flag, big)),
            Case(f"cond_nested_{tag}", lambda q,
                 x: lax.cond(q, lambda a: lax.cond(a[0] > 0, lambda b: b, lambda b: -b, a),
                                                             lambda a: a + 1, x), (flag, v)),
            Case(f"cond_loop_{tag}", lambda q, x: lax.cond(q, lambda a: lax.fori_loop(0, 3, lambda i, c: c * 2, a),
                                                           lambda a: a + 1, x), (flag, v)),
            Case(f"cond_after_{tag}", lambda q, x: (lambda y: lax.cond(q, lambda: x, lambda: y) + y * x)(x * 3),
                 (flag, v), l2=1e-6),
            Case(f"cond_grad_{tag}", jax.grad(lambda x, q: jnp.sum(lax.cond(q, lambda a: a * a, lambda a: a, x)),
                                              ), (v, flag)),
        ]
    for k in (-1, 0, 1, 2, 7):
        cases.append(Case(f"switch_{k}", _choose, (_i32(k), v)))
    cases += [
        Case("cond_in_loop", lambda x: lax.fori_loop(0, 6, lambda i,
                                                     c: lax.cond(i % 2 == 0, lambda a: a + 1, lambda a: a * 2, c), x),
             (v,)),
        Case("cond_data_in_loop",
             lambda x: lax.fori_loop(0, 6, lambda i, c: lax.cond(jnp.sum(c) > 5, lambda a: a - 1, lambda a: a + 1, c),
                                     x),
             (v,), l2=1e-6),
        Case("switch_in_scan", lambda k, x: lax.scan(lambda c, i: (_choose(i, c), jnp.sum(c)), x, k),
             (np.array([0, 1, 2, 5, -1], np.int32), v), l2=1e-6),
        Case("select_equal", lambda q, x: lax.cond(q, lambda a: a, lambda a: a, x), (np.asarray(True), v)),
    ]
    return cases


def _rnn(x, w):
    def body(c, a):
        c = jnp.tanh(c @ w + a)
        return c, c.sum()
    return lax.scan(body, x[0], x)


def _rnn_loss(x, w):
    c, ys = _rnn(x, w)
    return (c ** 2).sum() + ys.sum()


def _steps(x, y, w, n):
    """Several steps of momentum SGD in one program."""
    def step(s, _):
        w, m = s
        g = jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p) - y) ** 2))(w)
        m = 0.9 * m + g
        return (w - 0.1 * m, m), jnp.sum(g * g)
    return lax.scan(step, (w, jnp.zeros_like(w)), None, length=n)


def scans() -> list[Case]:
    """lax.scan with inputs, stacked outputs, both directions, nested, gradients, optimizer steps."""
    x, w = _random(5, 4, 8), _random(8, 8, seed=1, scale=0.3)
    return [
        Case("scan_sum", lambda v: lax.scan(lambda c, a: (c + a, c), jnp.zeros(30), v), (_random(20, 30),), l2=1e-6),
        Case("scan_scalar", lambda v: lax.scan(lambda c, a: (c + a, c), 0.0, v), (_random(8),), l2=1e-6),
        Case("scan_reverse", lambda v: lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(30), v, reverse=True),
             (_random(20, 30),), l2=1e-6),
        Case("scan_rnn", _rnn, (x, w), l2=NEAR),
        Case("scan_rnn_grad", jax.grad(_rnn_loss, argnums=(0, 1)), (x, w), l2=NEAR),
        Case("scan_nested", lambda v: lax.scan(lambda c, r: lax.scan(lambda d, e: (d + e, d * e), c, r), jnp.zeros(4),
                                               v),
             (_random(3, 5, 4),), l2=1e-5),
        Case("scan_nested_grad", jax.grad(lambda v: jnp.sum(lax.scan(lambda c, r: lax.scan(
            lambda d, e: (d * 0.9 + e * e, d), c, r), jnp.zeros(4), v)[1])), (_random(3, 5, 4),), l2=1e-5),
        Case("scan_big", lambda v: lax.scan(lambda c, a: (c + a, c * 2), jnp.zeros((300, 400)), v),
             (_random(6, 300, 400),), l2=1e-6),
        Case("scan_steps", lambda a, b, p: _steps(a, b, p, 5),
             (_random(16, 8), _random(16, 3, seed=1), _random(8, 3, seed=2)), l2=3e-5),
        Case("scan_unroll", lambda v: lax.scan(lambda c, a: (c + a, c), jnp.zeros(30), v, unroll=3), (_random(20, 30),),
             l2=1e-6),
        Case("scan_length_one", lambda v: lax.scan(lambda c, a: (c + a, c), jnp.zeros(30), v), (_random(1, 30),)),
        Case("scan_empty", lambda v: lax.scan(lambda c, a: (c + a, c), jnp.ones(30), v), (_random(0, 30),)),
        Case("scan_tuple", lambda v: lax.scan(lambda c, a: ((c[0] + a, c[1] + 1), (c[0], c[1])), (jnp.zeros(3), 0), v),
             (_random(6, 3),),
             l2=1e-6),
    ]


def _again(f: Callable) -> Callable:
    """`f` in front of a barrier and behind it."""
    def both(x: jax.Array) -> tuple:
        y = f(x)
        behind, _ = lax.optimization_barrier((x, jnp.sum(y)))
        return y, f(behind)

    return both


def barriers() -> list[Case]:
    """What is computed again behind a barrier, in front of it too: in branches and loops, through views."""
    v, m = _random(8), _random(40, 30)

    def in_branch(x):
        y = x * 2 + 1
        behind, _ = lax.optimization_barrier((x, y))
        return y + lax.cond(x[0] > 0, lambda: behind * 2 + 1, lambda: behind * 3)

    def in_loop(x):
        def body(i, s):
            y = s * 2 + 1
            behind, at = lax.optimization_barrier((s, i))
            behind, _ = lax.optimization_barrier((behind, y))
            return behind * 2 + 1 - y + lax.dynamic_slice(x, (at,), (1,))

        return lax.fori_loop(0, 3, body, x)

    def chain(x):
        y = x + 1
        for _ in range(12):
            behind, y = lax.optimization_barrier((x, y))
            y = (behind + 1) * 0.5 + y
        return y

    def summed_view(x, y):
        a, t = jnp.sin(y), jnp.transpose(jnp.cos(x), (0, 2, 1))
        b, u = lax.optimization_barrier((a, t))
        return jnp.sum(u, (1, 2)), b * 2, a + 1, t * 3

    def repeated(x):
        h = x.T @ x
        behind, _ = lax.optimization_barrier((h, h))
        return h.T, behind * 2, lax.optimization_barrier((h, x, h))[2].T + 1

    return [
        Case("barrier_branch", in_branch, (v,)), Case("barrier_loop", in_loop, (v,)),
        Case("barrier_chain", chain, (m,)), Case("barrier_twice", _again(lambda x: x * 3), (m,), l2=1e-6),
        Case("barrier_view", _again(lambda x: x.T.reshape(-1)[::-1] * 2), (m,), l2=1e-6),
        Case("barrier_dot", _again(lambda x: x.T @ x), (m,), l2=NEAR),
        Case("barrier_complex", _again(lambda x: x * x), ((m + 1j * m).astype(np.complex64),), l2=1e-6),
        Case("barrier_summed_view", summed_view, (_random(4, 16, 32), v), l2=1e-6),
        Case("barrier_repeated", repeated, (m,), l2=NEAR),
        Case("barrier_result", lambda x: (lax.optimization_barrier((x, x + 1))[0], x * 2), (m,)),
    ]


def all_cases() -> list[Case]:
    """Everything."""
    return [*slices(), *loops(), *branches(), *scans(), *barriers()]
