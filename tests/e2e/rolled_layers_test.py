"""Networks of equal layers with and without `--roll-layers`: equal bits of all results, and code that does not grow.

Every network is compiled with `on` and `off`, run with the happens-before checker, and must give the same files. How
many loops there are, and of how many layers, is part of the test.

Usage: rolled_layers_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import case_runner
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

LAYERS = 6
WIDTH, HEADS, LENGTH, BATCH = 32, 2, 8, 2
STEPS = 2
# Network: layers of its loops, in order.
LOOPS = {"inference": [6], "sgd": [6, 5], "transformer": [5, 4], "large_transformer": [5, 4], "tensor_parallel": [6]}
BOARD = {"large_transformer": ["--set", "core.vmem_kib=128"]}


def parameters(rng: np.random.Generator, names: dict[str, tuple[int, ...]]) -> list[dict[str, np.ndarray]]:
    """Arrays of each layer."""
    return [{name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in names.items()}
            for _ in range(LAYERS)]


def dense_layer(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    """A residual layer."""
    return x + jnp.tanh(x @ p["w"] + p["b"])


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Layer norm in f32."""
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def transformer_layer(x: jax.Array, p: dict[str, jax.Array], key: jax.Array) -> jax.Array:
    """Attention and two dense layers, with dropout, in bf16."""
    def dense(x: jax.Array, name: str) -> jax.Array:
        return x @ p[name].astype(jnp.bfloat16)

    def dropout(x: jax.Array, part: int) -> jax.Array:
        return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, part), 0.9, x.shape), x / 0.9, 0)

    def heads(x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, -1)

    y = norm(x, p["scale"])
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads(dense(y, "q")), heads(dense(y, "k")))
    weights = dropout(jax.nn.softmax(scores), 0)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, heads(dense(y, "v"))).reshape(x.shape)
    x = x + dense(y, "o")
    return x + dropout(dense(jax.nn.gelu(dense(x, "w1")), "w2"), 1)


def inference() -> tuple[object, tuple]:
    """Dense layers, forward only."""
    rng = np.random.default_rng(1)

    def run(layers, x):
        for p in layers:
            x = dense_layer(x, p)
        return x

    return run, (parameters(rng, {"w": (WIDTH, WIDTH), "b": (WIDTH,)}),
                 rng.standard_normal((BATCH, WIDTH)).astype(np.float32))


def sgd() -> tuple[object, tuple]:
    """A training step of the same."""
    run, (layers, x) = inference()

    def step(layers, x):
        loss, gradients = jax.value_and_grad(lambda p: (run(p, x) ** 2).mean())(layers)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients), loss

    return step, (layers, x)


def transformer(width: int = WIDTH, length: int = LENGTH) -> tuple[object, tuple]:
    """A training step with momentum, data parallel over eight cores."""
    rng = np.random.default_rng(2)
    names = {name: (width, width) for name in "qkvo"} | {"w1": (width, 2 * width), "w2": (2 * width, width),
                                                         "scale": (width,)}
    layers = parameters(rng, names)

    def loss_of(layers, x, seed):
        key = jax.random.wrap_key_data(seed)
        y = x.astype(jnp.bfloat16)
        for i, p in enumerate(layers):
            y = transformer_layer(y, p, jax.random.fold_in(key, i))
        return (y.astype(jnp.float32) ** 2).mean()

    def step(layers, momentum, x, seed):
        loss, gradients = lax.pmean(jax.value_and_grad(loss_of)(layers, x, seed), "data")
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, layers, momentum), momentum, loss

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))
    sharded = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("data"), P()), out_specs=P(), check_vma=False)
    x = rng.standard_normal((8 * BATCH, length, width)).astype(np.float32)
    return sharded, (layers, jax.tree.map(np.zeros_like, layers), x, np.array([1, 2], np.uint32))


def large_transformer() -> tuple[object, tuple]:
    """The same, with activations that a small VMEM does not hold: they stay in the stacks, in HBM."""
    return transformer(128, 64)


def tensor_parallel() -> tuple[object, tuple]:
    """Layers cut over the cores, with a sum over the cores in each."""
    rng = np.random.default_rng(3)

    def run(layers, x):
        for p in layers:
            x = x + lax.psum(jnp.tanh(x @ p["w1"]) @ p["w2"], "model")
        return x

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("model",))
    sharded = jax.shard_map(run, mesh=mesh, in_specs=([{"w1": P(None, "model"), "w2": P("model", None)}] * LAYERS, P()),
                            out_specs=P(), check_vma=False)
    return sharded, (parameters(rng, {"w1": (WIDTH, 64), "w2": (64, WIDTH)}),
                     rng.standard_normal((BATCH, WIDTH)).astype(np.float32))


NETWORKS = {"inference": inference, "sgd": sgd, "transformer": transformer, "large_transformer": large_transformer,
            "tensor_parallel": tensor_parallel}


def outputs(tools: Path, folder: Path, mode: str, inputs: list[str], launches: int,
            board: list[str]) -> tuple[list[int], list[bytes]]:
    """Layers of the loops, and the contents of the result files."""
    exe, out = folder / f"{mode}.tpuexe", folder / mode
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "-o", exe, "-v", f"--roll-layers={mode}", *board],
                          check=True, capture_output=True, text=True).stdout
    subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", out, "--launches", str(launches), "--check",
                    *board],
                   check=True, capture_output=True, text=True)
    files = sorted(out.glob("*.npy"), key=lambda path: int(path.stem))
    return [int(n) for n in re.findall(r"layers: (\d+) equal ones", text)], [path.read_bytes() for path in files]


def run_case(name: str, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    function, arguments = NETWORKS[name]()
    donated = {"sgd": (0,), "transformer": (0, 1), "large_transformer": (0, 1)}.get(name, ())
    (folder / "p.mlirbc").write_bytes(
        case_runner.export(function, arguments, donate=donated).mlir_module_serialized)
    inputs = reference.save_inputs(folder, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)])
    launches = STEPS if donated else 1
    board = BOARD.get(name, [])
    try:
        plain_loops, plain = outputs(tools, folder, "off", inputs, launches, board)
        loops, rolled = outputs(tools, folder, "on", inputs, launches, board)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} exited {error.returncode}: {error.stderr[-400:]}"
    if plain_loops or loops != LOOPS[name]:
        return f"loops of {plain_loops} layers when off, of {loops} when on, expected {LOOPS[name]}"
    different = [i for i, (a, b) in enumerate(zip(plain, rolled, strict=True)) if a != b]
    return f"results {different} differ" if different or not plain else None


if __name__ == "__main__":
    sys.exit(case_runner.run_all(list(NETWORKS), case_runner.parser(__doc__).parse_args(), run_case, str))
