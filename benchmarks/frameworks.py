"""One training step of the same network by several frameworks: simulated time, and time of the host.

Usage: frameworks.py [--frameworks jax,keras,torch] [--optimizer sgd|adam] [--batch N] [--steps N] [--rounds N]
                     [--longer TIMES]
                     [--layers 784,1024,1024,10 | --convnet FILTERS] [--python FILE] [--venv FOLDER]
                     [--form default|stablehlo] [--tf-venv FOLDER] [--library FILE] [--json FILE]
  --frameworks   keras: on JAX; torch: PyTorch/XLA; tensorflow: Keras 2 on TensorFlow; tensorflow3: Keras 3 on it.
                 The first one is what the others are compared with
  --python, --venv, --tf-venv   environments of JAX and Keras, of PyTorch/XLA, of TensorFlow
  --longer       with each round, one of TIMES as many steps: so processor time is that of a further step, and what
                 a round takes besides (a call of `fit` makes an iterator and reads metrics)
  --layers       an MLP on one core
  --convnet      the network of the guide "Use TPUs", which has 256 filters, on eight cores, with its metric: by
                 TPUStrategy, and by DataParallel of Keras on JAX. Only for keras and tensorflow
Each framework has a process and a board of its own, and runs a round of steps in turn with the others. All have the
same weights and batches; each step gets its batch from the host, as a training does. The figures are of one step:
simulated microseconds, the least of the rounds, and milliseconds of the host: wall-clock time, and the processor time
of all threads, which other programs on the host change less. Their ratios are medians of the ratios within a round. An
upload that a busy host starts late does not run beside a step, which then takes longer. Mean losses of the first round
may differ by 1 %, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = ("jax", "keras", "torch", "tensorflow", "tensorflow3")
OF_CONVNET = ("keras", "tensorflow", "tensorflow3")
RATES = {"sgd": 0.1, "adam": 1e-3}
LOSS_BOUND = 0.01
SIDE, CLASSES = 28, 10

# A step for each batch; what the losses can be read from, later.
Round = Callable[[list[tuple[Any, Any]]], list[Any]]


def shapes_of(options: argparse.Namespace) -> list[tuple[int, ...]]:
    """Of the weights of each layer, without its biases."""
    if not options.convnet:
        return list(zip(options.layers, options.layers[1:], strict=False))
    filters = options.convnet
    inside = (SIDE - 4) ** 2 * filters
    return [(3, 3, 1, filters), (3, 3, filters, filters), (inside, 256), (256, 128), (128, CLASSES)]


def weights_of(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    """He-normal, the same for all frameworks."""
    import numpy as np

    chance = np.random.default_rng(0)
    return [(chance.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape).astype(np.float32),
             np.zeros(shape[-1], np.float32)) for shape in shapes_of(options)]


def batches_of(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    """As many as a round has steps; the label is the largest of the first elements."""
    import numpy as np

    chance = np.random.default_rng(1)
    shape, classes = ((SIDE, SIDE, 1), CLASSES) if options.convnet else (options.layers[:1], options.layers[-1])
    found = []
    for _ in range(options.steps):
        x = chance.normal(size=(options.batch, *shape)).astype(np.float32)
        found.append((x, x.reshape(options.batch, -1)[:, :classes].argmax(1).astype(np.int32)))
    return found


def jax_round(options: argparse.Namespace) -> Round:
    """optax, one jitted function, its state donated."""
    import jax
    import optax

    rate = RATES[options.optimizer]
    optimizer = optax.adam(rate) if options.optimizer == "adam" else optax.sgd(rate)
    params = jax.device_put(weights_of(options))
    state = [params, optimizer.init(params)]

    def loss_of(params: list, x: jax.Array, y: jax.Array) -> jax.Array:
        for weight, bias in params[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        logits = x @ params[-1][0] + params[-1][1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def step(params: list, state: Any, x: jax.Array, y: jax.Array) -> tuple:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    step = jax.jit(step, donate_argnums=(0, 1))

    def run(batches: list[tuple[Any, Any]]) -> list[Any]:
        losses = []
        for x, y in batches:
            state[0], state[1], loss = step(state[0], state[1], x, y)
            losses.append(loss)
        return losses

    return run


def keras_model(keras: Any, options: argparse.Namespace) -> Any:
    """Of any Keras, compiled."""
    layers, sizes = keras.layers, options.layers
    if options.convnet:
        parts = [layers.InputLayer((SIDE, SIDE, 1)), layers.Conv2D(options.convnet, 3, activation="relu"),
                 layers.Conv2D(options.convnet, 3, activation="relu"), layers.Flatten(),
                 layers.Dense(256, activation="relu"), layers.Dense(128, activation="relu"), layers.Dense(CLASSES)]
    else:
        parts = [layers.InputLayer((sizes[0],)), *(layers.Dense(columns, activation="relu") for columns in sizes[1:-1]),
                 layers.Dense(sizes[-1])]
    model = keras.Sequential(parts)
    model.set_weights([array for pair in weights_of(options) for array in pair])
    kind = keras.optimizers.Adam if options.optimizer == "adam" else keras.optimizers.SGD
    model.compile(kind(RATES[options.optimizer]), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["sparse_categorical_accuracy"] if options.convnet else None)
    return model


def keras_round(options: argparse.Namespace) -> Round:
    """`fit` of a compiled model."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    import numpy as np

    if options.convnet:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = keras_model(keras, options)

    def run(batches: list[tuple[Any, Any]]) -> list[Any]:
        x, y = (np.concatenate([batch[i] for batch in batches]) for i in (0, 1))
        return model.fit(x, y, batch_size=options.batch, shuffle=False, verbose=0).history["loss"]

    return run


def tensorflow_round(options: argparse.Namespace) -> Round:
    """`fit` of a compiled model, under TPUStrategy; the iterator lives as long as the training."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = None if options.convnet else tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=1)
    strategy = tf.distribute.TPUStrategy(resolver, experimental_device_assignment=cores)
    with strategy.scope():
        model = keras_model(tf.keras, options)

    def run(batches: list[tuple[Any, Any]]) -> list[Any]:
        x, y = (tf.concat([batch[i] for batch in batches], 0) for i in (0, 1))
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(options.batch, drop_remainder=True)
        return model.fit(data, verbose=0).history["loss"]

    return run


def torch_round(options: argparse.Namespace) -> Round:
    """The loop of PyTorch/XLA's documents."""
    import torch
    import torch_xla

    device = torch_xla.device()
    rate = RATES[options.optimizer]
    parts: list[torch.nn.Module] = []
    for weight, bias in weights_of(options):
        layer = torch.nn.Linear(*weight.shape)
        layer.load_state_dict({"weight": torch.from_numpy(weight.T.copy()), "bias": torch.from_numpy(bias)})
        parts += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts[:-1]).to(device)
    kind = torch.optim.Adam if options.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=rate)

    def run(batches: list[tuple[Any, Any]]) -> list[Any]:
        losses = []
        for x, y in batches:
            x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
            loss = torch.nn.functional.cross_entropy(model(x), y.long())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # before the step ends: gradients that are still there are results of its program
            torch_xla.sync()
            losses.append(loss.detach())
        return losses

    return run


def serve(name: str, options: argparse.Namespace) -> None:
    """A framework's process: a line of JSON for each line that it reads."""
    import tpuboard

    import numpy as np

    run = {"jax": jax_round, "keras": keras_round, "torch": torch_round, "tensorflow": tensorflow_round,
           "tensorflow3": tensorflow_round}[name](options)
    batches = batches_of(options)
    for line in sys.stdin:
        times = int(line)
        steps = times * options.steps
        start = time.process_time()
        with tpuboard.measure(output=None) as figures:
            losses = run(batches * times)
        print(json.dumps({"host_ms": figures.host_seconds * 1e3 / steps,
                          "cpu_ms": (time.process_time() - start) * 1e3 / steps,
                          "simulated_us": figures.seconds * 1e6 / steps,
                          "cycles": figures.cycles, "programs": figures.programs,
                          "loss": float(np.mean([float(loss) for loss in losses]))}), flush=True)


def start(name: str, options: argparse.Namespace, arguments: list[str]) -> subprocess.Popen:
    """The process of a framework, without the user's variables that select a device."""
    program = [str(Path(__file__).resolve()), "--framework", name, *arguments]
    if name == "torch":
        command = [sys.executable, str(ROOT / "tests/torch/run.py"), "--venv", str(options.venv),
                   "--library", str(options.library), "--form", options.form, *program]
        variables = dict(os.environ)
    elif name in ("tensorflow", "tensorflow3"):
        command = [sys.executable, str(ROOT / "tests/tensorflow/run.py"), "--venv", str(options.tf_venv),
                   "--library", str(options.library), "--set",
                   f"TF_USE_LEGACY_KERAS={int(name == 'tensorflow')}", *program]
        variables = dict(os.environ)
    else:
        command = [str(options.python), *program]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_", "TPU"))}
        variables = kept | {"JAX_PLATFORMS": "tpu,cpu", "TPU_LIBRARY_PATH": str(options.library),
                            "PYTHONPATH": str(ROOT / "python"), "TPUBOARD_CACHE": "off"}
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen, times: int = 1) -> dict[str, float]:
    """A round of so many times the steps; frameworks print lines of their own."""
    process.stdin.write(f"{times}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit(f"{process.args}: ended with exit code {process.wait()}")


def compare(options: argparse.Namespace, arguments: list[str]) -> dict[str, dict[str, float]]:
    """Figures by framework; the first round of each compiles."""
    processes = {name: start(name, options, arguments) for name in options.frameworks}
    first = {name: ask(process) for name, process in processes.items()}
    rounds, longer = [], []
    for _ in range(options.rounds):
        rounds.append({name: ask(process) for name, process in processes.items()})
        if options.longer > 1:
            longer.append({name: ask(process, options.longer) for name, process in processes.items()})
    for process in processes.values():
        process.stdin.close()
        process.wait()
    result = {}
    base = options.frameworks[0]
    simulated = {name: min(each[name]["simulated_us"] for each in rounds) for name in options.frameworks}
    for name in options.frameworks:
        result[name] = {
            "simulated_us": simulated[name], "simulated_ratio": simulated[name] / simulated[base],
            "host_ms": statistics.median(each[name]["host_ms"] for each in rounds),
            "host_ratio": statistics.median(each[name]["host_ms"] / each[base]["host_ms"] for each in rounds),
            "cpu_ms": statistics.median(each[name]["cpu_ms"] for each in rounds),
            "cpu_ratio": statistics.median(each[name]["cpu_ms"] / each[base]["cpu_ms"] for each in rounds),
            "programs": rounds[-1][name]["programs"] / options.steps, "loss": first[name]["loss"]}
    if longer:
        add_slopes(result, rounds, longer, options)
    return result


def add_slopes(result: dict[str, dict[str, float]], rounds: list, longer: list, options: argparse.Namespace) -> None:
    """Processor time of a further step, and of a round without its steps; medians, and that of the ratios."""
    steps = {name: [(options.longer * many[name]["cpu_ms"] - few[name]["cpu_ms"]) / (options.longer - 1)
                    for few, many in zip(rounds, longer, strict=True)] for name in result}
    base = steps[options.frameworks[0]]
    for name, figures in result.items():
        figures["step_cpu_ms"] = statistics.median(steps[name])
        figures["step_cpu_ratio"] = statistics.median(own / other for own, other in zip(steps[name], base, strict=True))
        figures["round_cpu_ms"] = statistics.median(
            (few[name]["cpu_ms"] - step) * options.steps for few, step in zip(rounds, steps[name], strict=True))


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", type=lambda text: text.split(","), default=["jax", "keras", "torch"])
    parser.add_argument("--venv", type=Path, default=ROOT / "build/venv-torch-2.9")
    parser.add_argument("--tf-venv", type=Path, default=ROOT / "build/venv-tensorflow-2.20")
    parser.add_argument("--python", type=Path, default=ROOT / "build/venv/bin/python")
    parser.add_argument("--library", type=lambda text: Path(text).resolve(),
                        default=ROOT / "build/release/lib/libtpuboard_pjrt.so")
    parser.add_argument("--form", choices=("default", "stablehlo"), default="default")
    parser.add_argument("--optimizer", choices=tuple(RATES), default="sgd")
    parser.add_argument("--layers", type=lambda text: [int(part) for part in text.split(",")],
                        default=[784, 1024, 1024, 10])
    parser.add_argument("--convnet", type=int, default=0, metavar="FILTERS")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--longer", type=int, default=1, metavar="TIMES")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--framework", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    possible = OF_CONVNET if options.convnet else FRAMEWORKS
    if unknown := set(options.frameworks) - set(possible):
        parser.error(f"--frameworks: found {', '.join(sorted(unknown))}, expected some of {', '.join(possible)}")
    return options


def main() -> int:
    """Prints a table."""
    options = options_of(sys.argv[1:])
    if options.framework:
        serve(options.framework, options)
        return 0
    result = compare(options, sys.argv[1:])
    print("framework    simulated us  ratio  host ms  ratio   cpu ms  ratio  programs      loss")
    for name, figures in result.items():
        print(f"{name:11} {figures['simulated_us']:13.1f} {figures['simulated_ratio']:6.3f} {figures['host_ms']:8.2f} "
              f"{figures['host_ratio']:6.3f} {figures['cpu_ms']:8.2f} {figures['cpu_ratio']:6.3f} "
              f"{figures['programs']:9.2f} {figures['loss']:9.5f}")
    if options.longer > 1:
        print("framework   cpu ms of a further step  ratio  cpu ms of a round besides")
        for name, figures in result.items():
            print(f"{name:11} {figures['step_cpu_ms']:24.2f} {figures['step_cpu_ratio']:6.3f} "
                  f"{figures['round_cpu_ms']:26.1f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    loss = result[options.frameworks[0]]["loss"]
    return 0 if all(abs(each["loss"] / loss - 1) <= LOSS_BOUND for each in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
