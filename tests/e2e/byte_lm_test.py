"""`examples/byte_lm` at a tiny size: its loss falls in 20 steps, on eight cores and on one; a run that is stopped and
resumed has the same losses; TensorBoard's file holds what the table holds.

Usage: byte_lm_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import csv
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20


def export(folder: Path, cores: int) -> Path:
    """The example at a tiny size; its configuration."""
    subprocess.run([sys.executable, ROOT / "examples/byte_lm/byte_lm.py", "--out", folder, "--length", "16", "--width",
                    "32", "--layers", "1", "--batch", "32", "--cores", str(cores)], check=True)
    return folder / "train.toml"


def train(tools: Path, config: Path, out: Path, *options: str) -> list[float]:
    """Losses of a run."""
    subprocess.run([tools / "tpuboard", "train", config, "--out", out, *options], check=True)
    return json.loads((out / "run.json").read_text(encoding="utf-8"))["losses"]


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf number and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Fields of a protobuf message: number, and its number or bytes."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7, 0)
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def scalars(path: Path) -> dict[tuple[str, int], float]:
    """Scalars of an event file by tag and step; checks lengths and checksums of its records."""
    data, values = path.read_bytes(), {}
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        for covered, at in ((data[:8], 8), (data[12 : 12 + size], 12 + size)):
            crc = crc32c(covered)
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            assert struct.unpack("<I", data[at : at + 4])[0] == masked, path
        event = fields(data[12 : 12 + size])
        step = next((value for number, value in event if number == 2), 0)
        for _, summary in (field for field in event if field[0] == 5):
            for _, value in fields(summary):
                entry = dict(fields(value))
                values[entry[1].decode(), step] = struct.unpack("<f", entry[2])[0] if 2 in entry else 0.0
        data = data[16 + size :]
    return values


def check_files(out: Path, losses: list[float]) -> None:
    """Table, event file and page of a run of STEPS steps."""
    with (out / "metrics.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1))
    assert all(abs(float(row["loss"]) - loss) < 1e-6 for row, loss in zip(rows, losses, strict=True))
    # A linear warm-up to 2e-3 in 20 steps.
    assert all(abs(float(row["learning_rate"]) - 1e-4 * (i + 1)) < 1e-9 for i, row in enumerate(rows))
    (events,) = (out / "tensorboard").iterdir()
    shown = scalars(events)
    for row in rows:
        for name in ("loss", "learning_rate", "step_us", "mxu_percent", "idle_percent"):
            expected = float(row[name])
            assert abs(shown[name, int(row["step"])] - expected) <= 1e-6 * abs(expected), (name, row)
    assert ("test_loss", STEPS) in shown and ("test_accuracy", STEPS) in shown
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 5 and "mxu_percent" in page


def main() -> int:
    """Runs the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = export(folder / "eight", 8)
        losses = train(args.bin, config, folder / "whole", "--steps", str(STEPS))
        assert len(losses) == STEPS and losses[-1] < losses[0] - 0.5, losses
        check_files(folder / "whole", losses)

        train(args.bin, config, folder / "parts", "--steps", "7")
        assert train(args.bin, config, folder / "parts", "--steps", str(STEPS), "--resume") == losses

        one = train(args.bin, export(folder / "one", 1), folder / "single", "--steps", str(STEPS))
        # The same products of bf16; sums over the batch have another order, which is less than one rounding to bf16.
        assert all(abs(a - b) < 2**-8 * b for a, b in zip(one, losses, strict=True)), (one, losses)
        print(f"byte_lm: loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps, one core {one[-1]:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
