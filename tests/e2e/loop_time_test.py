"""A scan over equal layers costs what the layers cost when they are written out.

Compiles both, runs them without data, and compares their cycles; the bar of each pair is part of the test. The estimate
of a scan is within 0.5 % of its run. Runs with data and the check for accesses that nothing orders, in the order of the
program and in random legal orders, report nothing and give one digest.
Usage: loop_time_test.py --bin DIR [CASE ...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ESTIMATE_PERCENT = 0.5
LAYERS = 24
BF16, F32 = jnp.bfloat16, jnp.float32


def _dot(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.dot(x, w, preferred_element_type=F32)


def _mlp(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return x + _dot(jax.nn.gelu(_dot(x, up)).astype(BF16), down).astype(BF16)


def _dense(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(_dot(x, w)).astype(BF16)


def _normal(x: jax.Array) -> jax.Array:
    wide = x.astype(F32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * lax.rsqrt((wide ** 2).mean(-1, keepdims=True) + 1e-5)).astype(BF16)


def _transformer(x: jax.Array, qkv: jax.Array, out: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """One sequence, heads of 64."""
    rows, width = x.shape
    q, k, v = jnp.split(_dot(_normal(x), qkv).astype(BF16).reshape(rows, 3 * width // 64, 64).swapaxes(0, 1), 3)
    scores = jax.nn.softmax(jnp.einsum("htd,hsd->hts", q, k, preferred_element_type=F32) / 8, -1).astype(BF16)
    mixed = jnp.einsum("hts,hsd->htd", scores, v, preferred_element_type=F32).astype(BF16)
    x = x + _dot(mixed.swapaxes(0, 1).reshape(rows, width), out).astype(BF16)
    return x + _dot(jax.nn.gelu(_dot(_normal(x), up)).astype(BF16), down).astype(BF16)


@dataclass(frozen=True)
class Pair:
    """A layer, the shapes of its input and parameters, and how many cycles a scan may take for one of written out."""

    layer: Callable
    x: tuple[int, int]
    parameters: tuple[tuple[int, int], ...]
    bar: float
    data: bool = True  # small enough for runs with data
    training: bool = False  # the gradient of a sum over the outputs

    def scanned(self, x: jax.Array, *stacked: jax.Array) -> jax.Array:
        """One loop over the stacked parameters, of training one in each direction."""
        def layers(*stacked: jax.Array) -> jax.Array:
            return lax.scan(lambda c, layer: (self.layer(c, *layer), None), x, stacked)[0]
        return self._trained(layers, stacked)

    def written_out(self, x: jax.Array, *parameters: jax.Array) -> jax.Array:
        """Layer after layer, each with its own parameters."""
        step = len(self.parameters)

        def layers(*parameters: jax.Array) -> jax.Array:
            out = x
            for at in range(0, len(parameters), step):
                out = self.layer(out, *parameters[at:at + step])
            return out
        return self._trained(layers, parameters)

    def _trained(self, layers: Callable, parameters: tuple[jax.Array, ...]) -> jax.Array | tuple[jax.Array, ...]:
        """What the layers make, or their gradients."""
        if not self.training:
            return layers(*parameters)
        return jax.grad(lambda p: jnp.sum(layers(*p).astype(F32) ** 2))(parameters)


PAIRS = {
    "dense": Pair(_dense, (64, 128), ((128, 128),), 1.2),
    "mlp": Pair(_mlp, (256, 256), ((256, 1024), (1024, 256)), 1.0),
    "mlp_wide": Pair(_mlp, (512, 1024), ((1024, 4096), (4096, 1024)), 1.08, data=False),
    "mlp_training": Pair(_mlp, (256, 256), ((256, 1024), (1024, 256)), 1.03, training=True),
    "transformer": Pair(_transformer, (128, 256), ((256, 768), (256, 256), (256, 1024), (1024, 256)), 1.0),
}


def _compiled(folder: Path, tools: Path, function: Callable, shapes: list[tuple[int, ...]]) -> tuple[Path, int]:
    """The executable and its estimate."""
    inputs = tuple(jax.ShapeDtypeStruct(shape, BF16) for shape in shapes)
    graph, exe = folder / "graph.mlirbc", folder / "graph.tpuexe"
    graph.write_bytes(case_runner.export(function, inputs).mlir_module_serialized)
    done = subprocess.run([str(tools / "tpuc"), str(graph), "--cores", "0", "-o", str(exe), "-v"], check=True,
                          capture_output=True, text=True)
    estimate = re.search(r"about (\d+) cycles", done.stdout + done.stderr)
    if estimate is None:
        raise SystemExit(f"tpuc -v printed no estimate: {done.stderr}")
    return exe, int(estimate[1])


def _run(folder: Path, tools: Path, exe: Path, *options: str) -> dict:
    figures = folder / "figures.json"
    subprocess.run([str(tools / "tpuboard"), "run", str(exe), "--json", str(figures), *options], check=True,
                   capture_output=True, text=True)
    return json.loads(figures.read_text())


def _digests(folder: Path, tools: Path, exe: Path, shapes: list[tuple[int, ...]]) -> set[str]:
    """Of runs with data, checked, in several orders."""
    random = np.random.default_rng(0)
    arguments = []
    for number, shape in enumerate(shapes):
        file = folder / f"{number}.npy"
        np.save(file, random.normal(0, 0.05, shape).astype(BF16))
        arguments += ["--in", f"{number}={file}"]
    digests = set()
    for seed in (0, 1, 2):
        printed = subprocess.run([str(tools / "tpuboard"), "run", str(exe), *arguments, "--check", "--schedule-seed",
                                  str(seed)], check=True, capture_output=True, text=True).stdout
        digests |= set(re.findall(r"digest (\w+)", printed))
    return digests


def check(name: str, pair: Pair, tools: Path) -> list[str]:
    """What is wrong with a pair; prints its figures."""
    errors = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stacked = [pair.x, *((LAYERS, *shape) for shape in pair.parameters)]
        exe, estimate = _compiled(folder, tools, pair.scanned, stacked)
        looped = max(_run(folder, tools, exe, "--no-data")["sim_cycles_per_core"])
        if pair.data and len(digests := _digests(folder, tools, exe, stacked)) != 1:
            errors.append(f"expected one digest in all orders, found {sorted(digests)}")
        exe, _ = _compiled(folder, tools, pair.written_out, [pair.x, *pair.parameters * LAYERS])
        flat = max(_run(folder, tools, exe, "--no-data")["sim_cycles_per_core"])
    print(f"{name}: {looped} cycles in a loop, {flat} written out, {looped / flat:.3f}; {estimate} estimated")
    if looped > pair.bar * flat:
        errors.append(f"expected at most {pair.bar} of the cycles written out, found {looped / flat:.3f}")
    if abs(estimate / looped - 1) * 100 > ESTIMATE_PERCENT:
        errors.append(f"expected an estimate within {ESTIMATE_PERCENT} %, found {estimate} for {looped} cycles")
    return [f"{name}: {error}" for error in errors]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("case", nargs="*", choices=[[], *PAIRS])
    args = parser.parse_args()
    errors = [error for name in args.case or PAIRS for error in check(name, PAIRS[name], args.bin)]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
