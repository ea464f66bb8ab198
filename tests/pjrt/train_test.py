"""A few steps of training on eight devices, each program as its framework's users write it, against the same program
on one CPU device in the same process: initial weights, and the losses of a few steps.

TPU_LIBRARY_PATH names the plugin. Each program runs twice on both: in default precision, where the board's matrix
products round their operands to bf16 and those of the CPU are made to (train_rounding.py), and in the highest, where
five steps stay together in nearly all bits: a sum over too few examples, an element of a gradient left out or random
bits of another place show there.

Usage: train_test.py [--json FILE] PROGRAM ... (or all). `--json` writes the distances, of which
sim_scripts/jax_support.py makes a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import train_models as models  # first: sets what JAX and Keras read
import train_rounding

import flax.linen as nn
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

STEPS = 5
BATCH = 32
# Relative distance of losses. In default precision a sum of f32 in another order now and then rounds to the
# neighbouring bf16 in the next product: 2^-8 of one operand.
DEFAULT, HIGHEST = 3e-3, 2e-5
# Normal values and orthogonal matrices are made of equal bits by other polynomials and another order of sums.
WEIGHTS = 2.0**-18
Devices = Sequence[jax.Device]
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def images(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch of classes that can be told apart: noise on the image of its class."""
    means = np.random.default_rng(99).normal(size=(10, 12, 12, 1))
    labels = np.random.default_rng(seed).permutation(BATCH) % 10
    x = means[labels] + np.random.default_rng(seed + 100).normal(size=(BATCH, 12, 12, 1))
    return x.astype(np.float32), labels.astype(np.int32)


def mesh_of(devices: Devices, **axes: int) -> Mesh:
    """A mesh of the board's eight devices, or of the one CPU device."""
    axes = axes or {"data": 8}
    return Mesh(np.array(devices).reshape(tuple(axes.values()) if len(devices) > 1 else (1,) * len(axes)), tuple(axes))


def tokens(seed: int, length: int = 16) -> np.ndarray:
    """A batch of sequences over 32 letters, each letter a fixed step after the one before."""
    start = np.random.default_rng(seed).integers(0, 32, (BATCH, 1))
    return ((start + 5 * np.arange(length)) % 32).astype(np.int32)


def linen(devices: Devices, optimizer: optax.GradientTransformation) -> tuple:
    """jit with NamedSharding: batch split, state replicated."""
    mesh = mesh_of(devices)
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    net = models.LinenNet()

    @partial(jax.jit, out_shardings=whole)
    def start(key: jax.Array) -> tuple:
        variables = net.init({"params": key, "dropout": key}, jnp.zeros((1, 12, 12, 1)))
        return variables["params"], variables["batch_stats"], optimizer.init(variables["params"])

    @partial(jax.jit, donate_argnums=0)
    def step(state: tuple, key: jax.Array, x: jax.Array, y: jax.Array) -> tuple:
        params, stats, moments = state

        def loss_of(p: dict) -> tuple:
            logits, new = net.apply({"params": p, "batch_stats": stats}, x, rngs={"dropout": key},
                                    mutable=["batch_stats"])
            return cross_entropy(logits, y).mean(), new["batch_stats"]

        (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), stats, moments), loss

    state = start(jax.device_put(jax.random.key(0), whole))
    first = jax.tree.map(np.asarray, state[0])
    losses = []
    for i in range(STEPS):
        batch = jax.device_put(images(i), split)
        state, loss = step(state, jax.device_put(jax.random.key(i), whole), *batch)
        losses.append(float(loss))
    return first, losses


def nnx_cnn(devices: Devices) -> tuple:
    """flax nnx: modules with state, nnx.jit, nnx.Optimizer."""
    mesh = mesh_of(devices)

    @nnx.jit
    def step(net: models.NnxNet, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
        loss, grads = nnx.value_and_grad(lambda n: cross_entropy(n(x), y).mean())(net)
        optimizer.update(net, grads)
        return loss

    net = models.NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)
    for part in (net, optimizer):
        nnx.update(part, jax.device_put(nnx.state(part), NamedSharding(mesh, P())))
    first = jax.tree.map(np.asarray, nnx.state(net, nnx.Param))
    split = NamedSharding(mesh, P("data"))
    return first, [float(step(net, optimizer, *jax.device_put(images(i), split))) for i in range(STEPS)]


def language(devices: Devices, net: nn.Module, place: Callable = lambda path, x: P(), **axes: int) -> tuple:
    """Next letter by adam; parameters and moments are placed by `place`."""
    mesh = mesh_of(devices, **axes)
    optimizer = optax.adam(1e-2)

    def start(key: jax.Array) -> tuple:
        params = net.init(key, jnp.zeros((1, 15), jnp.int32))
        return params, optimizer.init(params)

    key = jax.device_put(jax.random.key(0), NamedSharding(mesh, P()))
    shapes = jax.eval_shape(start, key)
    placed = jax.tree_util.tree_map_with_path(
        lambda path, x: NamedSharding(mesh, place(jax.tree_util.keystr(path), x)), shapes)
    state = jax.jit(start, out_shardings=placed)(key)
    first = jax.tree.map(np.asarray, state[0])

    @partial(jax.jit, donate_argnums=0, out_shardings=(placed, None))
    def step(state: tuple, x: jax.Array) -> tuple:
        params, moments = state
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(net.apply(p, x[:, :-1]), x[:, 1:]).mean())(params)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), loss

    losses = []
    for i in range(STEPS):
        state, loss = step(state, jax.device_put(tokens(i), NamedSharding(mesh, P("data"))))
        losses.append(float(loss))
    for leaf, sharding in zip(jax.tree.leaves(state), jax.tree.leaves(placed), strict=True):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim), leaf.sharding
    return first, losses


def fsdp(path: str, x: jax.ShapeDtypeStruct) -> P:
    """Every parameter is split along its first dimension that eight divides."""
    for d, size in enumerate(x.shape):
        if size % 8 == 0:
            return P(*[None] * d, "data")
    return P()


def megatron(path: str, x: jax.ShapeDtypeStruct) -> P:
    """Attention by heads, feed-forward by its inner dimension."""
    if "Attention" in path and x.ndim >= 2:
        bias = "bias" in path
        return P("model") if "out" in path else P("model") if bias else P(None, "model")
    # flax numbers the outer layer first: Dense_0 follows Dense_1.
    if "Block" in path and "Dense_1" in path:
        return P(None, "model") if x.ndim == 2 else P("model")
    if "Block" in path and "Dense_0" in path and x.ndim == 2:
        return P("model")
    return P()


def fsdp_megatron(path: str, x: jax.ShapeDtypeStruct) -> P:
    """As megatron, and matrices split over the data axis, too."""
    names = [*megatron(path, x), *[None] * x.ndim][: x.ndim]
    free = [d for d, size in enumerate(x.shape) if names[d] is None and size % 4 == 0 and x.ndim >= 2]
    if free:
        names[free[0]] = "data"
    return P(*names)


def _perceptron(key: jax.Array) -> dict:
    a, b = jax.random.split(key)
    return {"a": 0.1 * jax.random.normal(a, (144, 64)), "b": 0.1 * jax.random.normal(b, (64, 10))}


def _loss(w: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    return cross_entropy(jax.nn.relu(x.reshape(x.shape[0], -1) @ w["a"]) @ w["b"], y).mean()


def pmap(devices: Devices) -> tuple:
    """Data parallel by jax.pmap."""

    @partial(jax.pmap, axis_name="data", devices=devices, donate_argnums=0)
    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.lax.pmean(jax.value_and_grad(_loss)(w, x, y), "data")
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    first = jax.tree.map(np.asarray, jax.jit(_perceptron)(jax.random.key(0)))
    w = jax.tree.map(lambda p: np.broadcast_to(p, (len(devices), *p.shape)), first)
    losses = []
    for i in range(STEPS):
        x, y = images(i)
        w, loss = step(w, x.reshape(len(devices), -1, 12, 12, 1), y.reshape(len(devices), -1))
        losses.append(float(loss[0]))
    return first, losses


def shard_map(devices: Devices) -> tuple:
    """Data parallel by jax.shard_map, all steps in one lax.scan."""
    mesh = mesh_of(devices)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(None, "data"), P(None, "data")), out_specs=(P(), P()))
    def train(w: dict, xs: jax.Array, ys: jax.Array) -> tuple:
        def step(w: dict, batch: tuple) -> tuple:
            loss, grads = jax.value_and_grad(lambda w: jax.lax.pmean(_loss(w, *batch), "data"))(w)
            return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

        return jax.lax.scan(step, w, (xs, ys))

    w = jax.jit(_perceptron)(jax.random.key(0))
    first = jax.tree.map(np.asarray, w)
    batches = [np.stack(parts) for parts in zip(*map(images, range(STEPS)), strict=True)]
    place = partial(NamedSharding, mesh)
    _, losses = train(jax.device_put(w, place(P())), *jax.device_put(batches, place(P(None, "data"))))
    return first, list(map(float, losses))


def some_axes(devices: Devices) -> tuple:
    """jax.shard_map over one axis of two; the weights are split along the other, which the compiler handles."""
    mesh = mesh_of(devices, data=4, model=2)
    place = partial(NamedSharding, mesh)
    mean = jax.shard_map(lambda w, x, y: jax.lax.pmean(_loss(w, x, y), "data"), mesh=mesh, axis_names={"data"},
                         in_specs=(P(), P("data"), P("data")), out_specs=P())

    @jax.jit
    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(mean)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    w = jax.jit(_perceptron)(jax.random.key(0))
    first, losses = jax.tree.map(np.asarray, w), []
    w = jax.device_put(w, {"a": place(P(None, "model")), "b": place(P("model"))})
    for i in range(STEPS):
        w, loss = step(w, *jax.device_put(images(i), place(P("data"))))
        losses.append(float(loss))
    return first, losses


def experts(devices: Devices) -> tuple:
    """A mixture of eight experts, one a device: each example takes the two that its gate likes most."""
    place = partial(NamedSharding, mesh_of(devices, expert=8))

    def loss_of(w: dict, x: jax.Array) -> jax.Array:
        gate = jax.nn.softmax(x @ w["gate"])
        best, which = jax.lax.top_k(gate, 2)
        share = jnp.zeros_like(gate).at[jnp.arange(x.shape[0])[:, None], which].set(best)
        h = jax.nn.gelu(jnp.einsum("bi,eih->ebh", x, w["up"]))
        return ((jnp.einsum("ebh,ehi,be->bi", h, w["down"], share) - x) ** 2).mean()

    @jax.jit
    def step(w: dict, x: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(w, x)
        return jax.tree.map(lambda p, g: p - 0.5 * g, w, grads), loss

    rng = np.random.default_rng(0)
    first = {name: (0.2 * rng.normal(size=shape)).astype(np.float32)
             for name, shape in (("gate", (16, 8)), ("up", (8, 16, 32)), ("down", (8, 32, 16)))}
    split = place(P("expert"))
    w = jax.device_put(first, {"gate": place(P()), "up": split, "down": split})
    x = jax.device_put(rng.normal(size=(64, 16)).astype(np.float32), split)
    losses = []
    for _ in range(STEPS):
        w, loss = step(w, x)
        losses.append(float(loss))
    return first, losses


def explicit(devices: Devices) -> tuple:
    """Sharding in types: a mesh of explicit axes, set for the whole program."""
    mesh = jax.make_mesh((len(devices),), ("data",), devices=devices, axis_types=(jax.sharding.AxisType.Explicit,))

    def loss_of(w: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = jax.nn.relu(x.reshape(x.shape[0], -1) @ w["a"]) @ w["b"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 10)).sum(-1).mean()

    @jax.jit
    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    with jax.set_mesh(mesh):
        w = jax.jit(_perceptron)(jax.random.key(0))
        first, losses = jax.tree.map(np.asarray, w), []
        for i in range(STEPS):
            w, loss = step(w, *jax.device_put(images(i), P("data")))
            losses.append(float(loss))
    return first, losses


def constraint(devices: Devices) -> tuple:
    """with_sharding_constraint: activations split in the middle of the program, 4x2."""
    mesh = mesh_of(devices, data=4, model=2)
    place = partial(NamedSharding, mesh)

    def loss_of(w: dict, x: jax.Array, y: jax.Array) -> jax.Array:
        h = jax.nn.relu(x.reshape(x.shape[0], -1) @ w["a"])
        h = jax.lax.with_sharding_constraint(h, place(P("data", "model")))
        return cross_entropy(jax.lax.with_sharding_constraint(h @ w["b"], place(P("data"))), y).mean()

    @partial(jax.jit, donate_argnums=0)
    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    w = jax.jit(_perceptron, out_shardings=place(P()))(jax.device_put(jax.random.key(0), place(P())))
    first = jax.tree.map(np.asarray, w)
    losses = []
    for i in range(STEPS):
        w, loss = step(w, *jax.device_put(images(i), place(P("data"))))
        losses.append(float(loss))
    return first, losses


def orbax(devices: Devices) -> tuple:
    """State saved in the middle and restored onto other shardings."""
    mesh = mesh_of(devices)
    place = partial(NamedSharding, mesh)

    @jax.jit
    def step(w: dict, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(_loss)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss

    w = jax.jit(_perceptron, out_shardings=place(P("data")))(jax.device_put(jax.random.key(0), place(P())))
    first = jax.tree.map(np.asarray, w)
    losses = []
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        for i in range(STEPS):
            if i == 2:
                checkpointer.save(folder + "/state", w)
                checkpointer.wait_until_finished()
                target = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=place(P())), w)
                back = checkpointer.restore(folder + "/state", target)
                for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(w), strict=True):
                    assert a.sharding.is_equivalent_to(place(P()), a.ndim), a.sharding
                    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
                w = back
            w, loss = step(w, *jax.device_put(images(i), place(P("data"))))
            losses.append(float(loss))
    return first, losses


def second_order(devices: Devices) -> tuple:
    """vmap, hessian and custom_vjp on split examples."""
    mesh = mesh_of(devices)
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    @jax.custom_vjp
    def clipped(a: jax.Array) -> jax.Array:
        return a * 2

    clipped.defvjp(lambda a: (a * 2, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))

    def loss_of(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(clipped(jnp.vdot(w, x)) - 0.3) ** 2

    @jax.jit
    def step(w: jax.Array, x: jax.Array) -> tuple:
        def mean(w: jax.Array) -> jax.Array:
            return jax.vmap(lambda r: jnp.tanh(jnp.vdot(w, r)) ** 2 / 2)(x).mean() + 0.5 * jnp.vdot(w, w)

        each = jax.vmap(jax.grad(loss_of), (None, 0))(w, x)
        return w - 0.3 * jax.hessian(mean)(w) @ w - 0.01 * each.mean(0), mean(w)

    w = jax.device_put(np.linspace(-1, 1, 8, dtype=np.float32), whole)
    x = jax.device_put(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32), split)
    first, losses = np.asarray(w), []
    for _ in range(STEPS):
        w, loss = step(w, x)
        losses.append(float(loss))
    return first, losses


def keras_fit(devices: Devices, make: Callable, parallel: Callable = lambda devices: None) -> tuple:
    """fit() with several steps an execution, then evaluate(), under a distribution or none."""
    keras.distribution.set_distribution(parallel(devices))
    keras.utils.set_random_seed(1)
    model = make()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
                  steps_per_execution=2)
    first = [np.asarray(w) for w in model.weights]
    x, y = map(np.concatenate, zip(*map(images, range(4)), strict=True))
    losses = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, shuffle=False).history["loss"]
    losses += model.evaluate(x, y, batch_size=BATCH, verbose=0)[:1]
    keras.distribution.set_distribution(None)
    return first, losses


def data_parallel(devices: Devices) -> keras.distribution.Distribution:
    """Keras' batch over all devices."""
    mesh = keras.distribution.DeviceMesh((len(devices),), ["batch"], devices)
    return keras.distribution.DataParallel(mesh, auto_shard_dataset=False)


def model_parallel(devices: Devices) -> keras.distribution.Distribution:
    """Keras' batch over four, features over two."""
    mesh = keras.distribution.DeviceMesh((4, 2) if len(devices) > 1 else (1, 1), ["batch", "model"], devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*dense.*kernel"] = (None, "model")
    layouts[".*dense.*bias"] = ("model",)
    layouts[".*conv2d.*kernel"] = (None, None, None, "model")
    return keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False)


CASES = {
    "pmap": pmap, "shard_map": shard_map, "some_axes": some_axes, "explicit": explicit, "constraint": constraint,
    "experts": experts, "orbax": orbax, "second_order": second_order, "nnx": nnx_cnn,
    "linen_sgd": partial(linen, optimizer=optax.sgd(0.05, momentum=0.9)),
    "linen_adam": partial(linen, optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))),
    "linen_adamw": partial(linen, optimizer=optax.adamw(1e-2)),
    "linen_lion": partial(linen, optimizer=optax.lion(1e-3)),
    "linen_lamb": partial(linen, optimizer=optax.lamb(1e-2)),
    "linen_adafactor": partial(linen, optimizer=optax.adafactor(1e-2)),
    "linen_accumulated": partial(linen, optimizer=optax.MultiSteps(optax.sgd(0.05), 2)),
    "lstm": partial(language, net=models.Recurrent()),
    "scanned": partial(language, net=models.Scanned(), place=fsdp),
    "transformer": partial(language, net=models.Transformer()),
    "fsdp": partial(language, net=models.Transformer(), place=fsdp),
    "megatron": partial(language, net=models.Transformer(), place=megatron, data=4, model=2),
    "fsdp_megatron": partial(language, net=models.Transformer(), place=fsdp_megatron, data=4, model=2),
    "keras": partial(keras_fit, make=models.keras_convnet),
    "keras_parallel": partial(keras_fit, make=models.keras_convnet, parallel=data_parallel),
    "keras_model": partial(keras_fit, make=models.keras_convnet, parallel=model_parallel),
    "keras_lstm": partial(keras_fit, make=models.keras_lstm, parallel=data_parallel),
    "keras_attention": partial(keras_fit, make=models.keras_attention, parallel=data_parallel),
}
# Programs that do the same on one device.
SAME = {"pmap": "shard_map", "some_axes": "shard_map", "explicit": "shard_map",
        "constraint": "shard_map", "orbax": "shard_map",
        "fsdp": "transformer", "megatron": "transformer", "fsdp_megatron": "transformer",
        "keras_parallel": "keras", "keras_model": "keras"}


def run(name: str, devices: Devices, precision: str) -> tuple[list[np.ndarray], list[float]]:
    """Initial weights and losses."""
    begin = time.perf_counter()
    with jax.default_device(devices[0]), jax.default_matmul_precision(precision):
        first, losses = CASES[name](devices)
    assert np.all(np.isfinite(losses)), name
    seconds = time.perf_counter() - begin
    print(f"{name} on {devices[0].platform}, {precision}: {seconds:.1f} s, losses {np.array(losses)}", flush=True)
    return jax.tree.leaves(first), losses


@cache
def expected(name: str, precision: str) -> tuple[list[np.ndarray], list[float]]:
    """What the CPU computes."""
    weights, losses = run(name, jax.devices("cpu")[:1], precision)
    assert losses[-1] < losses[0], name
    return weights, losses


def farthest(losses: Sequence[float], others: Sequence[float]) -> float:
    """Largest relative distance of a loss."""
    return float(np.abs(np.array(losses) / others - 1).max())


def check(name: str) -> dict[str, float]:
    """One program on both: largest distances, of a weight relative to its array's largest, and of a loss. `rounding` is
    how far the losses of the CPU in default precision, with operands rounded, are from those in the highest."""
    same = SAME.get(name, name)
    distances = {"weights": 0.0, "rounding": farthest(expected(same, "default")[1], expected(same, "highest")[1])}
    for precision, bound in (("default", DEFAULT), ("highest", HIGHEST)):
        weights, losses = expected(same, precision)
        got, curve = run(name, jax.devices(), precision)
        for a, b in zip(got, weights, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, name
            largest = float(np.abs(b).max())
            np.testing.assert_allclose(a, b, rtol=0, atol=WEIGHTS * largest, err_msg=name)
            if largest > 0:
                distances["weights"] = max(distances["weights"], float(np.abs(a - b).max()) / largest)
        np.testing.assert_allclose(curve, losses, rtol=bound, err_msg=f"{name}, {precision}")
        distances[precision] = farthest(curve, losses)
    print(f"{name}: {distances}", flush=True)
    return distances


def main() -> int:
    """Runs the named programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", metavar="PROGRAM", help=f"of {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, help="write the distances there")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    train_rounding.install()
    results = {}
    for name in options.cases or CASES:
        results[name] = check(name)
        if options.json:
            options.json.write_text(json.dumps(results, indent=0), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
