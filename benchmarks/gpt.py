"""Exports a training step of GPT-2 small (flax), or its greedy decoding, as a StableHLO portable artifact.

12 blocks of 768 features, 12 heads, 3,072 features inside; 50,257 tokens, tied to the output; sequences of 1,024 tokens
with causal attention; a layer norm before each part and before the output, GELU, dropout 0.1 in embedding, attention
and behind both parts; bf16 activations, f32 parameters; AdamW with warm-up, cosine decay and gradients clipped to a
global norm of 1. Data parallel over 8 cores with jax.shard_map, or the step of one core. 124 million parameters.

Training: leaves of (params, optimiser state), tokens i32[cores*batch,length], seed u32[2] -> the new leaves, loss
f32[], the mean over all tokens but the first of each sequence. State is donated.

With --generate PROMPT: leaves of params, prompts i32[cores*batch,PROMPT] -> tokens i32[cores*batch,length]. A loop
takes a token at a time through the blocks, whose keys and values stay in a cache, and appends the likeliest next one.
It ends when all sequences of a core have the end token (the last of the vocabulary), which fills the rest of them.

Needs tests/requirements.txt. Usage: gpt.py --out FILE.mlirbc [--generate PROMPT] [--cores N] [--batch N]
[--layers N] [--features N] [--heads N] [--inside N] [--vocabulary N] [--length N] [--dropout RATE]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from data_parallel import devices
from network import AXIS, Sizes, add_options, export_step, from_options, make_step  # sets up JAX

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True, kw_only=True)
class Config(Sizes):
    """Sizes of the network and of its input; those of GPT-2 small."""

    layers: int = 12
    features: int = 768
    heads: int = 12
    inside: int = 3072
    vocabulary: int = 50257
    length: int = 1024


class Block(nn.Module):
    """Causal self-attention and two dense layers; each is added to its input, which is normalised before. With `decode`
    it takes one token, and those before it from a cache."""

    config: Config
    decode: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, length, features] to the same."""
        c = self.config
        norm = partial(nn.LayerNorm, dtype=c.dtype)
        drop = nn.Dropout(c.dropout, deterministic=self.decode)
        mask = None if self.decode else nn.make_causal_mask(x[..., 0])
        attend = nn.MultiHeadDotProductAttention(c.heads, dtype=c.dtype, dropout_rate=c.dropout,
                                                 deterministic=self.decode, decode=self.decode)
        x = x + drop(attend(norm()(x), mask=mask))
        y = nn.gelu(nn.Dense(c.inside, dtype=c.dtype)(norm()(x)))
        return x + drop(nn.Dense(c.features, dtype=c.dtype)(y))


class Gpt(nn.Module):
    """Embedding of tokens and positions, blocks, and the head."""

    config: Config
    decode: bool = False

    @nn.compact
    def __call__(self, tokens: jax.Array, first: jax.Array | int = 0) -> jax.Array:
        """Logits in f32 of the tokens behind `tokens`, whose positions count from `first`: [batch, tokens,
        vocabulary]."""
        c = self.config
        words = nn.Embed(c.vocabulary, c.features, dtype=c.dtype)
        places = nn.Embed(c.length, c.features, dtype=c.dtype)
        x = words(tokens) + places(first + jnp.arange(tokens.shape[1]))
        x = nn.Dropout(c.dropout, deterministic=self.decode)(x)
        for _ in range(c.layers):
            x = Block(c, self.decode)(x)
        return words.attend(nn.LayerNorm(dtype=c.dtype)(x)).astype(jnp.float32)


def make_optimizer() -> optax.GradientTransformation:
    """AdamW with warm-up, cosine decay and clipped gradients."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 6e-4, 2_000, 600_000, 6e-5)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))


def shapes_of(config: Config, optimizer: optax.GradientTransformation, count: int) -> tuple[tuple, tuple]:
    """(params, optimiser state) and (tokens,) of `count` sequences."""
    tokens = jax.ShapeDtypeStruct((count, config.length), jnp.int32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    params = jax.eval_shape(Gpt(config).init, keys, tokens)["params"]
    return (params, jax.eval_shape(optimizer.init, params)), (tokens,)


def make_loss(config: Config) -> Callable:
    """(params, key, tokens) -> the mean loss over all tokens but the first of each sequence."""
    model = Gpt(config)

    def loss_of(params, key, tokens):
        logits = model.apply({"params": params}, tokens, rngs={"dropout": key})
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
        return jnp.mean(losses)

    return loss_of


def export(config: Config, batch: int, cores: int, platform: str = "tpu") -> jax.export.Exported:
    """The training step with `batch` sequences a core."""
    optimizer = make_optimizer()
    state, examples = shapes_of(config, optimizer, cores * batch)
    return export_step(make_step(make_loss(config), optimizer, cores), state, examples, cores, platform)


def make_generate(config: Config, end: int) -> Callable:
    """(params, prompts i32[batch, prompt]) -> tokens i32[batch, length], of one core; `end` ends a sequence."""
    model = Gpt(config, decode=True)

    def generate(params, prompts):
        batch, given = prompts.shape
        whole = jax.ShapeDtypeStruct((batch, config.length), jnp.int32)
        cache = jax.tree.map(lambda c: jnp.zeros(c.shape, c.dtype),
                             jax.eval_shape(model.init, jax.random.key(0), whole)["cache"])

        def go_on(state):
            at, _, ended, _ = state
            return (at + 1 < config.length) & ~jnp.all(ended)

        def append(state):
            at, tokens, ended, cache = state
            now = lax.dynamic_slice(tokens, (0, at), (batch, 1))
            logits, new = model.apply({"params": params, "cache": cache}, now, at, mutable=["cache"])
            likeliest = jnp.argmax(logits, axis=-1).astype(jnp.int32)
            known = lax.dynamic_slice(tokens, (0, at + 1), (batch, 1))
            token = jnp.where((at + 1 < given) | ended, known, likeliest)
            ended = (at + 1 >= given) & (token == end)
            return at + 1, lax.dynamic_update_slice(tokens, token, (0, at + 1)), ended, new["cache"]

        tokens = lax.dynamic_update_slice(jnp.full(whole.shape, end, jnp.int32), prompts, (0, 0))
        return lax.while_loop(go_on, append, (jnp.int32(0), tokens, jnp.zeros((batch, 1), bool), cache))[1]

    return generate


def export_generate(config: Config, prompt: int, batch: int, cores: int, end: int,
                    platform: str = "tpu") -> jax.export.Exported:
    """Greedy decoding behind prompts of `prompt` tokens, `batch` sequences a core."""
    (params, _), _ = shapes_of(config, make_optimizer(), 1)
    generate = make_generate(config, end)
    if cores > 1:
        mesh = jax.sharding.Mesh(devices(cores), (AXIS,))
        generate = jax.shard_map(generate, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(AXIS), check_vma=False)
    prompts = jax.ShapeDtypeStruct((cores * batch, prompt), jnp.int32)
    return jax.export.export(jax.jit(generate, keep_unused=True), platforms=[platform])(params, prompts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, Config, batch=4)
    parser.add_argument("--generate", type=int, metavar="PROMPT", help="greedy decoding behind so many tokens")
    args = parser.parse_args()
    config = from_options(parser, args, Config)
    if args.generate is None:
        exported = export(config, args.batch, args.cores)
    elif 1 <= args.generate < config.length:
        exported = export_generate(config, args.generate, args.batch, args.cores, config.vocabulary - 1)
    else:
        parser.error(f"generate is {args.generate}; expected a prompt of 1 to {config.length - 1} tokens, which leaves "
                     f"room for one in a length of {config.length}")
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
