"""Runs the benchmark table: the simulation against JAX, OpenBLAS, oneDNN and NumPy on this host, each pair in one run,
and simulated step times against measurements of real boards.

Builds what is missing (preset release; JAX and flax in build/venv), prints a Markdown table with the host's CPU, and
writes JSON: {name: {ours, theirs, ratio, unit, ...}}. What this host cannot run has null and a reason.

  convnet_step     seconds of a training step of examples/mnist_convnet, all host cores; theirs: the same step in JAX
  convnet_plugin   the same step on eight devices of the PJRT plugin, the slower of jit and shard_map; theirs: JAX on
                   one CPU device. Bar: 0.9 times the ratio of `tpuboard train` in the same run
  convnet_input    a training step fed from record files, read, verified and shuffled beside it; theirs: fed from
                   arrays in memory, with the same losses. Bar: 3 % of host and of simulated time
  bert_layer       a training step of a BERT-base layer on one core (steps.py has all five), all host cores; theirs: JAX
  gpt_block        of a block of GPT-2 small, causal attention over 1,024 tokens
  resnet_bottleneck  of a ResNet-50 bottleneck
  mlp_step         of examples/mnist_mlp
  conv2_dense      of the convnet's second convolution on operands without zeros, which the matrix engine could skip
  mxu_2048         2048^3 matmul through tpuc and tpuboard, one thread, DMA and tiling included; theirs: OpenBLAS sgemm
  mxu_512_amx      512^3 on the matrix engine with AMX, one thread; theirs: oneDNN's bf16 matmul
  vpu_chain        10 elementwise operations on 16 M f32, all host cores; theirs: NumPy
  resnet50_v3_8    simulated ms of a ResNet-50 training step, batch 128 a core; theirs: measured on a real v3-8
  resnet50_v2_8    the same on v2-8

Usage: run.py [--only NAME ...] [--simd NAME] [--json FILE] [--markdown FILE] [--bin DIR] [--python FILE] [--rounds N]
              [--smoke]
Needs Python 3.11 alone; NumPy, JAX and flax are in the environment that it makes. Exit code 1 when something failed to
run; a bar that is missed is told in the table alone. --smoke runs tiny sizes once, to see that all still runs: its
figures mean nothing. --simd avx2 or avx512 keeps both sides, JAX and OpenBLAS, to these instructions on a host that has
more of them; NumPy takes what it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median_high as median

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
REAL_STEP_MS = {"v3_8": 137.4, "v2_8": 228.8}  # ResNet-50, batch 128 a core, MLPerf v0.5 logs
RESNET_BAND = 0.35
PLUGIN_COST = 0.1  # of the speed of `tpuboard train`
RESNET_WALL_SECONDS = 60
CONVNET_BARS = {"avx2": 5.5, "avx512": 4.5, "avx512_bf16": 4.5, "amx": 6.5}  # by the host's best instruction set
CORE_STEP_BARS = {"bert_layer": 3.0, "gpt_block": 3.0, "resnet_bottleneck": 5.0, "mlp_step": 3.0}
INPUT_COST = 0.03  # of a step's time
# Of XLA's own code and of oneDNN inside of it, by the instructions that --simd leaves.
LIMITS = {"avx2": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
          "avx512": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}}


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    convnet_batch: int = 200
    convnet_channels: int = 256  # of each convolution
    convnet_steps: int = 5  # a round; the first one is not counted
    matmul: int = 2048
    matmul_launches: int = 6
    amx: int = 512
    chain: int = 1 << 24
    chain_launches: int = 24
    resnet: tuple[str, ...] = ("--batch", "128")  # options of resnet50.py
    core_seconds: float = 4  # a round of a step on one core
    core_options: tuple[str, ...] = ()  # of steps.py


SMOKE = Sizes(convnet_batch=8, convnet_channels=8, convnet_steps=2, matmul=256, matmul_launches=2, amx=128,
              chain=1 << 16, chain_launches=2, resnet=("--batch", "2", "--image", "32", "--stages", "1,1,1,1"),
              core_seconds=0, core_options=("--smoke",))


class Skipped(Exception):
    """Why a benchmark cannot run here."""


@dataclass
class Result:
    """A line of the table. `ratio`: how many times faster ours is; of simulated times, ours / theirs."""

    ours: float | None
    theirs: float | None
    ratio: float | None
    unit: str
    bar: str
    met: bool | None = None
    note: str = ""
    reason: str | None = None  # of null
    failed: bool = False


def cpu_field(name: str) -> str:
    """What the kernel says of the host's first CPU."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return ""


def cpu_flags() -> set[str]:
    """Features of the host's CPU as the kernel names them."""
    return set(cpu_field("flags").split())


def cpu_name() -> str:
    """Model name, cores in use and the best instruction set that counts here."""
    name = cpu_field("model name") or platform.processor()
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {host_simd().upper()}"


def host_simd() -> str:
    """avx2, avx512, avx512_bf16 or amx: what the matrix engine takes by itself (tlm_model/mxu/mxu_fast.cpp)."""
    flags = cpu_flags()
    if not {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
        return "avx2"
    if {"amx_tile", "amx_bf16"} <= flags:
        return "amx"
    return "avx512_bf16" if "avx512_bf16" in flags and cpu_field("vendor_id") != "GenuineIntel" else "avx512"


class Bench:
    """Where things are, and how they are run."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.bin: Path = args.bin
        self.python: Path = args.python
        self.rounds: int = 1 if args.smoke else args.rounds
        self.sizes = SMOKE if args.smoke else Sizes()
        self.scratch = scratch
        self.simd: str = args.simd or host_simd()
        self.limit: list[str] = ["--simd", args.simd] if args.simd else []  # options of tpuboard
        self.environment: dict[str, str] = LIMITS.get(args.simd, {})

    def call(self, command: list[str | Path], **environment: str) -> str:
        """Standard output of a command; its error text when it fails."""
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              env=os.environ | self.environment | environment)
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip()[-600:]
            raise RuntimeError(f"{Path(command[0]).name} {command[1]} exited {done.returncode}: {text}")
        return done.stdout

    def reference(self, *arguments: str | Path, **environment: str) -> dict:
        """What references.py prints."""
        return json.loads(self.call([self.python, HERE / "references.py", *arguments], **environment))

    def compile(self, graph: Path, *options: str) -> Path:
        """An executable."""
        out = self.scratch / f"{graph.stem}.tpuexe"
        self.call([self.bin / "tpuc", graph, "-o", out, *options])
        return out

    def launch(self, executable: Path, launches: int, inputs: list[Path], *options: str) -> dict:
        """Figures of `tpuboard run`."""
        limit = [] if "--simd" in options else self.limit
        figures = self.scratch / "run.json"
        given = [text for i, path in enumerate(inputs) for text in ("--in", f"{i}={path}")]
        self.call([self.bin / "tpuboard", "run", executable, "--launches", str(launches), "--json", figures, *given,
                   *limit, *options])
        return json.loads(figures.read_text(encoding="utf-8"))


def write_normal(path: Path, shape: tuple[int, ...], seed: int) -> Path:
    """A NumPy file of f32 values between -2 and 2 (this interpreter has no NumPy)."""
    import array
    import random

    source = random.Random(seed)
    block = array.array("f", (source.uniform(-2, 2) for _ in range(1 << 16)))
    count = 1
    for size in shape:
        count *= size
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({''.join(f'{n}, ' for n in shape)}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        for start in range(0, count, len(block)):
            file.write(block[: min(len(block), count - start)].tobytes())
    return path


def speed(ours: float, theirs: float, unit: str, least: float, note: str) -> Result:
    """Seconds: a ratio above 1 says that ours is faster; other units are rates."""
    ratio = theirs / ours if unit == "s" else ours / theirs
    return Result(ours, theirs, ratio, unit, f"at least {least} x", ratio >= least, note)


class Convnet:
    """The training step of examples/mnist_convnet in each of its surroundings."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.data = ROOT / "out" / "data" / "mnist"
        subprocess.run([sys.executable, str(ROOT / "sim_scripts" / "fetch_mnist.py"), "--out", str(self.data)],
                       check=True)
        example = ROOT / "examples" / "mnist_convnet"
        graph = example / "train_step.mlirbc"
        if (bench.sizes.convnet_batch, bench.sizes.convnet_channels) != (Sizes.convnet_batch, Sizes.convnet_channels):
            graph = bench.scratch / graph.name
            bench.reference("export-convnet", str(bench.sizes.convnet_batch), graph, str(bench.sizes.convnet_channels))
        bench.compile(graph)
        self.config = bench.scratch / "train.toml"
        lines = (example / "train.toml.in").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(("eval =", "checkpoint"))]
        text = "\n".join(kept).replace("@OUT@", str(bench.scratch)).replace("@DATA@", str(self.data))
        text = text.replace("batch = 200", f"batch = {bench.sizes.convnet_batch}")
        self.config.write_text(text, encoding="utf-8")

    def run(self, config: Path) -> dict:
        """What `tpuboard train` says of a run, and its processor time."""
        out = self.bench.scratch / "train"
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.bench.call([self.bench.bin / "tpuboard", "train", config, "--steps", str(self.bench.sizes.convnet_steps),
                         "--out", out, *self.bench.limit])
        user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        return json.loads((out / "run.json").read_text(encoding="utf-8")) | {"user_seconds": user}

    def train(self) -> tuple[float, str]:
        """`tpuboard train`: the median step, and what it is."""
        run = self.run(self.config)
        return median(run["step_seconds"][1:]), f"simulated {run['sim_seconds_per_step'] * 1e3:.2f} ms a step"

    def record_config(self) -> Path:
        """The configuration that takes the same examples in the same order from record files."""
        records = self.bench.scratch / "examples"
        self.bench.call([self.bench.bin / "tpuboard", "convert", f"image={self.data / 'images.npy'}",
                         f"label={self.data / 'labels.npy'}", "--records", records, "--shards", "8"])
        lines = self.config.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(("images =", "labels =", "classes ="))]
        at = kept.index("[run]")
        inputs = ["", "[[data.input]]", 'name = "image"', "", "[[data.input]]", 'name = "label"', "classes = 10", ""]
        kept[at:at] = inputs
        kept.insert(kept.index("[data]") + 1, f'records = ["{records}-*.tfrecord"]')
        config = self.bench.scratch / "train_records.toml"
        config.write_text("\n".join(kept), encoding="utf-8")
        return config

    def jax(self, where: str, **environment: str) -> tuple[float, str]:
        """JAX on `where` (references.py)."""
        sizes = self.bench.sizes
        run = self.bench.reference("convnet", str(sizes.convnet_steps), str(sizes.convnet_batch),
                                   str(sizes.convnet_channels), self.data, where, **environment)
        return median(run["step_seconds"][1:]), run["what"]


def convnet_step(bench: Bench) -> Result:
    """`tpuboard train` and JAX in turns; the median step of each round, the best round of each."""
    convnet = Convnet(bench)
    rounds = [(convnet.train(), convnet.jax("cpu")) for _ in range(bench.rounds)]
    (ours, simulated), (theirs, what) = (min(side) for side in zip(*rounds, strict=True))
    return speed(ours, theirs, "s", CONVNET_BARS[bench.simd], f"{what}; {simulated}")


def convnet_plugin(bench: Bench) -> Result:
    """JAX on the plugin, `tpuboard train` and JAX on the CPU in turns: what the plugin costs."""
    library = bench.bin.parent / "lib" / "libtpuboard_pjrt.so"
    if not library.exists():
        raise Skipped(f"there is no {library.name} beside the programs")
    convnet = Convnet(bench)
    board = {"TPU_LIBRARY_PATH": str(library), "TPUBOARD_CACHE": "off"}
    rounds = [(convnet.train()[0], convnet.jax("cpu")[0], convnet.jax("jit", **board)[0],
               convnet.jax("shard_map", **board)[0]) for _ in range(bench.rounds)]
    train, cpu, jit, manual = (min(seconds) for seconds in zip(*rounds, strict=True))
    ours, wanted = max(jit, manual), (1 - PLUGIN_COST) * cpu / train
    return Result(ours, cpu, cpu / ours, "s", f"at least {wanted:.2f} x", cpu / ours >= wanted,
                  f"jit {jit:.2f} s, shard_map {manual:.2f} s; `tpuboard train` {train:.2f} s, {cpu / train:.2f} x")


def convnet_input(bench: Bench) -> Result:
    """The same run from record files and from arrays in turns: the median step of a round, the best round of each."""
    convnet = Convnet(bench)
    records = convnet.record_config()
    rounds = [(convnet.run(records), convnet.run(convnet.config)) for _ in range(bench.rounds)]
    if any(streamed["losses"] != memory["losses"] for streamed, memory in rounds):
        raise RuntimeError("convnet_input: the losses from records and from arrays differ")
    runs = list(zip(*rounds, strict=True))
    ours, theirs = (min(median(run["step_seconds"][1:]) for run in side) for side in runs)
    streamed, memory = (side[0]["sim_seconds_per_step"] for side in runs)
    user = [min(run["user_seconds"] for run in side) / bench.sizes.convnet_steps for side in runs]
    waited = min(run["input"]["waited_seconds"] for run in runs[0])
    note = (f"simulated {streamed * 1e3:.3f} and {memory * 1e3:.3f} ms a step; user time of the run, a step: "
            f"{user[0]:.2f} and {user[1]:.2f} s; it waited {waited * 1e3:.1f} ms for its input")
    result = speed(ours, theirs, "s", round(1 / (1 + INPUT_COST), 3), note)
    result.met = result.met and streamed <= (1 + INPUT_COST) * memory
    return result


def core_step(bench: Bench, name: str) -> Result:
    """A step of steps.py on one core and JAX in turns; the median step of each round, the best round of each. The first
    two steps of a round warm up on both sides."""
    folder = bench.scratch / name
    folder.mkdir()
    steps, options = [bench.python, HERE / "steps.py"], bench.sizes.core_options
    count = json.loads(bench.call([*steps, "export", name, folder, *options]))["arguments"]
    program = bench.compile(folder / f"{name}.mlirbc")
    inputs = [folder / f"{i}.npy" for i in range(count)]
    first = bench.launch(program, 2, inputs)["launch_seconds"][1]
    launches = 3 + min(40, int(bench.sizes.core_seconds / first))
    outputs = folder / "ours"
    bench.launch(program, 1, inputs, "--out-dir", outputs)
    ours, theirs = [], []
    for _ in range(bench.rounds):
        ours.append(median(bench.launch(program, launches, inputs)["launch_seconds"][2:]))
        jax = json.loads(bench.call([*steps, "run", name, launches, outputs, *options]))
        theirs.append(median(jax["step_seconds"][2:]))
    bar = CORE_STEP_BARS.get(name, CONVNET_BARS[bench.simd])
    return speed(min(ours), min(theirs), "s", bar, f"{jax['what']}; results differ by {jax['error']:.2g}")


def mxu_2048(bench: Bench) -> Result:
    """One thread and the host's best vectors on both sides; ours may multiply in bf16, as boards do, not in tiles."""
    size, launches = bench.sizes.matmul, bench.sizes.matmul_launches
    simd, core = "avx512_bf16" if bench.simd == "amx" else bench.simd, "SkylakeX"
    if simd == "avx2":
        core = "Haswell"
    graph = bench.scratch / "matmul.mlirbc"
    bench.reference("export-matmul", str(size), graph)
    program = bench.compile(graph)
    inputs = [write_normal(bench.scratch / f"m{i}.npy", (size, size), i) for i in range(2)]
    ours, theirs = [], []
    what = ""
    for _ in range(bench.rounds):
        run = bench.launch(program, launches, inputs, "--threads", "1", "--simd", simd)
        ours.append(min(run["launch_seconds"][1:]))
        blas = bench.reference("sgemm", str(size), str(launches), OPENBLAS_NUM_THREADS="1",
                               OPENBLAS_CORETYPE=core)
        theirs.append(blas["seconds"])
        what = blas["what"]
    gflop = 2 * size**3 * 1e-9
    return speed(gflop / min(ours), gflop / min(theirs), "GFLOP/s", 0.85, f"{simd}; {what}")


def mxu_512_amx(bench: Bench) -> Result:
    """Both in one process."""
    if bench.simd != "amx":
        raise Skipped(f"{bench.simd} alone, and no AMX")
    program = bench.bin / "onednn-bench"
    if not program.exists():
        raise Skipped("onednn-bench was not built; install oneDNN with: apt-get install libdnnl-dev")
    run = json.loads(bench.call([program, "--size", str(bench.sizes.amx)], OMP_NUM_THREADS="1"))
    return speed(run["mxu_gflops"], run["onednn_gflops"], "GFLOP/s", 0.8, f"oneDNN {run['onednn']}")


def vpu_chain(bench: Bench) -> Result:
    """All host threads on our side; NumPy has one."""
    graph = bench.scratch / "chain.mlirbc"
    size, launches = bench.sizes.chain, bench.sizes.chain_launches
    bench.reference("export-chain", str(size), graph)
    program = bench.compile(graph)
    inputs = [write_normal(bench.scratch / f"v{i}.npy", (size,), i) for i in range(2)]
    ours, theirs = [], []
    what = ""
    for _ in range(bench.rounds):
        ours.append(min(bench.launch(program, launches, inputs)["launch_seconds"][1:]))
        numpy = bench.reference("chain", str(size), str(launches))
        theirs.append(numpy["seconds"])
        what = numpy["what"]
    return speed(min(ours), min(theirs), "s", 5.0, what)


def resnet50(bench: Bench, board: str) -> Result:
    """Timing only: no data work is done."""
    graph = bench.scratch / "resnet50.mlirbc"
    if not graph.exists():
        bench.call([bench.python, HERE / "resnet50.py", "--out", graph, *bench.sizes.resnet])
    start = time.perf_counter()
    program = bench.compile(graph, "--board", board)
    compiled = time.perf_counter() - start
    run = bench.launch(program, 1, [], "--board", board, "--no-data")
    wall = time.perf_counter() - start
    ours, theirs = run["sim_seconds"] * 1e3, REAL_STEP_MS[board]
    note = (f"MXU {run['mxu_utilization'] * 100:.1f} %; host {wall:.1f} s (at most {RESNET_WALL_SECONDS} s), of it "
            f"tpuc {compiled:.1f} s")
    met = abs(ours / theirs - 1) <= RESNET_BAND and wall <= RESNET_WALL_SECONDS
    return Result(ours, theirs, ours / theirs, "ms", f"within {RESNET_BAND * 100:.0f} %", met, note)


BENCHMARKS: dict[str, tuple[str, str, Callable[[Bench], Result]]] = {
    "convnet_step": ("training step of the MNIST convnet, batch 200", "s", convnet_step),
    "convnet_plugin": ("the same step by unmodified JAX on the plugin", "s", convnet_plugin),
    "convnet_input": ("its step from record files against arrays in memory", "s", convnet_input),
    "bert_layer": ("training step of a BERT-base layer, 8 x 128 tokens, one core", "s",
                   partial(core_step, name="bert_layer")),
    "gpt_block": ("of a GPT-2 small block, 1,024 tokens, causal, one core", "s", partial(core_step, name="gpt_block")),
    "resnet_bottleneck": ("of a ResNet-50 bottleneck, 16 x 56x56x256, one core", "s",
                          partial(core_step, name="resnet_bottleneck")),
    "mlp_step": ("of the MNIST MLP, batch 200, one core", "s", partial(core_step, name="mlp_step")),
    "conv2_dense": ("of the convnet's second convolution, 25 images, no zeros, one core", "s",
                    partial(core_step, name="conv2_dense")),
    "mxu_2048": ("2048^3 matmul, one core's program, one thread", "GFLOP/s", mxu_2048),
    "mxu_512_amx": ("512^3 on the matrix engine, AMX, one thread", "GFLOP/s", mxu_512_amx),
    "vpu_chain": ("10 elementwise operations on 16 M f32", "s", vpu_chain),
    "resnet50_v3_8": ("ResNet-50 step, batch 128 a core, simulated", "ms", lambda bench: resnet50(bench, "v3_8")),
    "resnet50_v2_8": ("the same on v2-8", "ms", lambda bench: resnet50(bench, "v2_8")),
}


def measure(bench: Bench, name: str) -> Result:
    """A result, or null with the reason."""
    _, unit, function = BENCHMARKS[name]
    try:
        result = function(bench)
        if bench.sizes is SMOKE:
            result.met = None
        return result
    except Skipped as skipped:
        return Result(None, None, None, unit, "", reason=str(skipped))
    except (RuntimeError, subprocess.CalledProcessError) as error:
        return Result(None, None, None, unit, "", reason=" ".join(str(error).split()), failed=True)


def number(value: float | None) -> str:
    """Three digits or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def markdown(results: dict[str, Result], simd: str | None) -> str:
    """The table."""
    host = cpu_name() + (f", with {simd.upper()} alone" if simd else "")
    lines = [f"Host: {host}.", "", "| what | ours | theirs | ratio | bar | |", "|---|---|---|---|---|---|"]
    for name, r in results.items():
        title = f"`{name}`: {BENCHMARKS[name][0]}"
        cells = [title, "-", "-", "-", r.bar or "-", f"{'failed' if r.failed else 'skipped'}: {r.reason}"]
        if r.reason is None:
            verdict = {True: "met", False: "MISSED", None: "not measured"}[r.met]
            cells = [title, f"{number(r.ours)} {r.unit}", f"{number(r.theirs)} {r.unit}", number(r.ratio), r.bar,
                     f"{verdict}; {r.note}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def build(args: argparse.Namespace) -> None:
    """The release preset, unless --bin says where programs are."""
    if args.bin is not None:
        return
    print("== building (preset release; the log is build/benchmarks.log)", file=sys.stderr, flush=True)
    (ROOT / "build").mkdir(exist_ok=True)
    log = ROOT / "build" / "benchmarks.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(["cmake", "--workflow", "--preset", "release"], cwd=ROOT, stdout=file, stderr=file,
                              check=False)
    if done.returncode != 0:
        raise SystemExit(f"run.py: the build failed; the log is {log}")
    args.bin = ROOT / "build" / "release" / "bin"


def make_python(args: argparse.Namespace) -> None:
    """The environment of sim_scripts/test, unless --python names one."""
    if args.python is not None:
        return
    folder = ROOT / "build" / "venv"
    wanted = ROOT / "tests" / "requirements.txt"
    stamp = folder / "requirements.txt"
    args.python = folder / "bin" / "python"
    if stamp.exists() and stamp.read_bytes() == wanted.read_bytes():
        return
    print("== installing JAX and flax (build/venv)", file=sys.stderr, flush=True)
    if not args.python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(args.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                    str(wanted)], check=True)
    shutil.copy(wanted, stamp)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), metavar="NAME", help="repeatable")
    parser.add_argument("--simd", choices=list(LIMITS), help="both sides with these instructions alone")
    parser.add_argument("--json", type=Path, help="figures as JSON")
    parser.add_argument("--markdown", type=Path, help="the table")
    parser.add_argument("--bin", type=Path, help="folder of tpuc and tpuboard; nothing is built then")
    parser.add_argument("--python", type=Path, help="interpreter with the packages of tests/requirements.txt")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each pair (default 2)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once: sees that everything runs")
    args = parser.parse_args()
    if args.simd == "avx512" and host_simd() == "avx2":
        parser.error("--simd avx512: this host has no AVX-512; take avx2")
    build(args)
    make_python(args)
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, Path(scratch))
        for name in args.only or BENCHMARKS:
            print(f"== {name}", file=sys.stderr, flush=True)
            results[name] = measure(bench, name)
    table = markdown(results, args.simd)
    print(table, end="")
    if args.markdown is not None:
        args.markdown.write_text(table, encoding="utf-8")
    if args.json is not None:
        figures = {name: asdict(r) for name, r in results.items()}
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if any(r.failed for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
