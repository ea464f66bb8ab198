"""What being watched costs a training run: processor time of `tpuboard train` with and without, in turns.

Watched: the run tells of itself once a second, `tpuboard monitor` follows it, and a scrape a second asks
`tpuboard monitor --prometheus`. Not watched: the run finds no folder in which it could tell. The program is the step of
examples/mnist_mlp on images of noise. A look is made once a second of the clock: on a busy host, where a second of work
takes many of them, the share is larger than on an idle one by that factor, which is printed too.

Usage: monitor_cost.py --bin BUILD/bin [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

STEP = Path(__file__).resolve().parent.parent / "examples" / "mnist_mlp" / "train_step.mlirbc"
CONFIG = """
[program]
train = "step.tpuexe"
[state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal", "zeros*13"]
[data]
images = "images.raw"
labels = "labels.raw"
split_seed = 7
eval_count = 200
classes = 10
[run]
batch = 200
epochs = 1000000
"""
EXAMPLES, IMAGE_BYTES = 2000, 784


@dataclass
class Cost:
    """Of one run: seconds of processor time of the run and of its readers, and of the clock; looks that were seen."""

    job: float
    readers: float
    wall: float
    looks: int


def runs(process: subprocess.Popen[str]) -> bool:
    """Its end is left to be waited for."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def end(process: subprocess.Popen[str]) -> float:
    """Waits; its processor time."""
    _, status, use = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return use.ru_utime + use.ru_stime


def start(words: list[str | Path], environment: dict[str, str], out: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """A process without a terminal."""
    return subprocess.Popen(list(map(str, words)), stdout=out, stderr=subprocess.DEVNULL, text=True, env=environment)


def run(tools: Path, folder: Path, steps: int, watched: bool) -> Cost:
    """A training run of its own."""
    seen, looks, readers = folder / "seen", folder / "looks.txt", []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(seen if watched else "/dev/null")}
    seen.mkdir(exist_ok=True)
    began = time.monotonic()
    job = start([tools / "tpuboard", "train", folder / "c.toml", "--threads", "1", "--steps", str(steps), "--out",
                 folder / "out"], environment)
    if watched:
        while runs(job) and not list(seen.glob("tpuboard/*.json")):
            time.sleep(0.05)
        with looks.open("w") as lines:
            readers.append(start([tools / "tpuboard", "monitor", "--json"], environment, lines.fileno()))
        server = start([tools / "tpuboard", "monitor", "--prometheus", "0"], environment, subprocess.PIPE)
        assert server.stdout
        url = server.stdout.readline().split()[-1]
        readers.append(server)
        while runs(job):
            urllib.request.urlopen(url, timeout=60).read()
            time.sleep(1)
        server.terminate()
    used = end(job)
    wall = time.monotonic() - began
    if job.returncode != 0:
        raise RuntimeError(f"tpuboard train ended with {job.returncode}")
    return Cost(used, sum(map(end, readers)), wall, len(looks.read_text().splitlines()) if watched else 0)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    tools = options.bin.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        noise = random.Random(1)
        (folder / "images.raw").write_bytes(noise.randbytes(EXAMPLES * IMAGE_BYTES))
        (folder / "labels.raw").write_bytes(bytes(noise.randrange(10) for _ in range(EXAMPLES)))
        (folder / "c.toml").write_text(CONFIG)
        subprocess.run([str(tools / "tpuc"), str(STEP), "-o", str(folder / "step.tpuexe")], check=True)
        pairs = []
        print("round  job, CPU s: alone  watched      +%   readers, % of a core   looks   clock/CPU")
        for n in range(options.rounds):
            sides = {watched: run(tools, folder, options.steps, watched)
                     for watched in ((False, True) if n % 2 == 0 else (True, False))}
            alone, watched = sides[False], sides[True]
            more = 100 * (watched.job / alone.job - 1)
            reading = 100 * watched.readers / watched.wall
            pairs.append((more, reading))
            print(f"{n + 1:5}{alone.job:19.2f}{watched.job:9.2f}{more:8.2f}{reading:23.2f}{watched.looks:8}"
                  f"{watched.wall / watched.job:12.1f}", flush=True)
    more, reading = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"median: the run {more:+.2f} %, its readers {reading:.2f} % of a core")


if __name__ == "__main__":
    main()
