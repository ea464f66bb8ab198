"""A small language model of bytes, exported for `tpuboard train`: a decoder of two layers, data parallel on 8 cores.

Writes train_step.mlirbc, eval_step.mlirbc, text.u8 (the bytes of Markdown pages, in windows) and train.toml. The
programs take the parameters, Adam's moments, a batch of windows and the learning rate of the step.

Usage: byte_lm.py [--out DIR] [--text DIR] [--length N] [--width N] [--layers N] [--batch N] [--cores 1|8]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|examples)/")

BYTES = 256
HEADS = 4
CONFIG = """[program]
train = "train_step.mlirbc"
eval = "eval_step.mlirbc"
eval_results = ["loss", "accuracy"]

[state]
seed = 1
init = [{init}]

[data]
split_seed = 7
eval_count = {held_out}

[[data.input]]
name = "text"
file = "text.u8"
classes = 256

[run]
batch = {batch}
epochs = {epochs}
eval_every = 1
checkpoint = "checkpoint"

[learning_rate]
schedule = "cosine"
value = 2e-3
warmup_steps = 20

[early_stop]
metric = "loss"
patience = 3
"""


def parameter_shapes(length: int, width: int, layers: int) -> dict:
    """Shapes of the parameters by name."""
    shape = {"embed": (BYTES, width), "place": (length, width), "norm": (width,)}
    for layer in range(layers):
        shape |= {f"layer{layer}": {"attention_norm": (width,), "mix": (width, 3 * width), "out": (width, width),
                                    "mlp_norm": (width,), "up": (width, 4 * width), "down": (4 * width, width)}}
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shape, is_leaf=lambda s: isinstance(s, tuple))


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square normalisation of the last dimension."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def attention(x: jax.Array, layer: dict) -> jax.Array:
    """Causal self-attention: f32[batch, length, width]."""
    batch, length, width = x.shape
    q, k, v = (part.reshape(batch, length, HEADS, width // HEADS) for part in jnp.split(x @ layer["mix"], 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // HEADS) ** -0.5
    rows = lax.broadcasted_iota(jnp.int32, (length, length), 0)
    columns = lax.broadcasted_iota(jnp.int32, (length, length), 1)
    weights = jax.nn.softmax(jnp.where(rows >= columns, scores, -1e30))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width) @ layer["out"]


def logits_of(params: dict, tokens: jax.Array) -> jax.Array:
    """The byte behind each byte: i32[batch, length] -> f32[batch, length, 256]. The embedding is a one-hot product."""
    x = jax.nn.one_hot(tokens, BYTES) @ params["embed"] + params["place"]
    for name in sorted(key for key in params if key.startswith("layer")):
        layer = params[name]
        x = x + attention(rms_norm(x, layer["attention_norm"]), layer)
        hidden = jax.nn.gelu(rms_norm(x, layer["mlp_norm"]) @ layer["up"])
        x = x + hidden @ layer["down"]
    return rms_norm(x, params["norm"]) @ params["embed"].T


def losses_of(params: dict, text: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy (nats a byte) and share of right bytes, each by example."""
    logits, wanted = logits_of(params, text[:, :-1]), text[:, 1:]
    chosen = wanted[..., None] == lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    losses = -jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0.0), axis=-1)
    right = jnp.sum(jnp.where(chosen, logits, 0.0), axis=-1) >= jnp.max(logits, axis=-1)
    return jnp.mean(losses, axis=-1), jnp.mean(right.astype(jnp.float32), axis=-1)


def make_steps(cores: int) -> tuple:
    """Train step (params, moments, text, learning_rate) -> (params, moments, loss); eval step (params, text) -> figures
    of each example."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())

    def train(params, moments, text, learning_rate):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(losses_of(p, text)[0]))(params)
        if cores > 1:
            loss, grads = lax.pmean((loss, grads), "data")
        updates, moments = optimizer.update(grads, moments, params)
        params = jax.tree.map(lambda p, u: p - learning_rate * u, params, updates)
        return params, moments, loss

    if cores == 1:
        return train, losses_of, optimizer
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:cores]), ("data",))
    sharded = jax.shard_map(train, mesh=mesh, in_specs=(P(), P(), P("data"), P()), out_specs=(P(), P(), P()),
                            check_vma=False)

    def train_step(params, moments, text, learning_rate):
        return sharded(params, moments, text, learning_rate)

    evaluate = jax.shard_map(losses_of, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P("data"), P("data")),
                             check_vma=False)

    def eval_step(params, text):
        return evaluate(params, text)

    return train_step, eval_step, optimizer


def init_rules(params: dict, moments: int) -> str:
    """Rules of [state] for the leaves in their order: scales of norms are one, matrices normal."""
    leaves = jax.tree.leaves(params)
    rules = ["ones" if len(leaf.shape) == 1 else "normal:0.02" for leaf in leaves]
    return ", ".join(f'"{rule}"' for rule in [*rules, f"zeros*{moments}"])


def windows(folder: Path, length: int) -> np.ndarray:
    """The bytes of all Markdown pages of a folder as u8[examples, length + 1]."""
    text = b"\n".join(page.read_bytes() for page in sorted(folder.rglob("*.md")))
    count = len(text) // (length + 1)
    if count == 0:
        raise SystemExit(f"{folder}: fewer bytes of Markdown than one window of {length + 1}")
    return np.frombuffer(text[: count * (length + 1)], np.uint8).reshape(count, length + 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parent
    parser.add_argument("--out", type=Path, default=root)
    parser.add_argument("--text", type=Path, default=root.parent.parent / "docs")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="examples of a step, all cores together")
    parser.add_argument("--cores", type=int, default=8, choices=(1, 8))
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    if args.batch % args.cores != 0 or args.width % HEADS != 0:
        parser.error(f"--batch must be a multiple of --cores, --width of {HEADS}")
    jax.config.update("jax_num_cpu_devices", args.cores)

    train_step, eval_step, optimizer = make_steps(args.cores)
    params = parameter_shapes(args.length, args.width, args.layers)
    moments = jax.eval_shape(optimizer.init, params)
    text = jax.ShapeDtypeStruct((args.batch, args.length + 1), jnp.int32)
    rate = jax.ShapeDtypeStruct((), jnp.float32)
    train = jax.jit(train_step, donate_argnums=(0, 1), keep_unused=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, artifact in (
            ("train_step", jax.export.export(train, platforms=["tpu"])(params, moments, text, rate)),
            ("eval_step", jax.export.export(jax.jit(eval_step, keep_unused=True), platforms=["tpu"])(params, text))):
        (args.out / f"{name}.mlirbc").write_bytes(artifact.mlir_module_serialized)
    examples = windows(args.text, args.length)
    (args.out / "text.u8").write_bytes(examples.tobytes())
    (args.out / "train.toml").write_text(CONFIG.format(
        init=init_rules(params, len(jax.tree.leaves(moments))), batch=args.batch, epochs=args.epochs,
        held_out=max(1, len(examples) // 10)), encoding="utf-8")
    print(f"{args.out}: {len(examples)} windows of {args.length + 1} bytes, "
          f"{sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))} parameters")


if __name__ == "__main__":
    main()
