#!/usr/bin/env python3
"""JAX's own tests on the board: runs files of JAX's test folder on the PJRT plugin and sorts the results by reason.

Usage: jax_tests.py [--plugin LIBRARY] [--tests FOLDER] [--cases N] [--json FILE] [--markdown FILE] [FILE ...]
  Needs a Python with JAX and absl-py. Without --tests the tests of the installed version of JAX are cloned from its
  repository into out/jax. A test runs in a process that many share; one that crashes or exceeds its time is recorded,
  and a fresh process goes on behind it.
  --cases N takes N tests of each file, evenly spread over it; without it all run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
FILES = ["lax_test", "lax_numpy_test", "nn_test", "random_test", "random_lax_test", "lax_control_flow_test",
         "pmap_test", "shard_map_test", "pjit_test", "python_callback_test", "debugging_primitives_test",
         "jaxpr_effects_test", "memories_test"]
REPOSITORY = "https://github.com/jax-ml/jax"

# Reason of a failure -> what an error of the plugin says; the first that fits. What fits none is for us to mend.
REASONS = [
    ("type", r"UNIMPLEMENTED: .*(element type \S+ is not supported|is no type of the board)"),
    ("inspection", r"UNIMPLEMENTED: .*custom_call target 'InspectSharding' is not supported"),
    ("layout", r"UNIMPLEMENTED: .*its layout '\S+' has tiles or other marks"),
    # Programs for a CPU, which compute_on('device_host') gives the host of other machines.
    ("host code", r"UNIMPLEMENTED: .*custom_call target 'lapack_\S+' is not supported"),
    # The test reads HLO, which jaxlib cannot make of a program with Shardy's operations, or makes without the memory
    # spaces of arguments and results; or it reads an error of XLA.
    ("text of XLA", r"UNKNOWN: .*unsupported op for export to XLA|AssertionError: .*S\\*\(5\\*\)"
                    r"|AssertionError: .Ran out of memory on HBM, the total memory required for HLO"),
]


@dataclass
class Result:
    """One test. `outcome`: passed, skipped, failed, crashed, hung."""

    test: str
    outcome: str
    reason: str = ""  # class of a failure
    text: str = ""  # end of the traceback, or the text of the skip
    seconds: float = 0.0


def reason_of(text: str, reasons: list[tuple[str, str]] = REASONS) -> str:
    """The class of a failure: a reason of `reasons`, or "ours"."""
    return next((reason for reason, pattern in reasons if re.search(pattern, text, re.DOTALL)), "ours")


def worker(module: str, listing: bool, limit: float) -> None:
    """In a process with JAX: lists the tests of a module, or runs those that standard input names; JSON lines."""
    import faulthandler
    import importlib
    import unittest

    from absl import app

    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what tests print does not come between

    def watch() -> None:
        faulthandler.dump_traceback_later(limit, exit=True)

    def say(**what: Any) -> None:
        out.write(json.dumps(what) + "\n")

    def name_of(test: Any) -> str:
        return f"{type(test).__qualname__}.{test._testMethodName}"  # id() has addresses in it

    class Reporter(unittest.TestResult):
        def startTest(self, test: unittest.TestCase) -> None:
            super().startTest(test)
            self.bad = False
            watch()
            say(start=name_of(test))

        def finish(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
            self.bad = True
            say(test=name_of(test), outcome=outcome, text=text)

        def addSuccess(self, test: unittest.TestCase) -> None:
            if not self.bad:
                say(test=name_of(test), outcome="passed", text="")

        def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
            self.addSuccess(test)

        def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
            self.finish(test, "failed", "unexpected success")

        def addSkip(self, test: unittest.TestCase, reason: str) -> None:
            self.finish(test, "skipped", reason)

        def addError(self, test: unittest.TestCase, err: Any) -> None:
            self.finish(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

        def addFailure(self, test: unittest.TestCase, err: Any) -> None:
            self.addError(test, err)

        def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
            if err is not None:
                self.addError(test, err)

    def leaves(suite: Any) -> list[unittest.TestCase]:
        return [leaf for item in suite for leaf in leaves(item)] if hasattr(suite, "__iter__") else [suite]

    def body(_: list[str]) -> None:
        watch()
        loaded = leaves(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module)))
        if listing:
            for test in loaded:
                say(name=name_of(test))
            return
        wanted = set(json.load(sys.stdin))
        unittest.TestSuite(test for test in loaded if name_of(test) in wanted).run(Reporter())
        watch()  # the end of the process, too

    faulthandler.enable()
    app.run(body, argv=[module])


def start(module: str, args: argparse.Namespace, log: IO[str], *options: str) -> subprocess.Popen[str]:
    """A process of `worker`."""
    environment = dict(os.environ, TPU_LIBRARY_PATH=str(args.plugin), TPUBOARD_THREADS="1", TPUBOARD_CACHE="off",
                       JAX_NUM_GENERATED_CASES=str(args.generated), PYTHONPATH=str(args.tests))
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", module, "--limit", str(args.limit), *options]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                            text=True)


def names_of(module: str, args: argparse.Namespace) -> list[str] | None:
    """The tests of a file: all, or the sample of --cases. None where it has none or cannot be read, which is told."""
    errors = args.out / f"{module}.list"
    with errors.open("w", encoding="utf-8") as log:
        output, _ = args.start(module, args, log, "--list").communicate()
    names = [json.loads(line)["name"] for line in output.splitlines()]
    if not names:
        print(f"jax_tests: no tests in {args.tests / module}.py; {errors} says why", file=sys.stderr)
        return None
    names = [name for name in names if re.search(args.match, name)]
    if args.cases and args.cases < len(names):
        names = [names[i * len(names) // args.cases] for i in range(args.cases)]
    return names


def run_some(module: str, names: list[str], args: argparse.Namespace) -> list[Result]:
    """Runs tests in one process until all are done or one crashes or hangs; what has ended, in the order of `names`."""
    errors = args.out / f"{module}.stderr"
    results: dict[str, Result] = {}
    running, begin = names[0], time.monotonic()
    with errors.open("w", encoding="utf-8") as log:
        process = args.start(module, args, log)
        assert process.stdin and process.stdout
        json.dump(names, process.stdin)  # there are line breaks in some
        process.stdin.close()
        for line in process.stdout:
            said = json.loads(line)
            if "start" in said:
                running, begin = said["start"], time.monotonic()
                continue
            reason = reason_of(said["text"], args.reasons) if said["outcome"] == "failed" else ""
            results[said["test"]] = Result(said["test"], said["outcome"], reason, said["text"][-3000:],
                                           round(time.monotonic() - begin, 3))
            running = ""
        code = process.wait()
    if running or code != 0:
        text = errors.read_text(encoding="utf-8", errors="replace")
        outcome = "hung" if "\nTimeout (" in "\n" + text else "crashed"
        name = running or list(results)[-1]
        results[name] = Result(name, outcome, "ours", f"exit code {code}\n{text[-3000:]}",
                               round(time.monotonic() - begin, 3))
    return list(results.values())


def run_file(module: str, names: list[str], args: argparse.Namespace) -> list[Result]:
    """Runs these tests of a file, with a fresh process behind each that crashes or hangs."""
    left = names
    results: list[Result] = []
    while left:
        some = run_some(module, left, args)
        if not some:
            sys.exit(f"jax_tests: {module} ran none of its tests; {args.out / module}.stderr says why")
        results += some
        ended = {result.test for result in results}
        left = [name for name in left if name not in ended]
    return results


def markdown(results: dict[str, list[Result]]) -> str:
    """The table: a row for each file, a column for each outcome and each reason of failures."""
    reasons = sorted({result.reason for some in results.values() for result in some} - {"", "ours"})
    heads = ["file", "cases", "passed", "skipped by JAX", *reasons, "ours", "crashed or hung"]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for module, some in results.items():
        outcomes = Counter(result.outcome for result in some)
        failed = Counter(result.reason for result in some if result.outcome == "failed")
        cells = [len(some), outcomes["passed"], outcomes["skipped"], *(failed[reason] for reason in [*reasons, "ours"]),
                 outcomes["crashed"] + outcomes["hung"]]
        lines.append(f"| `{module}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def clone(folder: Path) -> Path:
    """JAX's tests of the installed version."""
    version = importlib.metadata.version("jax")
    target = folder / f"jax-v{version}"
    if not target.exists():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--branch", target.name, "--filter=blob:none",
                        REPOSITORY, str(target)], check=True)
    return target / "tests"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--plugin", type=Path, default=ROOT / "build/release/lib/libtpuboard_pjrt.so")
    parser.add_argument("--tests", type=Path, help="folder with JAX's tests")
    parser.add_argument("--cases", type=int, help="how many tests of each file; default: all")
    parser.add_argument("--generated", type=int, default=10, help="cases that JAX makes of one test (default 10)")
    parser.add_argument("--match", default="", help="only tests whose names this regular expression finds")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a test may take (default 120)")
    parser.add_argument("--out", type=Path, default=ROOT / "out/jax", help="logs (default out/jax)")
    parser.add_argument("--json", type=Path, help="every result")
    parser.add_argument("--markdown", type=Path, help="table of counts")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.start, args.reasons = start, REASONS  # torch_tests.py has others
    if args.worker:
        worker(args.worker, args.list, args.limit)
        return 0
    if not args.plugin.is_file():
        sys.exit(f"jax_tests: no {args.plugin}: build it, or name one with --plugin")
    args.plugin = args.plugin.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    args.tests = (args.tests or clone(args.out)).resolve()
    results, unread = {}, False
    for module in args.files:
        names = names_of(module, args)
        if names is None:
            unread = True
            continue
        results[module] = run_file(module, names, args)
        counts = Counter(result.reason or result.outcome for result in results[module])
        print(f"{module}: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()), flush=True)
    if args.json:
        plain = {module: [asdict(result) for result in some] for module, some in results.items()}
        args.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(markdown(results), encoding="utf-8")
    return int(unread or any(result.reason == "ours" for some in results.values() for result in some))


if __name__ == "__main__":
    sys.exit(main())
