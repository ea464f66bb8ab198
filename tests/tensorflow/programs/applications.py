"""Convolutional networks of keras.applications, small images: predictions and a training beside the CPU.

Usage: applications.py MODEL ... [--size N] [--examples N] [--width ALPHA]
MODEL: Xception, EfficientNetB0, EfficientNetV2B0, MobileNetV2, MobileNetV3Small, ResNet50V2, DenseNet121, ...
In default precision the CPU's products have operands of bf16, too. The weights are random. Batch normalization has the
averages of the images, as that of a trained network has, and uses them in training, too: over a replica's few images it
would have no counterpart on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from checks import check_close, open_board, works
from tensorflow.python.ops import gen_math_ops, gen_nn_ops, nn_ops
from twins import check_weights, compile_for_both, highest_precision, twins

CLASSES = 5
# What Keras calls for a product, and its two operands.
PRODUCTS = ((gen_nn_ops, "conv2d", ("input", "filter")), (nn_ops, "depthwise_conv2d_native", ("input", "filter")),
            (gen_math_ops, "mat_mul", ("a", "b")))
# Of the largest value. A sum in another order changes how the next layer's operand is rounded, by 2^-8 at most.
HIGHEST, DEFAULT = 1e-3, 5e-2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--examples", type=int, default=16)
    parser.add_argument("--width", type=float, help="of MobileNets")
    return parser.parse_args()


def make_model(name: str, options: argparse.Namespace) -> tf.keras.Model:
    width = {"alpha": options.width} if options.width else {}
    base = getattr(tf.keras.applications, name)(include_top=False, weights=None, pooling="avg",
                                                input_shape=(options.size, options.size, 3), **width)
    for layer in base.layers:
        if isinstance(layer, tf.keras.layers.Dropout):
            layer.rate = 0.0  # which parts EfficientNet leaves out is random
    entry = tf.keras.Input((options.size, options.size, 3))
    model = tf.keras.Model(entry, tf.keras.layers.Dense(CLASSES)(base(entry, training=False)))
    return compile_for_both(model, tf.keras.optimizers.SGD(1e-2, momentum=0.9),
                            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def normalise(model: tf.keras.Model, images: np.ndarray) -> None:
    """Averages of batch normalization from one pass over the images, on the CPU.

    The variance is at least the average of its layer: a channel that happens to be nearly constant over so few images
    would be multiplied until its rounding errors are all that is left. It is not less than that of the channel, either:
    values would grow from layer to layer (EfficientNet), and so would gradients, until a step leads to anything.
    """
    (base,) = (layer for layer in model.layers if isinstance(layer, tf.keras.Model))
    kept = {layer: layer.momentum for layer in base.layers if isinstance(layer, tf.keras.layers.BatchNormalization)}
    for layer in kept:
        layer.momentum = 0.0
    base(images, training=True)
    for layer, momentum in kept.items():
        layer.momentum = momentum
        layer.moving_variance.assign(tf.maximum(layer.moving_variance, tf.reduce_mean(layer.moving_variance)))


@contextlib.contextmanager
def operands_of_bf16() -> Iterator[None]:
    """What is traced in here rounds the operands of products, as the cores do."""
    def rounded(call: Callable[..., tf.Tensor], names: tuple[str, str]) -> Callable[..., tf.Tensor]:
        def product(*values: tf.Tensor, **named: tf.Tensor) -> tf.Tensor:
            first, second, *more = (*values, *(named.pop(name) for name in names[len(values):]))
            first, second = (tf.cast(tf.cast(value, tf.bfloat16), tf.float32) for value in (first, second))
            return call(first, second, *more, **named)
        return product

    kept = [(module, name, getattr(module, name)) for module, name, _ in PRODUCTS]
    for module, name, names in PRODUCTS:
        setattr(module, name, rounded(getattr(module, name), names))
    try:
        yield
    finally:
        for module, name, call in kept:
            setattr(module, name, call)


def check(name: str, options: argparse.Namespace, strategy: tf.distribute.Strategy) -> None:
    random = np.random.default_rng(6)
    images = random.random((options.examples, options.size, options.size, 3), np.float32)
    labels = random.integers(0, CLASSES, options.examples)
    started = time.monotonic()
    with highest_precision():
        pair = twins(strategy, lambda: make_model(name, options))
        normalise(pair[1], images)
        weights = pair[1].get_weights()
        pair[0].set_weights(weights)
        before = [model.predict(images, batch_size=16, verbose=0) for model in pair]
        check_close(f"{name}: predictions in highest precision", *before, HIGHEST)
        losses = [model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
                  for model in pair]
        check_close(f"{name}: losses in highest precision", *losses, HIGHEST)
        check_weights(f"{name}: weights in highest precision", *pair, HIGHEST)
    with strategy.scope():
        model = make_model(name, options)
    model.set_weights(weights)
    with operands_of_bf16():
        on_cpu = make_model(name, options)
        on_cpu.set_weights(weights)
        expected = on_cpu.predict(images, batch_size=16, verbose=0)
    check_close(f"{name}: predictions", model.predict(images, batch_size=16, verbose=0), expected, DEFAULT)
    assert np.abs(expected - before[1]).max() > 0, "no operand was rounded"
    of_bf16 = model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    check_close(f"{name}: losses beside those of highest precision", of_bf16, losses[1], 0.2)
    print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


options = arguments()
strategy = tf.distribute.TPUStrategy(open_board())
tf.keras.utils.set_random_seed(9)
for name in options.models:
    check(name, options, strategy)
works("Xception and EfficientNetB0 of `keras.applications`", "predictions, losses, weights of the CPU")
print("all passed")
