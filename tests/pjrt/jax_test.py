"""Programs of unmodified JAX on the plugin, against JAX's own CPU backend in the same process.

TPU_LIBRARY_PATH names the plugin. Integers, random bits and what is only moved must be equal; floating point within the
bounds of one bf16 pass of the matrix units, which each case states where it has one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CPU = jax.devices("cpu")[0]
# f32 arithmetic without products of matrices: other order of sums, other polynomials.
CLOSE = 2e-5
# Products of matrices round their operands to bf16 (2**-9 each); a sum of them is compared with its largest element.
BF16 = 2.0**-7


def on_cpu(function: Callable, *args: object) -> object:
    """The same call on the CPU backend."""
    with jax.default_device(CPU):
        return jax.jit(function)(*jax.tree.map(lambda x: jax.device_put(np.asarray(x), CPU), args))


def compare(name: str, got: object, expected: object, bound: float) -> None:
    """Elements within `bound` of the largest one; equal when it is 0."""
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    assert len(got) == len(expected), name
    for a, b in zip(got, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{name}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        if bound == 0 or a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b, err_msg=name)
        elif a.size:
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            a, b = a.astype(wide), b.astype(wide)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound * max(1e-30, np.abs(b).max()), err_msg=name)


def check(name: str, function: Callable, *args: object, bound: float = CLOSE) -> None:
    """One jitted function on core 0 and on the CPU."""
    compare(name, jax.jit(function)(*args), on_cpu(function, *args), bound)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def arithmetic() -> None:
    """Elementwise functions, types, reductions, products, movement."""
    x, y = values(33, 65), values(33, 65, seed=1)
    check("chain", lambda a, b: jnp.where(a > b, jnp.tanh(a) * b, jnp.exp(-a) + b), x, y)
    check("product", lambda a, b: a @ b.T, x, y, bound=BF16)
    check("product of booleans", lambda a, b: (a > 2) @ (b > 2).T, x, y, bound=0)
    check("counts of booleans", partial(jax.lax.dot, preferred_element_type=jnp.int32), x > 0, y.T > 0)
    half = jnp.bfloat16
    check("einsum", lambda a, b: jnp.einsum("ij,kj->ik", a.astype(half), b.astype(half)), x, y, bound=BF16)
    check("reductions", lambda a: (a.sum(), a.max(1), a.min(0), a.mean(), a.var(0), jnp.argmax(a, 1)), x)
    check("integers", lambda a: ((a * 100).astype(jnp.int32) // 7, (a * 9).astype(jnp.int8), a > 0), x)
    check("sorted", lambda a: (jnp.sort(a, 1), jnp.argsort(a, 0)), x, bound=0)
    check("moved", lambda a: (a.T, a[::-1, 3:9], jnp.roll(a, 3), jnp.pad(a, 1), a.reshape(65, 33)), x, bound=0)
    check("cumulative", lambda a: (jnp.cumsum(a, 0), jnp.cumprod(1 + 0.01 * a, 1)), x)
    check("softmax", lambda a: (jax.nn.softmax(a), jax.nn.gelu(a), jax.nn.logsumexp(a, 1)), x)
    rows = np.arange(33, dtype=np.int32) * 5 % 33
    check("gather", lambda a, i: (a[i], jnp.take_along_axis(a, i[:, None] % 65, 1)), x, rows)
    check("scatter", lambda a, i: a.at[i].add(1.0).at[0, 0].set(7.0), x, np.arange(9, dtype=np.int32) % 4)
    check("empty", lambda a: (a[:0], a[:, :0].sum(1)), x, bound=0)
    check("scalars", lambda a: a * 2, np.float32(3), bound=0)
    check("passed on", lambda a, b: (b, a, 3), x, y, bound=0)
    check("no arguments", lambda: jnp.eye(5), bound=0)
    check("convolution", partial(jax.lax.conv_general_dilated, window_strides=(1, 1), padding="SAME",
                                 dimension_numbers=("NHWC", "HWIO", "NHWC")),
          values(2, 9, 9, 3), values(3, 3, 3, 4), bound=BF16)


def control() -> None:
    """Loops, branches, derivatives, batching, recomputation."""
    x = values(8, 8)
    check("scan", lambda a: jax.lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), jnp.zeros(8), a), x)
    check("while", lambda a: jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (0, a)), x)
    check("fori", lambda a: jax.lax.fori_loop(0, 4, lambda i, s: s + i, a), x)
    for sign in (1, -1):
        check("cond", lambda a, s: jax.lax.cond(a[0, 0] * s > 0, jnp.sin, jnp.cos, a), x, np.float32(sign))
    check("switch", lambda i, a: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.abs], a), np.int32(2), x)
    check("grad", jax.grad(lambda a: jnp.tanh(a @ a).sum()), x, bound=2 * BF16)
    check("hessian", jax.hessian(lambda a: (jnp.sin(a) ** 2).sum()), x[0])
    check("vmap", jax.vmap(lambda a, b: a @ b, (0, None)), x, x, bound=BF16)
    check("remat", jax.grad(jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)).sum())), x)
    sums = partial(jax.lax.scan, lambda c, r: (jnp.sin(c + r), None), jnp.zeros(8))
    check("scan grad", jax.grad(lambda a: sums(a)[0].sum()), x)

    @jax.custom_vjp
    def clipped(a: jax.Array) -> jax.Array:
        return a * 2

    clipped.defvjp(lambda a: (a * 2, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))
    check("custom_vjp", jax.grad(lambda a: clipped(a).sum()), x, bound=0)


def random() -> None:
    """Random bits are those of every other backend, to the bit; what is made of them by polynomials is close."""
    key = np.asarray(jax.random.key_data(jax.random.key(7)))
    np.testing.assert_array_equal(key, [0, 7])
    check("bits", lambda k: jax.random.bits(k, (999,)), key, bound=0)
    check("uniform", lambda k: jax.random.uniform(k, (7, 33)), key, bound=0)
    check("uniform of constants", lambda k: jax.random.uniform(k, (999,), minval=1.0, maxval=3.3), key, bound=0)
    for shape in ((), (999,), (3, 3, 8, 16), (65, 130)):
        draw = jax.jit(partial(jax.random.uniform, shape=shape))
        for seed, low, high in ((0, -0.05, 0.05), (1, 1.0, 3.3), (2, -7.25, -0.1), (3, 0.0, 1e-3)):
            drawn = []
            for device in (jax.devices()[0], CPU):
                with jax.default_device(device):
                    drawn.append(draw(jax.random.key(seed), minval=low, maxval=high))
            compare(f"uniform of {low} to {high}", *drawn, bound=0)
    check("split", lambda k: jax.random.split(k, 5), key, bound=0)
    check("fold_in", lambda k: jax.random.fold_in(k, 3), key, bound=0)
    check("randint", lambda k: jax.random.randint(k, (65,), -5, 99), key, bound=0)
    check("permutation", lambda k: jax.random.permutation(k, 50), key, bound=0)
    check("bernoulli", lambda k: jax.random.bernoulli(k, 0.3, (99,)), key, bound=0)
    check("categorical", lambda k: jax.random.categorical(k, jnp.zeros((9, 5))), key, bound=0)
    check("normal", lambda k: jax.random.normal(k, (7, 33)), key)
    check("truncated_normal", lambda k: jax.random.truncated_normal(k, -2, 2, (99,)), key)
    for make in (jax.nn.initializers.glorot_uniform, jax.nn.initializers.he_uniform):
        check(make.__name__, lambda k, m=make: m()(k, (3, 3, 8, 32)), key, bound=0)
    _rng_over_cores()


def _rng_over_cores() -> None:
    """`stablehlo.rng`: in shard_map equal on all cores, as JAX's types say; elsewhere one array, cut or not."""
    mesh = Mesh(np.array(jax.devices()), ("x",))

    def draw(shape: tuple = (2, 5)) -> tuple:
        real = jax.lax.rng_uniform(jnp.float32(-1), jnp.float32(1), shape)
        return real, jax.lax.rng_uniform(jnp.int32(0), jnp.int32(999), shape)

    once = [np.asarray(x) for x in jax.jit(draw)()]
    assert not np.array_equal(*(np.asarray(x) for x in jax.jit(lambda: (draw()[0], draw()[0]))()))
    for result in (jax.jit(jax.shard_map(draw, mesh=mesh, in_specs=(), out_specs=P()))(),
                   jax.jit(jax.shard_map(lambda: jax.lax.scan(lambda c, _: (c, draw()), 0, length=1)[1], mesh=mesh,
                                         in_specs=(), out_specs=P()))()):
        for array, expected in zip(result, once, strict=True):
            for shard in array.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data).reshape(2, 5), expected)
    # bounds of each core's own: equal bits
    own = jax.jit(jax.shard_map(lambda low: jax.lax.rng_uniform(low[0], low[0] + 1, (1, 4)), mesh=mesh, in_specs=P("x"),
                                out_specs=P("x")))(np.arange(8, dtype=np.float32))
    np.testing.assert_allclose(np.asarray(own) - np.arange(8)[:, None], np.broadcast_to(np.asarray(own)[:1], (8, 4)),
                               atol=1e-6)
    whole = [np.asarray(x) for x in jax.jit(partial(draw, (8, 6)))()]
    cut = jax.jit(partial(draw, (8, 6)), out_shardings=NamedSharding(mesh, P("x")))()
    for array, expected in zip(cut, whole, strict=True):
        assert len({np.asarray(shard.data).tobytes() for shard in array.addressable_shards}) == 8
        np.testing.assert_array_equal(np.asarray(array), expected)


def _losses(device: jax.Device, make: Callable) -> list[float]:
    """Losses of a few steps of training, all of it on one device."""
    with jax.default_device(device):
        state, step = make()
        step = jax.jit(step, donate_argnums=0)
        losses = []
        for i in range(5):
            state, loss = step(state, values(16, 12, 12, 1, seed=i), np.arange(16, dtype=np.int32) % 10)
            losses.append(float(loss))
    return losses


def _mlp_sgd() -> tuple:
    def loss_of(w: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = jax.nn.relu(x.reshape(16, -1) @ w["a"]) @ w["b"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    a, b = (0.1 * jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(((144, 64), (64, 10))))
    return {"a": a, "b": b}, step


def _linen_adamw() -> tuple:
    import flax.linen as nn
    import optax

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
            x = nn.Conv(8, (3, 3))(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
            x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
            return nn.Dense(10)(nn.Dropout(0.25, deterministic=not train)(x))

    net, optimizer = Net(), optax.adamw(1e-2)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = jax.jit(net.init)(keys, jnp.zeros((1, 12, 12, 1)))

    def step(state: tuple, x: jax.Array, y: jax.Array) -> tuple:
        params, stats, moments, key = state
        key, dropout = jax.random.split(key)

        def loss_of(p: dict) -> tuple:
            logits, new = net.apply({"params": p, "batch_stats": stats}, x, rngs={"dropout": dropout},
                                    mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new["batch_stats"]

        (loss, new_stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), new_stats, moments, key), loss

    params = variables["params"]
    return (params, variables["batch_stats"], jax.jit(optimizer.init)(params), jax.random.key(2)), step


def training() -> None:
    """A few steps: SGD by hand; a flax linen CNN with batch norm and dropout under optax adamw. State is donated."""
    for name, make in (("mlp", _mlp_sgd), ("linen", _linen_adamw)):
        got, expected = _losses(jax.devices()[0], make), _losses(CPU, make)
        assert expected[-1] != expected[0] and all(map(np.isfinite, got)), name
        np.testing.assert_allclose(got, expected, rtol=0.02, err_msg=name)


def sharding() -> None:
    """shard_map, pmap and partitioned jit over eight cores; the same numbers as one device has them."""
    devices = jax.devices()
    assert len(devices) == 8 and devices[0].platform == "tpu"
    mesh = Mesh(np.array(devices), ("data",))
    x = values(16, 24)

    def mean_of(a: jax.Array) -> jax.Array:
        return jax.lax.pmean(a.sum(0), "data")

    split = jax.jit(jax.shard_map(mean_of, mesh=mesh, in_specs=P("data"), out_specs=P()))
    compare("pmean", split(x), x.sum(0) / 8, CLOSE)
    doubled = jax.jit(jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    result = doubled(jax.device_put(x, NamedSharding(mesh, P("data"))))
    compare("doubled", result, x * 2, 0)
    assert result.sharding.is_equivalent_to(NamedSharding(mesh, P("data")), 2), result.sharding
    assert [s.data.shape for s in result.addressable_shards] == [(2, 24)] * 8
    gathered = jax.jit(jax.shard_map(lambda a: jax.lax.all_gather(a, "data", tiled=True), mesh=mesh, in_specs=P("data"),
                                     out_specs=P(), check_vma=False))
    compare("gathered", gathered(x), x, 0)
    compare("pmap", jax.pmap(lambda a: a - jax.lax.pmean(a, "i"), axis_name="i")(x[:8]), x[:8] - x[:8].mean(0), CLOSE)

    def loss(w: jax.Array, a: jax.Array) -> jax.Array:
        return (jnp.tanh(jnp.matmul(a, w, precision="highest")) ** 2).mean()

    w = values(24, 4, seed=2)
    placed = jax.device_put(w, NamedSharding(mesh, P())), jax.device_put(x, NamedSharding(mesh, P("data")))
    value, grad = jax.jit(jax.value_and_grad(loss))(*placed)
    compare("partitioned", (value, grad), on_cpu(jax.value_and_grad(loss), w, x), CLOSE)
    draw = partial(jax.random.uniform, shape=(64, 40), minval=-0.3, maxval=0.9)
    split = jax.jit(draw, out_shardings=NamedSharding(mesh, P("data")))(jax.random.key(5))
    compare("drawn by parts", split, on_cpu(lambda: draw(jax.random.key(5))), 0)
    kept = jax.jit(jnp.sin)(placed[1]).sharding
    assert kept.is_equivalent_to(NamedSharding(mesh, P("data")), 2), kept
    laid_out = jax.jit(lambda a: with_layout_constraint(a.T, Layout((1, 0))) * 2)(placed[1])
    compare("laid out", laid_out, x.T * 2, 0)
    compare("each alone", [jax.jit(jnp.sin)(jax.device_put(x, d)) for d in devices], [np.sin(x)] * 8, CLOSE)


def _alike(x: jax.Array) -> None:
    """Arrays that shall have one sharding."""
    from jax.experimental.shard_alike import shard_alike  # JAX 0.12 does not have it

    other = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    alike = jax.jit(lambda a: shard_alike(a, jnp.arange(x.size, dtype=jnp.float32).reshape(x.shape))[1])(x)
    compare("alike", alike, other, 0)
    assert alike.sharding.is_equivalent_to(x.sharding, 2), alike.sharding


def borders() -> None:
    """Shardings at the border of a program that are easily got wrong: uneven, of parts of axes, of donated arrays."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))

    def on(*axes: object) -> NamedSharding:
        return NamedSharding(mesh, P(*axes))

    x = np.arange(80, dtype=np.int32).reshape(8, 10)
    rows = jax.device_put(x, on("a", "b"))
    uneven = jax.jit(lambda v: jax.lax.with_sharding_constraint(v.T * 2, on("a", "b")) + 1)(rows)
    compare("uneven constraint", uneven, x.T * 2 + 1, 0)
    _alike(jax.device_put(values(16, 24), on("a")))
    split = jax.jit(lambda v: v.reshape(2, 4, 10))(rows)  # half of "a" cuts dimension 0, and half dimension 1
    compare("part of an axis", split, x.reshape(2, 4, 10), 0)
    assert isinstance(split.sharding, NamedSharding), split.sharding
    # Parts of one type, (1,), of arrays of two types.
    long = jax.device_put(np.arange(8, dtype=np.int32), on(("a", "b")))
    last = jax.jit(lambda v: (v + 1, v[7:]), donate_argnums=0, out_shardings=(on(), on()))(long)
    compare("donated", last, (np.arange(1, 9, dtype=np.int32), np.array([7], np.int32)), 0)
    nothing = jnp.zeros((0, 4, 8))
    for spec in (P("a"), P(("b", "a")), P("a", "b"), P("b", None, "a"), P(None, "a")):
        empty = jax.device_put(nothing, on(*spec))
        doubled, sums = jax.jit(lambda v: (v * 2, v.sum((0, 2))))(empty)
        assert doubled.shape == nothing.shape, doubled.shape
        compare(f"no elements cut by {spec}", sums, np.zeros(4, np.float32), 0)
    with jax.enable_x64(True):
        wide = jax.device_put((x % 7 - 3).astype(np.int64), on("a", "b"))

        def reduced(v: jax.Array) -> tuple:
            return v.prod(0), v.max(0), v.min(), v.sum(1)

        got = jax.jit(reduced, out_shardings=(on("b"), on("b"), None, on("a")))(wide)
        compare("int64", got, on_cpu(reduced, wide), 0)


def orders() -> None:
    """Two meshes in one program that number the devices otherwise: parts go from one order to the other."""
    x = values(8, 4)
    for ids in ([3, 2, 1, 0], [0, 2, 3, 1], [1, 0, 3, 2]):
        first = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
        second = Mesh(np.array(jax.devices())[ids].reshape(2, 2), ("x", "y"))
        for spec in (P("x"), P("x", "y"), P(("y", "x")), P()):
            there = NamedSharding(second, spec)
            moved = jax.device_put(jax.device_put(x, NamedSharding(first, P("x", "y"))), there)
            assert moved.sharding == there, moved.sharding
            compare(f"{spec} on {ids}", moved, x, 0)
            back = jax.device_put(jax.jit(lambda a: a * 2)(moved), NamedSharding(first, P("y")))
            compare(f"{spec} from {ids}", back, 2 * x, 0)


def unreduced() -> None:
    """Arrays of which the cores have terms: made by products, by shard_map and from copies; read after a reshard."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    a, b = (np.arange(64, dtype=np.float32).reshape(8, 8) % 7 - s for s in (3, 2))
    with jax.set_mesh(mesh):
        rows, columns = jax.device_put(a, P("x", "y")), jax.device_put(b, P("y"))
        terms_of = jax.jit(lambda r, c: jnp.einsum("ab,bc->ac", r, c, out_sharding=P("x", unreduced={"y"})))
        terms = terms_of(rows, columns)
        assert terms.sharding.spec == P("x", None, unreduced={"y"}), terms.sharding
        for shard in terms.addressable_shards:
            x, y = (int(i[0]) for i in np.nonzero(mesh.devices == shard.device))
            part = a[4 * x:4 * x + 4, 2 * y:2 * y + 2] @ b[2 * y:2 * y + 2]
            compare(f"the term of {shard.device}", shard.data, part, 0)
        whole = jax.jit(lambda t: jax.sharding.reshard(t + t, P("x")))
        compare("summed", whole(terms), 2 * (a @ b), 0)
        parts = jax.jit(lambda t: jax.sharding.reshard(t, P("x", "y")))
        compare("summed in parts", parts(terms), a @ b, 0)
        summed = jax.jit(jax.shard_map(lambda t: jax.lax.psum(t, "y"), in_specs=P("x", unreduced={"y"}),
                                       out_specs=P("x")))
        compare("summed by shard_map", summed(terms), a @ b, 0)
        copies = jax.sharding.reshard(jax.device_put(a, P()), P(unreduced={"x", "y"}))
        compare("terms of copies", [s.data for s in copies.addressable_shards], [a] + [0 * a] * 7, 0)
        compare("of copies", jax.sharding.reshard(copies, P()), a, 0)

        def loss(c: jax.Array, r: jax.Array) -> jax.Array:
            return (jnp.einsum("ab,bc->ac", r, c, out_sharding=P("x")) ** 2).sum()

        compare("gradient", jax.jit(jax.grad(loss))(columns, rows), 2 * a.T @ (a @ b), BF16)


def cores() -> None:
    """Meshes of some devices, in any order: the collectives of one axis give what the CPU computes."""
    for ids in ([5], [5, 2], [4, 5, 6, 7], [6, 0, 3, 5], [0, 1, 2, 3, 6, 7, 4, 5]):
        mesh = Mesh(np.array(jax.devices())[ids], ("data",))
        n = len(ids)
        x = np.arange(8.0 * n, dtype=np.float32).reshape(n, 8)

        def each(a: jax.Array, n: int = n) -> tuple[jax.Array, ...]:
            ring = [(i, (i + 1) % n) for i in range(n)]
            return jax.lax.psum(a, "data"), jax.lax.ppermute(a, "data", ring), jax.lax.axis_index("data")[None]

        split = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=P("data"), out_specs=(P(), P("data"), P("data"))))
        total, turned, index = split(jax.device_put(x, NamedSharding(mesh, P("data"))))
        compare(f"sum on {ids}", total, x.sum(0, keepdims=True), 0)
        compare(f"ring on {ids}", turned, np.roll(x, 1, 0), 0)
        compare(f"index on {ids}", index, np.arange(n, dtype=np.int32), 0)
        for shard in turned.addressable_shards:
            assert shard.device.id == ids[shard.index[0].start or 0], f"{shard.index} on {shard.device}"


def refused(code: str, call: Callable[[], jax.Array]) -> None:
    """The call fails with this code, at once or when its result is waited for."""
    try:
        call().block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        assert str(error).startswith(code), error
    else:
        raise AssertionError(f"no error; expected {code}")


def adam_step(state: tuple, x: jax.Array) -> tuple:
    """A layer of 2 MiB, so that each core updates the part of its moments that it owns."""
    w, mean, square = state
    grad = jax.grad(lambda w: (jnp.tanh(jnp.matmul(x, w, precision="highest")) ** 2).mean())(w)
    mean, square = 0.9 * mean + 0.1 * grad, 0.99 * square + 0.01 * grad**2
    return w - 0.1 * mean / (jnp.sqrt(square) + 1e-3), mean, square


def owners() -> None:
    """What a training step leaves on the cores that own it: each way to read, copy, delete and pass on parts of it."""
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("data",))
    everywhere, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    x = values(64, 256)
    first = (values(256, 2048, seed=1) / 16, np.zeros((256, 2048), np.float32), np.zeros((256, 2048), np.float32))
    expected = on_cpu(lambda s, x: adam_step(adam_step(s, x), x), first, x)
    step = jax.jit(adam_step, donate_argnums=0, in_shardings=(everywhere, cut), out_shardings=everywhere)
    kept = jax.jit(adam_step, in_shardings=(everywhere, cut), out_shardings=everywhere)

    def trained() -> tuple:
        state = step(jax.device_put(first, everywhere), jax.device_put(x, cut))
        return step(state, jax.device_put(x, cut))

    def parts(array: jax.Array) -> list[jax.Array]:
        return [shard.data for shard in array.addressable_shards]

    state = trained()
    mean = np.asarray(state[1])
    for got, wanted in zip(state, expected, strict=True):
        compare("two steps", got, wanted, CLOSE)
    compare("parts", [np.asarray(part) for part in parts(state[1])], [mean] * 8, 0)
    compare("to another core", jax.device_put(parts(state[1])[3], devices[6]), mean, 0)
    compare("copied", jnp.copy(state[1]), mean, 0)
    compare("cut", jax.device_put(state[1], cut), mean, 0)
    compare("on one core", jax.jit(lambda a: a * 2)(parts(state[1])[3]), mean * 2, 0)
    compare("another program", jax.jit(jnp.negative)(state[1]), -mean, 0)
    compare("restored", step(jax.device_put(jax.tree.map(np.asarray, trained()), everywhere), x), step(trained(), x), 0)
    compare("kept, then donated", kept(state, x), step(state, x), 0)
    assert state[1].is_deleted()

    one, other = trained(), step(trained(), x)
    later = np.asarray(other[1])
    mixed = jax.make_array_from_single_device_arrays(mean.shape, everywhere, parts(one[1])[:4] + parts(other[1])[4:])
    compare("parts of two", [np.asarray(part) for part in parts(mixed)], [mean] * 4 + [later] * 4, 0)
    doubled = jax.jit(lambda a: a * 2, donate_argnums=0)(parts(one[1])[2])
    compare("one part donated", [doubled, parts(one[1])[7]], [mean * 2, mean], 0)

    state = jax.block_until_ready(trained())
    used = devices[3].memory_stats()["bytes_in_use"]
    parts(state[1])[3].delete()
    assert devices[3].memory_stats()["bytes_in_use"] == used  # the others need what it owns
    compare("one part deleted", [np.asarray(part) for part in parts(state[1])[4:]], [mean] * 4, 0)
    state[1].delete()
    assert devices[3].memory_stats()["bytes_in_use"] <= used - mean.nbytes


def transfers() -> None:
    """Up, down, across, donated, deleted; every type; strides."""
    devices, x = jax.devices(), values(6, 10)
    for kind in ("float32", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "bool", "complex64"):
        array = (x * 10).astype(kind)
        np.testing.assert_array_equal(np.asarray(jax.device_put(array, devices[3])), array)
    with jax.enable_x64(True):  # types that no program computes with
        for kind in ("float16", "float64", "complex128", jnp.int4, jnp.uint4, jnp.int2, jnp.float8_e4m3fn,
                     jnp.float8_e5m2, jnp.float4_e2m1fn):
            array = x.astype(kind)
            moved = jax.device_put(jax.device_put(array.T, devices[3]), devices[6])
            assert moved.dtype == array.dtype and moved.devices() == {devices[6]}
            np.testing.assert_array_equal(np.asarray(moved).astype(np.complex128), array.T.astype(np.complex128))
    for view in (x.T, x[::-1], x[::2, ::3], x[:0], x[..., None], np.broadcast_to(x[:1], (4, 10))):
        np.testing.assert_array_equal(np.asarray(jax.device_put(view, devices[1])), view)
    there = jax.device_put(jax.device_put(x, devices[2]), devices[5])
    assert there.devices() == {devices[5]}
    np.testing.assert_array_equal(np.asarray(there), x)
    np.testing.assert_array_equal(np.asarray(jax.device_put(there, CPU)), x)
    before = jnp.ones((8, 8))
    address = before.unsafe_buffer_pointer()
    assert jnp.array(before, copy=True).unsafe_buffer_pointer() != address
    after = jax.jit(lambda a: a + 1, donate_argnums=0)(before)
    assert before.is_deleted() and float(after[0, 0]) == 2 and after.unsafe_buffer_pointer() == address
    for call in (lambda: before + 1, lambda: jax.jit(jnp.sin)(before)):
        try:
            call()
        except RuntimeError as error:
            assert "deleted" in str(error), error
        else:
            raise AssertionError("a deleted array was used")
    refused("RESOURCE_EXHAUSTED", lambda: jax.jit(lambda a: jnp.sort(a[:, None] * a, axis=0))(jnp.ones(70000)))
    stats = devices[0].memory_stats()
    assert stats["bytes_limit"] == 16 << 30 and stats["bytes_in_use"] > 0, stats
    assert stats["bytes_reservable_limit"] == stats["bytes_limit"] and stats["bytes_reserved"] == 0, stats
    for bad in (jnp.float16, jnp.float8_e5m2):
        refused("UNIMPLEMENTED", lambda kind=bad: jnp.ones(3, kind))


def complex_numbers() -> None:
    """Transforms and arithmetic, on one core and with arrays cut over eight; donated, in callbacks, in loops."""
    x, y = values(16, 48) + 1j * values(16, 48, seed=1), values(16, 48, seed=2)
    x = x.astype(np.complex64)
    check("fft", jnp.fft.fft, x)
    check("two dimensions", lambda a: jnp.fft.ifft2(jnp.fft.fft2(a) * a.conj()), x)
    check("real", lambda a: jnp.fft.irfft(jnp.fft.rfft(a) * 1j, 48), y)
    check("gradient", jax.grad(lambda a: jnp.sum(jnp.abs(jnp.fft.fft(a)) ** 3)), y)
    check("functions", lambda a: (jnp.exp(a), jnp.sqrt(a), a / (1 + a * a), a**2.5, jnp.abs(a)), x)
    check("loop", lambda a: jax.lax.fori_loop(0, 5, lambda i, v: v * a / (1 + jnp.abs(v)), a), x)
    long = values(2**17) + 1j * values(2**17, seed=3)
    check("long", jnp.fft.fft, long.astype(np.complex64))
    exact = np.fft.fft(long.astype(np.complex64).astype(np.complex128))
    made = np.asarray(jax.jit(jnp.fft.fft)(long.astype(np.complex64)))
    assert np.linalg.norm(made - exact) < 1.5e-6 * np.linalg.norm(exact)

    mesh = Mesh(np.array(jax.devices()), "d")
    for spec in (P("d"), P(None, "d"), P()):
        cut = jax.device_put(x, NamedSharding(mesh, spec))
        for name, function in (("scaled", lambda a: a * (2 + 1j)), ("rows", lambda a: jnp.fft.fft(a, axis=1)),
                               ("columns", lambda a: jnp.fft.fft(a, axis=0)), ("sum", lambda a: jnp.sum(a, 0)),
                               ("extremes", lambda a: (jnp.max(a), jnp.min(a, 0), jnp.prod(a, 0))),
                               ("product", lambda a: jnp.einsum("ij,kj->ik", a, a.conj(), precision="highest")),
                               ("moved", lambda a: jnp.roll(a.T, 3, 0))):
            compare(f"{name} {spec}", jax.jit(function)(cut), on_cpu(function, x), CLOSE)
        kept = jax.jit(lambda a: a * 1j, out_shardings=NamedSharding(mesh, P("d")))(cut)
        assert kept.sharding.spec == P("d") and kept.addressable_shards[3].data.shape == (2, 48)
        compare("parts", [np.asarray(s.data) for s in kept.addressable_shards],
                [(x * 1j)[2 * i : 2 * i + 2] for i in range(8)], CLOSE)
    total = jax.shard_map(lambda a: jax.lax.psum(jnp.fft.fft(a), "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    compare("psum", jax.jit(total)(x), on_cpu(lambda a: jnp.fft.fft(a).reshape(8, 2, 48).sum(0), x), CLOSE)
    largest = jax.shard_map(lambda a: jax.lax.pmax(a, "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    refused("UNIMPLEMENTED", lambda: jax.jit(largest)(x))

    before = jax.device_put(x, jax.devices()[1])
    address = before.unsafe_buffer_pointer()
    after = jax.jit(lambda a: a + 1j, donate_argnums=0)(before)
    assert before.is_deleted() and after.unsafe_buffer_pointer() == address
    compare("donated", after, x + np.complex64(1j), 0)

    def called(a: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda v: np.conj(v) + 1, jax.ShapeDtypeStruct(a.shape, a.dtype), a * 2)

    check("callback", called, x)
    with jax.enable_x64(True):
        refused("UNIMPLEMENTED", lambda: jax.jit(lambda a: a * 2)(x.astype(np.complex128)))


def keras() -> None:
    """An unmodified fit() of a convnet on one core: initial weights of the CPU, and its loss curve once its products
    round their operands, too."""
    import os
    os.environ["KERAS_BACKEND"] = "jax"
    import train_rounding

    import keras

    train_rounding.install()

    def fit(device: jax.Device) -> tuple:
        with jax.default_device(device):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.layers.Input((12, 12, 1)), keras.layers.Conv2D(8, 3, activation="relu"),
                                      keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
            first = [np.asarray(w) for w in model.weights]
            data = values(128, 12, 12, 1), np.arange(128) % 10
            return first, model.fit(*data, batch_size=32, epochs=2, verbose=0, shuffle=False).history["loss"]

    (weights, losses), (expected_weights, expected) = fit(jax.devices()[0]), fit(CPU)
    compare("weights", weights, expected_weights, bound=0)
    np.testing.assert_allclose(losses, expected, rtol=5e-5)  # rounding alone is 1e-4

    def drawn(device: jax.Device) -> list[np.ndarray]:
        with jax.default_device(device):
            keras.utils.set_random_seed(3)
            named = keras.initializers
            makers = named.GlorotUniform(), named.HeUniform(), named.RandomUniform()
            shapes = (784, 100), (3, 3, 32, 64), (1000, 16), (7,)
            layer = keras.layers.Embedding(100, 24)
            layer.build((None, 5))
            return [np.asarray(make(shape)) for make in makers for shape in shapes] + [np.asarray(layer.embeddings)]

    compare("initializers", drawn(jax.devices()[0]), drawn(CPU), bound=0)

    def convnet() -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        layers = (keras.layers.Conv2D(32, 3), keras.layers.MaxPooling2D(), keras.layers.Conv2D(64, 3),
                  keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10))
        return [np.asarray(w) for w in keras.Sequential([keras.layers.Input((28, 28, 1)), *layers]).weights]

    with jax.default_device(CPU):
        one = convnet()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=jax.devices()))
    compare("weights on eight cores", convnet(), one, bound=0)
    keras.distribution.set_distribution(None)


def many_arrays() -> None:
    """More donated arrays than JAX passes to a TPU without a tuple, each another one, in place on eight cores."""
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = np.arange(16, dtype=np.float32)
    arrays = [np.full(8, i, np.float32) for i in range(2500)]

    @partial(jax.jit, donate_argnums=0)
    def step(arrays: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        return [2 * a + x.sum() + i for i, a in enumerate(arrays)]

    state = jax.device_put(arrays, NamedSharding(mesh, P()))
    batch = jax.device_put(x, NamedSharding(mesh, P("d")))
    for _ in range(2):
        before, state = state, step(state, batch)
        assert all(a.is_deleted() for a in before)
        arrays = [2 * a + 120 + i for i, a in enumerate(arrays)]
    for want, got in zip(arrays, state, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


GROUPS = {g.__name__: g for g in (arithmetic, control, random, training, sharding, borders, orders, unreduced,
                                  many_arrays, cores, owners, transfers, complex_numbers, keras)}


def main() -> int:
    """Runs one group."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", choices=GROUPS, required=True)
    GROUPS[parser.parse_args().group]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
