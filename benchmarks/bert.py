"""Exports a BERT-base training step (flax; masked language model) as a StableHLO portable artifact.

12 layers of 768 features, 12 heads, 3,072 features inside; 30,522 word pieces, tied to the output; post-norm, GELU,
dropout 0.1 in embedding, attention and both sub-layers; bf16 activations, f32 parameters; loss over 20 masked positions
of a sequence; AdamW with warm-up and gradients clipped to a global norm of 1. Data parallel over 8 cores with
jax.shard_map (lax.pmean of loss and gradients), or the step of one core. 110 million parameters.

Arguments: leaves of (params, optimiser state), tokens i32[cores*batch,length], positions and labels
i32[cores*batch,masked], seed u32[2]; results: the new leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: bert.py --out FILE.mlirbc [--cores 1|8] [--batch N] [--length N] [--layers N]
[--dropout RATE]
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_PLATFORMS"] = "cpu"

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|benchmarks)/")


@dataclass(frozen=True)
class Config:
    """Sizes of the network and of its input; those of BERT-base."""

    layers: int = 12
    features: int = 768
    heads: int = 12
    inside: int = 3072
    vocabulary: int = 30522
    length: int = 128  # tokens of a sequence
    masked: int = 20  # predicted tokens of a sequence
    dropout: float = 0.1
    dtype: jnp.dtype = jnp.bfloat16  # of activations


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


def make_step(model: Bert, optimizer: optax.GradientTransformation, cores: int):
    """(params, state, tokens, positions, labels, seed) -> (params, state, loss), of one core."""

    def step(params, state, tokens, positions, labels, seed):
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        key = jax.random.fold_in(key, lax.axis_index("data")) if cores > 1 else key

        def loss_of(p):
            logits = model.apply({"params": p}, tokens, positions, rngs={"dropout": key})
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

        loss, grads = jax.value_and_grad(loss_of)(params)
        if cores > 1:
            loss, grads = lax.pmean((loss, grads), "data")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def export_step(config: Config, batch: int, cores: int, platform: str = "tpu") -> jax.export.Exported:
    """The training step with `batch` sequences a core."""
    model = Bert(config)
    schedule = optax.linear_schedule(0.0, 1e-4, 10_000)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))
    tokens = jax.ShapeDtypeStruct((cores * batch, config.length), jnp.int32)
    masked = jax.ShapeDtypeStruct((cores * batch, config.masked), jnp.int32)
    seed = jax.ShapeDtypeStruct((2,), jnp.uint32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    params = jax.eval_shape(model.init, keys, tokens, masked)["params"]
    state = jax.eval_shape(optimizer.init, params)
    step = make_step(model, optimizer, cores)
    if cores > 1:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:cores]), ("data",))
        step = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data"), P("data"), P()),
                             out_specs=P(), check_vma=False)
    return jax.export.export(jax.jit(step, donate_argnums=(0, 1), keep_unused=True), platforms=[platform])(
        params, state, tokens, masked, masked, seed)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=8, choices=(1, 8))
    parser.add_argument("--batch", type=int, default=8, help="sequences a core")
    parser.add_argument("--length", type=int, default=Config.length, help="tokens of a sequence")
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--dropout", type=float, default=Config.dropout)
    args = parser.parse_args()
    config = Config(layers=args.layers, length=args.length, dropout=args.dropout)
    exported = export_step(config, args.batch, args.cores)
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
