"""Llama-2-7B, Llama-3-8B and Mistral-7B: inference in bf16, tensor parallel on eight cores by shardings.

`prefill` takes prompts and fills the cache of keys and values; `decode` takes one token of each sequence behind them.
Heads, cache, what is inside of the dense parts and the vocabulary are split; the compiler adds the collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .layers import Attention, Cache, Mlp, causal, spec_of_layers
from .program import AXIS, Input, Program, Size


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network; `length` is that of the cache."""

    layers: int = 32
    features: int = 4096
    heads: int = 32
    key_heads: int = 32
    inside: int = 11008
    vocabulary: int = 32000
    rotary: float = 1e4
    window: int | None = None  # tokens that a token sees
    length: int = 2048
    dtype: Any = jnp.bfloat16

    def cache_shape(self, batch: int) -> tuple[int, ...]:
        """Of the keys of a layer."""
        return batch, self.length, self.key_heads, self.features // self.heads


SMALL = {"layers": 2, "features": 128, "heads": 16, "key_heads": 8, "inside": 192, "vocabulary": 128, "length": 24}
LLAMA2_7B = Config()
LLAMA3_8B = Config(key_heads=8, inside=14336, vocabulary=128256, rotary=5e5)
MISTRAL_7B = Config(key_heads=8, inside=14336, window=4096, length=8192)


class Llama(nn.Module):
    """Blocks of attention and gated dense layers behind RMS norms."""

    config: Config

    @nn.compact
    def __call__(self, tokens: jax.Array, caches: tuple[Cache, ...], first: jax.Array | int) -> tuple[jax.Array, tuple]:
        """Logits in f32 behind the last token, and the caches with these tokens at `first`, first + 1, ..."""
        c = self.config
        norm = partial(nn.RMSNorm, epsilon=1e-5, dtype=c.dtype, param_dtype=c.dtype)
        count = tokens.shape[1]
        bias = causal(count, first + count if isinstance(first, int) else c.length, first, c.window)
        x = nn.Embed(c.vocabulary, c.features, dtype=c.dtype, param_dtype=c.dtype)(tokens)
        kept = []
        for cache in caches:
            attention = Attention(c.heads, c.features // c.heads, c.key_heads, c.dtype, c.dtype, rotary=c.rotary)
            y, cache = attention(norm()(x), bias=bias, cache=cache, first=first)
            x = x + y
            x = x + Mlp(c.inside, nn.silu, True, c.dtype, c.dtype, use_bias=False)(norm()(x))
            kept.append(cache)
        head = nn.Dense(c.vocabulary, dtype=c.dtype, param_dtype=c.dtype, use_bias=False, name="head")
        return head(norm()(x[:, -1])).astype(jnp.float32), tuple(kept)


def spec_of(path: str, shape: tuple[int, ...]) -> P:
    """Parameters (0/...) as layers.py says, caches (1/...) by heads."""
    return P(None, None, AXIS) if path.startswith("1/") else spec_of_layers(path, shape)


def llama(size: Size, full: Config, batch: int, tokens: int, behind: bool) -> Program:
    """(params, caches, tokens i32[batch, tokens], first i32[]) -> (caches, logits). `first` is where the tokens are,
    `behind` others; else they are the start, and there is no such argument."""
    config = Config(**SMALL, window=full.window and 8, dtype=size.dtype) if size.small else full
    model, batch = Llama(config), size.pick(2, batch)

    def state(key: jax.Array) -> tuple:
        caches = tuple((jnp.zeros(config.cache_shape(batch), config.dtype),) * 2 for _ in range(config.layers))
        return model.init(key, jnp.zeros((batch, 1), jnp.int32), caches, 0)["params"], caches

    def step(params, caches, tokens, first=0):
        logits, caches = model.apply({"params": params}, tokens, caches, first)
        return caches, logits

    inputs = [Input((batch, size.pick(min(tokens, 16), tokens)), below=config.vocabulary)]
    if behind:
        inputs.append(Input((), below=config.length))
    return Program(step, state, tuple(inputs), manual=False, donated=(1,), spec_of=spec_of,
                   results=lambda specs: (specs[1], P(None, AXIS)))


def both(name: str, config: Config) -> dict:
    """Prefill of a prompt that fills half of the cache, decoding of one sequence and of eight."""
    return {f"{name}_prefill": lambda size: llama(size, config, 1, 1024, False),
            f"{name}_decode": lambda size: llama(size, config, 1, 1, True),
            f"{name}_decode_8": lambda size: llama(size, config, 8, 1, True)}


PROGRAMS = both("llama2_7b", LLAMA2_7B) | both("llama3_8b", LLAMA3_8B) | both("mistral_7b", MISTRAL_7B)
