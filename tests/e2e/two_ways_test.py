"""The same training step as jax.shard_map with lax.pmean and as jit with NamedSharding: the same collectives, the same
cycles on the simulated board but for a few, and the results of one device.

Usage: two_ways_test.py --bin DIR
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import case_runner
import distances
import jax_reference as reference
import sharding_cases as models
from sharding_cases import integers, normal

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

SLOWER = 0.02  # that one way may be than the other


@dataclass(frozen=True)
class Step:
    """A loss, its parameters and a batch; `mapped` is the loss inside of shard_map if it is another."""

    name: str
    loss: Callable
    params: dict
    batch: tuple
    mapped: Callable | None = None
    l2: float = 5e-3


def by_sharding(step: Step, mesh: jax.sharding.Mesh) -> Callable:
    """Written for one device."""
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    return jax.jit(models.sgd(step.loss), in_shardings=(whole, split, split), out_shardings=whole, donate_argnums=0)


def by_shard_map(step: Step, mesh: jax.sharding.Mesh) -> Callable:
    """Written for one of the cores."""

    def local(params: dict, *batch: jax.Array) -> tuple:
        value, grads = lax.pmean(jax.value_and_grad(step.mapped or step.loss)(params, *batch), "data")
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(),
                                 check_vma=False), donate_argnums=0)


def collectives(graph: Path, tools: Path) -> Counter:
    """Of the graph of one core, with cores and type."""
    text = subprocess.run([tools / "tpuc", graph, "--dump-after=partition"], check=True, capture_output=True,
                          text=True).stdout
    return Counter(re.findall(r"= (\w+) %\d+ \{(groups=\S+), .*?\} : (\S+)", text))


def run(step: Step, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    mesh = models.mesh_of({"data": 8})
    inputs = (step.params, *step.batch)
    oracle = case_runner.export(models.sgd(step.loss), inputs)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), inputs)
    cycles, moves = {}, {}
    for way in (by_shard_map, by_sharding):
        name, here = way.__name__, folder / way.__name__
        exported = jax.export.export(way(step, mesh), platforms=["cpu"])(*shapes)
        problem = case_runner.against_jax(
            exported, inputs, tools, here, ("--json", str(here / "figures.json")), True,
            lambda _, ours, theirs: distances.difference(ours, theirs, 0, step.l2), oracle)
        if problem:
            return f"{name}: {problem}"
        cycles[name] = max(json.loads((here / "figures.json").read_text())["sim_cycles_per_core"])
        moves[name] = collectives(here / "p.mlirbc", tools)
    mapped, sharded = cycles.values()
    print(f"{step.name}: {mapped} cycles by shard_map, {sharded} by sharding ({sharded / mapped - 1:+.2%}), "
          f"{sum(moves['by_sharding'].values())} collectives", flush=True)
    first, second = moves.values()
    if first != second:
        return f"collectives of shard_map alone {dict(first - second)}, of sharding alone {dict(second - first)}"
    return "cycles differ" if abs(sharded / mapped - 1) > SLOWER else None


def scanned_loss(params: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    """A loop over layers whose weights lie in one array."""
    h, _ = lax.scan(lambda h, w: (h + jax.nn.gelu(h @ w["w"] + w["b"]), None), x, params["layers"])
    return models.cross_entropy(h @ params["out"], y)


SCANNED = {"layers": {"w": normal(6, 24, 24, scale=0.2), "b": normal(6, 24)}, "out": normal(24, 10)}

# Large enough that each core updates its part of the weights.
WIDE = {"w1": normal(128, 2048, scale=0.05), "b1": normal(2048), "w2": normal(2048, 10, scale=0.02), "b2": normal(10)}

STEPS = [
    Step("mlp", models.mlp_loss, models.MLP, (normal(32, 24), integers(10, 32))),
    Step("wide", models.mlp_loss, WIDE, (normal(32, 128), integers(10, 32))),
    Step("cnn", models.cnn_loss, models.CNN, (normal(16, 8, 8, 3), integers(10, 16)),
         partial(models.cnn_loss, over_cores=lambda x: lax.pmean(x, "data"))),
    Step("transformer", models.transformer_loss, models.TRANSFORMER, (integers(20, 16, 6), integers(10, 16))),
    Step("scanned", scanned_loss, SCANNED, (normal(32, 24), integers(10, 32))),
    Step("lstm", models.lstm_loss, models.LSTM, (normal(16, 5, 6), integers(5, 16))),
]

if __name__ == "__main__":
    reference.compile_fast(older_emitters=True)
    args = case_runner.parser(__doc__).parse_args()
    sys.exit(case_runner.run_all(STEPS, args, run))
