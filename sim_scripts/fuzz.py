#!/usr/bin/env python3
"""Damaged inputs for everything that reads files, frames or packets: the fuzz tests, until N inputs were tried.

Each test runs once with the number of inputs that it usually has, which tells its rate. What is missing to N is shared
so that all tests run for about the same time, in rounds of other seeds (TPU_FUZZ_SEED, TPU_FUZZ_INPUTS). Prints a
table. An input that a test does not survive ends with the command that shows it again. A run that was stopped goes on
where it was with the same --state.

Usage: fuzz.py --build DIR [--inputs 10000000] [--jobs N] [--seed 1] [--only REGEX] [--state FILE]
  --build  a build with the fuzz tests (sim_scripts/test makes one): the folder above `tests`
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROUND = 60.0  # seconds of one run, about


def cases(build: Path, only: str) -> list[tuple[Path, str]]:
    """Programs and their tests that count inputs."""
    found = []
    for program in sorted((build / "tests").glob("*_fuzz_test")):
        listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        suite = ""
        for line in listed.splitlines():
            if not line.startswith(" "):
                suite = line.split("#")[0].strip()
            elif re.search(only, name := suite + line.split("#")[0].strip()):
                found.append((program, name))
    return found


def run(program: Path, case: str, variables: dict[str, str]) -> tuple[int, float]:
    """Inputs of one run of a test, and its seconds. Exits where the test fails."""
    with tempfile.TemporaryDirectory(prefix="tpu_fuzz_") as folder:
        report = Path(folder) / "report.json"
        start = time.monotonic()
        done = subprocess.run([program, f"--gtest_filter={case}", f"--gtest_output=json:{report}"],
                              capture_output=True, text=True, check=False, env=os.environ | variables | {
                                  "TMPDIR": folder, "TEST_TMPDIR": folder})
        seconds = time.monotonic() - start
        if done.returncode != 0:
            again = " ".join(f"{name}={value}" for name, value in variables.items())
            raise RuntimeError(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\n"
                               f"{case} fails: {again} {program} --gtest_filter={case}")
        suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
        return int(suites[0]["testsuite"][0].get("inputs", 0)), seconds


class Tally:
    """Inputs and seconds of each test, in a file."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.tests: dict[str, dict] = {}
        if file is not None and file.exists():
            self.tests = json.loads(file.read_text(encoding="utf-8"))

    def add(self, case: str, inputs: int, seconds: float) -> None:
        """One more run."""
        test = self.tests.setdefault(case, {"inputs": 0, "seconds": 0.0, "runs": 0})
        test["inputs"] += inputs
        test["seconds"] += seconds
        test["runs"] += 1
        if self.file is not None:
            self.file.write_text(json.dumps(dict(self.tests), indent=1), encoding="utf-8")

    def inputs(self) -> int:
        """Of all tests."""
        return sum(test["inputs"] for test in self.tests.values())


def fuzz(args: argparse.Namespace, tally: Tally) -> None:
    """Runs what is missing."""
    all_cases = cases(args.build, args.only)
    if not all_cases:
        sys.exit(f"{args.build}/tests has no fuzz tests: build them first (sim_scripts/test)")

    def once(item: tuple[Path, str], inputs: int | None) -> None:
        program, case = item
        number = tally.tests.get(case, {"runs": 0})["runs"]
        variables = {"TPU_FUZZ_SEED": str(1000 * args.seed + number)} if number else {}
        if inputs is not None:
            variables["TPU_FUZZ_INPUTS"] = str(inputs)
        tally.add(case, *run(program, case, variables))

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda item: once(item, None), [item for item in all_cases if item[1] not in tally.tests]))
        counting = [item for item in all_cases if tally.tests[item[1]]["inputs"] > 0]
        while tally.inputs() < args.inputs:
            rates = {case: tally.tests[case]["inputs"] / tally.tests[case]["seconds"] for _, case in counting}
            seconds = (args.inputs - tally.inputs()) / sum(rates.values())
            amounts = [max(1000, int(rates[case] * min(seconds + 0.01, ROUND))) for _, case in counting]
            list(pool.map(once, counting, amounts))
            print(f"{tally.inputs()} inputs", flush=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="tests with this in their names")
    parser.add_argument("--state", type=Path)
    args = parser.parse_args()
    args.build = args.build.resolve()
    tally, failure = Tally(args.state), ""
    try:
        fuzz(args, tally)
    except RuntimeError as error:
        failure = str(error)
    print("| Test | Inputs | Runs | Inputs a second |\n|---|---:|---:|---:|")
    for case, test in sorted(tally.tests.items()):
        if test["inputs"]:
            print(f"| {case} | {test['inputs']:,} | {test['runs']} | {test['inputs'] / test['seconds']:,.0f} |")
    print(f"| all | {tally.inputs():,} | | |")
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
