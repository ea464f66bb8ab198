"""Every program of benchmarks/ still runs, on sizes too small to measure anything: exit codes, form of the figures.

Usage: benchmarks_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
ONE_OP = sorted((BENCHMARKS.parent / "tests" / "data" / "one_op").glob("*.mlirbc"))


def output(*command: str | Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}")
    return done.stdout


def check_table(tools: Path) -> None:
    """run.py: a figure for every line, or the reason why this host has none."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        output(sys.executable, BENCHMARKS / "run.py", "--smoke", "--bin", tools, "--python", sys.executable, "--json",
               figures)
        results = json.loads(figures.read_text(encoding="utf-8"))
    assert len(results) >= 13, sorted(results)
    for name, result in results.items():
        if result["reason"] is not None:
            assert not result["failed"] and name == "mxu_512_amx", f"{name}: {result['reason']}"
            continue
        for key in ("ours", "theirs", "ratio"):
            assert math.isfinite(result[key]) and result[key] > 0, f"{name}: {key} is {result[key]}"


def check_batches(tools: Path) -> None:
    """batch_table.py: a line for a batch."""
    table = output(sys.executable, BENCHMARKS / "batch_table.py", "--bin", tools, "--python", sys.executable,
                   "--batches", "8")
    last = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert last[:2] == ["8", "1"] and float(last[2]) > 0, table


def check_curves(plugin: Path) -> None:
    """loss_curve.py: two epochs on digits of noise; the board's curves are those of a CPU that rounds as it does."""
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        labels = random.integers(0, 10, 5000).astype(np.int32)
        images = random.random((10, 784))[labels] + random.normal(0, 0.3, (5000, 784))
        np.save(Path(folder) / "images.npy", images.astype(np.float32))
        np.save(Path(folder) / "labels.npy", labels)
        text = output(sys.executable, BENCHMARKS / "loss_curve.py", "--plugin", plugin, "--data", folder, "--filters",
                      "4", "--digits", "400", "--epochs", "2", "rounded", "board", "board8")
    curves = [list(map(float, line.split()[1:])) for line in text.splitlines()]
    assert len(curves) == 3 and all(len(curve) == 2 and curve[1] < curve[0] for curve in curves), text
    np.testing.assert_allclose(curves[1:], curves[:1] * 2, rtol=1e-3, err_msg=text)


def check_json(*command: str | Path) -> None:
    """A program that prints JSON, or an object a line, with at least one positive number."""
    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for item in value for number in numbers(item)]
        return [float(value)] if isinstance(value, int | float) else []

    text = output(*command)
    values = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    found = numbers(values)
    assert found and all(map(math.isfinite, found)) and max(found) > 0, text


def check_profile(tools: Path) -> None:
    """tpuboard bench --profile: each kind of work with its rate and the host's limit, and other numbers of threads."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "bench.json"
        step = BENCHMARKS.parent / "examples" / "mnist_mlp" / "train_step.mlirbc"
        output(tools / "tpuboard", "bench", step, "--profile", "--dense", "--launches", "2", "--json", figures)
        profile = json.loads(figures.read_text(encoding="utf-8"))["profile"]
    for kind in ("mxu", "mxu_pack", "vpu", "dma_in", "dma_out", "dma_remote"):
        work = profile["work"][kind]
        assert work["seconds"] > 0 and work["amount"] > 0 and work["amount_per_second"] > 0, work
        assert work["of_limit"] > 0 and work["limit"], work
    assert profile["work"]["vpu"]["bytes"] > profile["work"]["vpu"]["amount"] / 10, profile["work"]["vpu"]
    assert profile["host_limits"]["copy_bytes_per_second"] > 0, profile["host_limits"]
    threads = profile["threads"]
    assert [each["threads"] for each in threads] == [1, 2, 4, 8, 16], threads
    for each in threads:
        assert 0 < each["events_seconds"] < each["seconds"] <= threads[0]["seconds"] * 1.01, threads


def check_compiles(tools: Path, script: str, out: str, *options: str) -> None:
    """A script that exports programs for compile-bench: it compiles all of them."""
    with tempfile.TemporaryDirectory() as folder:
        output(sys.executable, BENCHMARKS / script, "--out", Path(folder) / out, *options)
        check_json(tools / "compile-bench", "--repeat", "1", "--json", *sorted(Path(folder).rglob("*.mlirbc")))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    tools = parser.parse_args().bin
    plugin = tools.parent / "lib/libtpuboard_pjrt.so"
    checks: dict[str, Callable[[], object]] = {
        "run.py": lambda: check_table(tools),
        "tpuboard bench": lambda: check_profile(tools),
        "batch_table.py": lambda: check_batches(tools),
        "compile-bench": lambda: check_json(tools / "compile-bench", "--repeat", "1", "--json", *ONE_OP),
        "bert.py": lambda: check_compiles(tools, "bert.py", "bert.mlirbc", "--layers", "1", "--batch", "32"),
        "gpt.py": lambda: check_compiles(tools, "gpt.py", "gpt.mlirbc", "--layers", "1"),
        "gpt.py --generate": lambda: check_compiles(tools, "gpt.py", "gpt.mlirbc", "--layers", "1", "--generate", "8"),
        "ssd.py": lambda: check_compiles(tools, "ssd.py", "ssd.mlirbc", "--batch", "1"),
        "transformer.py": lambda: check_compiles(tools, "transformer.py", "transformer.mlirbc", "--layers", "1",
                                                 "--batch", "1"),
        "small_programs.py": lambda: check_compiles(tools, "small_programs.py", "programs"),
        "hart-bench": lambda: check_json(tools / "hart-bench", "--seconds", "0.02", "--json"),
        "mxu-bench": lambda: check_json(tools / "mxu-bench", "--size", "128", "--json"),
        "mxu-shapes-bench": lambda: check_json(tools / "mxu-shapes-bench", "--only", "25", "--rounds", "1", "--json"),
        "loss_curve.py": lambda: check_curves(plugin),
        "launch_latency.py": lambda: output(sys.executable, BENCHMARKS / "launch_latency.py", "--plugin", plugin,
                                            "--launches", "10"),
        "monitor_cost.py": lambda: output(sys.executable, BENCHMARKS / "monitor_cost.py", "--bin", tools, "--steps",
                                          "20", "--rounds", "1"),
        "vpu-bench": lambda: output(tools / "vpu-bench", "0.0005"),
    }
    failed = 0
    for name, check in checks.items():
        try:
            check()
            print(f"ok {name}", flush=True)
        except (AssertionError, OSError) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
