#!/usr/bin/env python3
"""Exports programs of no mesh, which see the whole batch: whole_mlp_16, whole_mlp_128, whole_mlp_eval, whole_cnn.

Usage: export_whole_batch.py [--out-dir DIR]. Needs what export_graphs.py needs. (A script of its own:
the artifacts of export_graphs.py hold the line numbers of that file.)"""

from __future__ import annotations

import argparse
from pathlib import Path

import export_graphs as graphs  # sets what JAX reads from the environment

import jax
import jax.numpy as jnp
import optax
from jax import lax

SIZES = (12, 10, 6, 4)


def mlp_logits(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def cnn_logits(params, x):
    x = lax.conv_general_dilated(x, params["window"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = lax.reduce_window(jax.nn.relu(x + params["b"]), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(x.shape[0], -1) @ params["w"]


def losses_of(logits, labels):
    chosen = labels[:, None] == lax.broadcasted_iota(graphs.I32, logits.shape, 1)
    return -jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0.0), axis=-1)


def train_step(logits_of, params, batch: int, image: tuple[int, ...]):
    optimizer = optax.sgd(0.1, momentum=0.9)

    def step(params, state, images, labels):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(losses_of(logits_of(p, images), labels)))(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return jax.jit(step, donate_argnums=(0, 1)), (
        params, jax.eval_shape(optimizer.init, params), graphs.arg((batch, *image)), graphs.arg((batch,), graphs.I32))


def evaluation(params, batch: int):
    def evaluate(params, images, labels, mask):
        logits = mlp_logits(params, images)
        losses = losses_of(logits, labels)
        best = jnp.max(logits, axis=-1, keepdims=True)
        right = jnp.sum(jnp.where(logits == best, lax.broadcasted_iota(graphs.I32, logits.shape, 1), 0), -1) == labels
        return jnp.sum(jnp.where(right, mask, 0.0)), jnp.sum(losses * mask)

    return jax.jit(evaluate), (params, graphs.arg((batch, SIZES[0])), graphs.arg((batch,), graphs.I32),
                               graphs.arg((batch,)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    mlp = graphs.init_mlp(SIZES)
    cnn = {"b": graphs.arg((8,)), "w": graphs.arg((128, 4)), "window": graphs.arg((3, 3, 1, 8))}
    programs = {"whole_mlp_16": train_step(mlp_logits, mlp, 16, (SIZES[0],)),
                "whole_mlp_128": train_step(mlp_logits, mlp, 128, (SIZES[0],)),
                "whole_mlp_eval": evaluation(mlp, 24),
                "whole_cnn": train_step(cnn_logits, cnn, 16, (8, 8, 1))}
    for name, (function, arguments) in programs.items():
        artifact = jax.export.export(function, platforms=["tpu"])(*arguments).mlir_module_serialized
        (args.out_dir / f"{name}.mlirbc").write_bytes(artifact)


if __name__ == "__main__":
    main()
