"""Programs whose arrays are cut over the cores by NamedSharding, constraints and shard_map: what the compiler has to
partition by itself. Each says which collectives it may come to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import jax_reference  # noqa: F401 (sets up JAX's environment)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P


@dataclass(frozen=True)
class ShardedCase:
    """A function over a mesh. `specs` says of each argument (a tree like it, or one for all) how it is cut; `results`
    the same of results, where None leaves them to the compiler."""

    name: str
    function: Callable
    inputs: tuple
    specs: tuple
    mesh: dict[str, int] = field(default_factory=lambda: {"data": 8})
    results: tuple | None = None
    moves: dict[str, int] = field(default_factory=dict)  # collectives of the graph of one core, by kind
    l2: float = 1e-5
    exact: bool = False
    oracle: Callable | None = None  # the same for one device, where `function` names the mesh


def mesh_of(axes: dict[str, int]) -> jax.sharding.Mesh:
    """The mesh of a case over the first devices."""
    devices = np.array(jax.devices()[: int(np.prod([*axes.values()]))]).reshape(tuple(axes.values()))
    return jax.sharding.Mesh(devices, tuple(axes))


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Random numbers, always the same."""
    return (np.random.default_rng(seed + sum(shape)).normal(size=shape) * scale).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers from 0 to high - 1."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


def sgd(loss: Callable) -> Callable:
    """A training step: loss and new parameters."""

    def step(params: dict, *batch: jax.Array) -> tuple:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return step


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over the batch."""
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1]), -1))


# Models.
def mlp_loss(params: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    h = jax.nn.relu(x @ params["w1"] + params["b1"])
    return cross_entropy(h @ params["w2"] + params["b2"], y)


MLP = {"w1": normal(24, 32, scale=0.2), "b1": normal(32), "w2": normal(32, 10, scale=0.2), "b2": normal(10)}


def cnn_loss(params: dict, x: jax.Array, y: jax.Array, over_cores: Callable = lambda x: x) -> jax.Array:
    """Batch norm with statistics of the whole batch; inside of jax.shard_map `over_cores` is the mean over cores."""
    h = lax.conv_general_dilated(x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean = over_cores(jnp.mean(h, (0, 1, 2)))
    var = over_cores(jnp.mean((h - mean) ** 2, (0, 1, 2)))
    h = jax.nn.relu((h - mean) * lax.rsqrt(var + 1e-5) * params["scale"] + params["bias"])
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return cross_entropy(h.reshape(h.shape[0], -1) @ params["dense"], y)


CNN = {"conv": normal(3, 3, 3, 8, scale=0.3), "scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32),
       "dense": normal(4 * 4 * 8, 10, scale=0.1)}


def attention(params: dict, x: jax.Array) -> jax.Array:
    """[batch, time, model] by wq, wk, wv [model, heads, head] and wo [heads, head, model]."""
    q, k, v = (jnp.einsum("btm,mhd->bthd", x, params[name]) for name in ("wq", "wk", "wv"))
    scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]), -1)
    return jnp.einsum("bthd,hdm->btm", jnp.einsum("bhts,bshd->bthd", scores, v), params["wo"])


def layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * scale


def block(params: dict, x: jax.Array) -> jax.Array:
    x = x + attention(params, layer_norm(x, params["ln1"]))
    return x + jax.nn.gelu(layer_norm(x, params["ln2"]) @ params["up"]) @ params["down"]


def transformer_loss(params: dict, tokens: jax.Array, y: jax.Array) -> jax.Array:
    x = block(params, params["embed"][tokens])
    return cross_entropy(x.mean(1) @ params["head"], y)


def block_params(model: int, heads: int, hidden: int) -> dict:
    head = model // heads
    return {"wq": normal(model, heads, head, scale=0.2), "wk": normal(model, heads, head, seed=1, scale=0.2),
            "wv": normal(model, heads, head, seed=2, scale=0.2), "wo": normal(heads, head, model, scale=0.2),
            "up": normal(model, hidden, scale=0.2), "down": normal(hidden, model, scale=0.2),
            "ln1": np.ones(model, np.float32), "ln2": np.ones(model, np.float32)}


TRANSFORMER = block_params(16, 4, 32) | {"embed": normal(20, 16), "head": normal(16, 10, scale=0.3)}


def lstm_loss(params: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    def cell(carry: tuple, now: jax.Array) -> tuple:
        h, c = carry
        i, f, g, o = jnp.split(now @ params["wx"] + h @ params["wh"] + params["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[0], 8))
    (h, _), _ = lax.scan(cell, (start, start), x.swapaxes(0, 1))
    return cross_entropy(h @ params["out"], y)


LSTM = {"wx": normal(6, 32, scale=0.3), "wh": normal(8, 32, scale=0.3), "b": normal(32), "out": normal(8, 5)}

MEGATRON = {"wq": P(None, "model", None), "wk": P(None, "model", None), "wv": P(None, "model", None),
            "wo": P("model", None, None), "up": P(None, "model"), "down": P("model", None), "ln1": P(), "ln2": P()}


def megatron_gradients(params: list, x: jax.Array) -> tuple:
    def loss(params: list, x: jax.Array) -> jax.Array:
        for layer in params:
            x = block(layer, x)
        return jnp.mean(x * x)

    return jax.value_and_grad(loss)(params, x)


def training(specs: dict | P | None = None) -> tuple:
    return (P() if specs is None else specs, P("data"), P("data"))


TRAINING = [
    ShardedCase("mlp", sgd(mlp_loss), (MLP, normal(32, 24), integers(10, 32)), training(), moves={"all_reduce": 5}),
    ShardedCase("cnn", sgd(cnn_loss), (CNN, normal(16, 8, 8, 3), integers(10, 16)), training(), l2=5e-3,
                moves={"all_reduce": 9}),
    ShardedCase("transformer", sgd(transformer_loss), (TRANSFORMER, integers(20, 16, 6), integers(10, 16)),
                training(), l2=5e-4, moves={"all_reduce": 11}),
    ShardedCase("lstm", sgd(lstm_loss), (LSTM, normal(16, 5, 6), integers(5, 16)), training(), l2=1e-4,
                moves={"all_reduce": 5}),
    ShardedCase("megatron", megatron_gradients, ([block_params(16, 4, 32)] * 2, normal(8, 6, 16)),
                ([MEGATRON] * 2, P("data")), {"data": 4, "model": 2}, l2=1e-3,
                moves={"all_reduce": 8 + 16 + 1}),  # two a block and direction, gradients, loss
    ShardedCase("fsdp", sgd(mlp_loss), (MLP, normal(32, 24), integers(10, 32)),
                training({"w1": P("data"), "b1": P("data"), "w2": P("data"), "b2": P()}), l2=1e-4,
                moves={"all_gather": 3, "reduce_scatter": 3, "all_reduce": 2}),
    ShardedCase("per_example_gradients", jax.vmap(jax.grad(mlp_loss), (None, 0, 0)),
                (MLP, normal(16, 3, 24), integers(10, 16, 3)), training()),
]


def constrained(mesh: dict[str, int], x: jax.Array, w: jax.Array) -> jax.Array:
    """Cut by rows, then by columns, then whole, then by rows."""
    place = partial(NamedSharding, mesh_of(mesh))
    h = lax.with_sharding_constraint(jnp.sin(x), place(P(None, "data")))
    h = lax.with_sharding_constraint(h * 2, place(P()))
    return lax.with_sharding_constraint(h @ w, place(P("data")))


def partly_manual(x: jax.Array, w: jax.Array) -> jax.Array:
    """shard_map along data alone; the model axis is left to the compiler."""
    mesh = mesh_of({"data": 4, "model": 2})

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"), axis_names={"data"})
    def inner(x: jax.Array, w: jax.Array) -> jax.Array:
        h = jnp.tanh(x @ w)
        return h - lax.pmean(h, "data")

    return inner(x * 2, w) + 1


def partly_manual_whole(x: jax.Array, w: jax.Array) -> jax.Array:
    h = jnp.tanh((x * 2) @ w)
    return h - jnp.tile(h.reshape(4, 4, -1).mean(0), (4, 1)) + 1


def mapped_in_a_loop(x: jax.Array) -> jax.Array:
    """shard_map as the body of a scan, behind and before ops of the compiler's own."""
    mean = jax.shard_map(lambda v: v - lax.pmean(v, "data"), mesh=mesh_of({"data": 8}), in_specs=P("data"),
                         out_specs=P("data"))

    def body(carry: jax.Array, _: None) -> tuple:
        carry = mean(carry * carry)
        return carry, jnp.abs(carry).sum()

    return lax.scan(body, x * 0.5, None, length=3)


def mapped_in_a_loop_whole(x: jax.Array) -> jax.Array:
    def body(carry: jax.Array, _: None) -> tuple:
        carry = carry * carry
        carry = carry - jnp.tile(carry.reshape(8, 4, 5).mean(0), (8, 1))
        return carry, jnp.abs(carry).sum()

    return lax.scan(body, x * 0.5, None, length=3)


def take_bits(kind: type, table: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows of a table of floats that is given by its bits."""
    return lax.bitcast_convert_type(lax.bitcast_convert_type(table, kind)[rows], table.dtype)


def until_small(x: jax.Array) -> jax.Array:
    return lax.while_loop(lambda v: jnp.max(jnp.abs(v)) > 0.1, lambda v: v * 0.5, x)


def branch(x: jax.Array, y: jax.Array) -> jax.Array:
    return lax.cond(x.sum() > 0, lambda: (x + y).sum(0), lambda: (x - y).sum(0))


SMALL = [
    ShardedCase("constraints", partial(constrained, {"data": 8}), (normal(16, 24), normal(24, 8)), (P("data"), P()),
                l2=1e-4, moves={"all_to_all": 1, "all_gather": 1}),
    ShardedCase("wanted_result", lambda x: x + 1, (normal(16, 8),), (P("data"),), results=P(None, "data"),
                moves={"all_to_all": 1}, exact=True),
    ShardedCase("wanted_whole", lambda x: x * 2, (normal(16, 3),), (P("data"),), results=P(),
                moves={"all_gather": 1}, exact=True),
    ShardedCase("axes_swapped", lambda x: x * 2, (normal(16, 8),), (P("a", "b"),), {"a": 2, "b": 2, "c": 2},
                results=P("b", "a"), moves={"collective_permute": 1}, exact=True),
    ShardedCase("partly_manual", partly_manual, (normal(16, 8), normal(8, 6)), (P("data"), P(None, "model")),
                {"data": 4, "model": 2}, moves={"all_reduce": 1}, l2=1e-4, oracle=partly_manual_whole),
    ShardedCase("mapped_in_a_loop", mapped_in_a_loop, (normal(32, 5),), (P("data"),), moves={"all_reduce": 2},
                l2=1e-5, oracle=mapped_in_a_loop_whole),
    ShardedCase("until_small", until_small, (normal(16, 4),), (P("data"),), moves={"all_reduce": 1}, exact=True),
    ShardedCase("until_small_2d", until_small, (normal(16, 4),), (P("a", None),), {"a": 4, "b": 2},
                moves={"all_reduce": 1}, exact=True),
    ShardedCase("branch", branch, (normal(16, 4), normal(16, 4, seed=3)), (P("data"), P("data")), l2=1e-5,
                moves={"all_reduce": 3}),
    ShardedCase("sort", lambda x: jnp.sort(x, 1), (normal(16, 9),), (P("data"),), exact=True),
    ShardedCase("argmax_rows", lambda x: jnp.argmax(x, 1), (normal(16, 9),), (P("data"),), exact=True),
    ShardedCase("argmax_columns", lambda x: jnp.argmax(x, 0), (normal(16, 9),), (P("data"),),
                moves={"all_gather": 2}, exact=True),
    ShardedCase("take", lambda t, i: t[i], (normal(20, 6), integers(20, 16)), (P(), P("data")), exact=True),
    # NaN payloads, subnormals and -0 of a table that is cut by words.
    *(ShardedCase(f"take_bits_{np.dtype(kind).name}", partial(take_bits, kind),
                  (np.arange(0, 65536, 8, dtype=np.uint16).astype(word).reshape(1024, 8) << shift, integers(1024, 64)),
                  (P("data"), P()), moves={"all_reduce": 1}, exact=True)
      for kind, word, shift in ((jnp.bfloat16, np.uint16, 0), (jnp.float32, np.uint32, 16))),
    ShardedCase("scatter_add", lambda t, i, u: t.at[i].add(u), (normal(20, 6), integers(20, 16), normal(16, 6)),
                (P(), P("data"), P("data")), moves={"all_reduce": 1}, l2=1e-6),
    # The array before its slices, and the result: its rows lie by a part of the axis, as no result may.
    ShardedCase("micro_batches", lambda x: lax.scan(lambda c, b: (c + b.sum(0), b * 2), jnp.zeros(4),
                                                    x.reshape(4, 8, 4)), (normal(32, 4),), (P("data"),), l2=1e-5,
                moves={"all_gather": 2, "all_reduce": 1}),
    ShardedCase("random_bits", lambda x, key: x + jax.random.bits(jax.random.wrap_key_data(key), x.shape),
                (np.zeros((16, 6), np.uint32), np.array([7, 9], np.uint32)), (P("data"), P()), exact=True),
    ShardedCase("cumsum", lambda x: jnp.cumsum(x, 0), (normal(16, 3),), (P("data"),), l2=1e-6, moves={"all_gather": 1}),
    ShardedCase("uneven_inside", lambda x: jnp.concatenate([x, x[:3]]).reshape(-1, 5) * 2, (normal(16, 5),),
                (P("data"),), exact=True, moves={"all_gather": 1}),
    ShardedCase("maximum_of_all", lambda x: jnp.max(x), (normal(16, 3),), (P("data"),), moves={"all_reduce": 1},
                exact=True),
    ShardedCase("replicated_arguments", lambda x, y: x @ y, (normal(8, 6), normal(6, 4)), (P(), P()), l2=1e-6),
]

GROUPS = {"training": TRAINING, "small": SMALL}
