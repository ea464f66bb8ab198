"""Models that tests train: what users of flax and Keras write, in small.

Imported before JAX: says which backend Keras has, and that XLA compiles quickly for the CPU.
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"

import flax.linen as nn
import jax
import keras
from flax import nnx


class LinenNet(nn.Module):
    """Convolution, batch norm, pooling, dropout."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        x = nn.Conv(8, (3, 3))(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return nn.Dense(10)(nn.Dropout(0.25, deterministic=not train)(nn.relu(nn.Dense(32)(x))))


class NnxNet(nnx.Module):
    """The same in flax nnx: modules with state."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.dense = nnx.Linear(288, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.dense(self.dropout(x.reshape(x.shape[0], -1)))


class Recurrent(nn.Module):
    """LSTM over letters."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(32)(nn.RNN(nn.OptimizedLSTMCell(24))(nn.Embed(32, 16)(x)))


class Block(nn.Module):
    """Attention and feed-forward."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, mask=nn.make_causal_mask(x[..., 0]))
        return x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    """Two blocks, recomputed in the backward pass."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = nn.Embed(32, 32)(x) + self.param("positions", nn.initializers.normal(0.02), (16, 32))[: x.shape[1]]
        for _ in range(2):
            h = nn.remat(Block)()(h)
        return nn.Dense(32)(nn.LayerNorm()(h))


class Layer(nn.Module):
    """A block as nn.scan takes it."""

    @nn.compact
    def __call__(self, h: jax.Array, _: None) -> tuple:
        return Block()(h), None


class Scanned(nn.Module):
    """Three blocks in one loop, their weights in one array."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        loop = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return nn.Dense(32)(loop()(nn.Embed(32, 32)(x), None)[0])


def keras_convnet() -> keras.Model:
    """Two convolutions, three dense layers."""
    return keras.Sequential([
        keras.layers.Input((12, 12, 1)), keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)])


def keras_lstm() -> keras.Model:
    """LSTM over rows, dropout, batch norm."""
    return keras.Sequential([keras.layers.Input((12, 12, 1)), keras.layers.Reshape((12, 12)), keras.layers.LSTM(24),
                             keras.layers.Dropout(0.2), keras.layers.BatchNormalization(), keras.layers.Dense(10)])


def keras_attention() -> keras.Model:
    """A functional model: attention, feed-forward, GRU."""
    first = keras.layers.Input((12, 12, 1))
    x = keras.layers.Dense(16)(keras.layers.Reshape((12, 12))(first))
    x += keras.layers.MultiHeadAttention(4, 4, dropout=0.1)(x, x, use_causal_mask=True)
    x += keras.layers.Dense(16)(keras.layers.Dense(32, activation="gelu")(keras.layers.LayerNormalization()(x)))
    return keras.Model(first, keras.layers.Dense(10)(keras.layers.GRU(16)(x)))
