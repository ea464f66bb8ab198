#!/usr/bin/env python3
"""Mutation test: single changes of driver, firmware, model and compiler, and whether the tests notice them.

Draws changes with a seed (operators, constants, words, negations, statements left out or in another order, see
mutations.py), equally many of each area. All are compiled at once in a clone of the repository, and TPU_MUTANT chooses
one when a program starts. Each test runs once to learn which changes it reaches. Then each mutant runs those tests,
the shortest first, until one fails, dies, takes too long or too much memory. Prints a table, and the mutants that
survive. A run that was stopped goes on where it was.

Usage: mutants.py --tree CLONE [--count 200] [--seed 1] [--programs REGEX] [--commands REGEX] [--jobs N]
                  [--longest SECONDS] [--minutes N] [STAGE ...]
  --tree      the clone; it is made from this repository if it is not there, and so is its build (build/ci)
  --programs  test programs that run (default: all but those with copies of libraries)
  --commands  tests of CTest that run for what the test programs do not notice
  STAGE       draw, build, reach, run, table; without one, all of them
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutations import Place, Source

ROOT = Path(__file__).resolve().parent.parent
AREAS = {"driver": "host_driver", "firmware": "firmware", "model": "tlm_model", "compiler": "compiler"}
DEVICE = ("firmware/boot/", "firmware/main.c")  # only for the control hart, which has no environment
HEADER = "tpu_mutant.h"
# Not built: tests that have copies of the libraries, which sanitizers slow down, and those of other sources.
WITHOUT = re.compile(r"tsan_|tf_|.*fuzz_test$|.*_rtl_test$|verilog_ports|graph-|artifact-print|order_run|monitor_test")
MEMORY = 6 << 30
COMMANDS_LAST = 1e6  # seconds
FILE_SIZE = 4 << 30
SUPPORT = r"""#pragma once
/* Mutants of this file (sim_scripts/mutants.py). TPU_MUTANT is the number of the one that is chosen, or `reach`. */
#pragma GCC diagnostic ignored "-Wbool-compare"
#pragma GCC diagnostic ignored "-Wbool-operation"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wempty-body"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-variable"
#ifdef __riscv
#define tpu_mutant(number) 0
#else
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __cplusplus
extern "C" {
#endif
/* GoogleTest, in programs that have it. A test's description begins with two strings: suite and name. */
void* tpu_mutant_tests(void) __asm__("_ZN7testing8UnitTest11GetInstanceEv") __attribute__((weak));
char** tpu_mutant_test(void*) __asm__("_ZNK7testing8UnitTest17current_test_infoEv") __attribute__((weak));
__attribute__((weak)) int tpu_mutant_chosen;
__attribute__((weak, constructor(101))) void tpu_mutant_choose(void) {
  const char* text = getenv("TPU_MUTANT");
  tpu_mutant_chosen = text == NULL ? 0 : strcmp(text, "reach") == 0 ? -1 : atoi(text);
}
__attribute__((weak)) void tpu_mutant_reach(int number) {
  static char** seen_by[4096];
  static char none[2] = "-";
  char* nothing[5] = {none, 0, 0, 0, none};
  char** test = tpu_mutant_tests != NULL && tpu_mutant_test != NULL ? tpu_mutant_test(tpu_mutant_tests()) : NULL;
  char** key = test == NULL ? (char**)1 : test;
  const char* file = getenv("TPU_MUTANT_REACHED");
  if (seen_by[number % 4096] == key || file == NULL) {
    return;
  }
  seen_by[number % 4096] = key;
  if (test == NULL) {
    test = nothing;
  }
  char line[600];
  const int size = snprintf(line, sizeof line, "%d %.280s.%.280s\n", number, test[0], test[4]);
  const int out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out >= 0) {
    (void)!write(out, line, (size_t)size);
    close(out);
  }
}
static inline int tpu_mutant(int number) {
  if (__builtin_expect(tpu_mutant_chosen < 0, 0)) {
    tpu_mutant_reach(number);
  }
  return tpu_mutant_chosen == number;
}
#ifdef __cplusplus
}
#endif
#endif
"""


class Work:
    """The clone and what is known of its mutants: numbers as text, since they are in JSON."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.tree: Path = args.tree.resolve()
        self.build = self.tree / "build/ci"
        self.state = self.tree / "build/mutants"
        if not self.tree.exists():
            subprocess.run(["git", "clone", "--quiet", ROOT, self.tree], check=True)
        self.state.mkdir(parents=True, exist_ok=True)
        self.mutants: dict[str, dict] = self.load("mutants.json")
        self.reached: dict[str, dict] = self.load("reached.json")
        self.results: dict[str, dict] = self.load("results.json")

    def load(self, name: str) -> dict:
        """What an earlier run left."""
        file = self.state / name
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def save(self, name: str, value: dict) -> None:
        """Replaces the file at once, so that a stop leaves the old or the new one."""
        part = self.state / (name + ".part")
        part.write_text(json.dumps(value, indent=1), encoding="utf-8")
        part.replace(self.state / name)

    def original(self, name: str) -> str:
        """Text of a source without mutants."""
        return subprocess.run(["git", "-C", self.tree, "show", f"HEAD:{name}"], capture_output=True, text=True,
                              check=True).stdout

    def valid(self) -> dict[str, dict]:
        """The mutants that compile."""
        return {number: mutant for number, mutant in self.mutants.items() if not mutant.get("invalid")}


def sources(work: Work, folder: str) -> list[str]:
    """C and C++ sources of a folder."""
    listed = subprocess.run(["git", "-C", work.tree, "ls-files", folder], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name.endswith((".c", ".cpp")) and not name.startswith(DEVICE)]


def place_of(source: Source, mutant: dict) -> Place:
    """The place that a mutant was drawn at."""
    return next(place for place in source.places()
                if [place.kind, place.start, place.end, place.new] == mutant["change"])


def draw(work: Work) -> None:
    """Draws what is missing to the count, area by area in turn, and writes the sources with all mutants."""
    parsed = {name: Source(work.original(name)) for folder in AREAS.values() for name in sources(work, folder)}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for mutant in work.mutants.values():
        spans[mutant["file"]].append(tuple(mutant["span"]))
    order = {area: [(name, place) for name in sorted(parsed) if name.startswith(folder + "/")
                    for place in parsed[name].places()] for area, folder in AREAS.items()}
    for area, places in order.items():
        random.Random(f"{work.args.seed} {area}").shuffle(places)
    have = Counter(mutant["area"] for mutant in work.valid().values())
    wanted = {area: (work.args.count + index) // len(AREAS) for index, area in enumerate(AREAS)}
    while any(have[area] < wanted[area] and order[area] for area in AREAS):
        for area in AREAS:
            taken = False
            while have[area] < wanted[area] and order[area] and not taken:
                name, place = order[area].pop()
                start, end = parsed[name].span(place)
                if any(start < other[1] and other[0] < end for other in spans[name]):
                    continue
                spans[name].append((start, end))
                text = parsed[name].text
                taken = True
                have[area] += 1
                work.mutants[str(len(work.mutants) + 1)] = {
                    "area": area, "file": name, "line": text.count("\n", 0, place.start) + 1,
                    "span": [start, end], "change": [place.kind, place.start, place.end, place.new],
                    "old": text[place.start:place.end]}
    work.save("mutants.json", work.mutants)
    write(work, parsed)


def write(work: Work, parsed: dict[str, Source]) -> None:
    """Writes what is not there yet: the clone's sources with their mutants."""
    replace(work.tree / HEADER, SUPPORT)
    by_file: dict[str, dict[int, Place]] = defaultdict(dict)
    for number, mutant in work.valid().items():
        by_file[mutant["file"]][int(number)] = place_of(parsed[mutant["file"]], mutant)
    for name, source in parsed.items():
        up = "../" * name.count("/")
        replace(work.tree / name, source.with_mutants(by_file[name], up + HEADER) if name in by_file else source.text)


def replace(file: Path, text: str) -> None:
    """Writes a file that has another text, so that a build compiles only what has changed."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def build(work: Work) -> None:
    """Builds programs and tests. A mutant that does not compile is replaced by the next one that is drawn."""
    if not (work.build / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "ci"], cwd=work.tree, check=True)
    for _ in range(8):
        run = subprocess.run(["ninja", "-C", work.build, "-k", "0", "-j", str(work.args.jobs), "tpuc", "tpuboard",
                              *programs(work)], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return
        wrong: set[str] = set()
        for places in (r"([\w./+-]+\.(?:cpp|c)):(\d+):\d+: (?:fatal )?error", r"([\w./+-]+\.(?:cpp|c)):(\d+):\d+"):
            wrong = wrong or {number for file, line in re.findall(places, run.stdout)
                              for number in at_line(work, file, int(line))}
        if not wrong:
            sys.exit(f"the clone does not build:\n{run.stdout[-4000:]}{run.stderr}")
        print(f"{len(wrong)} mutants do not compile: {' '.join(sorted(wrong, key=int))}", flush=True)
        for number in wrong:
            work.mutants[number]["invalid"] = True
        draw(work)
    sys.exit("the clone does not build after eight draws")


def at_line(work: Work, file: str, line: int) -> list[str]:
    """Mutants near an error of the compiler, in the text with mutants."""
    name = next((name for name in {mutant["file"] for mutant in work.mutants.values()} if file.endswith(name)), None)
    if name is None:
        return []
    lines = (work.tree / name).read_text(encoding="utf-8").splitlines()
    for reach in (0, 1, 3, 8, 30):
        near = "\n".join(lines[max(0, line - 1 - reach):line + reach])
        found = [number for number in re.findall(r"tpu_mutant\((\d+)\)", near) if number in work.valid()]
        if found:
            return found
    return []


def programs(work: Work) -> list[str]:
    """Test programs that are built, as targets of Ninja."""
    listed = subprocess.run(["ninja", "-C", work.build, "-t", "targets", "all"], capture_output=True, text=True,
                            check=True)
    found = re.findall(r"^tests/([\w-]+): \w*EXECUTABLE", listed.stdout, re.MULTILINE)
    return [f"tests/{name}" for name in found if not WITHOUT.match(name) and re.match(work.args.programs, name)]


def run_limited(command: list[str], seconds: float, environment: dict[str, str], folder: Path) -> str:
    """Runs a command in a process group of its own. "passed", or how it failed. `seconds`: of the CPU in a process,
    so that other work on the host changes nothing; ten times as many of the wall clock, for what waits for ever."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scratch = Path(tempfile.mkdtemp(prefix="tpu_mutant_"))
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit,
                               env=os.environ | environment | {"TMPDIR": str(scratch)})
    end, outcome = time.monotonic() + 10 * seconds, ""
    while not outcome:
        try:
            code = process.wait(0.2)
            outcome = "passed" if code == 0 else "failed" if code > 0 else f"died ({signal.Signals(-code).name})"
        except subprocess.TimeoutExpired:
            if time.monotonic() > end:
                outcome = "took too long"
            elif resident(process.pid) > MEMORY:
                outcome = "took too much memory"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def commands(work: Work) -> dict[str, list[str]]:
    """Tests of CTest that --commands names."""
    if not work.args.commands:
        return {}
    listed = subprocess.run(["ctest", "--test-dir", work.build, "--show-only=json-v1", "-R", work.args.commands],
                            capture_output=True, text=True, check=True)
    return {test["name"]: test["command"] for test in json.loads(listed.stdout)["tests"] if "command" in test}


def reach(work: Work) -> None:
    """Runs each test once without a mutant: which mutants it reaches, and how long it takes.

    Cases of a program that has a simulated board run in a process each: SystemC has one kernel a process.
    """
    tests = {name: [str(work.build / name)] for name in programs(work)} | commands(work)

    def one(name: str) -> None:
        command = tests[name]
        program = name.startswith("tests/")
        outcome, cases = reach_once(work, name, command, program)
        if program and outcome != "passed":
            listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, check=False)
            cases = {}
            for case in cases_in(listed.stdout):
                outcome, one_case = reach_once(work, name, [*command, f"--gtest_filter={case}"], True)
                cases |= one_case if outcome == "passed" else {}
            outcome = "by case"
        work.reached[name] = {"command": command, "outcome": outcome, "cases": cases}
        work.save("reached.json", dict(work.reached))
        seconds = sum(case["seconds"] for case in cases.values())
        found = {number for case in cases.values() for number in case["mutants"]}
        print(f"{name}: {outcome}, {seconds:.1f} s, reaches {len(found)} mutants", flush=True)

    with ThreadPoolExecutor(work.args.jobs) as pool:
        list(pool.map(one, [name for name in tests if name not in work.reached]))


def reach_once(work: Work, name: str, command: list[str], program: bool) -> tuple[str, dict[str, dict]]:
    """One run: how it ended; seconds and mutants of its cases, or of all of it as the case `-`."""
    file, report = (work.state / f"{name.replace('/', '.')}.{end}" for end in ("reached", "json"))
    for old in (file, report):
        old.unlink(missing_ok=True)
    start = time.monotonic()
    outcome = run_limited(command + ([f"--gtest_output=json:{report}"] if program else []), work.args.longest,
                          {"TPU_MUTANT": "reach", "TPU_MUTANT_REACHED": str(file)}, work.build / "tests")
    seconds = time.monotonic() - start
    lines = set(file.read_text(encoding="utf-8").splitlines()) if file.exists() else set()
    cases = cases_of(report) if program else {}
    found: dict[str, dict] = {case: {"seconds": spent, "mutants": []} for case, spent in cases.items()}
    for number, case in sorted(line.split(" ", 1) for line in lines):
        if case not in found:  # outside of a case, or in another process
            case = next(iter(cases)) if len(cases) == 1 else "-"
        mutants = found.setdefault(case, {"seconds": seconds, "mutants": []})["mutants"]
        if number not in mutants:
            mutants.append(number)
    return outcome, found


def cases_in(listing: str) -> list[str]:
    """Names of the cases of --gtest_list_tests."""
    found, suite = [], ""
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            found.append(suite + name)
        elif name.endswith("."):
            suite = name
    return found


def cases_of(report: Path) -> dict[str, float]:
    """Seconds of each case."""
    if not report.exists():
        return {}
    suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    return {f"{suite['name']}.{case['name']}": float(case["time"][:-1])
            for suite in suites for case in suite["testsuite"] if case["result"] == "COMPLETED"}


def plan(work: Work, number: str) -> list[tuple[float, str, list[str]]]:
    """Runs of tests that reach a mutant: seconds, name and command. Programs come first, the shortest in front."""
    found = []
    for name, test in work.reached.items():
        cases = [case for case, has in test["cases"].items() if number in has["mutants"]]
        seconds = {case: test["cases"][case]["seconds"] for case in cases}
        if test["outcome"] == "by case":
            found += [(seconds[case], f"{name} {case}", [*test["command"], f"--gtest_filter={case}"])
                      for case in cases]
        elif test["outcome"] != "passed" or not cases:
            continue
        elif not name.startswith("tests/"):
            found.append((COMMANDS_LAST + seconds["-"], name, test["command"]))
        else:  # short cases in a run of their own
            short = [case for case in cases if seconds[case] < 1 and case != "-"]
            rest = [case for case in cases if case not in short]
            if "-" in rest:
                rest, short = ["-"], []
            for part in filter(None, (short, rest)):
                chosen = [] if part == ["-"] else ["--gtest_filter=" + ":".join(part)]
                more = f" and {len(part) - 1} more" if len(part) > 1 else ""
                found.append((sum(seconds[case] for case in part), f"{name} {part[0]}{more}",
                              [*test["command"], *chosen, "--gtest_fail_fast"]))
    return sorted(found)


def run(work: Work) -> None:
    """Runs the mutants that have no result yet, and those that survived and that further tests reach."""
    end = time.monotonic() + 60 * work.args.minutes

    def one(number: str) -> None:
        tests = plan(work, number)
        result = work.results.get(number, {"outcome": "survived", "by": "", "passed": []})
        missing = [test for test in tests if test[1] not in result["passed"]]
        if time.monotonic() > end or result["outcome"] != "survived" or (number in work.results and not missing):
            return
        for seconds, name, command in missing:
            outcome = run_limited(command, 5 + 10 * (seconds % COMMANDS_LAST), {"TPU_MUTANT": number},
                                  work.build / "tests")
            if outcome != "passed":
                result |= {"outcome": outcome, "by": name}
                break
            result["passed"].append(name)
        work.results[number] = result
        work.save("results.json", dict(work.results))
        print(f"{number}: {result['outcome']} {result['by']}", flush=True)

    with ThreadPoolExecutor(work.args.jobs) as pool:
        list(pool.map(one, work.valid()))


def table(work: Work) -> None:
    """Counts by area, and the survivors."""
    ran = {number: (work.mutants[number], result) for number, result in work.results.items()
           if number in work.valid()}
    print("| Area | Mutants | Noticed | Survive |\n|---|---|---|---|")
    for area in (*AREAS, "all"):
        here = [result["outcome"] for mutant, result in ran.values() if area in (mutant["area"], "all")]
        print(f"| {area} | {len(here)} | {len(here) - here.count('survived')} | {here.count('survived')} |")
    for number, (mutant, result) in ran.items():
        if result["outcome"] == "survived":
            kind, _, _, new = mutant["change"]
            reached = "" if result["passed"] else ", no test reaches it"
            print(f"{number}: {mutant['file']}:{mutant['line']}: {kind}{reached}: {mutant['old']!r} -> {new!r}")
    missing = len(work.valid()) - len(ran)
    if missing:
        print(f"{missing} mutants have no result yet: run again")


STAGES = {"draw": draw, "build": build, "reach": reach, "run": run, "table": table}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", default="")
    parser.add_argument("--commands", default="")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--longest", type=float, default=600, help="CPU seconds; a test that takes longer is left out")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="no further mutant starts after this time")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    args = parser.parse_args()
    unknown = [stage for stage in args.stages if stage not in STAGES]
    if unknown:
        parser.error(f"unknown stage {unknown[0]!r}: use {', '.join(STAGES)}")
    work = Work(args)
    with (work.state / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another run works in {work.tree}")
        for stage in args.stages or STAGES:
            STAGES[stage](work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
