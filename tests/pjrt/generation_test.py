"""Decoders as servers of language models write them, against JAX's own CPU backend.

Batched beam search with lengths and end tokens, samplers with options of their own for each row, speculative sampling
with rejected tokens, a tree of drafts, a cache that is a ring. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
from typing import Any

import decoding_test as small
from decoding_test import HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH, forward, norm, same, weights

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PROMPTS = np.array([[3, 1, 4], [15, 9, 26], [5, 35, 8]], np.int32)
END = 7
Pair = tuple[jax.Array, jax.Array]


def beams() -> None:
    """Beams of several rows: ended ones keep their score, which the length divides; parents are followed back."""
    number, first, steps = 4, PROMPTS.shape[1], 12

    def search(w: dict, prompt: jax.Array, penalty: jax.Array) -> Any:
        batch = prompt.shape[0]
        cache, logits = forward(w, small.empty(batch), prompt, jnp.int32(0))
        cache = jax.tree.map(lambda c: jnp.repeat(c, number, axis=1), cache)
        scores, tokens = lax.top_k(jax.nn.log_softmax(logits[:, -1]), number)
        ended = tokens == END
        lengths = jnp.ones((batch, number), jnp.float32)

        def going(state: Any) -> jax.Array:
            return (state[0] < steps) & ~state[5].all()

        def step(state: Any) -> Any:
            i, cache, scores, tokens, lengths, ended, said, parents = state
            said = lax.dynamic_update_index_in_dim(said, tokens, i, 0)
            cache, logits = forward(w, cache, tokens.reshape(-1, 1), first + i)
            gains = jax.nn.log_softmax(logits[:, 0]).reshape(batch, number, VOCABULARY)
            stay = jnp.where(jnp.arange(VOCABULARY) == END, 0.0, -jnp.inf)
            sums = scores[..., None] + jnp.where(ended[..., None], stay, gains)
            longer = lengths + ~ended
            _, best = lax.top_k((sums / longer[..., None] ** penalty).reshape(batch, -1), number)
            beam, tokens = best // VOCABULARY, best % VOCABULARY
            scores = jnp.take_along_axis(sums.reshape(batch, -1), best, -1)
            ended = jnp.take_along_axis(ended, beam, -1) | (tokens == END)
            rows = (jnp.arange(batch)[:, None] * number + beam).reshape(-1)
            cache = jax.tree.map(lambda c: c[:, rows], cache)
            parents = lax.dynamic_update_index_in_dim(parents, beam, i, 0)
            return i + 1, cache, scores, tokens, jnp.take_along_axis(longer, beam, -1), ended, said, parents

        made = jnp.zeros((steps, batch, number), jnp.int32)
        state = (jnp.int32(0), cache, scores, tokens, lengths, ended, made, made + jnp.arange(number))
        i, _, scores, tokens, lengths, ended, said, parents = lax.while_loop(going, step, state)

        def back(beam: jax.Array, row: Pair) -> Any:
            beam = jnp.take_along_axis(row[1], beam, -1)
            return beam, jnp.take_along_axis(row[0], beam, -1)

        _, texts = lax.scan(back, jnp.broadcast_to(jnp.arange(number), tokens.shape), (said, parents), reverse=True)
        return i, scores, texts, tokens, lengths, ended

    w = weights(11)
    for penalty in (0.0, 0.6):
        found = same(f"beams {penalty}", search, w, PROMPTS, np.float32(penalty))
        assert len(np.unique(found[2])) > 5, found[2]


def drawn(logits: jax.Array, key: jax.Array, options: dict, counts: jax.Array) -> jax.Array:
    """One token of one row: penalties for what was said, temperature, then what top-k, nucleus and min-p leave."""
    scaled = jnp.where(logits > 0, logits / options["penalty"], logits * options["penalty"])
    logits = jnp.where(counts > 0, scaled, logits) - options["frequency"] * counts
    logits = logits / jnp.maximum(options["temperature"], 1e-3)
    ordered = jnp.sort(logits)[::-1]
    shares = jax.nn.softmax(ordered)
    last = jnp.minimum(options["k"], (jnp.cumsum(shares) - shares < options["nucleus"]).sum()) - 1
    least = jnp.maximum(ordered[last], ordered[0] + jnp.log(options["share"]))
    kept = jnp.where(logits >= least, logits, -jnp.inf)
    return jnp.where(options["temperature"] == 0, logits.argmax(), jax.random.categorical(key, kept)).astype(jnp.int32)


OPTIONS = {"temperature": np.float32([0, 0.7, 1.3]), "k": np.int32([1, 10, VOCABULARY]),
           "nucleus": np.float32([1, 0.9, 0.7]), "share": np.float32([1e-6, 0.05, 0.1]),
           "penalty": np.float32([1, 1.3, 1.1]), "frequency": np.float32([0, 0.2, 0.1])}


def samplers() -> None:
    """Each row has its options, key and place; `switch` takes one sampler for all."""
    def decode(w: dict, prompt: jax.Array, keys: jax.Array, options: dict) -> Any:
        batch = prompt.shape[0]
        cache, logits = forward(w, small.empty(batch), prompt, jnp.int32(0))
        counts = jax.vmap(lambda p: jnp.zeros(VOCABULARY).at[p].add(1))(prompt)

        def step(state: Any, i: jax.Array) -> Any:
            cache, logits, counts = state
            own = jax.vmap(jax.random.fold_in, (0, None))(keys, i)
            tokens = jax.vmap(drawn)(logits, own, options, counts)
            counts = counts.at[jnp.arange(batch), tokens].add(1)
            cache, logits = forward(w, cache, tokens[:, None], i)
            return (cache, logits[:, 0], counts), tokens

        return lax.scan(step, (cache, logits[:, -1], counts), jnp.arange(prompt.shape[1], LENGTH))[1]

    tokens = same("options", decode, weights(12), PROMPTS, jax.random.split(jax.random.key(3), 3), OPTIONS)
    assert len(np.unique(tokens)) > 8, tokens

    def gumbel(key: jax.Array, logits: jax.Array) -> jax.Array:  # without replacement, the last of three
        return lax.top_k(logits + jax.random.gumbel(key, logits.shape), 3)[1][..., -1]

    def typical(key: jax.Array, logits: jax.Array) -> jax.Array:
        logs = jax.nn.log_softmax(logits)
        away = jnp.abs(-logs - -(jnp.exp(logs) * logs).sum(-1, keepdims=True))
        order = jnp.argsort(away)
        mass = jnp.cumsum(jnp.take_along_axis(jnp.exp(logs), order, -1), -1)
        place = jax.random.categorical(key, jnp.where(mass - mass[..., :1] < 0.8,
                                                      jnp.take_along_axis(logs, order, -1), -jnp.inf))
        return jnp.take_along_axis(order, place[:, None], -1)[:, 0]

    ways = [small.top_k, small.nucleus, gumbel, typical, lambda _, logits: lax.approx_max_k(logits, 1)[1][..., 0]]

    def switched(w: dict, prompt: jax.Array, way: jax.Array, key: jax.Array) -> Any:
        def choose(key: jax.Array, logits: jax.Array) -> jax.Array:
            return lax.switch(way, [lambda k, x, f=f: f(k, x).astype(jnp.int32) for f in ways], key, logits)
        return small.sampled(choose)(w, prompt, key)

    for way in range(len(ways)):
        same(f"switch {way}", switched, weights(13), PROMPTS, np.int32(way), jax.random.key(way))


def speculative() -> None:
    """Tokens of a draft are taken by chance; a rejected one is drawn again from what the draft lacks."""
    number = 3

    def decode(w: dict, draft: dict, prompt: jax.Array, key: jax.Array) -> Any:
        cache, logits = forward(w, small.empty(1), prompt, jnp.int32(0))
        own, _ = forward(draft, small.empty(1, 1), prompt, jnp.int32(0))
        token = jax.random.categorical(key, logits[0, -1])[None].astype(jnp.int32)

        def guess(state: Any, j: jax.Array) -> Any:
            own, token, at, key = state
            own, logits = forward(draft, own, token[:, None], at)
            shares = jax.nn.softmax(logits[0, 0])
            following = jax.random.categorical(jax.random.fold_in(key, j), logits[0])[..., 0][None].astype(jnp.int32)
            return (own, following, at + 1, key), (token[0], following[0], shares)

        def step(state: Any) -> Any:
            at, cache, own, token, out, taken, key = state
            key, of_draft, of_chance, of_rest = jax.random.split(key, 4)
            (own, _, _, _), (before, after, q) = lax.scan(guess, (own, token, at, of_draft), jnp.arange(number))
            tokens = jnp.concatenate([before, after[-1:]])
            cache, logits = forward(w, cache, tokens[None], at)
            p = jax.nn.softmax(logits[0])
            places = jnp.arange(number)
            chance = jax.random.uniform(of_chance, (number,))
            good = jnp.cumprod(chance * q[places, after] < p[places, after]).sum()
            following = lax.cond(
                good == number, lambda: jax.random.categorical(of_rest, jnp.log(p[number])),
                lambda: jax.random.categorical(of_rest, jnp.log(jnp.maximum(p[good] - q[jnp.minimum(good, number - 1)],
                                                                            0)))).astype(jnp.int32)
            out = lax.dynamic_update_slice(out, tokens, (at,))
            # The draft has not seen its last token yet.
            own = lax.cond(good == number, lambda c: forward(draft, c, after[-1:][None], at + number)[0],
                           lambda c: c, own)
            return at + good + 1, cache, own, following[None], out, taken + good, key

        room = LENGTH - number - 1
        state = (jnp.int32(prompt.shape[1]), cache, own, token, jnp.zeros(LENGTH, jnp.int32), jnp.int32(0), key)
        end = lax.while_loop(lambda s: s[0] < room, step, state)
        return end[0], end[4], end[5], end[3]

    large = weights(14)
    draft = {name: value[:1] if value.ndim == 3 else value for name, value in large.items()}
    taken = [int(same(f"speculative {seed}", decode, large, draft, PROMPTS[:1], jax.random.key(seed))[2])
             for seed in range(3)]
    assert max(taken) > 0, taken


def tree() -> None:
    """Drafts that form a tree are checked at once under its mask; the longest branch that holds is kept."""
    parents = np.array([-1, 0, 0, 1, 1, 2])
    above = np.zeros((6, 6), bool)
    for i in range(6):
        j = i
        while j >= 0:
            above[i, j] = True
            j = parents[j]
    depth = above.sum(1) - 1

    def check(w: dict, context: jax.Array, tokens: jax.Array, filled: jax.Array) -> Any:
        """`context` is a cache of `filled` places; the tree's own places are behind them."""
        keys, values = context
        x = w["embed"][tokens] + w["place"][filled + depth]
        count = tokens.shape[0]
        seen = jnp.concatenate([jnp.broadcast_to(jnp.arange(LENGTH) < filled, (count, LENGTH)), above], 1)
        kept = []
        for layer in range(LAYERS):
            q, k, v = ((norm(x) @ w["qkv"][layer]).reshape(count, 3, HEADS, -1).transpose(1, 2, 0, 3))
            everything = jnp.concatenate([keys[layer, 0], k], 1)
            scores = jnp.einsum("hnd,htd->hnt", q, everything) / np.sqrt(WIDTH // HEADS)
            shares = jax.nn.softmax(jnp.where(seen, scores, -1e9))
            mixed = jnp.einsum("hnt,htd->hnd", shares, jnp.concatenate([values[layer, 0], v], 1))
            x = x + mixed.transpose(1, 0, 2).reshape(count, -1) @ w["out"][layer]
            x = x + jax.nn.gelu(norm(x) @ w["up"][layer]) @ w["down"][layer]
            kept.append((k, v))
        wanted = (norm(x) @ w["head"]).argmax(-1)
        holds = jnp.where(parents < 0, True, tokens == wanted[parents])
        whole = jnp.where(above, holds[None], True).all(1)
        best = jnp.argmax(jnp.where(whole, depth, -1))
        path = jnp.sort(jnp.where(jnp.asarray(above)[best], jnp.arange(count), count))  # kept nodes, from the root
        rows = jnp.minimum(path, count - 1)
        place = jnp.where(path < count, filled + jnp.arange(count), LENGTH)
        fresh = [jnp.stack([part[i] for part in kept])[:, :, rows] for i in range(2)]
        cache = [c.at[:, 0, :, place].set(f.transpose(2, 0, 1, 3), mode="drop")
                 for c, f in zip(context, fresh, strict=True)]
        said = jnp.where(path < count, tokens[rows], -1)
        return cache, filled + jnp.asarray(depth)[best] + 1, wanted[best], whole, said

    def decode(w: dict, prompt: jax.Array) -> Any:
        cache, logits = forward(w, small.empty(1), prompt, jnp.int32(0))
        token = logits[0, -1].argmax()

        def step(state: Any, _: None) -> Any:
            cache, filled, token = state
            near = lax.top_k(w["embed"] @ w["embed"][token], 6)[1]
            tokens = near.at[0].set(token).at[1].set((token * 3 + 1) % VOCABULARY)
            cache, filled, token, whole, said = check(w, tuple(cache), tokens, filled)
            return (tuple(cache), filled, token), (whole, said, filled)

        return lax.scan(step, (cache, jnp.int32(prompt.shape[1]), token), None, length=3)[1]

    same("tree", decode, weights(15), PROMPTS[:1])


def ring() -> None:
    """A window of the last tokens: the cache is a ring, written at the place modulo its length, in bf16 and by row."""
    window = 8

    def decode(w: dict, start: jax.Array) -> Any:
        batch = start.shape[0]
        shape = (LAYERS, batch, window, HEADS, WIDTH // HEADS)

        def step(state: Any, i: jax.Array) -> Any:
            keys, values, ages, token, at = state
            place = at % window  # of each row
            rows = jnp.arange(batch)
            ages = ages.at[rows, place].set(at)
            x = w["embed"][token] + w["place"][at]
            for layer in range(LAYERS):
                q, k, v = ((norm(x) @ w["qkv"][layer]).reshape(batch, 3, HEADS, -1).transpose(1, 0, 2, 3))
                keys = keys.at[layer, rows, place].set(k.astype(keys.dtype))
                values = values.at[layer, rows, place].set(v.astype(values.dtype))
                scores = jnp.einsum("bhd,bthd->bht", q, keys[layer].astype(jnp.float32)) / np.sqrt(WIDTH // HEADS)
                seen = (ages >= 0) & (ages > at[:, None] - window)
                shares = jax.nn.softmax(jnp.where(seen[:, None], scores, -1e9))
                mixed = jnp.einsum("bht,bthd->bhd", shares, values[layer].astype(jnp.float32)).reshape(batch, -1)
                x = x + mixed @ w["out"][layer]
                x = x + jax.nn.gelu(norm(x) @ w["up"][layer]) @ w["down"][layer]
            token = (norm(x) @ w["head"]).argmax(-1).astype(jnp.int32)
            return (keys, values, ages, token, at + (i + jnp.arange(batch) > 1)), token

        state = (jnp.zeros(shape, jnp.bfloat16), jnp.zeros(shape, jnp.bfloat16), jnp.full((batch, window), -1),
                 start, jnp.zeros(batch, jnp.int32))
        (_, _, ages, _, at), tokens = lax.scan(step, state, jnp.arange(LENGTH - 2))
        return ages, at, tokens

    same("ring", decode, weights(16), PROMPTS[:, 0])


CASES = {case.__name__: case for case in (beams, samplers, speculative, tree, ring)}


def main() -> None:
    """Runs one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()


if __name__ == "__main__":
    main()
