#!/usr/bin/env python3
"""Exports not_finite.mlirbc: a step of training whose examples choose what is not finite.

Usage: export_not_finite.py [--out-dir DIR]. Needs what export_graphs.py needs. (A script of its own:
the artifacts of export_graphs.py hold the line numbers of that file.)"""

from __future__ import annotations

import argparse
from pathlib import Path

import export_graphs as graphs  # sets what JAX reads from the environment

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def loss_of(w, x):
    scores = jnp.where(x[:, 4:] > 0, x[:, 4:], -jnp.inf)  # -inf on purpose
    shares = jax.nn.softmax(scores) @ w["shares"]
    logs = w["log"] * jnp.log(x[:, 0])
    quotients = w["quotient"] * (x[:, 1] / x[:, 1])
    powers = w["power"] * jnp.exp(x[:, 2])
    roots = jnp.sqrt(w["root"] * x[:, 3])  # at 0 the gradient alone is not finite
    return jnp.mean(shares + logs + quotients + powers + roots)


def step(w, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(w, images)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, w, gradient), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    mesh = graphs.mesh8()
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    w = {name: graphs.arg(()) for name in ("log", "power", "quotient", "root")}
    w["shares"] = graphs.arg((2,))
    jitted = jax.jit(step, donate_argnums=0, keep_unused=True,
                     in_shardings=(jax.tree.map(lambda _: whole, w), cut, cut),
                     out_shardings=(jax.tree.map(lambda _: whole, w), whole))
    exported = jax.export.export(jitted)(w, graphs.arg((16, 6)), graphs.arg((16,), graphs.I32))
    (args.out_dir / "not_finite.mlirbc").write_bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    main()
