"""Layers under jax.checkpoint that a program writes out: equal bits, and less memory at the peak.

Every network is compiled with and without jax.checkpoint, and run with the happens-before checker. Its results must be
the same files, its arrays in HBM at most a part of those without, and its cycles at most those of another forward pass
more. A network in which nothing is computed again costs the same. What is offloaded travels beside kernels.

Usage: checkpointed_layers_test.py --bin DIR [--sample N] [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import case_runner
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec as P

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 6, 64, 2, 64, 2
BOARD = ["--set", "core.vmem_kib=128"]  # holds no activations from the forward to the backward pass
SAVED = jax.checkpoint_policies
Wrap = Callable[[Callable], Callable]


class Network(NamedTuple):
    """A program; the largest part of the memory without jax.checkpoint, and of its cycles, that it may take."""

    make: Callable[[Wrap], tuple[Callable, tuple]]
    wrap: Wrap
    memory: float
    cycles: float = 1.4
    donated: tuple[int, ...] = (0,)
    offloads: bool = False  # each array in the host's memory is sent and fetched beside kernels


def parameters(layers: int = LAYERS) -> list[dict[str, np.ndarray]]:
    """Of each layer."""
    rng = np.random.default_rng(1)
    shapes = {name: (WIDTH, WIDTH) for name in "qkvo"} | {"w1": (WIDTH, 4 * WIDTH), "w2": (4 * WIDTH, WIDTH)}
    return [{name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
            | {"scale": np.ones(WIDTH, np.float32)} for _ in range(layers)]


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Layer norm."""
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def layer(x: jax.Array, p: dict[str, jax.Array], key: jax.Array | None = None) -> jax.Array:
    """Of a transformer, with dropout where there is a key."""
    def heads(x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, -1)

    y = norm(x, p["scale"])
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", heads(y @ p["q"]), heads(y @ p["k"])))
    if key is not None:
        scores = jnp.where(jax.random.bernoulli(key, 0.9, scores.shape), scores / 0.9, 0)
    y = jnp.einsum("bhqk,bkhd->bqhd", scores, heads(y @ p["v"])).reshape(x.shape)
    x = x + y @ p["o"]
    hidden = checkpoint_name(norm(x, p["scale"]) @ p["w1"], "hidden")
    return x + jax.nn.gelu(hidden) @ p["w2"]


def batch() -> np.ndarray:
    """Of one core."""
    return np.random.default_rng(2).standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)


def sgd(run: Callable, arguments: tuple) -> tuple[Callable, tuple]:
    """A training step of `run(layers, x, ..)`."""
    def step(layers, *rest):
        loss, gradients = jax.value_and_grad(lambda p: (run(p, *rest) ** 2).mean())(layers)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradients), loss

    return step, arguments


def layers_one_by_one(wrap: Wrap) -> tuple[Callable, tuple]:
    """As a program writes them out."""
    one = wrap(layer)
    return sgd(lambda layers, x: functools.reduce(one, layers, x), (parameters(), batch()))


def with_dropout(wrap: Wrap) -> tuple[Callable, tuple]:
    """The masks of the attention are computed again, too."""
    one = wrap(layer)

    def run(layers, x, seed):
        keys = jax.random.split(jax.random.wrap_key_data(seed), len(layers))
        for p, key in zip(layers, keys, strict=True):
            x = one(x, p, key)
        return x

    return sgd(run, (parameters(), batch(), np.array([1, 2], np.uint32)))


def nested(wrap: Wrap) -> tuple[Callable, tuple]:
    """Each half of the layers is computed again, and then each of its layers."""
    def half(x, layers):
        return functools.reduce(wrap(layer), layers, x)

    def run(layers, x):
        return wrap(half)(wrap(half)(x, layers[:LAYERS // 2]), layers[LAYERS // 2:])

    return sgd(run, (parameters(), batch()))


def in_a_scan(wrap: Wrap) -> tuple[Callable, tuple]:
    """The loop of the backward pass reads what the other one has kept: nothing is in both."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *parameters())

    def run(layers, x):
        return lax.scan(lambda x, p: (wrap(layer)(x, p), None), x, layers)[0]

    return sgd(run, (stacked, batch()))


def data_parallel(wrap: Wrap) -> tuple[Callable, tuple]:
    """Shardings of jit: the batch over eight cores."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    step, (layers, x) = layers_one_by_one(wrap)

    def sharded(layers, x):
        return step(layers, lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))))

    return sharded, (layers, np.concatenate([x] * 8))


def tensor_parallel(wrap: Wrap) -> tuple[Callable, tuple]:
    """shard_map: layers cut over the cores, whose sums are computed again with the rest of the layer."""
    rng = np.random.default_rng(3)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("model",))
    layers = [{"w1": (rng.standard_normal((WIDTH, 512)) / 8).astype(np.float32),
               "w2": (rng.standard_normal((512, WIDTH)) / 32).astype(np.float32)} for _ in range(LAYERS)]

    def block(x, p):
        return x + lax.psum(jax.nn.gelu(x @ p["w1"]) @ p["w2"], "model")

    cut = [{"w1": P(None, "model"), "w2": P("model", None)}] * LAYERS
    run = jax.shard_map(lambda layers, x: functools.reduce(wrap(block), layers, x), mesh=mesh, in_specs=(cut, P()),
                        out_specs=P(), check_vma=False)
    return sgd(run, (layers, np.concatenate([batch()] * 4)))


def wide_layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """What it makes on the way, an array of 1 MiB, is longer in the link to the host than a call takes."""
    return x + 0.1 * jnp.tanh(checkpoint_name(x @ w, "hidden"))


def wide_arguments(layers: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Weights of all layers [layers, 512, 512], and a batch of one core."""
    rng = np.random.default_rng(4)
    return tuple((rng.standard_normal(shape) / 32).astype(np.float32) for shape in ((layers, 512, 512), (512, 512)))


def wide_layers(wrap: Wrap) -> tuple[Callable, tuple]:
    """Written out."""
    weights, x = wide_arguments()
    return sgd(lambda layers, x: functools.reduce(wrap(wide_layer), layers, x), (list(weights), x))


def wide_scan(wrap: Wrap) -> tuple[Callable, tuple]:
    """In a loop."""
    return sgd(lambda layers, x: lax.scan(lambda x, w: (wrap(wide_layer)(x, w), None), x, layers)[0], wide_arguments())


def on_all_cores(make: Callable[[Wrap], tuple[Callable, tuple]], wrap: Wrap) -> tuple[Callable, tuple]:
    """shard_map: a batch for each of eight cores, without sums."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))
    step, (layers, x) = make(wrap)

    def of_core(layers, x):
        layers, loss = step(jax.tree.map(lambda a: a[0], layers), x)
        return jax.tree.map(lambda a: a[None], (layers, loss))

    stacked = jax.tree.map(lambda a: np.stack([a] * 8), layers)
    return jax.shard_map(of_core, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False), (
        stacked, np.concatenate([x * (1 + core) for core in range(8)]).astype(np.float32))


def inference(wrap: Wrap) -> tuple[Callable, tuple]:
    """No backward pass."""
    one = wrap(layer)
    return (lambda layers, x: functools.reduce(one, layers, x)), (parameters(), batch())


def checkpoint(policy: Any = None) -> Wrap:
    """jax.checkpoint with a policy."""
    return functools.partial(jax.checkpoint, policy=policy)


OFFLOAD = checkpoint(SAVED.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"], offload_src="device",
    offload_dst="pinned_host"))
NETWORKS = {
    "nothing_saveable": Network(layers_one_by_one, checkpoint(SAVED.nothing_saveable), 0.45),
    "dots_saveable": Network(layers_one_by_one, checkpoint(SAVED.dots_saveable), 0.65),
    "save_only_these_names": Network(layers_one_by_one, checkpoint(SAVED.save_only_these_names("hidden")), 0.5),
    "offload": Network(layers_one_by_one, OFFLOAD, 0.45, cycles=10, offloads=True),
    "offload_beside": Network(wide_layers, OFFLOAD, 1.5, cycles=10, offloads=True),
    "offload_beside_scan": Network(wide_scan, OFFLOAD, 1.5, cycles=10, offloads=True),
    "offload_beside_cores": Network(functools.partial(on_all_cores, wide_layers), OFFLOAD, 1.5, cycles=10,
                                    offloads=True),
    "offload_beside_scan_cores": Network(functools.partial(on_all_cores, wide_scan), OFFLOAD, 1.5, cycles=10,
                                         offloads=True),
    "dropout": Network(with_dropout, checkpoint(), 0.45, cycles=1.8),
    "nested": Network(nested, checkpoint(), 0.45, cycles=1.8),
    "scan": Network(in_a_scan, checkpoint(), 0.6),
    "data_parallel": Network(data_parallel, checkpoint(), 0.45),
    "data_parallel_dots": Network(data_parallel, checkpoint(SAVED.dots_saveable), 0.6),
    "tensor_parallel": Network(tensor_parallel, checkpoint(), 0.8),
    "inference": Network(inference, checkpoint(), 1, cycles=1, donated=()),
}


def outputs(tools: Path, folder: Path, mode: str, inputs: list[str]) -> tuple[int, int, list[bytes]]:
    """Bytes of arrays in HBM, estimated cycles, and the contents of the result files."""
    exe, out = folder / f"{mode}.tpuexe", folder / mode
    text = subprocess.run([tools / "tpuc", folder / f"{mode}.mlirbc", "-o", exe, "-v", *BOARD], check=True,
                          capture_output=True, text=True).stdout
    subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", out, "--check", *BOARD], check=True,
                   capture_output=True, text=True)
    found = re.search(r"HBM (\d+) bytes.*about (\d+) cycles", text)
    files = sorted(out.glob("*.npy"), key=lambda path: int(path.stem))
    return int(found[1]), int(found[2]), [path.read_bytes() for path in files]


def calls_of_transfers(tools: Path, folder: Path) -> str | None:
    """Text of a failure, unless each transfer with the host has a call that starts and one that finishes it."""
    program = subprocess.run([tools / "tpuc", folder / "with.mlirbc", "-o", folder / "again.tpuexe", *BOARD,
                              "--dump-after", "host_memory"], check=True, capture_output=True, text=True).stdout
    listing = subprocess.run([tools / "tpuc", "--disasm", folder / "with.tpuexe"], check=True, capture_output=True,
                             text=True).stdout
    transfers, indices = program.count("memory=host"), program.count("memory=index")
    calls = len(re.findall(r"^ *hcall ", listing, re.MULTILINE))
    return None if 0 < 2 * transfers + indices == calls else (
        f"{calls} host calls of {transfers} transfers and {indices} indices, expected two of each transfer")


def run_case(name: str, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    network = NETWORKS[name]
    for mode, wrap in (("without", lambda function: function), ("with", network.wrap)):
        function, arguments = network.make(wrap)
        # Programs for CPUs have no placements in the host's memory.
        platform = "tpu" if network.offloads else "cpu"
        exported = case_runner.export(function, arguments, donate=network.donated, platform=platform)
        (folder / f"{mode}.mlirbc").write_bytes(exported.mlir_module_serialized)
    inputs = reference.save_inputs(folder, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)])
    try:
        kept, before, plain = outputs(tools, folder, "without", inputs)
        peak, cycles, again = outputs(tools, folder, "with", inputs)
        wrong = calls_of_transfers(tools, folder) if network.offloads else None
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} exited {error.returncode}: {error.stderr[-400:]}"
    print(f"{name}: {peak / kept:.2f} of {kept} bytes, {cycles / before:.2f} of {before} cycles")
    if wrong is not None:
        return wrong
    if peak > network.memory * kept:
        return f"{peak} bytes in HBM, expected at most {network.memory} of {kept} without jax.checkpoint"
    if cycles > network.cycles * before:
        return f"{cycles} cycles, expected at most {network.cycles} of {before} without jax.checkpoint"
    different = [i for i, (a, b) in enumerate(zip(plain, again, strict=True)) if a != b]
    return f"results {different} differ" if different or not plain else None


if __name__ == "__main__":
    sys.exit(case_runner.run_all(list(NETWORKS), case_runner.parser(__doc__).parse_args(), run_case, str))
