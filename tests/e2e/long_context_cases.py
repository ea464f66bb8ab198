"""Cases of op_matrix_test.py: long contexts and sharding as users write them with jax.shard_map. Attention over a ring
of cores, blocks whose tokens are cut between the matmuls (sequence parallel), layers whose weights are cut between
uses (FSDP), experts on cores of their own. Values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from case_runner import Case

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CORES = 8
RING = [(i, (i + 1) % CORES) for i in range(CORES)]
L2 = 4e-3


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None, state: tuple) -> tuple:
    """One block of keys: sums so far of the weighted values and of the weights, relative to the largest score."""
    out, total, most = state
    scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    new = jnp.maximum(most, scores.max(-1))
    weights = jnp.exp(scores - new[..., None])
    shrink = jnp.exp(most - new)
    out = out * shrink.T[..., None] + jnp.einsum("hqk,khd->qhd", weights, v)
    return out, total * shrink + weights.sum(-1), new


def ring_attention(style: str, causal: bool) -> Callable:
    """Blocks of keys and values go around; `style`: unrolled, fori or scan."""

    def body(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        tokens, heads, _ = q.shape
        mine = lax.axis_index("d")

        def mask(step: jax.Array | int) -> jax.Array | None:
            if not causal:
                return None
            rows = mine * tokens + jnp.arange(tokens)
            columns = (mine - step) % CORES * tokens + jnp.arange(tokens)
            return rows[:, None] >= columns[None, :]

        def step(i: jax.Array | int, carry: tuple) -> tuple:
            k, v, state = carry
            state = attend(q, k, v, mask(i), state)
            k, v = (lax.ppermute(x, "d", RING) for x in (k, v))
            return k, v, state

        carry = (k, v, (jnp.zeros_like(q), jnp.zeros((heads, tokens)), jnp.full((heads, tokens), -1e9)))
        if style == "fori":
            carry = lax.fori_loop(0, CORES, step, carry)
        elif style == "scan":
            carry, _ = lax.scan(lambda c, i: (step(i, c), None), carry, jnp.arange(CORES))
        else:
            for i in range(CORES):
                carry = step(i, carry)
        out, total, _ = carry[2]
        return out / total.T[..., None]

    return body


def gradient(function: Callable, count: int) -> Callable:
    """Of a sum over the results of all cores: each core asks for its own, exchanges carry them on."""

    def body(*args: jax.Array) -> tuple:
        def loss(*of: jax.Array) -> jax.Array:
            out = function(*of)
            return (out * jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)).sum()

        return jax.grad(loss, argnums=tuple(range(count)))(*args)

    return body


def ring() -> list[Case]:
    q, k, v = (normal(CORES * 16, 2, 32, seed=i) for i in range(3))
    return cases("ring", [
        Case("unrolled", ring_attention("unrolled", False), (q, k, v)),
        Case("fori", ring_attention("fori", False), (q, k, v)),
        Case("scan", ring_attention("scan", False), (q, k, v)),
        Case("causal_unrolled", ring_attention("unrolled", True), (q, k, v)),
        Case("causal_scan", ring_attention("scan", True), (q, k, v)),
        Case("unrolled_gradient", gradient(ring_attention("unrolled", True), 3), (q, k, v)),
        Case("fori_gradient", gradient(ring_attention("fori", False), 3), (q, k, v)),
        Case("scan_gradient", gradient(ring_attention("scan", True), 3), (q, k, v)),
    ])


def norm(x: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def sequence_block(x: jax.Array, wq: jax.Array, wk: jax.Array, wv: jax.Array, wo: jax.Array, up: jax.Array,
                   down: jax.Array) -> jax.Array:
    """Tokens are cut outside of the matmuls, heads and hidden units inside: weights come with the cut dimension
    first."""
    y = lax.all_gather(norm(x), "d", tiled=True)
    q, k, v = (jnp.einsum("tm,dm->td", y, w) for w in (wq, wk, wv))
    scores = jnp.where(jnp.tri(y.shape[0], dtype=bool), q @ k.T * q.shape[-1] ** -0.5, -1e9)
    x = x + lax.psum_scatter(jax.nn.softmax(scores, -1) @ v @ wo, "d", tiled=True)
    y = lax.all_gather(norm(x), "d", tiled=True)
    return x + lax.psum_scatter(jax.nn.gelu(jnp.einsum("tm,fm->tf", y, up)) @ down, "d", tiled=True)


def sequence() -> list[Case]:
    width, head, hidden = 48, 16, 192
    args = (normal(CORES * 8, width), *(normal(CORES * head, width, seed=i, scale=0.2) for i in range(1, 5)),
            *(normal(hidden, width, seed=i, scale=0.2) for i in range(5, 7)))
    return cases("sequence", [
        Case("block", sequence_block, args),
        Case("block_gradient", gradient(sequence_block, len(args)), args),
    ])


def wide_block(axis: str, elem: jnp.dtype) -> Callable:
    """A feed-forward block whose rows are cut outside of its products along `axis`: large enough that the exchanges go
    in pieces beside the products."""

    def block(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        x, up, down = (a.astype(elem) for a in (x, up, down))
        y = lax.all_gather(jnp.tanh(x), axis, tiled=True)
        y = jnp.tanh(jnp.einsum("tm,fm->tf", y, up)) @ down
        return (x + lax.psum_scatter(y, axis, tiled=True)).astype(jnp.float32)

    return block


def wide_scan(x: jax.Array, ups: jax.Array, downs: jax.Array) -> jax.Array:
    """Weights [hidden units, layers, columns]."""
    block = wide_block("d", jnp.float32)
    return lax.scan(lambda x, w: (block(x, *w), None), x, (ups.swapaxes(0, 1), downs.swapaxes(0, 1)))[0]


def pieces() -> list[Case]:
    """On meshes of several shapes; rows that are no multiple of a block."""
    width, hidden = 256, 8192
    x, few = normal(CORES * 516, width), normal(CORES * 264, width)
    weights = tuple(normal(hidden, width, seed=i, scale=0.05) for i in (1, 2))
    stacks = tuple(np.stack([normal(hidden, width, seed=i + j, scale=0.05) for j in range(2)], 1) for i in (3, 6))
    block = wide_block("d", jnp.float32)
    on_all = cases("pieces", [
        Case("block", block, (x, *weights)),
        Case("block_bf16", wide_block("d", jnp.bfloat16), (x, *weights)),
        Case("block_gradient", gradient(block, 3), (few, *weights)),
        Case("scan_gradient", gradient(wide_scan, 3), (few, *stacks)),
    ])
    meshes = [Case(f"pieces_block_{a}x{b}", block, (x, *weights), mesh={"e": a, "d": b}, l2=L2)
              for a, b in ((2, 4), (4, 2))]
    return [*on_all, *meshes]


def sharded_layers(x: jax.Array, *weights: jax.Array) -> jax.Array:
    for w in weights:
        x = x + jnp.tanh(x @ lax.all_gather(w, "d", tiled=True))
    return x


def sharded_scan(x: jax.Array, weights: jax.Array) -> jax.Array:
    """As above; weights [rows, layers, columns]."""

    def layer(x: jax.Array, w: jax.Array) -> tuple:
        return x + jnp.tanh(x @ lax.all_gather(w, "d", tiled=True)), None

    return lax.scan(layer, x, weights.swapaxes(0, 1))[0]


def sharded_blocks(x: jax.Array, ups: jax.Array, downs: jax.Array) -> jax.Array:
    """A scan over blocks of two products: large enough that the first weights come an iteration earlier."""

    def block(x: jax.Array, weights: tuple) -> tuple:
        up, down = weights
        y = jnp.tanh(x @ lax.all_gather(up, "d", tiled=True))
        return x + y @ lax.all_gather(down, "d", tiled=True), None

    return lax.scan(jax.checkpoint(block), x, (ups.swapaxes(0, 1), downs.swapaxes(0, 1)))[0]


def sgd(function: Callable) -> Callable:
    """Weights behind a step: gradients are summed to the cores that have the weights."""

    def step(x: jax.Array, *weights: jax.Array) -> tuple:
        def loss(*of: jax.Array) -> jax.Array:
            return (function(x, *of) ** 2).mean()

        grads = jax.grad(loss, argnums=tuple(range(len(weights))))(*weights)
        return tuple(w - 0.1 * g for w, g in zip(weights, grads, strict=True))

    return step


def fsdp() -> list[Case]:
    x = normal(CORES * 8, 64)
    weights = tuple(normal(64, 64, seed=i, scale=0.1) for i in range(1, 5))
    stacked = np.stack(weights, 1)
    wide = normal(CORES * 8, 512)
    blocks = tuple(normal(512, 3, 512, seed=i, scale=0.04) for i in (7, 8))
    return cases("fsdp", [
        Case("layers", sharded_layers, (x, *weights)),
        Case("layers_step", sgd(sharded_layers), (x, *weights)),
        Case("layers_remat_step", sgd(jax.checkpoint(sharded_layers)), (x, *weights)),
        Case("scan", sharded_scan, (x, stacked)),
        Case("scan_step", sgd(sharded_scan), (x, stacked)),
        Case("blocks", sharded_blocks, (wide, *blocks)),
        Case("blocks_step", sgd(sharded_blocks), (wide, *blocks)),
    ])


def expert_layer(experts: int, each: int, capacity: int) -> Callable:
    """Each token goes to `each` of the experts; those beyond an expert's capacity are dropped."""
    router = normal(32, experts, seed=9)

    def body(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        gates, chosen = lax.top_k(jax.nn.softmax(x @ router, -1), each)
        one = jax.nn.one_hot(chosen, experts, dtype=jnp.int32).reshape(-1, experts)  # by token, then by choice
        place = ((jnp.cumsum(one, 0) - one) * one).sum(-1).reshape(chosen.shape)
        slot = jax.nn.one_hot(place, capacity) * (place < capacity)[..., None]
        send = jnp.einsum("tke,tkc->tec", jax.nn.one_hot(chosen, experts), slot)
        there = lax.all_to_all(jnp.einsum("tec,tm->ecm", send, x), "d", 0, 1, tiled=True)
        there = jnp.einsum("ecf,efm->ecm", jax.nn.gelu(jnp.einsum("ecm,emf->ecf", there, up)), down)
        back = lax.all_to_all(there, "d", 1, 0, tiled=True)
        weight = jnp.einsum("tke,tkc,tk->tec", jax.nn.one_hot(chosen, experts), slot, gates)
        return jnp.einsum("tec,ecm->tm", weight, back)

    return body


def experts() -> list[Case]:
    x = normal(CORES * 16, 32)
    of = {n: (x, normal(n, 32, 48, seed=1, scale=0.2), normal(n, 48, 32, seed=2, scale=0.2)) for n in (8, 16)}
    return cases("experts", [
        Case("top1", expert_layer(8, 1, 4), of[8]),
        Case("top2", expert_layer(8, 2, 6), of[8]),
        Case("top2_of_16", expert_layer(16, 2, 4), of[16]),
        Case("top2_gradient", gradient(expert_layer(8, 2, 6), 3), of[8]),
    ])


def cases(group: str, of: list[Case]) -> list[Case]:
    return [replace(case, name=f"{group}_{case.name}", mesh={"d": CORES}, l2=L2) for case in of]


def all_cases() -> list[Case]:
    return [*ring(), *sequence(), *pieces(), *fsdp(), *experts()]
