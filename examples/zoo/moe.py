"""A mixture-of-experts block of the size of DeepSeek-V3's: 256 experts of which a token takes eight, and a shared one.

The router takes sigmoids, keeps the best groups of experts, and the best experts of these. Each core has its share of
the experts and of the tokens. Tokens go to the cores of their experts and back (all-to-all); an expert takes at most
`capacity` tokens of a core, the rest of its tokens lose this expert. Inference in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .program import AXIS, CORES, Input, Program, Size


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the block; `tokens` of a core."""

    tokens: int = 512
    features: int = 7168
    inside: int = 2048
    experts: int = 256
    groups: int = 8
    best_groups: int = 4
    chosen: int = 8
    room: float = 1.25  # of an expert, relative to an even load
    scale: float = 2.5
    dtype: Any = jnp.bfloat16

    @property
    def capacity(self) -> int:
        """Tokens of a core that an expert takes."""
        return -(-int(self.tokens * self.chosen * self.room) // self.experts)


SMALL = {"tokens": 16, "features": 64, "inside": 32, "experts": 16, "groups": 4, "best_groups": 2, "chosen": 4}


def route(c: Config, router: jax.Array, bias: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Experts of each token and their weights: [tokens, chosen] each. `bias` balances the load; it takes part in the
    choice alone."""
    scores = jax.nn.sigmoid(x.astype(jnp.float32) @ router)
    ranked = (scores + bias).reshape(-1, c.groups, c.experts // c.groups)
    strength = jnp.sum(lax.top_k(ranked, 2)[0], axis=-1)
    _, groups = lax.top_k(strength, c.best_groups)
    kept = jnp.any(jax.nn.one_hot(groups, c.groups, dtype=jnp.bool_), axis=1)
    ranked = jnp.where(kept[..., None], ranked, -jnp.inf).reshape(-1, c.experts)
    _, experts = lax.top_k(ranked, c.chosen)
    weights = jnp.take_along_axis(scores, experts, axis=1)
    return experts, c.scale * weights / jnp.sum(weights, axis=1, keepdims=True)


def gated(x: jax.Array, up: jax.Array, gate: jax.Array, down: jax.Array) -> jax.Array:
    """[experts, tokens, features] through the dense layers of each expert."""
    inside = jax.nn.silu(jnp.einsum("etf,efi->eti", x, gate)) * jnp.einsum("etf,efi->eti", x, up)
    return jnp.einsum("eti,eif->etf", inside, down)


def block(c: Config, params: dict, x: jax.Array) -> jax.Array:
    """[tokens, features] to the same, of one core."""
    experts, weights = route(c, params["router"], params["bias"], x)
    flat = experts.reshape(-1)
    ones = jax.nn.one_hot(flat, c.experts, dtype=jnp.int32)
    place = jnp.take_along_axis(jnp.cumsum(ones, axis=0) - 1, flat[:, None], axis=1)[:, 0]
    fits = place < c.capacity
    slot = jnp.where(fits, flat * c.capacity + place, c.experts * c.capacity)
    token = jnp.repeat(jnp.arange(c.tokens), c.chosen)
    sent = jnp.zeros((c.experts * c.capacity, c.features), x.dtype).at[slot].set(x[token], mode="drop")
    sent = sent.reshape(CORES, c.experts // CORES * c.capacity, c.features)
    got = lax.all_to_all(sent, AXIS, 0, 0).reshape(CORES, c.experts // CORES, c.capacity, c.features)
    mine = got.swapaxes(0, 1).reshape(c.experts // CORES, CORES * c.capacity, c.features)
    done = gated(mine, params["up"], params["gate"], params["down"])
    done = done.reshape(c.experts // CORES, CORES, c.capacity, c.features).swapaxes(0, 1)
    back = lax.all_to_all(done.reshape(sent.shape), AXIS, 0, 0).reshape(-1, c.features)
    each = back.at[slot].get(mode="fill", fill_value=0).reshape(c.tokens, c.chosen, c.features)
    mixed = jnp.einsum("tkf,tk->tf", each, weights.astype(x.dtype))
    return mixed + gated(x[None], *(params[f"shared_{name}"] for name in ("up", "gate", "down")))[0]


def moe(size: Size) -> Program:
    """(params, tokens [8 * tokens, features]) -> the same shape."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    wide, narrow = (config.features, config.inside), (config.inside, config.features)

    def state(key: jax.Array) -> tuple:
        shapes = {"router": (config.features, config.experts), "up": (config.experts, *wide),
                  "gate": (config.experts, *wide), "down": (config.experts, *narrow), "shared_up": (1, *wide),
                  "shared_gate": (1, *wide), "shared_down": (1, *narrow)}
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        params = {name: jax.random.normal(keys[name], shape, config.dtype) * shape[-2]**-0.5
                  for name, shape in shapes.items()}
        params["router"] = params["router"].astype(jnp.float32)
        return (params | {"bias": jnp.zeros((config.experts,), jnp.float32)},)

    def spec_of(path: str, shape: tuple[int, ...]) -> P:
        return P(AXIS) if path.split("/")[-1] in ("up", "gate", "down") else P()

    tokens = Input((CORES * config.tokens, config.features), config.dtype, spec=P(AXIS))
    return Program(lambda params, x: block(config, params, x), state, (tokens,), spec_of=spec_of,
                   results=lambda specs: P(AXIS))


PROGRAMS = {"deepseek_v3_moe": moe}
