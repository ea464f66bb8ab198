"""Attention over a context that is cut over all cores: blocks of keys and values go around a ring (ring attention).

Each core keeps its queries. While it works on one block, jax.lax.ppermute sends that block on. The result is compared
with attention on one core. TPUBOARD_RECORD=step.tpurec records a step, and `tpuboard report` says what is hidden.

Usage: ring_attention.py [--tokens N] [--heads N] [--width N]
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, state: tuple) -> tuple:
    """One block of keys. `state`: sums of the weighted values and of the weights relative to the largest score, and
    that score."""
    out, total, most = state
    scores = jnp.where(mask, jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5, -1e9)
    new = jnp.maximum(most, scores.max(-1))
    weights, shrink = jnp.exp(scores - new[..., None]), jnp.exp(most - new)
    out = out * shrink.T[..., None] + jnp.einsum("hqk,khd->qhd", weights, v)
    return out, total * shrink + weights.sum(-1), new


def ring_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention of the tokens of one core to all tokens up to them."""
    tokens, heads, _ = q.shape
    cores, mine = lax.axis_size("ring"), lax.axis_index("ring")
    rows = mine * tokens + jnp.arange(tokens)
    state = jnp.zeros_like(q), jnp.zeros((heads, tokens)), jnp.full((heads, tokens), -1e9)
    for step in range(cores):
        columns = (mine - step) % cores * tokens + jnp.arange(tokens)
        state = attend(q, k, v, rows[:, None] >= columns[None, :], state)
        if step + 1 < cores:
            k, v = (lax.ppermute(x, "ring", [(i, (i + 1) % cores) for i in range(cores)]) for x in (k, v))
    return state[0] / state[1].T[..., None]


def whole_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The same on one core."""
    tokens, heads, _ = q.shape
    state = jnp.zeros_like(q), jnp.zeros((heads, tokens)), jnp.full((heads, tokens), -1e9)
    out, total, _ = attend(q, k, v, jnp.tri(tokens, dtype=bool), state)
    return out / total.T[..., None]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024, help="of the whole context")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    args = parser.parse_args()
    mesh = Mesh(np.array(jax.devices()), ("ring",))
    shape = args.tokens, args.heads, args.width
    q, k, v = (jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 3))
    ring = jax.jit(jax.shard_map(ring_attention, mesh=mesh, in_specs=P("ring"), out_specs=P("ring"), check_vma=False))
    ours, whole = np.asarray(ring(q, k, v)), np.asarray(jax.jit(whole_attention)(q, k, v))
    distance = np.linalg.norm(ours - whole) / np.linalg.norm(whole)
    print(f"{args.tokens} tokens over {mesh.size} cores; relative distance to attention on one core: {distance:.1e}")


if __name__ == "__main__":
    main()
