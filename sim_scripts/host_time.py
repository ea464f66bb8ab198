#!/usr/bin/env python3
"""Draws what the time of the host does to training of the MNIST convnet (batch 200, timing only) from runs of `tpuboard
train`: the time of a step by steps a launch, and use and idling of the board by the rate at which the host prepares
input. Writes steps_per_execution.svg and input_rate.svg, and prints both tables. docs/timing_model.md shows them.

Usage: host_time.py --bin DIR --out FOLDER [--steps N] [--launches N,N,...] [--rates R,R,...]
"""

from __future__ import annotations

import argparse
import array
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCH, PIXELS = 200, 28 * 28
# A host like that of the guides: 14 ms for each launch, and 10 ms to prepare a batch of 200 images (628 kB).
DISPATCH_CYCLES, INPUT_GBPS = 13_160_000, 0.0628
LAUNCHES = (1, 2, 5, 10, 25, 50)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 62, 150, 44, 52
COLOURS = ("#4477aa", "#cc6677", "#228833")


@dataclass
class Curve:
    """One line of a plot."""

    name: str
    values: list[float]


def write_npy(path: Path, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
    """A NumPy file, version 1.0."""
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)


def make_inputs(tpuc: Path, folder: Path, steps: int) -> Path:
    """The configuration of runs of one epoch; values do not matter."""
    examples = BATCH * steps
    subprocess.run([str(tpuc), str(ROOT / "examples/mnist_convnet/train_step.mlirbc"), "-o",
                    str(folder / "train_step.tpuexe")], check=True)
    write_npy(folder / "images.npy", "|u1", (examples, 28, 28), bytes(examples * PIXELS))
    write_npy(folder / "labels.npy", "<i4", (examples,), array.array("i", [0] * examples).tobytes())
    text = (ROOT / "examples/mnist_convnet/train.toml.in").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(("eval = ", "checkpoint"))]
    text = "\n".join(lines).replace("@OUT@", str(folder)).replace("@DATA@", str(folder))
    config = folder / "train.toml"
    config.write_text(text.replace("eval_count = 1000", "eval_count = 0"), encoding="utf-8")
    return config


def train(args: argparse.Namespace, config: Path, launch: int, changes: dict[str, float]) -> dict:
    """The figures of a run of --steps steps, `launch` of them a launch."""
    out = config.parent / "run"
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([str(args.bin / "tpuboard"), "train", str(config), "--no-data", "--steps", str(args.steps),
                    "--steps-per-execution", str(launch), "--out", str(out), *sets], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads((out / "run.json").read_text(encoding="utf-8"))


def numbers(kind: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    """Reads N,N,..."""
    return lambda text: tuple(kind(word) for word in text.split(","))


def nice_top(value: float) -> float:
    """The first of 1, 2, 2.5, 5, 10 times a power of ten that is not below the value."""
    power = 10 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= value)


def draw(title: str, x_name: str, y_name: str, xs: tuple[float, ...], curves: list[Curve]) -> str:
    """The SVG text: a logarithmic axis of the places, a linear one from 0."""
    top = nice_top(max(max(curve.values) for curve in curves))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    low, high = math.log(xs[0]), math.log(xs[-1])

    def x_at(value: float) -> float:
        return LEFT + (math.log(value) - low) / (high - low) * (right - LEFT)

    def y_at(value: float) -> float:
        return bottom - value / top * (bottom - TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
           f'<text x="{LEFT}" y="{TOP - 8}" fill="#555">{escape(y_name)}</text>',
           f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#555">'
           f'{escape(x_name)}</text>']
    for i in range(6):
        value = top * i / 5
        out.append(f'<path d="M{LEFT} {y_at(value):.1f}H{right}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y_at(value) + 4:.1f}" text-anchor="end" fill="#555">{value:g}</text>')
    for x in xs:
        out.append(f'<path d="M{x_at(x):.1f} {TOP}V{bottom}" stroke="#eee"/>')
        out.append(f'<text x="{x_at(x):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{x:g}</text>')
    for curve, colour in zip(curves, COLOURS, strict=False):
        points = [(x_at(x), y_at(y)) for x, y in zip(xs, curve.values, strict=True)]
        out.append(f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        for (x, y), value in zip(points, curve.values, strict=True):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{value:.2f}</title></circle>')
        out.append(f'<text x="{right + 8}" y="{points[-1][1] + 4:.1f}" fill="{colour}">{escape(curve.name)} '
                   f'{curve.values[-1]:.1f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def by_launch(args: argparse.Namespace, config: Path) -> str:
    """Steps a launch; the host dispatches and prepares input."""
    host = {"host.dispatch_cycles": DISPATCH_CYCLES, "host.input_gbps": INPUT_GBPS}
    print("| steps a launch | a step, ms | idle % |\n|---|---|---|", flush=True)
    times = []
    for launch in args.launches:
        run = train(args, config, launch, host)
        times.append(run["sim_seconds_per_step"] * 1e3)
        print(f"| {launch} | {times[-1]:.2f} | {run['idle'] * 100:.1f} |", flush=True)
    return draw("Time of a step: 14 ms a launch, 10 ms to prepare a batch", "steps a launch (--steps-per-execution)",
                "ms a step", args.launches, [Curve("ms", times)])


def by_rate(args: argparse.Namespace, config: Path) -> str:
    """Rates of the input; all steps are one launch."""
    print("\n| input, GB/s | a step, ms | MXU % | idle % |\n|---|---|---|---|", flush=True)
    used, idle = Curve("MXU %", []), Curve("idle %", [])
    for rate in args.rates:
        run = train(args, config, args.steps, {"host.input_gbps": rate})
        used.values.append(run["mxu_utilization"] * 100)
        idle.values.append(run["idle"] * 100)
        print(f"| {rate:g} | {run['sim_seconds_per_step'] * 1e3:.2f} | {used.values[-1]:.1f} | "
              f"{idle.values[-1]:.1f} |", flush=True)
    return draw("A board that waits for its input", "rate at which the host prepares input, GB/s (host.input_gbps)",
                "% of the time", args.rates, [used, idle])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder of tpuc and tpuboard")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--steps", type=int, default=50, help="steps of each run (default 50)")
    parser.add_argument("--launches", type=numbers(int), default=LAUNCHES, help="numbers of steps a launch, rising")
    parser.add_argument("--rates", type=numbers(float), default=RATES, help="GB/s, rising")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = make_inputs(args.bin / "tpuc", Path(folder), args.steps)
        for name, make in (("steps_per_execution", by_launch), ("input_rate", by_rate)):
            (args.out / f"{name}.svg").write_text(make(args, config), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
