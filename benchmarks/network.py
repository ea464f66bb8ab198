"""What the programs of attention networks (bert.py, gpt.py) share: sizes with their options and checks, and the export
of a training step of one core or of many."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from data_parallel import AXIS, devices  # sets up JAX

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

HELP = {"layers": "attention and feed-forward, each", "features": "hidden size",
        "heads": "of the attention; they divide the features", "inside": "features inside of a feed-forward part",
        "vocabulary": "different tokens", "length": "tokens of a sequence", "dropout": "rate, 0 for none"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a network and of its input."""

    layers: int
    features: int
    heads: int
    inside: int
    vocabulary: int
    length: int
    dropout: float = 0.1
    dtype: jnp.dtype = jnp.bfloat16  # of activations

    def __post_init__(self) -> None:
        """ValueError for sizes that make no network."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{each.name} is {value}; expected at least 1")
        if self.features % self.heads != 0:
            near = -(-self.features // self.heads) * self.heads
            raise ValueError(f"features is {self.features}, which {self.heads} heads do not divide; expected a "
                             f"multiple of heads, such as {near}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; expected a rate from 0 to below 1")


Network = TypeVar("Network", bound=Sizes)


def add_options(parser: argparse.ArgumentParser, sizes: type[Network], batch: int) -> None:
    """Where the program goes, how many cores and sequences (`batch` by default), and an option for each size."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=8, help="on which the step runs (default 8)")
    parser.add_argument("--batch", type=int, default=batch, help=f"sequences a core (default {batch})")
    for name, text in HELP.items():
        default = getattr(sizes, name)
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default})")


def from_options(parser: argparse.ArgumentParser, args: argparse.Namespace, sizes: type[Network]) -> Network:
    """The sizes that the options say. Those that make no network end the program with a usage error."""
    if args.cores < 1:
        parser.error(f"cores is {args.cores}; expected at least 1")
    if args.batch < 1:
        parser.error(f"batch is {args.batch}; expected at least 1")
    devices(args.cores)  # in front of everything that asks JAX for one
    try:
        return sizes(**{name: getattr(args, name) for name in HELP})
    except ValueError as error:
        parser.error(str(error))


def make_step(loss_of: Callable, optimizer: optax.GradientTransformation, cores: int) -> Callable:
    """(params, state, *batch, seed) -> (params, state, loss), of one core. `loss_of(params, key, *batch)` is the mean
    over the core's share of the batch; `key` differs by core."""

    def step(params, state, *batch_and_seed):
        *batch, seed = batch_and_seed
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        key = jax.random.fold_in(key, lax.axis_index(AXIS)) if cores > 1 else key
        loss, grads = jax.value_and_grad(loss_of)(params, key, *batch)
        if cores > 1:
            loss, grads = lax.pmean((loss, grads), AXIS)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def export_step(step: Callable, state: tuple, batch: tuple, cores: int, platform: str) -> jax.export.Exported:
    """`step(*state, *batch, seed)`; state is donated. Arguments are shapes; those of `batch` hold the examples of all
    cores."""
    if cores > 1:
        mesh = jax.sharding.Mesh(devices(cores), (AXIS,))
        specs = (*[P()] * len(state), *[P(AXIS)] * len(batch), P())
        step = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    donated = tuple(range(len(state)))
    return jax.export.export(jax.jit(step, donate_argnums=donated, keep_unused=True), platforms=[platform])(
        *state, *batch, jax.ShapeDtypeStruct((2,), jnp.uint32))
