"""What the page "Tensor Processing Units (TPUs)" of Kaggle leaves to its reader, for guide.py.

The page has `…` where the reader's own code is, datasets and a model that need a network, and modules that exist in
Kaggle's notebooks only. Here are a small model and patterns with noise, written as files of records; the addresses of
Google Cloud Storage and of TensorFlow Hub lead to local folders. The blocks themselves stay as they are.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import tensorflow as tf

BEGIN, END = "<start-of-code-block>", "<end-of-code-block>"
SIZE, CLASSES, FILES, IN_FILE, BATCH = 8, 5, 8, 32, 64
FLOWERS = "gs://flowers-public/tfrecords-jpeg-512x512/"
HUB = "https://tfhub.dev/tensorflow/efficientnet/b6/feature-vector/1"
# The page's ellipses -> the reader's code.
FILLINGS = (
    (r"Sequential\( … \)", "Sequential(layers())"),
    (r"compile\( … \)", "compile(optimizer=optimizer(), loss=loss, metrics=['accuracy'])"),
    (r"compile\( … ,", "compile(optimizer=optimizer(), loss=loss, metrics=['accuracy'],"),
    (r"steps_per_epoch=…", "steps_per_epoch=STEPS"),
    (r"fit\(…,", "fit(training_dataset, epochs=EPOCHS, steps_per_epoch=STEPS,"),
    (r"\.map\(\.\.\.\)", ".map(decoded)"),
)


def is_this(page: str) -> bool:
    return BEGIN in page


def filled(block: str) -> str:
    for pattern, code in FILLINGS:
        block = re.sub(pattern, code, block)
    return block


def blocks_of(page: str) -> list[str]:
    """The page's blocks of code, as they are. One of them has a sentence in its middle. Those for PyTorch are left."""
    sentence = re.compile(r"^ *[A-Z][^\n=#(]* [^\n=#(]*:$", re.MULTILINE)
    marked = re.findall(f"{BEGIN}(.*?){END}", page, re.DOTALL)
    parts = [textwrap.dedent(part.expandtabs(4)).strip("\n") for region in marked for part in sentence.split(region)]
    return [part for part in parts if part.strip() and not re.search(r"(?i)torch|\bxm\.", part)]


def patterns(examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    known = np.random.default_rng(0).random((CLASSES, SIZE, SIZE, 3)) > 0.6
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, examples)
    noise = random.integers(0, 128, (examples, SIZE, SIZE, 3))
    return (127 * known[labels] + noise).astype(np.uint8), labels


def write_records(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"flowers{file:02}-{IN_FILE}.tfrec")) as writer:
            for image, label in zip(*patterns(IN_FILE, file), strict=True):
                png = tf.io.encode_png(image).numpy()
                feature = {"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
                           "class": tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def decoded(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    form = {"image": tf.io.FixedLenFeature([], tf.string), "class": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, form)
    image = tf.cast(tf.image.decode_png(example["image"], channels=3), tf.float32) / 255.0
    return tf.reshape(image, [SIZE, SIZE, 3]), example["class"]


def layers() -> list[tf.keras.layers.Layer]:
    kinds = tf.keras.layers
    return [kinds.InputLayer((SIZE, SIZE, 3)), kinds.Conv2D(16, 3, activation="relu"), kinds.MaxPooling2D(),
            kinds.Flatten(), kinds.Dense(CLASSES)]


def redirect(folder: Path) -> None:
    """Addresses of Google Cloud Storage -> the local folder."""
    plain = tf.io.gfile.glob
    tf.io.gfile.glob = lambda pattern: plain(pattern.replace(FLOWERS, f"{folder}/"))


def provide(name: str, **names: object) -> None:
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module


class Secrets:
    def get_gcloud_credential(self) -> str:
        return "credential"

    def set_tensorflow_credential(self, credential: str) -> None:
        assert credential == "credential", credential


def write_of_hub(folder: Path) -> None:
    """A small network as the model of TensorFlow Hub, in its cache."""
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((512, 512, 3)),
                                 tf.keras.layers.Conv2D(4, 3, strides=16), tf.keras.layers.GlobalAveragePooling2D()])
    target = folder / hashlib.sha1(HUB.encode()).hexdigest()
    tf.saved_model.save(model, str(target))
    os.environ["TFHUB_CACHE_DIR"] = str(folder)
    if importlib.util.find_spec("tensorflow_hub"):
        return

    class KerasLayer(tf.keras.layers.Layer):
        """As that of the package tensorflow_hub, which is not installed."""

        def __init__(self, handle: str, load_options: object = None, **more: object) -> None:
            super().__init__(**more)
            assert handle == HUB, handle
            self.model = tf.saved_model.load(str(target), options=load_options)
            self._trainable_weights = list(self.model.trainable_variables)

        def call(self, images: tf.Tensor) -> tf.Tensor:
            return self.model(images)

    provide("tensorflow_hub", KerasLayer=KerasLayer)


def prepare(folder: Path) -> dict[str, object]:
    """The notebook: its folders and modules, and the names that the page takes for granted."""
    # The page's first block has lost the call of TPUClusterResolver.connect(), of which the text behind it tells.
    tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    flowers, working = folder / "flowers", folder / "working"
    working.mkdir()
    (folder / "input").mkdir()
    (folder / "input/yourDataset").symlink_to(working)
    os.chdir(working)
    write_records(flowers)
    redirect(flowers)
    write_of_hub(folder / "hub")

    class Datasets:
        def get_gcs_path(self) -> str:
            return str(flowers)

    provide("kaggle_datasets", KaggleDatasets=Datasets)
    provide("kaggle_secrets", UserSecretsClient=Secrets)
    records = tf.data.TFRecordDataset(sorted(map(str, flowers.iterdir()))).map(decoded)
    return {"tf": tf, "layers": layers, "decoded": decoded, "EPOCHS": 3, "STEPS": FILES * IN_FILE // BATCH,
            "training_dataset": records.shuffle(256).repeat().batch(BATCH, drop_remainder=True),
            "optimizer": lambda: tf.keras.optimizers.Adam(0.01),
            "loss": tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)}


def after_block(names: dict[str, object]) -> None:
    """The page calls the same object `tpu_strategy` and `strategy`."""
    if "tpu_strategy" in names:
        names["strategy"] = names["tpu_strategy"]


def failures(names: dict[str, object]) -> list[str]:
    """What the names and files of the page must have at its end."""
    images, labels = patterns(200, 99)
    inputs = images.astype(np.float32) / 255
    options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
    trained = tf.keras.models.load_model("checkpoints", options=options)
    accuracy = float(np.mean(np.argmax(trained(inputs), axis=1) == labels))
    records = sum(1 for _ in names["dataset"])
    found = {f"accuracy of the checkpoint {accuracy:.3f}, expected at least 0.9": accuracy >= 0.9,
             f"{records} records in the dataset, expected {FILES * IN_FILE}": records == FILES * IN_FILE,
             f"batch size {names['BATCH_SIZE']}, expected 128": names["BATCH_SIZE"] == 128,
             "model.h5 has another form": names["model"](inputs).shape == (200, CLASSES),
             "the layer of TensorFlow Hub is not trainable": len(names["pretrained_model"].trainable_weights) == 2}
    return [text for text, is_right in found.items() if not is_right]
