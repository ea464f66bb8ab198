"""Exports a training step of the big Transformer for translation (flax) as a StableHLO portable artifact.

The network of MLPerf training v0.6's TPU submissions (Tensor2Tensor, transformer_mlperf_tpu): 6 layers of encoder and 6
of decoder, 1,024 features, 16 heads, 4,096 features inside, 33,708 word pieces tied to the output; layer norm before
each part, dropout 0.1 behind it, in the attention and after ReLU; sentences packed into rows of 256 tokens, label
smoothing 0.1, Adam. bf16 activations, f32 parameters; gradients are summed over all cores in bf16. 211 million
parameters.

Arguments: leaves of (params, Adam state), source, target and the sentence of each of their tokens (0: padding),
i32[cores*batch,256] each, seed u32[2]; results: the new leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: transformer.py --out FILE.mlirbc [--batch N] [--layers N] [--dropout RATE]
[--cores N]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from data_parallel import AXIS, CORES, devices, export_step  # sets up JAX

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

FEATURES, HEADS, INSIDE, VOCABULARY, LENGTH = 1024, 16, 4096, 33708, 256
SMOOTHING = 0.1


def positions() -> np.ndarray:
    """Sine and cosine of the position, geometric frequencies: [LENGTH, FEATURES]."""
    rates = np.exp(-np.log(1e4) * np.arange(FEATURES // 2) / (FEATURES // 2 - 1))
    angles = np.arange(LENGTH)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class Layer(nn.Module):
    """Self-attention, in a decoder attention to the encoder's result, and two dense layers; each is added to its input,
    which is normalised before."""

    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, encoded: jax.Array | None = None,
                 cross_mask: jax.Array | None = None) -> jax.Array:
        """[batch, LENGTH, FEATURES] to the same."""
        norm = partial(nn.LayerNorm, dtype=jnp.bfloat16)
        drop = nn.Dropout(self.dropout, deterministic=False)
        attend = partial(nn.MultiHeadDotProductAttention, HEADS, dtype=jnp.bfloat16, use_bias=False,
                         dropout_rate=self.dropout, deterministic=False)
        x = x + drop(attend()(norm()(x), mask=mask))
        if encoded is not None:
            x = x + drop(attend()(norm()(x), encoded, mask=cross_mask))
        y = drop(nn.relu(nn.Dense(INSIDE, dtype=jnp.bfloat16)(norm()(x))))
        return x + drop(nn.Dense(FEATURES, dtype=jnp.bfloat16)(y))


class Transformer(nn.Module):
    """Encoder and decoder."""

    layers: int
    dropout: float

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array, source_of: jax.Array, target_of: jax.Array) -> jax.Array:
        """Logits in f32: [batch, LENGTH, VOCABULARY]; `_of` is the sentence of a token."""
        words = nn.Embed(VOCABULARY, FEATURES, dtype=jnp.bfloat16)
        drop = nn.Dropout(self.dropout, deterministic=False)
        where = jnp.asarray(positions(), jnp.bfloat16)
        same = partial(nn.make_attention_mask, pairwise_fn=jnp.equal)
        x = drop(words(source) * FEATURES**0.5 + where)
        for _ in range(self.layers):
            x = Layer(self.dropout)(x, same(source_of, source_of))
        encoded = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        before = jnp.pad(target, ((0, 0), (1, 0)))[:, :-1]
        y = drop(words(before) * FEATURES**0.5 + where)
        mask = nn.combine_masks(same(target_of, target_of), nn.make_causal_mask(target))
        for _ in range(self.layers):
            y = Layer(self.dropout)(y, mask, encoded, same(target_of, source_of))
        return words.attend(nn.LayerNorm(dtype=jnp.bfloat16)(y)).astype(jnp.float32)


def make_step(model: Transformer, optimizer: optax.GradientTransformation, cores: int = CORES):
    """(params, state, source, target, source_of, target_of, seed) -> (params, state, loss), of one core."""

    def step(params, state, source, target, source_of, target_of, seed):
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), lax.axis_index(AXIS))

        def loss_of(p):
            logits = model.apply({"params": p}, source, target, source_of, target_of, rngs={"dropout": key})
            wanted = optax.smooth_labels(jax.nn.one_hot(target, VOCABULARY), SMOOTHING)
            weights = (target_of > 0).astype(jnp.float32)
            return jnp.sum(optax.softmax_cross_entropy(logits, wanted) * weights) / jnp.sum(weights)

        loss, grads = jax.value_and_grad(loss_of)(params)
        grads = lax.psum(jax.tree.map(lambda g: (g / cores).astype(jnp.bfloat16), grads), AXIS)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, lax.pmean(loss, AXIS)

    return step


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=16, help="rows of 256 tokens a core")
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--cores", type=int, default=CORES, help="on which the step runs")
    args = parser.parse_args()
    devices(args.cores)
    model, optimizer = Transformer(args.layers, args.dropout), optax.adam(1e-3, b1=0.9, b2=0.98, eps=1e-9)
    tokens = (jax.ShapeDtypeStruct((args.cores * args.batch, LENGTH), jnp.int32),) * 4
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    params = jax.eval_shape(model.init, keys, *tokens)["params"]
    state = (params, jax.eval_shape(optimizer.init, params))
    exported = export_step(make_step(model, optimizer, args.cores), state, tokens,
                           (jax.ShapeDtypeStruct((2,), jnp.uint32),), cores=args.cores)
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
