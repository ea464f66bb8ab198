"""Cases of op_matrix_test.py: small whole programs, as people write them around a network."""

from __future__ import annotations

from case_runner import Case
from op_cases import _ints, _random

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

KEY = np.array([5, 6], np.uint32)
# Networks: 5e-7 measured. A sum in another order that rounds to the other bf16 neighbour, as an operand of the next
# matmul, moves its result by 2**-9 of one of the 400 terms or more that the gradients here are made of: 1e-4. Without
# the rounding of operands they are 2e-3 away.
NEAR = 1e-4


def _convnet_loss(p: dict, images: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
    """Convolution, pool, dropout, dense, cross-entropy."""
    y = lax.conv_general_dilated(images, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(jax.nn.relu(y + p["bias"]), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = jnp.where(jax.random.bernoulli(key, 0.8, y.shape), y / 0.8, 0.0).reshape(y.shape[0], -1)
    return optax.softmax_cross_entropy_with_integer_labels(y @ p["dense"], labels).mean()


def _training(p: dict, images: jax.Array, labels: jax.Array, key: jax.Array) -> tuple:
    """Steps of AdamW with clipped gradients and a schedule, in one program."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0),
                            optax.adamw(optax.warmup_cosine_decay_schedule(1e-4, 1e-3, 2, 10)))

    def step(state: tuple, batch: tuple) -> tuple:
        p, s, k = state
        k, dropout = jax.random.split(k)
        loss, gradients = jax.value_and_grad(_convnet_loss)(p, *batch, dropout)
        updates, s = optimizer.update(gradients, s, p)
        return (optax.apply_updates(p, updates), s, k), loss

    (p, _, _), losses = lax.scan(step, (p, optimizer.init(p), jax.random.wrap_key_data(key)), (images, labels))
    return p, losses


def _lstm(w: jax.Array, x: jax.Array) -> jax.Array:
    def cell(state: tuple, frame: jax.Array) -> tuple:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([frame, h, jnp.ones((h.shape[0], 1))], -1) @ w, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], w.shape[1] // 4))
    return jnp.mean(lax.scan(cell, (zero, zero), x)[1] ** 2)


def _transformer(p: dict, tokens: jax.Array, key: jax.Array) -> jax.Array:
    """One block with causal attention and dropout on embedded tokens; mean loss of the next token."""
    def norm(v: jax.Array) -> jax.Array:
        return (v - v.mean(-1, keepdims=True)) * lax.rsqrt(v.var(-1, keepdims=True) + 1e-5)

    x = p["embedding"][tokens] + p["position"]
    q, k, v = jnp.split(jnp.einsum("btd,de->bte", norm(x), p["attention"]).reshape(*tokens.shape, 3, 4, -1), 3, axis=2)
    scores = jnp.einsum("bqzhd,bkzhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    weights = jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, weights.shape), weights / 0.9, 0)
    x = x + jnp.einsum("bhqk,bkzhd->bqhd", weights, v).reshape(x.shape)
    x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
    logits = x @ p["embedding"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


def _separable(p: dict, x: jax.Array) -> jax.Array:
    """Depthwise and pointwise convolution, group norm, squeeze and excitation."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, p["depthwise"], (2, 2), "SAME", dimension_numbers=numbers,
                                 feature_group_count=x.shape[-1])
    x = lax.conv_general_dilated(x, p["pointwise"], (1, 1), "SAME", dimension_numbers=numbers)
    groups = x.reshape(*x.shape[:3], 4, -1)
    mean, variance = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
    x = jax.nn.hard_swish(((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape))
    gate = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["squeeze"]) @ p["excite"])
    return jnp.mean((x * gate[:, None, None]) ** 2)


def networks() -> list[Case]:
    """Losses and gradients of small networks; a training loop as one program."""
    convnet = {"kernel": _random(3, 3, 1, 8, scale=0.3), "bias": np.zeros(8, np.float32),
               "dense": _random(128, 10, scale=0.1)}
    block = {"embedding": _random(40, 16, scale=0.5), "position": _random(13, 16, scale=0.1),
             "attention": _random(16, 48, scale=0.2),
             "up": _random(16, 33, scale=0.2), "down": _random(33, 16, scale=0.2)}
    separable = {"depthwise": _random(3, 3, 1, 12, scale=0.3), "pointwise": _random(1, 1, 12, 20, scale=0.3),
                 "squeeze": _random(20, 5, scale=0.3), "excite": _random(5, 20, scale=0.3)}
    return [Case("training_loop", _training, (convnet, _random(3, 16, 8, 8, 1), _ints(3, 16, low=0, high=10), KEY),
                 l2=NEAR),
            Case("lstm", jax.value_and_grad(_lstm), (_random(6 + 9 + 1, 36, scale=0.3), _random(11, 3, 6, seed=1)),
                 l2=NEAR),
            Case("transformer", jax.value_and_grad(_transformer), (block, _ints(3, 13, low=0, high=40), KEY), l2=NEAR),
            Case("positions", jax.value_and_grad(_positions, argnums=(0, 1, 2, 3)),
                 (_random(32, 12), *(_random(2, 80, 12, 8, seed=i) for i in range(1, 4))), l2=NEAR),
            Case("separable", jax.value_and_grad(_separable), (separable, _random(3, 13, 10, 12, seed=1)), l2=NEAR)]


def _positions(table: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention with a learned bias of each distance and head, as T5 has it."""
    length = q.shape[1]
    distance = jnp.clip(jnp.arange(length)[:, None] - jnp.arange(length) + 16, 0, table.shape[0] - 1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) + jnp.moveaxis(table[distance], -1, 0)
    return jnp.mean(jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v) ** 2)


def _decode(embedding: jax.Array, w: jax.Array, first: jax.Array) -> tuple:
    """Greedy decoding until the end token or twelve tokens."""
    def body(state: tuple) -> tuple:
        tokens, n = state
        scores = jnp.tanh(embedding[tokens[n - 1]] @ w) @ embedding.T
        return tokens.at[n].set(jnp.argmax(scores).astype(jnp.int32)), n + 1

    start = jnp.zeros(12, jnp.int32).at[0].set(first), jnp.int32(1)
    return lax.while_loop(lambda s: (s[1] < 12) & (s[0][s[1] - 1] != 0), body, start)


def _kmeans(points: jax.Array, centres: jax.Array) -> jax.Array:

    def step(_: int, c: jax.Array) -> jax.Array:
        nearest = jnp.argmin(((points[:, None] - c[None]) ** 2).sum(-1), 1)
        count = jax.ops.segment_sum(jnp.ones(points.shape[0]), nearest, c.shape[0])
        return jax.ops.segment_sum(points, nearest, c.shape[0]) / jnp.maximum(count, 1)[:, None]

    return lax.fori_loop(0, 5, step, centres)


def _life(cells: jax.Array) -> jax.Array:

    def step(_: int, c: jax.Array) -> jax.Array:
        n = sum(jnp.roll(c, (x, y), (0, 1)) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0))
        return ((n == 3) | ((n == 2) & (c == 1))).astype(c.dtype)

    return lax.fori_loop(0, 5, step, cells)


def algorithms() -> list[Case]:
    """Loops whose ends depend on data, by element and under vmap; clustering, automata, decoding."""
    collatz = jax.vmap(lambda n: lax.while_loop(lambda s: s[0] > 1, lambda s: (
        jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)))

    def newton(a):
        return lax.while_loop(lambda s: jnp.any(jnp.abs(s * s - a) > 1e-3 * a), lambda s: 0.5 * (s + a / s), a)

    def floyd(d):
        return lax.fori_loop(0, 9, lambda k, m: jnp.minimum(m, m[:, k][:, None] + m[k][None]), d)

    def bubble(x):
        return lax.fori_loop(0, 8, lambda i, v: lax.fori_loop(0, 7, lambda j, u: lax.cond(
            u[j] > u[j + 1], lambda t: t.at[j].set(t[j + 1]).at[j + 1].set(t[j]), lambda t: t, u), v), x)

    def packed(a):
        return (jnp.packbits(a), jnp.unpackbits(jnp.packbits(a)))

    return [Case("decode", _decode, (_random(20, 8), _random(8, 8, seed=1), np.int32(3))),
            Case("kmeans", _kmeans, (_random(60, 3), _random(4, 3, seed=1)), l2=1e-5),
            Case("life", _life, (_ints(17, 23, low=0, high=2),)),
            Case("collatz", collatz, (_ints(17, low=1, high=60),)),
            Case("newton", newton, (np.abs(_random(33)) + 1,), l2=1e-6),
            Case("floyd", floyd, (np.abs(_random(9, 9)),), l2=1e-6), Case("bubble_sort", bubble, (_random(8),)),
            Case("packbits", packed, (_ints(43, low=0, high=2).astype(np.uint8),)),
            Case("unique", lambda v: jnp.unique(v, size=20, fill_value=-1, return_counts=True, return_inverse=True),
                 (_ints(60, low=0, high=15),)),
            Case("searchsorted", lambda v: jnp.searchsorted(jnp.linspace(-2, 2, 33), v), (_random(50),)),
            Case("repeat", lambda v, n: jnp.repeat(v, n, axis=0, total_repeat_length=20),
                 (_random(5, 7), np.array([1, 3, 0, 4, 2], np.int32))),
            Case("matrix_scan", lambda m: lax.associative_scan(jnp.matmul, m), (_random(9, 3, 3, scale=0.5),), l2=1e-5),
            Case("resize", lambda v: jax.image.resize(v, (2, 9, 13, 3), "cubic"), (_random(2, 7, 5, 3),), l2=1e-5)]
