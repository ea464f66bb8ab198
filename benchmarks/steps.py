"""Steps of run.py that one simulated core runs against JAX: our graphs with their arguments, and JAX itself. Runs in
the virtual environment of tests/requirements.txt, started by run.py; each command prints one JSON object.

  bert_layer         a layer of BERT-base (bert.py): 8 sequences of 128 tokens, bf16 activations, dropout 0.1, AdamW
  gpt_block          a block of GPT-2 small (gpt.py): a sequence of 1,024 tokens, causal attention, else as bert_layer
  resnet_bottleneck  a bottleneck of ResNet-50 (resnet50.py): 16 images of 56x56x256, 64 features inside, bf16
                     activations, SGD with momentum
  mlp_step           the training step of examples/mnist_mlp (784-512-256-10, Adam), global batch 200
  conv2_dense        the second convolution of examples/mnist_convnet alone, f32, SGD with momentum: 25 images of
                     26x26x256, no relu before or behind it, so that no operand of a product is zero

All start from f32 parameters. The four layers minimise the mean square distance to a target, and give the gradient of
their input too, as a layer inside of a network does.

  steps.py export NAME FOLDER     NAME.mlirbc and its arguments 0.npy, 1.npy, ...
  steps.py run NAME STEPS FOLDER  seconds of each step on one CPU device, jitted, state donated; an error unless the
                                  results of the first one agree with ours, FOLDER/0.npy, 1.npy, ..., within what bf16
                                  explains
With --smoke: tiny sizes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import bert
import gpt
import network
import resnet50

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

ROOT = Path(__file__).resolve().parent.parent
# Difference of root mean squares that is still bf16's doing: operands and activations are rounded to 2^-9 of their
# size, and that goes through a chain of products, norms and sums in another order. The worst leaf has 0.033 here.
TOLERANCE = 0.06


@dataclass(frozen=True)
class Step:
    """A training step and what it starts from; results are (state, what else)."""

    function: Callable
    state: object
    batch: tuple


def normal(rng: np.random.Generator, *shape: int, dtype=np.float32) -> jax.Array:
    """Standard normal values."""
    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32), dtype)


def layer_step(apply: Callable, params, optimizer: optax.GradientTransformation, *batch) -> Step:
    """Mean of squares against a target; apply(params, x, *rest) -> y, batch = (x, target, *rest)."""

    def step(state, x, target, *rest):
        params, moments = state

        def loss_of(p, x):
            return jnp.mean(jnp.square(apply(p, x, *rest).astype(jnp.float32) - target))

        loss, (grads, below) = jax.value_and_grad(loss_of, argnums=(0, 1))(params, x)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), (loss, below)

    return Step(step, (params, optimizer.init(params)), batch)


def attention_step(layer: Callable, config: network.Sizes, sequences: int) -> Step:
    """A layer of an attention network, layer(config), and AdamW."""
    rng = np.random.default_rng(0)
    shape = (sequences, config.length, config.features)
    x, target = normal(rng, *shape), normal(rng, *shape)
    net = layer(config)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    params = jax.jit(net.init)(keys, x)["params"]  # one by one, its operations take seconds to compile

    def apply(p, x, seed):
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return net.apply({"params": p}, x.astype(config.dtype), rngs={"dropout": key})

    return layer_step(apply, params, optax.adamw(1e-4, weight_decay=0.01), x, target, np.array([1, 2], np.uint32))


SMALL = {"features": 64, "heads": 2, "inside": 128, "length": 16}  # of an attention network, with --smoke


def bert_layer(smoke: bool) -> Step:
    """One Layer of bert.py."""
    return attention_step(bert.Layer, bert.Config(**SMALL if smoke else {}), 1 if smoke else 8)


def gpt_block(smoke: bool) -> Step:
    """One Block of gpt.py."""
    return attention_step(gpt.Block, gpt.Config(**SMALL if smoke else {}), 1)


def resnet_bottleneck(smoke: bool) -> Step:
    """One Bottleneck of resnet50.py that keeps its shape."""
    features, images, side = (8, 2, 8) if smoke else (64, 16, 56)
    rng = np.random.default_rng(0)
    shape = (images, side, side, 4 * features)
    x, target = normal(rng, *shape), normal(rng, *shape)
    block = resnet50.Bottleneck(features, 1)
    variables = jax.jit(block.init)(jax.random.key(0), x)
    # The last norm starts with a scale of zero, behind which all gradients are zero.
    params = jax.tree.map(lambda a: a if a.ndim > 1 else a + 0.5, variables["params"])

    def apply(p, x):
        variables_of = {"params": p, "batch_stats": variables["batch_stats"]}
        return block.apply(variables_of, x.astype(jnp.bfloat16), mutable=["batch_stats"])[0]

    return layer_step(apply, params, optax.sgd(0.1, momentum=0.9), x, target)


def conv2_dense(smoke: bool) -> Step:
    """A convolution on operands without zeros."""
    images, side, features = (2, 8, 16) if smoke else (25, 26, 256)
    rng = np.random.default_rng(0)
    x = normal(rng, images, side, side, features)
    target = normal(rng, images, side - 2, side - 2, features)
    window = normal(rng, 3, 3, features, features) * (9 * features)**-0.5

    def apply(p, x):
        return lax.conv_general_dilated(x, p, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return layer_step(apply, window, optax.sgd(0.1, momentum=0.9), x, target)


def mlp_step(smoke: bool) -> Step:
    """The step of examples/mnist_mlp on one core."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))  # one device; the example's own setting says eight
    sys.path.insert(0, str(ROOT / "examples" / "mnist_mlp"))
    import export

    batch = 8 if smoke else export.BATCH
    rng = np.random.default_rng(0)
    params = export.init_params(0)
    train = export.make_train_step(mesh)

    def step(state, images, labels):
        params, moments, loss = train(*state, images, labels)
        return (params, moments), (loss,)

    images = jnp.asarray(rng.random((batch, export.LAYERS[0]), dtype=np.float32))
    labels = jnp.asarray(rng.integers(0, export.LAYERS[-1], batch).astype(np.int32))
    return Step(step, (params, optax.adam(export.LEARNING_RATE).init(params)), (images, labels))


STEPS = {"bert_layer": bert_layer, "gpt_block": gpt_block, "resnet_bottleneck": resnet_bottleneck,
         "mlp_step": mlp_step, "conv2_dense": conv2_dense}


def jitted(step: Step):
    """As both sides run it."""
    return jax.jit(step.function, donate_argnums=0, keep_unused=True)


def export_step(name: str, step: Step, folder: Path) -> dict:
    """Graph and arguments."""
    exported = jax.export.export(jitted(step), platforms=["tpu"])(step.state, *step.batch)
    (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)
    leaves = jax.tree.leaves((step.state, step.batch))
    for i, leaf in enumerate(leaves):
        np.save(folder / f"{i}.npy", np.asarray(leaf))
    return {"arguments": len(leaves)}


def groups_of(results) -> list[list[np.ndarray]]:
    """Results whose elements are of one kind: parameters, each moment of the optimiser, loss, gradient of the input."""
    (params, moments), rest = results
    found = (optax.tree_utils.tree_get(moments, name) for name in ("mu", "nu", "trace"))
    groups = [params, *(moment for moment in found if moment is not None), *rest]
    return [[np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(group)] for group in groups]


def root_mean_square(*arrays: np.ndarray) -> float:
    """Over the elements of all."""
    return (sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays) / sum(a.size for a in arrays)) ** 0.5


def worst_error(ours: Path, results) -> float:
    """Largest difference of a leaf, relative to the leaf or to its group, whichever is larger: a gradient that cancels
    (of an attention's key bias) is nothing but rounding, and so is Adam's step for it."""
    leaves, form = jax.tree.flatten(results)
    got = jax.tree.unflatten(form, [np.load(ours / f"{i}.npy") for i in range(len(leaves))])
    worst = 0.0
    for mine, theirs in zip(groups_of(got), groups_of(results), strict=True):
        size = root_mean_square(*theirs)
        errors = (root_mean_square(a - b) / max(root_mean_square(b), size) for a, b in zip(mine, theirs, strict=True))
        worst = max(worst, *errors)
    return worst


def run(step: Step, steps: int, ours: Path) -> dict:
    """JAX; the first two steps compile, one for arguments from outside and one for its own results."""
    function, state = jitted(step), step.state
    batch = jax.device_put(step.batch)
    seconds = []
    for i in range(steps):
        start = time.perf_counter()
        state, rest = jax.block_until_ready(function(state, *batch))
        seconds.append(time.perf_counter() - start)
        if i == 0:
            error = worst_error(ours, (state, rest))
    if not error <= TOLERANCE:
        raise SystemExit(f"steps.py: results differ by {error:.3g} of their size, at most {TOLERANCE} was expected")
    return {"step_seconds": seconds, "error": error, "what": f"JAX {jax.__version__}, one CPU device"}


def main() -> None:
    """Command line."""
    match [word for word in sys.argv[1:] if word != "--smoke"]:
        case "export", name, folder if name in STEPS:
            result = export_step(name, STEPS[name]("--smoke" in sys.argv), Path(folder))
        case "run", name, steps, ours if name in STEPS:
            result = run(STEPS[name]("--smoke" in sys.argv), int(steps), Path(ours))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
