"""Training steps of many kinds: activations, losses, optimizers, normalisation, precision, meshes, odd sizes.

Each case is one step (parameters, optimizer state, inputs, labels) -> (parameters, state, loss) over 8 cores with
lax.pmean of loss and gradients, or of one core, from a state that is past its first step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "gelu": jax.nn.gelu, "softplus": jax.nn.softplus, "silu": jax.nn.silu,
    "leaky_relu": jax.nn.leaky_relu, "elu": jax.nn.elu, "mish": jax.nn.mish, "relu6": jax.nn.relu6}

# Of logits [n, classes] and one-hot labels.
LOSSES: dict[str, Callable] = {
    "mse": lambda z, t: jnp.mean((z - t) ** 2),
    "smoothed": lambda z, t: jnp.mean(optax.softmax_cross_entropy(z, optax.smooth_labels(t, 0.1))),
    "logsumexp": lambda z, t: jnp.mean(jax.nn.logsumexp(z, -1) - jnp.sum(z * t, -1)),
    "huber": lambda z, t: jnp.mean(optax.huber_loss(z, t)),
    "sigmoid_focal": lambda z, t: jnp.mean(optax.sigmoid_focal_loss(z, t)),
    "kl": lambda z, t: jnp.mean(optax.kl_divergence(jax.nn.log_softmax(z), optax.smooth_labels(t, 0.1)))}

OPTIMIZERS: dict[str, optax.GradientTransformation] = {
    "momentum": optax.sgd(0.1, 0.9), "nesterov": optax.sgd(0.1, 0.9, nesterov=True), "adam": optax.adam(1e-3),
    "adamw": optax.adamw(1e-3), "rmsprop": optax.rmsprop(1e-3, momentum=0.9, centered=True),
    "adagrad": optax.adagrad(0.1), "clip": optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, 0.9)),
    "decay": optax.chain(optax.add_decayed_weights(1e-2), optax.sgd(0.1)), "lamb": optax.lamb(1e-3),
    "polynomial": optax.adam(optax.polynomial_schedule(1e-3, 0, 2, 100)),
    "piecewise": optax.sgd(optax.piecewise_constant_schedule(0.1, {3: 0.1, 10: 0.1})),
    "warmup": optax.adam(optax.warmup_exponential_decay_schedule(0.0, 1e-3, 5, 10, 0.9)),
    "adafactor": optax.adafactor(1e-3), "lion": optax.lion(1e-3)}


@dataclass(frozen=True)
class TrainCase:
    """One training step. `mesh` are the sizes of the mesh's axes; empty: a program of one core."""

    name: str
    layers: tuple[int, ...] = (13, 30, 7)
    batch: int = 5  # examples a core
    activation: str = "tanh"
    loss: str = "logsumexp"
    optimizer: str = "momentum"
    bias: bool = True
    normalise: bool = False  # layer norm before each activation
    compute: type = jnp.float32
    exchange: type = jnp.float32  # of gradients between the cores
    mesh: tuple[int, ...] = (8,)
    check_vma: bool = False
    donate: bool = True
    # Relative L2 of what the step changes, and of the loss. Sums in another order round some operand of the next matmul
    # to the other bf16 neighbour: up to 6e-4 of the change (mesh_2x2x2), about 1e-6 where it happens to none.
    bound: float = 1e-3

    def _normal(self, *shape: int, seed: int, scale: float = 1.0) -> np.ndarray:
        return np.random.default_rng(seed).normal(0.0, scale, shape).astype(np.float32)

    def _parameters(self) -> list[dict[str, np.ndarray]]:
        parameters = []
        for i, (m, n) in enumerate(itertools.pairwise(self.layers)):
            layer = {"w": self._normal(m, n, seed=i, scale=(2.0 / m) ** 0.5)}
            if self.bias:
                layer["b"] = self._normal(n, seed=100 + i, scale=0.1)
            if self.normalise and i < len(self.layers) - 2:
                layer |= {"gain": 1 + self._normal(n, seed=200 + i, scale=0.1), "shift": self._normal(n, seed=300 + i)}
            parameters.append(layer)
        return parameters

    def _logits(self, parameters, x: jax.Array) -> jax.Array:
        parameters, x = jax.tree.map(lambda a: a.astype(self.compute), (parameters, x))
        for i, layer in enumerate(parameters):
            x = x @ layer["w"]
            if "b" in layer:
                x = x + layer["b"]
            if "gain" in layer:
                x = x - jnp.mean(x, -1, keepdims=True)
                x = x * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * layer["gain"] + layer["shift"]
            if i < len(parameters) - 1:
                x = ACTIVATIONS[self.activation](x)
        return x.astype(jnp.float32)

    def build(self) -> tuple[Callable, tuple]:
        """The function and its arguments."""
        optimizer = OPTIMIZERS[self.optimizer]
        axes = ("data", "model", "more")[: len(self.mesh)]

        def step(parameters, state, x, labels):
            def loss_of(p):
                return LOSSES[self.loss](self._logits(p, x), jax.nn.one_hot(labels, self.layers[-1]))

            loss, gradients = jax.value_and_grad(loss_of)(parameters)
            if axes:
                gradients = jax.tree.map(lambda g: g.astype(self.exchange), gradients)
                loss, gradients = lax.pmean((loss, gradients), axes)
                gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
            updates, state = optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, loss

        parameters = self._parameters()
        cores = int(np.prod(self.mesh))
        x = self._normal(self.batch * cores, self.layers[0], seed=7)
        labels = np.random.default_rng(3).integers(0, self.layers[-1], self.batch * cores).astype(np.int32)
        arguments = (parameters, self._past(optimizer.init(parameters)), x, labels)
        if not axes:
            return step, arguments
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:cores]).reshape(self.mesh), axes)
        return jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P(axes), P(axes)), out_specs=P(),
                             check_vma=self.check_vma), arguments

    def _past(self, state):
        """A state some steps on: counters at 3, positive moments."""
        def later(leaf):
            a = np.asarray(leaf)
            if a.dtype == np.int32:
                return a + np.int32(3)
            return (a + np.abs(self._normal(*a.shape, seed=11, scale=0.01))).astype(a.dtype)
        return jax.tree.map(later, state)


def all_cases() -> list[TrainCase]:
    """Everything, with unique names."""
    bf16 = jnp.bfloat16
    return [
        *(TrainCase(f"activation_{name}", activation=name) for name in ACTIVATIONS),
        *(TrainCase(f"loss_{name}", loss=name) for name in LOSSES),
        *(TrainCase(f"optimizer_{name}", optimizer=name) for name in OPTIMIZERS),
        TrainCase("deep", layers=(10, *(16,) * 8, 5), batch=4, optimizer="adam"),
        TrainCase("odd_sizes", layers=(7, 13, 129, 300, 3), batch=1, optimizer="adam"),
        TrainCase("shrinking_batch_64", layers=(1000, 129, 13, 7), batch=64),
        TrainCase("linear", layers=(784, 10), batch=25),
        TrainCase("one_neuron", layers=(1, 1, 1), batch=1, loss="mse"),
        TrainCase("wide", layers=(129, 1000, 300, 7), batch=17, optimizer="adam"),
        TrainCase("no_bias", layers=(50, 300, 10), batch=8, bias=False, optimizer="adamw"),
        TrainCase("layer_norm", layers=(50, 129, 40, 10), batch=16, normalise=True, activation="gelu"),
        # bf16 activations: XLA keeps more bits than bf16 inside of a fusion, the board rounds each result.
        TrainCase("bf16", layers=(50, 129, 40, 10), batch=8, compute=bf16, optimizer="adam", bound=1e-2),
        TrainCase("bf16_layer_norm", layers=(50, 129, 40, 10), batch=16, compute=bf16, normalise=True, bound=2e-2),
        TrainCase("undonated", layers=(50, 129, 10), batch=8, donate=False),
        TrainCase("check_vma", layers=(50, 129, 10), batch=8, check_vma=True),
        TrainCase("mesh_4x2", layers=(50, 129, 10), batch=8, mesh=(4, 2), optimizer="adam"),
        TrainCase("mesh_2x2x2", layers=(50, 129, 10), batch=3, mesh=(2, 2, 2)),
        TrainCase("one_core", layers=(50, 129, 10), batch=33, mesh=(), optimizer="adam"),
    ]
