"""Two towers for retrieval, on embedding tables larger than a core's memory: user and clicked items in, item out.

The user tower sees the user's row and the mean of the rows of items clicked before, the item tower the item's row; loss
is the softmax over the items of the batch. Tables are those of tpuboard.embedding, cut over the eight cores; the towers
are replicated. Clicks are made up: a user prefers one topic, items have one each, ids lie anywhere in the tables.

Usage: two_tower.py [--config FILE] [--shrink N] [--steps N] [--export FOLDER [--examples N]]
--export writes train_step.mlirbc, examples and train.toml for `tpuboard train`. Needs requirements.txt.
"""

from __future__ import annotations

import argparse
import resource
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tpuboard
from tpuboard import embedding

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

Config = dict[str, dict[str, Any]]


def clicks(config: Config) -> Iterator[dict[str, np.ndarray | embedding.Ids]]:
    """Batches without end; the same for a seed."""
    data, tables, batch = config["data"], config["tables"], config["training"]["batch"]
    random = np.random.default_rng(data["seed"])
    users = random.choice(tables["users"], data["active_users"], replace=False).astype(np.int32)
    items = random.choice(tables["items"], data["active_items"], replace=False).astype(np.int32)
    items_of_topic = len(items) // data["topics"]

    def click(topic: np.ndarray) -> np.ndarray:
        liked = topic * items_of_topic + random.integers(0, items_of_topic, topic.shape)
        return np.where(random.random(topic.shape) < data["noise"], random.integers(0, len(items), topic.shape), liked)

    while True:
        user = random.integers(0, len(users), batch)
        topic = user % data["topics"]
        seen = click(np.repeat(topic[:, None], data["history"], axis=1))
        lengths = random.integers(0, data["history"] + 1, batch).astype(np.int32)
        yield {"user": users[user], "history": embedding.Ids(items[seen], lengths), "item": items[click(topic)]}


def make_layer(config: Config, mesh: Mesh) -> embedding.Embedding:
    """Tables of users and items: stacked, since they agree in all but their size."""
    tables = config["tables"]
    adagrad = embedding.Adagrad(tables["rate"], tables["first_squares"])
    users, items = (embedding.TableConfig(name, tables[name], tables["dim"], "mean", adagrad)
                    for name in ("users", "items"))
    features = {"user": embedding.FeatureConfig(users), "item": embedding.FeatureConfig(items),
                "history": embedding.FeatureConfig(items, config["data"]["history"])}
    return embedding.Embedding(features, mesh, batch=config["training"]["batch"],
                               capacity=config["training"]["capacity"])


def make_towers(config: Config) -> dict[str, list[jax.Array]]:
    """Weights of two dense layers for each tower."""
    dim, hidden, out = config["tables"]["dim"], config["model"]["hidden"], config["model"]["out"]
    random = np.random.default_rng(config["data"]["seed"])
    return {name: [jnp.asarray(random.normal(0, (2 / m) ** 0.5, (m, n)), jnp.float32)
                   for m, n in ((wide, hidden), (hidden, out))] for name, wide in (("user", 2 * dim), ("item", dim))}


def tower(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    """[batch, out] of length 1."""
    y = jax.nn.relu(x @ weights[0]) @ weights[1]
    return y * jax.lax.rsqrt(jnp.sum(y * y, axis=1, keepdims=True) + 1e-6)


def make_step(config: Config, layer: embedding.Embedding, optimizer: optax.GradientTransformation):
    """(state, batch) -> (state, loss, share of clicks whose item is among the best ten of the batch, counts of ids)."""
    def loss_of(towers, vectors, items):
        user = tower(towers["user"], jnp.concatenate([vectors["user"], vectors["history"]], axis=1))
        item = tower(towers["item"], vectors["item"])
        scores = user @ item.T / config["model"]["temperature"]
        own = jnp.eye(len(items), dtype=bool)
        scores = jnp.where((items[:, None] == items[None, :]) & ~own, -1e9, scores)  # other clicks on the same item
        right = jnp.sum(jnp.where(own, scores, 0), axis=1)
        better = jnp.sum(scores > right[:, None], axis=1)
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - right), jnp.mean((better < 10).astype(jnp.float32))

    def step(state, batch):
        vectors, lookup = layer.lookup(state["tables"], batch)
        (loss, hits), (towers, rows) = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)(
            state["towers"], vectors, batch["item"])
        updates, moments = optimizer.update(towers, state["optimizer"])
        state = {"tables": layer.apply_gradients(state["tables"], lookup, rows),
                 "towers": optax.apply_updates(state["towers"], updates), "optimizer": moments}
        return state, loss, hits, lookup.stats
    return step


def export(config: Config, folder: Path, examples: int) -> None:
    """Arguments: leaves of the state, then history (ids, lengths), item, user; results: leaves, loss, hits, counts."""
    mesh = jax.sharding.AbstractMesh((8,), ("core",))
    layer, optimizer = make_layer(config, mesh), optax.adam(config["model"]["rate"])
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("core"))

    def like(tree: Any, sharding: NamedSharding) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
    towers, batches = make_towers(config), clicks(config)
    state = {"tables": layer.shapes()} | like({"towers": towers, "optimizer": optimizer.init(towers)}, whole)
    step = jax.jit(make_step(config, layer, optimizer), donate_argnums=0, keep_unused=True)
    some = [next(batches) for _ in range(-(-examples // layer.batch))]
    artifact = jax.export.export(step, platforms=["tpu"])(state, like(some[0], cut))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train_step.mlirbc").write_bytes(artifact.mlir_module_serialized)
    for name, arrays in (("history", [batch["history"].ids for batch in some]),
                         ("lengths", [batch["history"].lengths for batch in some]),
                         ("item", [batch["item"] for batch in some]), ("user", [batch["user"] for batch in some])):
        np.save(folder / f"{name}.npy", np.concatenate(arrays))
    text = (Path(__file__).parent / "train.toml.in").read_text()
    for key, value in (config["tables"] | config["training"]).items():
        text = text.replace(f"@{key.upper()}@", str(value))
    (folder / "train.toml").write_text(text)


def train(config: Config, steps: int) -> None:
    """Trains, and prints what it came to and what it cost."""
    mesh = Mesh(np.array(jax.devices()), ("core",))
    layer, optimizer = make_layer(config, mesh), optax.adam(config["model"]["rate"])
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("core"))
    towers = make_towers(config)
    state = {"tables": layer.init()} | jax.device_put({"towers": towers, "optimizer": optimizer.init(towers)}, whole)
    step = jax.jit(make_step(config, layer, optimizer), donate_argnums=0)
    stored = sum(array.nbytes for array in jax.tree.leaves(state["tables"]))
    print(f"{stored / 2**30:.1f} GiB of tables on {mesh.size} cores", flush=True)
    batches, started = clicks(config), time.perf_counter()
    on_board = jax.devices()[0].platform != "cpu"
    losses, hits = [], []
    for number in range(1, steps + 1):
        batch = next(batches)
        layer.check_ids(batch)
        placed = jax.device_put(batch, cut)
        if number == steps and on_board:
            with tpuboard.measure("a step", ops=8):
                state, loss, hit, stats = step(state, placed)
        else:
            state, loss, hit, stats = step(state, placed)
        layer.check_stats(stats)
        losses.append(float(loss))
        hits.append(float(hit))
        if number % config["training"]["report"] == 0 or number in (1, steps):
            some = slice(-config["training"]["report"], None)
            print(f"step {number}: loss {np.mean(losses[some]):.3f}, accuracy@10 {np.mean(hits[some]):.3f}, fullest "
                  f"exchange {int(stats.fullest)}, {(time.perf_counter() - started) / number:.2f} s a step", flush=True)
    print(f"memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path(__file__).parent / "config.toml")
    parser.add_argument("--shrink", type=int, default=1, help="tables N times smaller")
    parser.add_argument("--steps", type=int, help="default: those of the configuration")
    parser.add_argument("--export", type=Path, help="write step and examples there instead of training")
    parser.add_argument("--examples", type=int, default=16384)
    options = parser.parse_args()
    config = tomllib.loads(options.config.read_text())
    for name in ("users", "items"):
        config["tables"][name] //= options.shrink
    if options.export:
        export(config, options.export, options.examples)
    else:
        train(config, options.steps or config["training"]["steps"])


if __name__ == "__main__":
    main()
