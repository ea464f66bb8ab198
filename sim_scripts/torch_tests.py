#!/usr/bin/env python3
"""PyTorch/XLA's own tests on the board: runs files of its test folder, and sorts the results by reason.

Usage: torch_tests.py --tests FOLDER [--library LIBRARY] [--cases N] [--match REGEX] [--form default|stablehlo]
                      [--limit SECONDS] [--out FOLDER] [--json FILE] [--markdown FILE] [FILE ...]
  Run it with the Python of an environment that sim_scripts/torch_venv made. FOLDER is `test` of PyTorch/XLA's
  repository at the tag of the installed version. A FILE is a module of unit tests (test_operations,
  spmd.test_xla_sharding), or a script (test_mp_all_gather.py), which passes if it exits with 0. A script has eight
  processes with a core each. Without FILEs: all that the table of docs/torch.md has, and others.
  --cases N takes N tests of each file, evenly spread over it; without it all run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/torch"))

import jax_tests as runner  # noqa: E402
import run as environments  # noqa: E402

FILES = ["test_operations", "test_ops", "test_data_type", "test_autocast", "test_grad_checkpoint", "test_while_loop",
         "test_gru", "test_as_stride_use_slice", "test_input_output_aliases", "scan.test_scan", "scan.test_scan_layers",
         "dynamo.test_dynamo", "spmd.test_xla_sharding", "spmd.test_dtensor_integration", "test_mp_all_gather.py",
         "test_mp_all_to_all.py", "test_mp_collective_permute.py", "test_mp_early_exit.py", "test_mp_mesh_reduce.py",
         "test_mp_reduce_scatter.py", "test_mp_rendezvous.py", "test_mp_replication.py", "test_mp_save.py",
         "test_mp_sync_batch_norm.py", "torch_distributed/test_ddp.py",
         *(f"torch_distributed/test_torch_distributed_{name}_xla_backend.py" for name in
           ("all_gather", "all_reduce", "bucketed_all_reduce", "multi_all_reduce", "reduce_scatter")),
         "torch_distributed/test_torch_distributed_fsdp_meta.py", "test_train_mp_mnist.py"]
# Scripts that torchrun has to start, by its own arguments.
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8"]
BY_TORCHRUN = {"test_mp_early_exit.py"}
# Arguments of scripts: a short training on data by chance.
ARGUMENTS = {"test_train_mp_mnist.py": ["--fake_data", "--num_epochs=1", "--batch_size=16", "--num_workers=0"]}

# Reason of a failure -> what its text says; the first that fits. What fits none is for us to mend.
REASONS = [
    ("type", r"element type \S+ is not supported|is no type of the board|Unrecognized ScalarType"),
    ("dynamic shape", r"dynamic shapes are not supported|set_dimension_size"),
    ("unequal shards", r"cannot be sharded into \d+ equal parts"),
    ("size", r"program grows beyond \d+ instructions"),
    ("host memory", r"takes \d+ bytes of host memory, \d+ are free"),
    ("multislice", r"Provide dcn_mesh_shape"),
    ("custom call", r"custom_call target '\S+' is not supported"),
    ("package", r"ModuleNotFoundError|No module named|ImportError: .*(jax|torchvision)"),
    # What it refuses itself: names that its older tests use, and Dynamo in a process of several threads. And a fault of
    # its own, whatever the device is (docs/torch.md).
    ("PyTorch/XLA", r"Only global rendezvous is supported|must be launched with torchrun|Dynamo does not know how to|"
                    r"FAILED  \] \S+_with_gradient_as_bucket_view\n"),
    ("CUDA", r"ATen_cuda library|torch was installed without CUDA|Torch not compiled with CUDA"),
]

# Tests whose text does not say why. "precision": they have numbers that bf16, as operands of products have it, rounds.
REASON_OF_TEST = {"TestAtenXlaTensor.test_conv2d_backward": "precision"}


def variables(args: argparse.Namespace, metadata: Path) -> dict[str, str]:
    folders = [args.tests, *(path for path in args.tests.iterdir() if path.is_dir())]
    found = environments.environment(metadata, args.library, args.form, 8)
    found["PYTHONPATH"] += "".join(f":{folder}" for folder in folders)
    # test_ops has its cases for the device that this file registers.
    return found | {"TPUBOARD_THREADS": "1", "TORCH_TEST_DEVICES": str(args.tests / "pytorch_test_base.py")}


def start(module: str, args: argparse.Namespace, log: IO[str], *options: str) -> subprocess.Popen[str]:
    """A process of the worker that jax_tests.py has."""
    command = [sys.executable, str(ROOT / "sim_scripts/jax_tests.py"), "--worker", module, "--limit", str(args.limit),
               *options]
    return subprocess.Popen(command, env=args.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                            text=True, cwd=args.tests)


def row_of(script: str) -> str:
    """Scripts of a kind have a row together."""
    kind = re.match(r"torch_distributed/|test_mp_", script)
    return f"{kind[0]}*.py" if kind else script


def run_script(name: str, args: argparse.Namespace) -> runner.Result:
    """A file that is not of unit tests."""
    begin, launcher = time.monotonic(), TORCHRUN if name in BY_TORCHRUN else []
    command = [sys.executable, *launcher, name, *ARGUMENTS.get(name, [])]
    environment = args.variables | ({} if launcher else {"TPUBOARD_PROCESS_COUNT": "8"})
    with (args.out / f"{Path(name).name}.log").open("w+", encoding="utf-8") as log:
        script = subprocess.Popen(command, env=environment, cwd=args.tests, stdout=log, stderr=log,
                                  start_new_session=True)
        try:
            code = script.wait(2 * args.limit)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)  # replicas that it has left
        script.wait()
        log.seek(0)
        text = log.read()[-3000:]
    outcome = "hung" if code is None else "passed" if code == 0 else "crashed" if code < 0 else "failed"
    reason = "" if outcome == "passed" else runner.reason_of(text, REASONS)
    return runner.Result(name, outcome, reason, text, round(time.monotonic() - begin, 3))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--library", type=Path, default=ROOT / "build/release/lib/libtpuboard_pjrt.so")
    parser.add_argument("--form", choices=("default", "stablehlo"), default="default")
    parser.add_argument("--cases", type=int)
    parser.add_argument("--match", default="")
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--out", type=Path, default=ROOT / "out/torch")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    if not args.library.is_file():
        sys.exit(f"torch_tests: {args.library} does not exist; build it, or name another with --library")
    args.library, args.tests = args.library.resolve(), args.tests.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    args.start, args.reasons = start, REASONS
    results: dict[str, list[runner.Result]] = {}
    with tempfile.TemporaryDirectory() as folder:
        environments.write_metadata(Path(folder))
        args.variables = variables(args, Path(folder))
        for name in args.files:
            if name.endswith(".py"):
                some = [run_script(name, args)]
                results.setdefault(row_of(name), []).extend(some)
            else:
                names = runner.names_of(name, args)
                if names is None:
                    continue
                some = results[name] = runner.run_file(name, names, args)
                for result in some:
                    if result.reason == "ours":
                        result.reason = REASON_OF_TEST.get(result.test, "ours")
            counts = Counter(result.reason or result.outcome for result in some)
            print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()), flush=True)
    if args.json:
        plain = {name: [asdict(result) for result in some] for name, some in results.items()}
        args.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(runner.markdown(results).replace("by JAX", "by PyTorch/XLA"), encoding="utf-8")
    return int(any(result.reason == "ours" for some in results.values() for result in some))


if __name__ == "__main__":
    sys.exit(main())
