"""GPT-2 small, medium, large and XL: a training step with dropout and AdamW (benchmarks/gpt.py).

Small to large keep a copy of the parameters and moments on each core. Those of XL have 18 GiB; they are split over the
cores (FSDP), and the compiler partitions the step.
"""

from __future__ import annotations

import gpt as benchmark

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from .program import AXIS, CORES, Input, Program, Size, training


def config_of(size: Size, layers: int, features: int, heads: int) -> benchmark.Config:
    """Sizes of the network."""
    full = {"layers": layers, "features": features, "heads": heads, "inside": 4 * features}
    small = {"layers": 2, "features": 64, "heads": 2, "inside": 128, "vocabulary": 96, "length": 16}
    return benchmark.Config(**size.pick(small, full), dtype=size.dtype)


def make_init(config: benchmark.Config):
    """Parameters from a key."""

    def init(key: jax.Array) -> dict:
        tokens = jnp.zeros((1, config.length), jnp.int32)
        return benchmark.Gpt(config).init({"params": key, "dropout": key}, tokens)["params"]

    return init


def replicated(size: Size, batch: int, layers: int, features: int, heads: int) -> Program:
    """`batch` sequences a core."""
    config = config_of(size, layers, features, heads)
    tokens = Input((CORES * size.pick(1, batch), config.length), below=config.vocabulary)
    return training(benchmark.make_loss(config), make_init(config), benchmark.make_optimizer(), (tokens,))


def widest(path: str, shape: tuple[int, ...]) -> P:
    """Splits the largest dimension that the cores divide."""
    sizes = [size if size % CORES == 0 else 0 for size in shape]
    if not sizes or max(sizes) == 0:
        return P()
    return P(*[None] * sizes.index(max(sizes)), AXIS)


def fully_sharded(size: Size, batch: int, layers: int, features: int, heads: int) -> Program:
    """(params, moments, tokens, seed) -> (params, moments, loss), `batch` sequences a core."""
    config = config_of(size, layers, features, heads)
    loss_of, optimizer, init = benchmark.make_loss(config), benchmark.make_optimizer(), make_init(config)

    def step(params, moments, tokens, seed):
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        loss, grads = jax.value_and_grad(loss_of)(params, key, tokens)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    def state(key: jax.Array) -> tuple:
        params = init(key)
        return params, optimizer.init(params)

    tokens = Input((CORES * size.pick(1, batch), config.length), below=config.vocabulary, spec=P(AXIS))
    return Program(step, state, (tokens, Input((2,), jnp.uint32, 1 << 16)), manual=False, donated=(0, 1),
                   spec_of=widest, results=lambda specs: (*specs[:2], P()), moments=1)


PROGRAMS = {"gpt2_small": lambda size: replicated(size, 4, 12, 768, 12),
            "gpt2_medium": lambda size: replicated(size, 2, 24, 1024, 16),
            "gpt2_large": lambda size: replicated(size, 1, 36, 1280, 20),
            "gpt2_xl": lambda size: fully_sharded(size, 1, 48, 1600, 25)}
