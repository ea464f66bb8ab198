"""BERT-base and BERT-large: a training step of the masked language model with dropout, AdamW (benchmarks/bert.py)."""

from __future__ import annotations

import bert as benchmark

import jax
import jax.numpy as jnp

from .program import CORES, Input, Program, Size, training


def bert(size: Size, batch: int, **sizes: int) -> Program:
    """`batch` sequences a core."""
    small = {"layers": 2, "features": 64, "heads": 2, "inside": 128, "vocabulary": 100, "length": 16, "masked": 4}
    config = benchmark.Config(**size.pick(small, sizes), dtype=size.dtype)
    count = CORES * size.pick(1, batch)
    optimizer = benchmark.make_optimizer()
    _, (tokens, masked, _) = benchmark.shapes_of(config, optimizer, count)

    def init(key: jax.Array) -> dict:
        keys = {"params": key, "dropout": key}
        arrays = (jnp.zeros(each.shape, each.dtype) for each in (tokens, masked))
        return benchmark.Bert(config).init(keys, *arrays)["params"]

    limits = (config.vocabulary, config.length, config.vocabulary)
    examples = tuple(Input(each.shape, below=limit)
                     for each, limit in zip((tokens, masked, masked), limits, strict=True))
    return training(benchmark.make_loss(config), init, optimizer, examples)


LARGE = {"layers": 24, "features": 1024, "heads": 16, "inside": 4096, "length": 512, "masked": 76}

PROGRAMS = {"bert_base": lambda size: bert(size, 32, length=128), "bert_large": lambda size: bert(size, 14, **LARGE)}
