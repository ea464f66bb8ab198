"""`examples/convnet_records` at a small size: training from the record files that `tpuboard convert` writes has the
bits of training from the arrays, and the loss falls; a run that is shuffled by a buffer, with images cut at random, has
the same bits when it is stopped in the middle of an epoch and goes on.

Usage: convnet_records_test.py --bin DIR --data DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20


def train(tools: Path, config: Path, out: Path, *options: str, steps: int = STEPS) -> dict:
    """The report of a run."""
    subprocess.run([tools / "tpuboard", "train", config, "--out", out, "--steps", str(steps), *options], check=True)
    return json.loads((out / "run.json").read_text(encoding="utf-8"))


def main() -> int:
    """Runs the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, ROOT / "examples/convnet_records/convnet_records.py", "--data", args.data,
                        "--out", folder, "--batch", "32", "--channels", "4,4", "--dense", "16,10"], check=True)
        subprocess.run([args.bin / "tpuboard", "convert", f"image={folder / 'images.npy'}",
                        f"label={folder / 'labels.npy'}", "--records", folder / "train", "--shards", "3"], check=True)
        records = (folder / "train.toml").read_text(encoding="utf-8")
        arrays = records
        for text, instead in (('records = ["train-*.tfrecord"]\n', ""),
                              ('name = "image"\n', 'name = "image"\nfile = "images.npy"\n'),
                              ('name = "label"\n', 'name = "label"\nfile = "labels.npy"\n')):
            assert text in arrays, text
            arrays = arrays.replace(text, instead)
        (folder / "arrays.toml").write_text(arrays, encoding="utf-8")
        of_records = train(args.bin, folder / "train.toml", folder / "records")
        of_arrays = train(args.bin, folder / "arrays.toml", folder / "arrays")
        streamed = records.replace("[data]\n", "[data]\nshuffle = 200\ninterleave_files = 3\n")
        streamed = streamed.replace('name = "image"\n', 'name = "image"\ncrop_padding = 2\nflip = true\n')
        (folder / "streamed.toml").write_text(streamed, encoding="utf-8")
        whole = train(args.bin, folder / "streamed.toml", folder / "whole")
        train(args.bin, folder / "streamed.toml", folder / "parts", steps=7)
        parts = train(args.bin, folder / "streamed.toml", folder / "parts", "--resume")
    for key in ("losses", "test_accuracy", "digest"):
        assert of_records[key] == of_arrays[key], (key, of_records[key], of_arrays[key])
        assert whole[key] == parts[key], (key, whole[key], parts[key])
    assert parts["first_step"] == 7 and whole["losses"] != of_records["losses"]
    losses = of_records["losses"]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5]), losses
    print(f"convnet_records: loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps, as from arrays")
    return 0


if __name__ == "__main__":
    sys.exit(main())
