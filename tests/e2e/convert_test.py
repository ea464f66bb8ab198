"""`tpuboard convert` against TFRecord files that are written and read here, from the published format alone."""

from __future__ import annotations

import argparse
import gzip
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BIN = Path()
COUNT = 23
IMAGES = np.random.default_rng(1).integers(0, 256, (COUNT, 5, 4, 3), dtype=np.uint8)
LABELS = np.arange(COUNT, dtype=np.int64) * 1000 - 5
WEIGHTS = np.random.default_rng(2).standard_normal((COUNT, 2)).astype(np.float32)


def crc_table() -> list[int]:
    """CRC-32C of each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def masked_crc(data: bytes) -> int:
    """The checksum of a record file."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    """A protobuf integer."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number: int, data: bytes) -> bytes:
    """A protobuf field with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(image: np.ndarray, label: int, weight: np.ndarray) -> bytes:
    """A `tf.train.Example`; its integers are not packed, its floats are."""
    entries = {"image": field(1, field(1, image.tobytes())),
               "weight": field(2, field(1, weight.tobytes())),
               "label": field(3, b"\x08" + varint(label))}
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, feature))
                             for name, feature in entries.items()))


def frame(record: bytes) -> bytes:
    """A record as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked_crc(length)) + record + struct.pack("<I", masked_crc(record))


def records_in(data: bytes) -> Iterator[bytes]:
    """The records of a file, their checksums verified."""
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert struct.unpack_from("<I", data, 8) == (masked_crc(data[:8]),)
        record = data[12:12 + length]
        assert struct.unpack_from("<I", data, 12 + length) == (masked_crc(record),)
        yield record
        data = data[16 + length:]


def fields_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of a message whose fields all have a length."""
    def take() -> int:
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while data:
        key = take()
        assert key & 7 == 2, key
        length = take()
        content, data = data[:length], data[length:]
        yield key >> 3, content


def integers_in(data: bytes) -> list[int]:
    """Packed signed integers."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value - (1 << 64) if value >= 1 << 63 else value)
            value = shift = 0
    return values


def features_in(record: bytes) -> dict[str, tuple[int, bytes]]:
    """Name -> kind (1 bytes, 2 floats, 3 integers) and its first value or packed list."""
    features = {}
    for _, content in fields_in(record):
        for _, entry in fields_in(content):
            parts = dict(fields_in(entry))
            ((kind, values),) = fields_in(parts[2])
            features[parts[1].decode()] = (kind, dict(fields_in(values))[1])
    return features


class Convert(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_convert(self, *arguments: object) -> subprocess.CompletedProcess:
        command = [str(BIN / "tpuboard"), "convert", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def good(self, *arguments: object) -> None:
        done = self.run_convert(*arguments)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def write(self, pack: object = bytes) -> list[Path]:
        """Two files with all records."""
        paths = []
        for part, (first, end) in enumerate(((0, 10), (10, COUNT))):
            data = b"".join(frame(example(IMAGES[i], int(LABELS[i]), WEIGHTS[i])) for i in range(first, end))
            paths.append(self.folder / f"part-{part}")
            paths[-1].write_bytes(pack(data))
        return paths

    def test_records_of_others_become_arrays(self) -> None:
        for pack in (bytes, gzip.compress, zlib.compress):
            self.write(pack)
            out = self.folder / "out"
            self.good(self.folder / "part-*", "--numpy", out, "--feature", "image:u8[5,4,3]", "--feature", "label:i64",
                      "--feature", "weight:f32[2]")
            for name, expected in (("image", IMAGES), ("label", LABELS), ("weight", WEIGHTS)):
                array = np.load(out / f"{name}.npy")
                self.assertEqual(array.dtype, expected.dtype)
                np.testing.assert_array_equal(array, expected)

    def test_features_are_found_in_the_first_record(self) -> None:
        self.good(*self.write(), "--numpy", self.folder / "out")
        np.testing.assert_array_equal(np.load(self.folder / "out/image.npy"), IMAGES.reshape(COUNT, -1))
        np.testing.assert_array_equal(np.load(self.folder / "out/label.npy"), LABELS)

    def test_arrays_become_records_that_others_read(self) -> None:
        np.save(self.folder / "images.npy", IMAGES)
        for save in (np.savez, np.savez_compressed):
            save(self.folder / "rest.npz", label=LABELS.astype(np.int16), weight=WEIGHTS)
            for packing, unpack, end in (("none", bytes, ""), ("gzip", gzip.decompress, ".gz"),
                                         ("zlib", zlib.decompress, ".zz")):
                prefix = self.folder / packing
                rest = self.folder / "rest.npz"
                self.good(f"image={self.folder}/images.npy", f"l={rest}:label", rest, "--records", prefix,
                          "--shards", 3, "--compression", packing)
                files = [Path(f"{prefix}-0000{i}-of-00003.tfrecord{end}") for i in range(3)]
                records = [list(records_in(unpack(path.read_bytes()))) for path in files]
                self.assertEqual([len(part) for part in records], [7, 8, 8])
                for i, record in enumerate(record for part in records for record in part):
                    features = features_in(record)
                    self.assertEqual(features["image"], (1, IMAGES[i].tobytes()))
                    self.assertEqual(features["weight"], (2, WEIGHTS[i].tobytes()))
                    for name in ("label", "l"):
                        self.assertEqual(features[name][0], 3)
                        self.assertEqual(integers_in(features[name][1]), [int(LABELS[i])])

    def test_there_and_back(self) -> None:
        np.save(self.folder / "x.npy", IMAGES)
        self.good(f"x={self.folder}/x.npy", "--records", self.folder / "r", "--threads", 1)
        self.good(f"{self.folder}/r-*", "--numpy", self.folder, "--feature", "x:u8[5,4,3]")
        np.testing.assert_array_equal(np.load(self.folder / "x.npy"), IMAGES)

    def refused(self, code: int, text: str, *arguments: object) -> None:
        done = self.run_convert(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)

    def test_bad_input(self) -> None:
        first, second = self.write()
        data = bytearray(second.read_bytes())
        data[len(frame(example(IMAGES[10], int(LABELS[10]), WEIGHTS[10]))) + 40] ^= 1
        second.write_bytes(data)
        out = self.folder / "out"
        self.refused(1, f"{second}, record 1 (byte 1", self.folder / "part-*", "--numpy", out)
        self.assertEqual(list(out.glob("*")), [])
        self.refused(1, f"{first}, record 0 (byte 0): it has no feature 'x'; it has 'image', 'weight', 'label'", first,
                     "--numpy", out, "--feature", "x:f32")
        self.refused(1, "is a folder", self.folder, "--numpy", out)
        self.refused(1, "no such file", self.folder / "none-*", "--numpy", out)
        self.refused(1, "'image:u9': there is no type 'u9'", first, "--numpy", out, "--feature", "image:u9")
        self.refused(1, "'image:u8[3,]]'", first, "--numpy", out, "--feature", "image:u8[3,]]")
        self.refused(2, "expected one of --records PREFIX and --numpy FOLDER", first)
        np.save(self.folder / "a.npy", IMAGES)
        np.savez(self.folder / "b.npz", label=LABELS[:5])
        self.refused(1, "holds 23 examples", f"a={self.folder}/a.npy", self.folder / "b.npz", "--records",
                     self.folder / "r")
        self.refused(1, "has no array 'x'; it has label", f"a={self.folder}/b.npz:x", "--records", self.folder / "r")
        self.refused(1, "cannot write 24 files: expected 1 to 23", f"a={self.folder}/a.npy", "--records",
                     self.folder / "r", "--shards", 24)
        self.refused(2, "expected a .npy, .npz or .safetensors file", f"a={first}", "--records", self.folder / "r")
        self.assertEqual(list(self.folder.glob("r-*")), [])
        (self.folder / "broken.npz").write_bytes((self.folder / "b.npz").read_bytes()[:-30])
        self.refused(1, "broken.npz: not an .npz file", self.folder / "broken.npz", "--records", self.folder / "r")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    options, rest = parser.parse_known_args()
    BIN = options.bin
    unittest.main(argv=[sys.argv[0], *rest])
