"""Training steps of equal layers with and without `--roll-layers`: optimizers become loops, too.

Every step is compiled with `on` and `off`, run for some launches with the happens-before checker, and must give the
same bits; without loops it must give what JAX gives on the CPU. How many loops there are, and of how many layers, is
part of the test: the loop of the forward layers, of the backward ones, and of what an optimizer does behind both.

Usage: rolled_updates_test.py --bin DIR [--sample N] [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import case_runner
import distances
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

LAYERS, LAUNCHES = 7, 2
RNG = np.random.default_rng(5)
FAR = 0.03  # relative distance from JAX, whose transcendentals are others


@dataclass(frozen=True)
class Size:
    """Of a network."""

    width: int
    batch: int


# Kernels of up to 1024 elements are placed as early as possible, and larger ones on arguments alone as late.
SIZES = {"": Size(24, 4), "_wide": Size(64, 32)}


@dataclass(frozen=True)
class Step:
    """A program: its arguments, which of them it replaces, and the layers of the loops that it becomes."""

    name: str
    function: Callable
    arguments: tuple
    donated: tuple[int, ...]
    loops: tuple[int, ...]


def layers_of(**shapes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    """Arrays of each layer."""
    return [{name: (RNG.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
            for _ in range(LAYERS)]


def network(layers: list, x: jax.Array, dtype: jnp.dtype = jnp.float32) -> jax.Array:
    """Residual layers, and their loss."""
    x = x.astype(dtype)
    for p in layers:
        x = x + jnp.tanh(x @ p["w"].astype(dtype) + p["b"].astype(dtype))
    return (x.astype(jnp.float32) ** 2).mean()


def batch(size: Size) -> np.ndarray:
    """Input of the network."""
    return RNG.standard_normal((size.batch, size.width)).astype(np.float32)


def weights(size: Size) -> list[dict[str, np.ndarray]]:
    """Of a network."""
    return layers_of(w=(size.width, size.width), b=(size.width,))


def with_optax(size: Size, name: str, optimizer: optax.GradientTransformation, loops: tuple[int, ...],
               dtype: jnp.dtype = jnp.float32, donate: bool = True) -> Step:
    """A step of an optimizer."""
    layers = weights(size)
    state = jax.tree.map(np.asarray, optimizer.init(layers))

    def step(layers, state, x):
        loss, gradients = jax.value_and_grad(network)(layers, x, dtype)
        updates, state = optimizer.update(gradients, state, layers)
        return optax.apply_updates(layers, updates), state, loss

    return Step(name, step, (layers, state, batch(size)), (0, 1) if donate else (), loops)


def momentum(size: Size) -> Step:
    """SGD with momentum and decay, as one writes it."""
    def step(layers, moments, x):
        gradients = jax.grad(network)(layers, x)
        moments = jax.tree.map(lambda m, g, p: 0.9 * m + (g + 0.01 * p), moments, gradients, layers)
        return jax.tree.map(lambda p, m: p - 0.1 * m, layers, moments), moments

    layers = weights(size)
    return Step("momentum", step, (layers, jax.tree.map(np.zeros_like, layers), batch(size)), (0, 1), (7, 6))


def gradients(size: Size) -> Step:
    """No optimizer: the gradients are results."""
    return Step("gradients", jax.value_and_grad(network), (weights(size), batch(size)), (), (7, 6))


def kept(size: Size) -> Step:
    """The old weights are results, too, so that their memory must not be written to before they are read."""
    def step(layers, x):
        gradients = jax.grad(network)(layers, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients), jax.tree.map(lambda p: p + 1, layers)

    return Step("kept", step, (weights(size), batch(size)), (0,), (7, 6))


def turned(size: Size) -> Step:
    """The new weights of a layer take the memory of those of the next one."""
    def step(layers, x):
        gradients = jax.grad(network)(layers, x)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients)
        return new[1:] + new[:1]

    return Step("turned", step, (weights(size), batch(size)), (0,), (7, 6))


def backwards(size: Size) -> Step:
    """The new weights of a layer take the memory of those of the one in front of it."""
    def step(layers, x):
        gradients = jax.grad(network)(layers, x)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients)
        return new[-1:] + new[:-1]

    return Step("backwards", step, (weights(size), batch(size)), (0,), (7, 6))


def read_again(size: Size) -> Step:
    """The loss behind the update reads the old weights."""
    def step(layers, x):
        gradients = jax.grad(network)(layers, x)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients)
        return new, sum(jnp.abs(p["w"]).sum() * jnp.abs(q["w"]).max() for p, q in zip(layers, new, strict=True))

    return Step("read_again", step, (weights(size), batch(size)), (0,), (7, 6))


def rates(size: Size) -> Step:
    """Each layer has a learning rate of its own, a constant, and one layer another momentum."""
    def step(layers, moments, x):
        gradients = jax.grad(network)(layers, x)
        new, kept_moments = [], []
        for i, (p, m, g) in enumerate(zip(layers, moments, gradients, strict=True)):
            m = jax.tree.map(lambda m, g, beta=0.5 if i == 3 else 0.9: beta * m + g, m, g)
            new.append(jax.tree.map(lambda p, m, rate=0.1 / (i + 1): p - rate * m, p, m))
            kept_moments.append(m)
        return new, kept_moments

    layers = weights(size)
    return Step("rates", step, (layers, jax.tree.map(np.zeros_like, layers), batch(size)), (0, 1), (7, 6))


def shared(size: Size) -> Step:
    """All layers have one matrix in common."""
    def loss_of(params, x):
        return network([{"w": p["w"] + params["common"], "b": p["b"]} for p in params["layers"]], x)

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss_of)(params, x))

    params = {"layers": weights(size), "common": (RNG.standard_normal((size.width, size.width)) / 8).astype(np.float32)}
    return Step("shared", step, (params, batch(size)), (0,), (7, 6))


def integers(size: Size) -> Step:
    """Integers beside the weights: counts of changed signs, in i32 and in i64 words."""
    def step(layers, counts, seen, x):
        gradients = jax.grad(network)(layers, x)
        changed = jax.tree.map(lambda p, g: (jnp.sign(p) != jnp.sign(p - 0.1 * g)).astype(jnp.int32), layers, gradients)
        return (jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients),
                jax.tree.map(lambda n, c: 3 * n + c, counts, changed),
                jax.tree.map(lambda n, c: n + c.astype(jnp.uint8), seen, changed))

    layers = weights(size)
    return Step("integers", step, (layers, jax.tree.map(lambda p: np.zeros(p.shape, np.int32), layers),
                                   jax.tree.map(lambda p: np.zeros(p.shape, np.uint8), layers), batch(size)),
                (0, 1, 2), (7, 6))


def caches(size: Size) -> Step:
    """Inference that gives what each layer has made, and what replaces an argument of each."""
    def run(layers, old, x):
        made = []
        for p, cache in zip(layers, old, strict=True):
            x = x + jnp.tanh(x @ p["w"] + p["b"]) + cache
            made.append(0.5 * cache + x)
        return x, made

    return Step("caches", run, (weights(size), [batch(size) for _ in range(LAYERS)], batch(size)), (1,), (7,))


def widened(name: str, run: Callable, loops: tuple[int, ...] = (7,)) -> Step:
    """Layers of more elements than a kernel that is placed as early as possible, with one donated array of each."""
    def step(layers, old, x):
        made, rest = [], []
        for p, cache in zip(layers, old, strict=True):
            y = x @ p["w"]
            made.append(y)
            rest = run(rest, cache)
            x = jnp.tanh(y @ p["u"])
        return x, made, rest

    def normal(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(np.float32)

    return Step(name, step, (layers_of(w=(32, 64), u=(64, 32)), [normal(128, 64) for _ in range(LAYERS)],
                             normal(128, 32)), (1,), loops)


def beside() -> Step:
    """What is made of a donated argument alone is a result, and another result lies over the argument."""
    return widened("beside", lambda rest, cache: [*rest, cache * 2])


def summed() -> Step:
    """A sum of donated arguments goes from layer to layer, and a result lies over each of them."""
    return widened("summed", lambda rest, cache: [rest[0] + cache if rest else cache * 1.5], (6,))


def attended() -> Step:
    """What attends to cached keys lies over them, but over none of the first layer, which are not donated."""
    heads, tokens, depth = 2, 256, 32

    def step(layers, first, others, x):
        made = []
        for p, keys in zip(layers, [first, *others], strict=True):
            scores = jnp.tanh(jnp.einsum("hqd,hkd->hqk", x, keys) / 8)
            made.append(jnp.einsum("hqk,hkd->hqd", scores, p["v"]) / 8)
            x = jnp.tanh(made[-1] @ p["o"])
        return x, made[1:], made[0]

    keys = [p["c"] for p in layers_of(c=(heads, tokens, depth))]
    return Step("attended", step, (layers_of(v=(heads, tokens, depth), o=(depth, depth)), keys[0], keys[1:],
                                   RNG.standard_normal((heads, tokens, depth)).astype(np.float32)), (2,), (7,))


def swapped() -> Step:
    """Two donated arrays of each layer change places."""
    def run(layers, left, right, x):
        new_left, new_right = [], []
        for p, a, b in zip(layers, left, right, strict=True):
            x = jnp.tanh(x @ p["w"] + a)
            new_left.append(b + x)
            new_right.append(a)
        return x, new_left, new_right

    wide = [layers_of(a=(64, 64)) for _ in range(2)]
    return Step("swapped", run, (layers_of(w=(64, 64)), *([p["a"] for p in part] for part in wide),
                                 RNG.standard_normal((64, 64)).astype(np.float32)), (1, 2), (7,))


def twice() -> Step:
    """One value of each layer is two results, each over an argument."""
    def run(layers, left, right, x):
        made = []
        for p, a, b in zip(layers, left, right, strict=True):
            x = jnp.tanh(x @ p["w"] + a * b)
            made.append(x * 2)
        return x, made, list(made)

    wide = [layers_of(a=(64, 64)) for _ in range(2)]
    return Step("twice", run, (layers_of(w=(64, 64)), *([p["a"] for p in part] for part in wide),
                               RNG.standard_normal((64, 64)).astype(np.float32)), (1, 2), (7,))


def scanned(size: Size) -> Step:
    """Layers that are stacked and scanned, beside layers that are written out."""
    def loss_of(params, x):
        x, _ = lax.scan(lambda x, p: (x + jnp.tanh(x @ p["w"] + p["b"]), None), x, params["stacked"])
        return network(params["layers"], x)

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss_of)(params, x))

    params = {"layers": weights(size), "stacked": jax.tree.map(lambda *p: np.stack(p), *weights(size))}
    return Step("scanned", step, (params, batch(size)), (0,), (7, 6))


CLIPPED = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2, weight_decay=0.01))


def networks(size: Size) -> list[Step]:
    """Steps of a network of any size."""
    steps = [step(size) for step in (momentum, gradients, kept, turned, backwards, read_again, rates, shared, integers,
                                     caches, scanned)]
    return [*steps, with_optax(size, "adam", optax.adam(1e-2), (7, 6)),
            with_optax(size, "adam_kept", optax.adam(1e-2), (7, 6), donate=False),
            with_optax(size, "clipped", CLIPPED, (7, 6, 6)), with_optax(size, "lamb", optax.lamb(1e-2), (7, 6)),
            with_optax(size, "bf16", CLIPPED, (7, 6, 6), jnp.bfloat16),
            with_optax(size, "nesterov", optax.sgd(1e-2, 0.9, nesterov=True), (7, 6)),
            with_optax(size, "adafactor", optax.adafactor(1e-2, min_dim_size_to_factor=8), (7, 6))]


def sized(suffix: str) -> list[Step]:
    """Those of a network of one size."""
    return [replace(step, name=step.name + suffix) for step in networks(SIZES[suffix])]


# A sample has other steps of each size.
STEPS = [*sized(""), beside(), summed(), attended(), swapped(), twice(), *sized("_wide")]


def run(exe: Path, tools: Path, out: Path, launches: int, inputs: list[str]) -> list[Path]:
    """The result files."""
    subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", out, "--launches", str(launches), "--check"],
                   check=True, capture_output=True, text=True)
    return sorted(out.glob("*.npy"), key=lambda path: int(path.stem))


def outputs(step: Step, tools: Path, folder: Path, mode: str, inputs: list[str]) -> tuple[list[int], list[bytes]]:
    """Layers of the loops, and the contents of the result files."""
    exe = folder / f"{mode}.tpuexe"
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "-o", exe, "-v", f"--roll-layers={mode}"], check=True,
                          capture_output=True, text=True).stdout
    files = run(exe, tools, folder / mode, LAUNCHES if step.donated else 1, inputs)
    return [int(n) for n in re.findall(r"layers: (\d+) equal ones", text)], [path.read_bytes() for path in files]


def far_from_jax(exported: jax.export.Exported, arrays: list[np.ndarray], files: list[Path]) -> str | None:
    """Which result is not JAX's, after one step."""
    for index, theirs in enumerate(reference.run(exported, arrays, round_dots=True)):
        problem = distances.difference(np.load(files[index]), theirs, l2=FAR)
        if problem:
            return f"result {index} is not JAX's: {problem}"
    return None


def run_step(step: Step, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    exported = case_runner.export(step.function, step.arguments, donate=step.donated)
    (folder / "p.mlirbc").write_bytes(exported.mlir_module_serialized)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(step.arguments)]
    inputs = reference.save_inputs(folder, arrays)
    try:
        plain_loops, plain = outputs(step, tools, folder, "off", inputs)
        loops, rolled = outputs(step, tools, folder, "on", inputs)
        once = run(folder / "on.tpuexe", tools, folder / "once", 1, inputs)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} exited {error.returncode}: {error.stderr[-400:]}"
    different = [i for i, (a, b) in enumerate(zip(plain, rolled, strict=True)) if a != b]
    if different or not plain:
        return f"results {different} differ"
    if plain_loops or loops != list(step.loops):
        return f"loops of {plain_loops} layers when off, of {loops} when on, expected {list(step.loops)}"
    return far_from_jax(exported, arrays, once)


if __name__ == "__main__":
    sys.exit(case_runner.run_all(STEPS, case_runner.parser(__doc__).parse_args(), run_step, lambda step: step.name))
