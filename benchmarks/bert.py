"""Exports a BERT-base training step (flax; masked language model) as a StableHLO portable artifact.

12 layers of 768 features, 12 heads, 3,072 features inside; 30,522 word pieces, tied to the output; post-norm, GELU,
dropout 0.1 in embedding, attention and both sub-layers; bf16 activations, f32 parameters; loss over 20 masked positions
of a sequence; AdamW with warm-up and gradients clipped to a global norm of 1. Data parallel over 8 cores with
jax.shard_map (lax.pmean of loss and gradients), or the step of one core. 110 million parameters.

Arguments: leaves of (params, optimiser state), tokens i32[cores*batch,length], positions and labels
i32[cores*batch,masked], seed u32[2]; results: the new leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: bert.py --out FILE.mlirbc [--cores N] [--batch N] [--layers N] [--features N]
[--heads N] [--inside N] [--vocabulary N] [--length N] [--dropout RATE]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from network import Sizes, add_options, export_step, from_options, make_step  # sets up JAX

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True, kw_only=True)
class Config(Sizes):
    """Sizes of the network and of its input; those of BERT-base."""

    layers: int = 12
    features: int = 768
    heads: int = 12
    inside: int = 3072
    vocabulary: int = 30522
    length: int = 128
    masked: int = 20  # predicted tokens of a sequence


class Layer(nn.Module):
    """Self-attention and two dense layers, each added to its input and normalised."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, length, features] to the same."""
        c = self.config
        y = nn.MultiHeadDotProductAttention(c.heads, dtype=c.dtype, dropout_rate=c.dropout, deterministic=False)(x)
        x = nn.LayerNorm(dtype=c.dtype)(x + nn.Dropout(c.dropout, deterministic=False)(y))
        y = nn.Dense(c.features, dtype=c.dtype)(nn.gelu(nn.Dense(c.inside, dtype=c.dtype)(x)))
        return nn.LayerNorm(dtype=c.dtype)(x + nn.Dropout(c.dropout, deterministic=False)(y))


class Bert(nn.Module):
    """Embedding of words and positions, layers, and the head of the masked language model."""

    config: Config

    @nn.compact
    def __call__(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        """Logits in f32 of the tokens at `positions`: [batch, masked, vocabulary]."""
        c = self.config
        words = nn.Embed(c.vocabulary, c.features, dtype=c.dtype)
        x = words(tokens) + nn.Embed(c.length, c.features, dtype=c.dtype)(jnp.arange(c.length))
        x = nn.Dropout(c.dropout, deterministic=False)(nn.LayerNorm(dtype=c.dtype)(x))
        for _ in range(c.layers):
            x = Layer(c)(x)
        x = jnp.take_along_axis(x, positions[:, :, None], axis=1)
        x = nn.LayerNorm(dtype=c.dtype)(nn.gelu(nn.Dense(c.features, dtype=c.dtype)(x)))
        bias = self.param("bias", nn.initializers.zeros, (c.vocabulary,))
        return words.attend(x).astype(jnp.float32) + bias


def make_optimizer() -> optax.GradientTransformation:
    """AdamW with warm-up and clipped gradients."""
    schedule = optax.linear_schedule(0.0, 1e-4, 10_000)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))


def shapes_of(config: Config, optimizer: optax.GradientTransformation, count: int) -> tuple[tuple, tuple]:
    """(params, optimiser state) and (tokens, positions, labels) of `count` sequences."""
    tokens = jax.ShapeDtypeStruct((count, config.length), jnp.int32)
    masked = jax.ShapeDtypeStruct((count, config.masked), jnp.int32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    params = jax.eval_shape(Bert(config).init, keys, tokens, masked)["params"]
    return (params, jax.eval_shape(optimizer.init, params)), (tokens, masked, masked)


def make_loss(config: Config) -> Callable:
    """(params, key, tokens, positions, labels) -> the mean loss over all masked tokens."""
    model = Bert(config)

    def loss_of(params, key, tokens, positions, labels):
        logits = model.apply({"params": params}, tokens, positions, rngs={"dropout": key})
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

    return loss_of


def export(config: Config, batch: int, cores: int, platform: str = "tpu") -> jax.export.Exported:
    """The training step with `batch` sequences a core."""
    optimizer = make_optimizer()
    state, examples = shapes_of(config, optimizer, cores * batch)
    return export_step(make_step(make_loss(config), optimizer, cores), state, examples, cores, platform)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, Config, batch=8)
    args = parser.parse_args()
    exported = export(from_options(parser, args, Config), args.batch, args.cores)
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
