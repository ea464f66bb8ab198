"""Programs that generate text, token by token, with caches of keys and values, against JAX's own CPU backend.

Greedy decoding in each kind of loop, beam search, top-k and nucleus sampling, speculative decoding; and the simulated
time of a step, which must not grow with a cache that it updates. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CPU = jax.devices("cpu")[0]
TPU = jax.devices("tpu")[0]
LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH = 2, 4, 32, 40, 24
Weights = dict[str, Any]
Cache = tuple[jax.Array, jax.Array]

jax.config.update("jax_default_matmul_precision", "highest")


def weights(seed: int = 0, layers: int = LAYERS) -> Weights:
    """A small GPT; its logits are far enough from each other for both backends to choose the same tokens."""
    random = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    return {"embed": some(VOCABULARY, WIDTH) * 4, "place": some(LENGTH, WIDTH), "qkv": some(layers, WIDTH, 3 * WIDTH),
            "out": some(layers, WIDTH, WIDTH), "up": some(layers, WIDTH, 4 * WIDTH),
            "down": some(layers, 4 * WIDTH, WIDTH), "head": some(WIDTH, VOCABULARY) * 3}


def empty(batch: int, layers: int = LAYERS, length: int = LENGTH) -> Cache:
    shape = (layers, batch, HEADS, length, WIDTH // HEADS)
    return jnp.zeros(shape), jnp.zeros(shape)


def norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def forward(w: Weights, cache: Cache, tokens: jax.Array, at: jax.Array) -> tuple[Cache, jax.Array]:
    """Logits behind `tokens` (batch, number), the first of which is number `at`."""
    keys, values = cache
    batch, number = tokens.shape
    length = keys.shape[3]
    x = w["embed"][tokens] + lax.dynamic_slice(w["place"], (at, 0), (number, WIDTH))
    seen = jnp.arange(length)[None] <= at + jnp.arange(number)[:, None]
    for layer in range(keys.shape[0]):
        q, k, v = ((norm(x) @ w["qkv"][layer]).reshape(batch, number, 3, HEADS, -1).transpose(2, 0, 3, 1, 4))
        keys = lax.dynamic_update_slice(keys, k[None], (layer, 0, 0, at, 0))
        values = lax.dynamic_update_slice(values, v[None], (layer, 0, 0, at, 0))
        scores = jnp.einsum("bhnd,bhtd->bhnt", q, keys[layer]) / np.sqrt(WIDTH // HEADS)
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e9))
        mixed = jnp.einsum("bhnt,bhtd->bhnd", shares, values[layer]).transpose(0, 2, 1, 3).reshape(batch, number, -1)
        x = x + mixed @ w["out"][layer]
        x = x + jax.nn.gelu(norm(x) @ w["up"][layer]) @ w["down"][layer]
    return (keys, values), norm(x) @ w["head"]


def same(name: str, function: Callable, *args: Any) -> Any:
    """The same on both backends: integers equal, floats close."""
    results = []
    for device in (TPU, CPU):
        with jax.default_device(device):
            results.append(jax.tree.map(np.asarray, jax.jit(function)(*jax.device_put(args, device))))
    for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    return results[0]


PROMPT = np.array([[3, 1, 4], [15, 9, 26]], np.int32)


def prefill(w: Weights, prompt: jax.Array) -> tuple[Cache, jax.Array]:
    """Caches and the first token."""
    cache, logits = forward(w, empty(prompt.shape[0]), prompt, jnp.int32(0))
    return cache, logits[:, -1].argmax(-1).astype(jnp.int32)


def greedy_fori(w: Weights, prompt: jax.Array) -> jax.Array:
    cache, token = prefill(w, prompt)
    first = prompt.shape[1]

    def step(i: jax.Array, state: Any) -> Any:
        cache, token, out = state
        out = lax.dynamic_update_slice(out, token[:, None], (0, i))
        cache, logits = forward(w, cache, token[:, None], i)
        return cache, logits[:, 0].argmax(-1).astype(jnp.int32), out

    return lax.fori_loop(first, LENGTH, step, (cache, token, jnp.zeros((prompt.shape[0], LENGTH), jnp.int32)))[2]


def greedy_scan(w: Weights, prompt: jax.Array) -> jax.Array:
    cache, token = prefill(w, prompt)

    def step(state: Any, i: jax.Array) -> Any:
        cache, token = state
        cache, logits = forward(w, cache, token[:, None], i)
        return (cache, logits[:, 0].argmax(-1).astype(jnp.int32)), token

    return lax.scan(step, (cache, token), jnp.arange(prompt.shape[1], LENGTH))[1].T


def greedy_while(w: Weights, prompt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Ends early when all rows have said the end token."""
    cache, token = prefill(w, prompt)
    out = jnp.full((prompt.shape[0], LENGTH), -1, jnp.int32)
    ended = jnp.zeros(prompt.shape[0], bool)

    def step(state: Any) -> Any:
        i, cache, token, out, ended = state
        out = out.at[:, i].set(jnp.where(ended, -1, token))
        ended |= token % 7 == 0
        cache, logits = forward(w, cache, token[:, None], i)
        return i + 1, cache, logits[:, 0].argmax(-1).astype(jnp.int32), out, ended

    state = (jnp.int32(prompt.shape[1]), cache, token, out, ended)
    end = lax.while_loop(lambda s: (s[0] < LENGTH) & ~s[4].all(), step, state)
    return end[3], end[0]


def greedy() -> None:
    """One token after the other, in each kind of loop."""
    w = weights()
    fori = same("fori_loop", greedy_fori, w, PROMPT)
    scan = same("scan", greedy_scan, w, PROMPT)
    np.testing.assert_array_equal(fori[:, PROMPT.shape[1]:], scan)
    assert len(np.unique(scan)) > 5, scan  # not one token for ever
    same("while_loop", greedy_while, w, PROMPT)


def beams() -> None:
    """Beam search: the caches follow the beams that go on."""
    number = 3

    def search(w: Weights, prompt: jax.Array) -> Any:
        cache, logits = forward(w, empty(1), prompt, jnp.int32(0))
        scores, tokens = lax.top_k(jax.nn.log_softmax(logits[0, -1]), number)
        cache = jax.tree.map(lambda c: jnp.repeat(c, number, axis=1), cache)
        said = jnp.zeros((number, LENGTH), jnp.int32)

        def step(i: jax.Array, state: Any) -> Any:
            cache, scores, tokens, said = state
            said = said.at[:, i].set(tokens)
            cache, logits = forward(w, cache, tokens[:, None], i)
            all_scores = scores[:, None] + jax.nn.log_softmax(logits[:, 0])
            scores, best = lax.top_k(all_scores.reshape(-1), number)
            beam = best // VOCABULARY
            return (jax.tree.map(lambda c: jnp.take(c, beam, axis=1), cache), scores,
                    (best % VOCABULARY).astype(jnp.int32), said[beam])

        return lax.fori_loop(prompt.shape[1], LENGTH, step, (cache, scores, tokens.astype(jnp.int32), said))[1:]

    same("beam search", search, weights(1), PROMPT[:1])


def sampled(choose: Callable) -> Callable:
    """Decoding whose tokens `choose` draws from logits."""
    def decode(w: Weights, prompt: jax.Array, key: jax.Array) -> jax.Array:
        cache, token = prefill(w, prompt)

        def step(state: Any, i: jax.Array) -> Any:
            cache, token, key = state
            key, own = jax.random.split(key)
            cache, logits = forward(w, cache, token[:, None], i)
            return (cache, choose(own, logits[:, 0]).astype(jnp.int32), key), token

        return lax.scan(step, (cache, token, key), jnp.arange(prompt.shape[1], LENGTH))[1]

    return decode


def top_k(key: jax.Array, logits: jax.Array) -> jax.Array:
    best, index = lax.top_k(logits, 5)
    return jnp.take_along_axis(index, jax.random.categorical(key, best)[:, None], -1)[:, 0]


def nucleus(key: jax.Array, logits: jax.Array) -> jax.Array:
    order = jnp.argsort(-logits, axis=-1)
    ordered = jnp.take_along_axis(logits, order, -1)
    before = jnp.cumsum(jax.nn.softmax(ordered), -1) - jax.nn.softmax(ordered)
    place = jax.random.categorical(key, jnp.where(before < 0.9, ordered, -jnp.inf))
    return jnp.take_along_axis(order, place[:, None], -1)[:, 0]


def sampling() -> None:
    """Random tokens, the same bits on both backends."""
    for name, choose in (("top-k", top_k), ("nucleus", nucleus)):
        tokens = same(name, sampled(choose), weights(2), PROMPT, jax.random.key(7))
        assert len(np.unique(tokens)) > 5, tokens


def speculative() -> None:
    """A small model drafts three tokens, the large one checks them at once; what it rejects costs a step of its own."""
    draft_number = 3

    def decode(w: Weights, small: Weights, prompt: jax.Array) -> Any:
        cache, token = prefill(w, prompt)
        own, _ = forward(small, empty(1, 1), prompt, jnp.int32(0))

        def draft(state: Any, j: jax.Array) -> Any:
            own, token, at = state
            own, logits = forward(small, own, token[:, None], at)
            return (own, logits[:, 0].argmax(-1).astype(jnp.int32), at + 1), token

        def step(state: Any) -> Any:
            at, cache, own, token, out, accepted = state
            (own, last, _), drafted = lax.scan(draft, (own, token, at), jnp.arange(draft_number))
            tokens = jnp.concatenate([drafted[:, 0], last])  # the first is certain
            cache, logits = forward(w, cache, tokens[None, :draft_number], at)
            wanted = logits[0].argmax(-1).astype(jnp.int32)
            good = jnp.cumprod(tokens[1:] == wanted).sum()

            def all_good(_: None) -> Any:
                return draft_number, wanted[draft_number - 1]

            def some_good(_: None) -> Any:
                return good + 1, wanted[good]

            number, following = lax.cond(good == draft_number, all_good, some_good, None)
            for j in range(draft_number):
                out = jnp.where(j < number, out.at[at + j].set(tokens[j]), out)
            return at + number, cache, own, following[None], out, accepted + good

        room = LENGTH - draft_number
        state = (jnp.int32(prompt.shape[1]), cache, own, token, jnp.zeros(LENGTH, jnp.int32), jnp.int32(0))
        end = lax.while_loop(lambda s: s[0] < room, step, state)
        return end[0], end[4], end[5]

    large = weights(3)
    small = {name: value[:1] if value.ndim == 3 else value for name, value in large.items()}
    at, out, accepted = same("speculative", decode, large, small, PROMPT[:1])
    assert accepted > 0, accepted
    plain = same("greedy", greedy_scan, large, PROMPT[:1])[0]
    first = PROMPT.shape[1]
    np.testing.assert_array_equal(out[first:at], plain[:at - first])


def board() -> Any:
    """The board of this process."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    import tpuboard

    return tpuboard.board()


def cycles_of(function: Callable, state: Any) -> int:
    """Simulated time of a call that keeps its state, behind a first one."""
    state = jax.block_until_ready(function(*state))
    board().synchronize()
    before = board().cycles
    jax.block_until_ready(function(*state))
    board().synchronize()
    return board().cycles - before


def in_place() -> None:
    """Caches of 2 and of 32 MiB take the same time to update, whatever the loop reads of them."""
    def fori(cache: jax.Array, rows: jax.Array) -> Any:
        def step(i: jax.Array, s: Any) -> Any:
            row = lax.dynamic_slice(s, (i, 0), (1, s.shape[1])) + rows[i]
            return lax.dynamic_update_slice(s, row, (i, 0))
        return lax.fori_loop(0, 16, step, cache), rows

    def scan(cache: jax.Array, rows: jax.Array) -> Any:
        def step(s: Any, row: jax.Array) -> Any:
            i, cache = s
            return (i + 1, lax.dynamic_update_slice(cache, row[None], (i, 0))), cache[0]
        (_, cache), out = lax.scan(step, (jnp.int32(0), cache), rows)
        return cache, out

    def loop(cache: jax.Array, rows: jax.Array) -> Any:
        def step(s: Any) -> Any:
            i, cache = s
            return i + 1, cache.at[i].set(rows[i] + cache[i + 1])
        return lax.while_loop(lambda s: (s[0] < 16) & (s[1][0, 0] < 1e9), step, (jnp.int32(0), cache))[1], rows

    rows = np.ones((16, 512), np.float32)
    for program in (fori, scan, loop):
        step = jax.jit(program, donate_argnums=0)
        small, large = (cycles_of(step, jax.device_put((np.zeros((n, 512), np.float32), rows), TPU))
                        for n in (1024, 16384))
        assert large < small + 16 * 2000, (program.__name__, small, large)


def versions() -> None:
    """Several updates of a large cache in an iteration, with reads of the versions before, between and after them."""
    def rows(cache: jax.Array, at: jax.Array) -> jax.Array:
        return lax.dynamic_slice(cache, (at, 0), (1, cache.shape[1]))

    def put(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(cache, row, (at, 0))

    def in_order(i: jax.Array, s: Any) -> Any:
        cache, out = s
        first = put(cache, rows(cache, i + 1) * 0.5 + 1, i)
        second = put(first, rows(first, i) + rows(first, i + 2), i + 1)
        third = put(second, rows(second, i + 1) - 1, i + 2)
        return third, put(out, rows(third, i + 2), i)

    def first_kept(i: jax.Array, s: Any) -> Any:
        cache, out = s
        first = put(cache, rows(cache, i) + 1, i)
        second = put(first, rows(first, i) * 2, i + 1)
        return second, put(out, rows(first, i + 1) + rows(second, i + 1), i)

    def first_given(i: jax.Array, s: Any) -> Any:
        cache, out = s
        first = put(cache, rows(cache, i) + 1, i + 1)
        second = put(first, rows(first, i) * 2, i)
        return first, put(out, rows(second, i) + rows(second, i + 1), i)

    def turned(i: jax.Array, s: Any) -> Any:
        cache, out = s
        first = put(cache, rows(cache, i) + 1, i)
        return first[::-1], put(out, rows(first, i), i)

    def swapped(i: jax.Array, s: Any) -> Any:
        one, other = s
        return put(other, rows(one, i) + 1, i), put(one, rows(other, i) * 2, i)

    for length in (64, 32768):  # in VMEM, and in HBM alone
        cache = np.random.default_rng(length).standard_normal((length, 256)).astype(np.float32)
        for body in (in_order, first_kept, first_given, turned):
            same(body.__name__, lambda c, o, body=body: lax.fori_loop(0, 5, body, (c, o)), cache,
                 np.zeros((8, 256), np.float32))
        same("swapped", lambda c, o: lax.fori_loop(0, 5, swapped, (c, o)), cache, cache[::-1])


CASES = {case.__name__: case for case in (greedy, beams, sampling, speculative, in_place, versions)}


def main() -> None:
    """Runs one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()


if __name__ == "__main__":
    main()
