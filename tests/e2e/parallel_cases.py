"""Training steps of a flax decoder whose weights are cut as users cut them: tensor parallel (Megatron), its vocabulary
too, fully sharded (FSDP), and both. Each says which collectives it may come to, over which axes of the mesh.

With two blocks, tensor parallel weights leave eight sums of activations over `model`: two a block, forwards and
backwards. Everything else that moves along `data` is a gradient, or a weight that is cut.
"""

from __future__ import annotations

from collections.abc import Callable

from sharding_cases import MEGATRON, ShardedCase, block_params, integers, layer_norm, mesh_of, normal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

Place = Callable[[str, int], P]  # by path and rank
BATCH, LENGTH, VOCABULARY, MODEL, BLOCKS = 8, 8, 192, 32, 2
# A large root keeps steps smooth where gradients are next to nothing.
ADAM = optax.adam(1e-2, eps=1e-2)


class Block(nn.Module):
    """Attention and feed-forward."""

    dtype: jnp.dtype | None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=8, dtype=self.dtype, name="attention")(
            y, mask=nn.make_causal_mask(x[..., 0]))
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.gelu(nn.Dense(2 * MODEL, dtype=self.dtype, name="up")(y))
        return x + nn.Dense(MODEL, dtype=self.dtype, name="down")(y)


class Decoder(nn.Module):
    """Logits of the next word."""

    dtype: jnp.dtype | None = None
    remat: bool = False
    tied: bool = False

    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        embed = nn.Embed(VOCABULARY, MODEL, dtype=self.dtype, name="words")
        x = embed(words)
        x += self.param("positions", nn.initializers.normal(0.02), (LENGTH, MODEL)).astype(x.dtype)
        block = nn.remat(Block) if self.remat else Block
        for _ in range(BLOCKS):
            x = block(self.dtype)(x)
        x = nn.LayerNorm(dtype=self.dtype)(x)
        return embed.attend(x) if self.tied else nn.Dense(VOCABULARY, dtype=self.dtype, name="head")(x)


def megatron(path: str, rank: int) -> P:
    """Attention by heads, feed-forward by its inner dimension."""
    if "up" in path:
        return P(None, "model") if rank == 2 else P("model")
    if "out" in path or "down" in path:
        return P("model") if rank > 1 else P()
    return P(None, "model") if "attention" in path and rank == 3 else P("model") if "attention" in path else P()


def vocabulary(path: str, rank: int) -> P:
    """The embedding by words and the last layer by classes, too."""
    if "words" in path:
        return P("model")
    return (P(None, "model") if rank == 2 else P("model")) if "head" in path else megatron(path, rank)


def fsdp(path: str, rank: int) -> P:
    """Every matrix by its first dimension."""
    return P("data") if rank > 1 else P()


def both(path: str, rank: int) -> P:
    """Tensor parallel, and every matrix by another dimension over the data axis."""
    names = [*megatron(path, rank), *[None] * rank][:rank]
    if rank > 1:
        names[names.index(None)] = "data"
    return P(*names)


def picked(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def one_hot(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, VOCABULARY)).mean()


def case(name: str, mesh: dict[str, int], place: Place, moves: dict[str, int], loss: Callable = picked,
         l2: float = 2e-3, **options: object) -> ShardedCase:
    """A step of Adam in its eighth step."""
    net = Decoder(**options)
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: np.asarray(rng.normal(size=x.shape) * 0.2, x.dtype), shapes)
    moments = jax.tree.map(lambda x: np.full(x.shape, 7 if x.ndim == 0 else 1e-3, x.dtype),
                           jax.eval_shape(ADAM.init, params))
    state = (params, moments)
    specs = jax.tree_util.tree_map_with_path(
        lambda path, x: place(jax.tree_util.keystr(path[1:]), np.ndim(x)), state)

    def step(state: tuple, words: jax.Array) -> tuple:
        params, moments = state
        value, grads = jax.value_and_grad(
            lambda p: loss(net.apply(p, words[:, :-1]).astype(jnp.float32), words[:, 1:]))(params)
        updates, moments = ADAM.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    batch = P("data") if "data" in mesh else P()
    return ShardedCase(name, step, (state, integers(VOCABULARY, BATCH, LENGTH + 1)), (specs, batch), mesh,
                       (specs, P()), moves, l2)


def along_time(params: list, x: jax.Array) -> tuple:
    """Gradients of blocks whose residual is cut by time over the axis that cuts heads and hidden units, as constraints
    say (sequence parallel)."""
    mesh = mesh_of({"data": 4, "model": 2})

    def place(x: jax.Array, *names: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", *names)))

    def block(w: dict, x: jax.Array) -> jax.Array:
        y = layer_norm(x, w["ln1"])
        q, k, v = (place(jnp.einsum("btm,mhd->bthd", y, w[n]), None, "model") for n in ("wq", "wk", "wv"))
        scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k), -1)
        y = place(jnp.einsum("bhts,bshd->bthd", scores, v), None, "model")
        x = place(x + jnp.einsum("bthd,hdm->btm", y, w["wo"]), "model")
        y = place(jax.nn.gelu(layer_norm(x, w["ln2"]) @ w["up"]), None, "model")
        return place(x + y @ w["down"], "model")

    def loss(params: list, x: jax.Array) -> jax.Array:
        for w in params:
            x = block(w, x)
        return jnp.mean(x * x)

    return jax.value_and_grad(loss)(params, x)


# One sum of each gradient; the tied model has two parameters less. Words, positions and what bf16 adds are in the
# gradients. Of a cut vocabulary: the words, the gradient of the last layer's input, and three of the loss: the largest
# logit, the sum of all, the label's; one-hot labels are summed once more in the backward pass.
GRADIENTS = {"all_reduce data": 39}
TENSOR = {"all_reduce model": 4 * BLOCKS}
VOCABULARY_SUMS = {"all_reduce model": 4 * BLOCKS + 5}

CASES = [
    case("tensor_4x2", {"data": 4, "model": 2}, megatron, TENSOR | GRADIENTS),
    # The backward pass computes the sum behind the attention of each block again.
    case("tensor_2x4_remat", {"data": 2, "model": 4}, megatron, {"all_reduce model": 5 * BLOCKS} | GRADIENTS,
         remat=True),
    case("tensor_1x8", {"data": 1, "model": 8}, megatron, TENSOR),
    # One core is as far from JAX (2.1e-2), which rounds to bf16 at other places.
    case("tensor_bf16", {"data": 4, "model": 2}, megatron, TENSOR | GRADIENTS, l2=4e-2, dtype=jnp.bfloat16),
    case("vocabulary_1x8", {"model": 8}, vocabulary, VOCABULARY_SUMS),
    case("vocabulary_2x4", {"data": 2, "model": 4}, vocabulary, {"all_reduce model": 4 * BLOCKS + 6} | GRADIENTS,
         one_hot),
    case("vocabulary_tied", {"data": 4, "model": 2}, vocabulary, VOCABULARY_SUMS | {"all_reduce data": 37}, tied=True),
    # Before and behind each layer of a block, in both directions. Two gradients of `wo` move their other operand, since
    # what they need of this one is gathered behind them. Norms and the loss are summed over all cores.
    ShardedCase("along_time", along_time, ([block_params(16, 4, 32)] * 2, normal(8, 8, 16)),
                ([MEGATRON] * 2, P("data", "model")), {"data": 4, "model": 2}, l2=2e-3,
                moves={"all_gather model": 8, "reduce_scatter model": 8 + 2, "all_to_all model": 2,
                       "all_reduce data": 12, "all_reduce data+model": 5}),
    # Weights come to the examples and gradients go to their owners; vectors are summed.
    case("fsdp", {"data": 8}, fsdp, {"all_gather data": 21, "reduce_scatter data": 21, "all_to_all data": 1,
                                     "all_reduce data": 18}),
    case("fsdp_tensor", {"data": 4, "model": 2}, both, TENSOR | {"all_gather data": 22, "reduce_scatter data": 21,
                                                                 "all_reduce data": 18}),
]
