"""The input of the guides: files of records that are read in parallel, batch and learning rate for all replicas."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from checks import check_close, check_equal, open_board, works
from twins import check_weights, compile_for_both, highest_precision, twins

AUTO = tf.data.experimental.AUTOTUNE
FILES, IN_FILE = 8, 24
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "class": tf.io.FixedLenFeature([], tf.int64),
            "id": tf.io.FixedLenFeature([], tf.int64)}
random = np.random.default_rng(4)
labels = random.integers(0, 3, FILES * IN_FILE)
images = (random.integers(0, 100, (FILES * IN_FILE, 6, 6, 3)) + 60 * labels[:, None, None, None]).astype(np.uint8)


def write(folder: Path) -> None:
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"flowers{file:02}-{IN_FILE}.tfrec")) as writer:
            for i in range(file * IN_FILE, (file + 1) * IN_FILE):
                value = tf.io.encode_png(images[i]).numpy()
                feature = {"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])),
                           "class": tf.train.Feature(int64_list=tf.train.Int64List(value=[labels[i]])),
                           "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def decoded(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.cast(tf.image.decode_png(example["image"], channels=3), tf.float32) / 255.0
    return tf.reshape(image, [6, 6, 3]), example["class"], example["id"]


def by_parallel_reads(files: list[str]) -> tf.data.Dataset:
    """As the page of Kaggle has it."""
    ignore_order = tf.data.Options()
    ignore_order.experimental_deterministic = False
    dataset = tf.data.TFRecordDataset(files, num_parallel_reads=AUTO)
    return dataset.with_options(ignore_order).map(decoded, num_parallel_calls=AUTO)


def by_interleave(files: list[str]) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=AUTO, deterministic=False)
    return dataset.map(decoded, num_parallel_calls=AUTO).cache().shuffle(64)


strategy = tf.distribute.TPUStrategy(open_board())
BATCH = 2 * strategy.num_replicas_in_sync
RATE = 0.01 * strategy.num_replicas_in_sync
with strategy.scope():
    seen = tf.Variable(tf.zeros(FILES * IN_FILE, tf.int32), aggregation=tf.VariableAggregation.SUM,
                       synchronization=tf.VariableSynchronization.ON_READ)
    brightness = tf.Variable(tf.zeros(FILES * IN_FILE), aggregation=tf.VariableAggregation.SUM,
                             synchronization=tf.VariableSynchronization.ON_READ)


@tf.function
def count(iterator: tf.data.Iterator) -> None:
    def step(image: tf.Tensor, label: tf.Tensor, number: tf.Tensor) -> None:
        rows = tf.one_hot(number, FILES * IN_FILE)
        seen.assign_add(tf.cast(tf.reduce_sum(rows, 0), tf.int32))
        brightness.assign_add(tf.reduce_sum(rows * tf.reduce_sum(image, [1, 2, 3])[:, None], 0))

    for _ in tf.range(FILES * IN_FILE // BATCH):
        strategy.run(step, args=next(iterator))


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.InputLayer((6, 6, 3)), layers.Conv2D(8, 3, activation="relu", padding="same"),
                                 layers.MaxPooling2D(), layers.Flatten(), layers.Dense(3)])
    return compile_for_both(model, tf.keras.optimizers.SGD(RATE, momentum=0.5),
                            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


with tempfile.TemporaryDirectory() as name, highest_precision():
    write(Path(name))
    files = tf.io.gfile.glob(f"{name}/*.tfrec")
    check_equal("files", len(files), FILES)
    totals = images.astype(np.float32).sum(axis=(1, 2, 3)) / np.float32(255)
    for turn, (what, dataset) in enumerate((("num_parallel_reads", by_parallel_reads(files)),
                                            ("interleave", by_interleave(files))), 1):
        batches = dataset.batch(BATCH, drop_remainder=True).prefetch(AUTO)
        count(iter(strategy.experimental_distribute_dataset(batches)))
        check_equal(f"{what}: times that each record came", seen.read_value(), FILES * IN_FILE * [turn])
        check_close(f"{what}: values of each record", brightness.read_value(), turn * totals, 1e-5)

    on_cores, on_cpu = twins(strategy, make_model)
    dataset = tf.data.TFRecordDataset(sorted(files), num_parallel_reads=4).map(decoded)
    dataset = dataset.map(lambda image, label, number: (image, label)).batch(BATCH, drop_remainder=True)
    losses = [model.fit(dataset.repeat(), epochs=3, steps_per_epoch=FILES * IN_FILE // BATCH, verbose=0)
              .history["loss"] for model in (on_cores, on_cpu)]
    assert losses[0][-1] < 0.8 * losses[0][0], losses
    check_close("losses of a training on records", *losses, 1e-3)
    check_weights("weights of a training on records", on_cores, on_cpu, 1e-3)
works("TFRecords with `interleave` and `num_parallel_reads`; batch and rate for all replicas", "Keras 2 and 3")
