"""Pallas on the board: what JAX's table of TPUs says of it, and kernels of JAX's library that run with interpret=True.

Beside plain jax.numpy in full precision. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas

# As docs/jax.md tells it for kernels whose functions have no switch of their own.
pallas.pallas_call = functools.partial(pallas.pallas_call, interpret=True)

LIBRARY = "jax.experimental.pallas.ops.tpu"


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(a: jax.Array, b: jax.Array, bound: float) -> None:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    distance = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert distance < bound, (distance, bound)


def table() -> str:
    from jax._src.pallas.mosaic import tpu_info

    info = tpu_info.get_tpu_info()
    return f"{jax.devices()[0].device_kind} {info.chip_version} {info.generation} {info.num_cores} {info.is_megacore}"


def info() -> None:
    """Each core is a device: no megacore, on both chips."""
    for board, wanted in (("v3_8", "TPU v3 v3 3 1 False"), ("v2_8", "TPU v2 v2 2 1 False")):
        out = subprocess.run([sys.executable, __file__, "--case", "table"], check=True, capture_output=True, text=True,
                             env={**os.environ, "TPUBOARD_BOARD": board}).stdout
        assert out.strip() == wanted, (board, out)


def attention() -> None:
    """Flash attention, forward and backward."""
    flash = importlib.import_module(LIBRARY + ".flash_attention")
    q, k, v = (numbers(1, 2, 128, 128, seed=i) for i in range(3))

    def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.1
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)

    def kernel(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return flash.flash_attention(q, k, v, causal=True, sm_scale=0.1)

    near(jax.jit(kernel)(q, k, v), jax.jit(plain)(q, k, v), 1e-5)
    grads = [jax.jit(jax.grad(lambda *a, f=f: (f(*a) ** 2).sum(), argnums=(0, 1, 2)))(q, k, v) for f in (kernel, plain)]
    for ours, theirs in zip(*grads, strict=True):
        near(ours, theirs, 1e-5)


def paged() -> None:
    """Attention over pages of keys and values; the kernel rounds them to bf16."""
    kernel = importlib.import_module(LIBRARY + ".paged_attention.paged_attention_kernel").paged_attention
    heads, depth, pages, size = 4, 128, 16, 16
    q = numbers(2, heads, depth) * depth ** -0.5
    keys, values = (numbers(heads, pages, size, depth, seed=i) for i in (1, 2))
    lengths = np.array([20, 40], np.int32)
    listed = np.array([[0, 3, 5, 1], [2, 4, 7, 6]], np.int32)
    out = jax.jit(functools.partial(kernel, pages_per_compute_block=2))(q, keys, values, lengths, listed)
    for b in range(2):
        k, v = (x[:, listed[b]].reshape(heads, -1, depth)[:, :lengths[b]] for x in (keys, values))
        weights = np.exp(np.einsum("hd,hkd->hk", q[b], k))
        weights /= weights.sum(-1, keepdims=True)
        near(out[b], np.einsum("hk,hkd->hd", weights, v), 1e-2)


def grouped() -> None:
    """Rows by groups, each times a matrix of its own."""
    kernel = importlib.import_module(LIBRARY + ".megablox.gmm").gmm
    x, w = numbers(256, 128), numbers(4, 128, 128, seed=1)
    sizes = np.array([100, 28, 64, 64], np.int32)
    out = jax.jit(functools.partial(kernel, preferred_element_type=jnp.float32, interpret=True))(x, w, sizes)
    near(out, np.concatenate([rows @ m for rows, m in zip(np.split(x, np.cumsum(sizes)[:-1]), w, strict=True)]), 1e-5)


CASES = {"info": info, "attention": attention, "paged": paged, "grouped": grouped, "table": lambda: print(table())}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    with jax.default_matmul_precision("highest"):
        CASES[parser.parse_args().case]()
