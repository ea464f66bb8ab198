"""Exports the programs that a framework compiles beside its training step, for compile-bench: random numbers, indices
and sorts as eager JAX sends them, and training steps of small networks. One core each.

Needs tests/requirements.txt. Usage: small_programs.py --out FOLDER; writes NAME.mlirbc of each
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from bert import Config, Layer

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


def array(*dims: int, dtype: jnp.dtype = jnp.float32) -> jax.ShapeDtypeStruct:
    """An argument."""
    return jax.ShapeDtypeStruct(dims, dtype)


class Cnn(nn.Module):
    """Two convolutions with batch norm, two dense layers with dropout."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Images to logits."""
        for features in (32, 64):
            x = nn.BatchNorm(use_running_average=False)(nn.Conv(features, (3, 3))(x))
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(nn.Dropout(0.5, deterministic=False)(x))


class Lstm(nn.Module):
    """A scan over time and a dense layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Sequences to logits."""
        return nn.Dense(10)(nn.RNN(nn.OptimizedLSTMCell(64))(x)[:, -1])


class Transformer(nn.Module):
    """Two blocks."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Sequences to logits."""
        config = Config(features=64, heads=4, inside=256, dropout=0.1, dtype=jnp.float32)
        for _ in range(2):
            x = Layer(config)(x)
        return nn.Dense(10)(x[:, -1])


def train(model: nn.Module, x: jax.ShapeDtypeStruct) -> tuple[Callable, list]:
    """A step with Adam: (params, statistics, state, images, labels, key) -> (params, statistics, state, loss)."""
    optimizer = optax.adam(1e-3)

    def step(params, statistics, state, images, labels, seed):
        def loss_of(p):
            logits, updated = model.apply({"params": p, "batch_stats": statistics}, images, mutable=["batch_stats"],
                                          rngs={"dropout": jax.random.wrap_key_data(seed)})
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, updated.get("batch_stats", {})

        (loss, new_statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), new_statistics, state, loss

    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    variables = jax.eval_shape(model.init, keys, x)
    params, statistics = variables["params"], variables.get("batch_stats", {})
    state = jax.eval_shape(optimizer.init, params)
    return step, [params, statistics, state, x, array(x.shape[0], dtype=jnp.int32), KEY]


def random(draw: Callable) -> tuple[Callable, list]:
    """A function of a key."""
    return lambda seed: draw(jax.random.wrap_key_data(seed)), [KEY]


def programs() -> dict[str, tuple[Callable, list]]:
    """Function and arguments of each."""
    return {
        "fold_in": random(lambda key: jax.random.key_data(jax.random.fold_in(key, 7))),
        "split": random(lambda key: jax.random.key_data(jax.random.split(key, 4))),
        "scalar_uniform": random(lambda key: jax.random.uniform(key)),
        "uniform": random(lambda key: jax.random.uniform(key, (128, 128))),
        "normal": random(lambda key: jax.random.normal(key, (128, 128))),
        "bernoulli": random(lambda key: jax.random.bernoulli(key, 0.3, (128, 128))),
        "randint": random(lambda key: jax.random.randint(key, (128,), 0, 10)),
        "permutation": random(lambda key: jax.random.permutation(key, 60_000)),
        "categorical": random(lambda key: jax.random.categorical(key, jnp.zeros((8, 100)))),
        "argmax": (lambda x: jnp.argmax(x, axis=1), [array(128, 10)]),
        "sort": (jnp.sort, [array(1000)]),
        "argsort": (jnp.argsort, [array(1000)]),
        "top_k": (lambda x: jax.lax.top_k(x, 5), [array(32, 1000)]),
        "cumsum": (jnp.cumsum, [array(1000)]),
        "take": (lambda x, i: x[i], [array(1000, 64), array(32, dtype=jnp.int32)]),
        "cnn_step": train(Cnn(), array(32, 28, 28, 1)),
        "lstm_step": train(Lstm(), array(16, 20, 32)),
        "transformer_step": train(Transformer(), array(8, 32, 64)),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, (function, arguments) in programs().items():
        exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*arguments)
        (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    main()
