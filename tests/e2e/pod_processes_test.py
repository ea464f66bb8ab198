"""Boards of a pod in several processes: equal bits and cycles in 1, 2 and 4 processes, with 1 and 8 host threads, a
process that is killed is named and nothing hangs or stays behind, and what needs one process is rejected.

Programs: a step of the perceptron of examples/mnist_mlp, of a small convnet, one collective of each kind on two boards;
a step of the perceptron on v3_32. `workers`: the perceptron on workers that were there. `kill`: processes that end at
random moments. `tls`: the perceptron on v3_32 on workers at several addresses, with certificates.
`mpi`: the same in ranks of mpirun, one of which is killed, or has other arguments; needs a build with TPU_MPI.
`latencies`: the perceptron on v3_32 with links that are faster than packets. `faults`: faults on
purpose. `reject`: options.
TPUBOARD_TEST_KILLS=100 kills so many.

Usage: pod_processes_test.py --bin DIR --program NAME
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax_reference as reference
import order_test
import pods_test
from pods_test import TWO_BOARDS

KILLS = 3
PROCESSES = {str(TWO_BOARDS): (1, 2), "v3_32": (1, 2, 4)}
SECONDS = 60  # within which a run ends after a process of it was killed


def prepare(tools: Path, folder: Path, name: str, *changes: str) -> tuple[str, Path, list[str]]:
    """Board, executable and inputs of a program, for a board with these changes."""
    board = str(TWO_BOARDS)
    if name in order_test.PROGRAMS:
        graph, arrays = order_test.PROGRAMS[name]()
    else:
        import boards_test  # noqa: PLC0415, has another example's module

        board = "v3_32"
        program, arrays = boards_test.training_step(boards_test.Bench(tools, board, folder))
        graph = program.mlir_module_serialized
    source, exe = folder / "p.mlirbc", folder / "p.tpuexe"
    source.write_bytes(graph)
    subprocess.run([tools / "tpuc", source, "-o", exe, "--board", board, *changes], check=True)
    return board, exe, reference.save_inputs(folder, arrays)


def check_equal(tools: Path, folder: Path, name: str) -> list[str]:
    """What differs between numbers of processes, and of host threads."""
    board, exe, inputs = prepare(tools, folder, name)
    kinds = ((1, ""), (8, ""), (1, "--no-data"))
    runs = [(count, threads, data) for count in PROCESSES[board] for threads, data in kinds]
    found = {}
    for count, threads, data in runs:
        options = ["--board", board, "--processes", str(count), "--threads", str(threads), *data.split()]
        found[count, threads, data] = pods_test.determinism_test.figures(tools, exe, inputs, folder, options)
    cycles = {run["sim_cycles"] for run in found.values()}
    digests = {run["digest"] for (_, _, data), run in found.items() if not data}
    print(f"{name}: cycles {cycles}, digests {digests}")
    return [] if len(cycles) == len(digests) == 1 else [f"{name}: cycles {cycles}, digests {digests}"]


def check_latencies(tools: Path, folder: Path) -> list[str]:
    """What differs when data, whole ways and their ends, are faster than packets of barriers."""
    changes = ["--set", "ici.hop_ns=100", "--set", "ici.extra_hop_ns=50"]
    board, exe, inputs = prepare(tools, folder, "v3_32", *changes)
    cycles = {count: pods_test.determinism_test.figures(
        tools, exe, inputs, folder, ["--board", board, *changes, "--processes", str(count), "--no-data"])["sim_cycles"]
        for count in (1, 4)}
    print(f"short latencies: cycles {cycles}")
    return [] if len(set(cycles.values())) == 1 else [f"short latencies: cycles {cycles}"]


@contextlib.contextmanager
def served(tools: Path, *workers: list[str | Path]) -> Iterator[str]:
    """Workers with these options each; yields what connects a program to all of them."""
    processes, addresses = [], []
    try:
        for options in workers:
            processes.append(subprocess.Popen([tools / "tpuboard", "serve", *options], stdout=subprocess.PIPE,
                                              stderr=subprocess.DEVNULL, text=True))
            addresses.append(processes[-1].stdout.readline().strip())
        yield ",".join(addresses)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def workers_of(tools: Path, folder: Path, board: str, kind: str, count: int, *options: str) -> Iterator[list[str]]:
    """Workers that share a pod, at addresses of this kind: the options of a program that uses them."""
    token = folder / "token"
    listen = [["--listen", f"unix:{folder}/{number}"] if kind == "unix" else
              ["--listen", "tcp:127.0.0.1:0", "--token", token] for number in range(count)]
    with served(tools, *([*words, "--board", board, *options] for words in listen)) as addresses:
        yield ["--connect", addresses, *(["--connect-token", str(token)] if kind == "tcp" else [])]


def check_workers(tools: Path, folder: Path) -> list[str]:
    """What differs when workers that were there share the pod, over sockets and over shared memory."""
    board, exe, inputs = prepare(tools, folder, "mlp")
    expected = pods_test.determinism_test.figures(tools, exe, inputs, folder, ["--board", board])
    wrong = []
    for kind in ("unix", "tcp"):
        with workers_of(tools, folder, board, kind, 2) as connect:
            options = ["--board", board, *connect]
            for threads in (1, 2):  # the second run finds the workers as the first one left them
                path = folder / "figures.json"  # without --out-dir: folders belong to the workers
                subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--json", path, *options], check=True,
                               stdout=subprocess.DEVNULL)
                found = json.loads(path.read_text())
                if any(found[key] != expected[key] for key in ("sim_cycles", "digest")):
                    wrong.append(f"{kind}, run {threads}: {found['sim_cycles']} cycles, {found['digest']}; one process "
                                 f"has {expected['sim_cycles']}, {expected['digest']}")
            other = subprocess.run([tools / "tpuboard", "devices", *connect, "--board", "v3_32"], capture_output=True,
                                   text=True, check=False, timeout=SECONDS)
            if other.returncode == 0 or "the worker has" not in other.stderr:
                wrong.append(f"{kind}: another board: {other.stderr}")
    return wrong


def make_certificate(folder: Path, host: str, name: str) -> Path:
    """A certificate of a worker at `host` that has the address `name`; its key is beside it."""
    pem = folder / f"{host}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", pem.with_suffix(".key"),
                    "-out", pem, "-days", "2", "-subj", "/CN=worker", "-addext", f"subjectAltName=IP:{name}"],
                   check=True, capture_output=True)
    pem.with_suffix(".key").chmod(0o600)
    return pem


@contextlib.contextmanager
def tls_workers(tools: Path, folder: Path, board: str, names: list[str]) -> Iterator[list[str]]:
    """Workers at 127.0.0.2, 127.0.0.3 and so on, whose certificates have these addresses: as `workers_of`."""
    trusted, token = folder / "trusted.pem", folder / "token"
    hosts = [f"127.0.0.{number + 2}" for number in range(len(names))]
    pems = [make_certificate(folder, host, name) for host, name in zip(hosts, names, strict=True)]
    trusted.write_text("".join(pem.read_text() for pem in pems))
    with served(tools, *(["--listen", f"tcp:{host}:0", "--token", token, "--board", board, "--tls-cert", pem,
                          "--tls-key", pem.with_suffix(".key")]
                         for host, pem in zip(hosts, pems, strict=True))) as addresses:
        yield ["--connect", addresses, "--connect-token", str(token), "--connect-ca", str(trusted)]


def check_tls(tools: Path, folder: Path) -> list[str]:
    """What differs when the workers send to each other with TLS, and what is said of a wrong certificate."""
    board, exe, inputs = prepare(tools, folder, "v3_32")
    wrong = []
    found = {}
    for count in (1, 2, 4):
        with tls_workers(tools, folder, board, [f"127.0.0.{2 + number}" for number in range(count)]) as connect:
            path = folder / "figures.json"
            subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--json", path, "--board", board, *connect],
                           check=True, stdout=subprocess.DEVNULL)
            figures = json.loads(path.read_text())
            found[count] = figures["sim_cycles"], figures["digest"]
            if count == 2:  # one of both is trusted
                done = subprocess.run([tools / "tpuboard", "devices", "--board", board, *connect[:-1],
                                       folder / "127.0.0.2.pem"], capture_output=True, text=True, check=False,
                                      timeout=SECONDS)
                if done.returncode == 0 or "the certificate of the worker is rejected" not in done.stderr:
                    wrong.append(f"a certificate that is not trusted: {done.stderr}")
    print(f"workers with TLS: {found}")
    if len(set(found.values())) != 1:
        wrong.append(f"workers with TLS: {found}")
    with tls_workers(tools, folder, board, ["127.0.0.2", "127.0.0.9"]) as connect:
        done = subprocess.run([tools / "tpuboard", "devices", "--board", board, *connect], capture_output=True,
                              text=True, check=False, timeout=SECONDS)
        if done.returncode == 0 or "IP address mismatch" not in done.stderr:
            wrong.append(f"a certificate with another address: {done.stderr}")
    return wrong


MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n"]
MPI_LIMIT = 5 * SECONDS  # of ranks that share few processors


def check_mpi(tools: Path, folder: Path) -> list[str]:
    """What differs between one process and ranks of mpirun, and what is said of ranks that cannot be a pod."""
    board, exe, inputs = prepare(tools, folder, "v3_32")
    found = {}
    for count, threads in ((1, 1), (2, 1), (4, 1), (4, 8)):
        path = folder / "figures.json"
        out = ["--out-dir", folder] if count == 4 else []  # which one process of a host can have
        start, connect = ([*MPIRUN, str(count)], ["--connect", "mpi:"]) if count > 1 else ([], [])
        subprocess.run([*start, tools / "tpuboard", "run", exe, *inputs, "--json", path, "--board", board, *connect,
                        "--threads", str(threads), *out], check=True, stdout=subprocess.DEVNULL, timeout=MPI_LIMIT)
        figures = json.loads(path.read_text())
        found[count, threads] = figures["sim_cycles"], figures["digest"]
        path.unlink()
    print(f"ranks of MPI, with threads: {found}")
    wrong = [] if len(set(found.values())) == 1 else [f"ranks of MPI: {found}"]
    devices = [str(tools / "tpuboard"), "devices", "--board", board, "--connect"]
    no_data = [*devices, "mpi:", "--no-data"]
    cases = {
        (*MPIRUN, "5", *devices, "mpi:"): ("expected at most 4 processes, one for each board of v3_32, found 5",),
        (*devices, "mpi:"): ("--connect: mpi: needs several ranks of one program; start it with mpirun",),
        (*MPIRUN, "2", *devices, "mpi:1"): ("--connect: 'mpi:1': expected mpi: alone",),
        (*MPIRUN, "1", *devices, "mpi:", ":", "-n", "1", *no_data): (
            "rank 1 of mpirun (pid ", f"was started with '{' '.join(no_data[1:])}",
            f"rank 0 with '{' '.join([*devices[1:], 'mpi:'])}"),
    }
    for start, texts in cases.items():
        done = subprocess.run(start, capture_output=True, text=True, check=False, timeout=MPI_LIMIT)
        if done.returncode == 0 or any(text not in done.stderr for text in texts):
            wrong.append(f"{start}: code {done.returncode}: {done.stderr}")
    return wrong + check_mpi_kills(tools, exe, inputs, board)


def check_mpi_kills(tools: Path, exe: Path, inputs: list[str], board: str) -> list[str]:
    """What goes wrong when a rank is killed: another one, then that with the program."""
    wrong = []
    for victim in (2, 0):
        run = subprocess.Popen([*MPIRUN, "4", tools / "tpuboard", "run", exe, *inputs, "--board", board, "--connect",
                                "mpi:", "--launches", "1000000", "--progress", "0.05"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not any("has run for" in line for line in run.stderr):
            return [f"the ranks end with code {run.wait()} before one is killed"]
        family = children_of(run.pid)
        variable = f"\0OMPI_COMM_WORLD_RANK={victim}\0"
        pid = next(each for each in family if variable in Path(f"/proc/{each}/environ").read_text())
        os.kill(pid, signal.SIGKILL)
        try:
            _, errors = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            return [f"rank {victim} is killed: the others hang"]
        print(f"rank {victim}, process {pid}, is killed: {errors[-600:]}")
        others = [rank for rank in range(4) if rank != victim]
        texts = [f"rank {rank} of mpirun: rank {victim} of mpirun (pid {pid} on host " for rank in others]
        # The program says what it has lost.
        texts += ["of the pod: the board was lost at cycle"] if victim != 0 else []
        if run.returncode == 0 or any(map(lives, family)) or any(text not in errors for text in texts):
            wrong.append(f"rank {victim} is killed: code {run.returncode}: {errors}")
    return wrong


def children_of(pid: int) -> list[int]:
    """All processes that a process has started, and that these have."""
    try:
        direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in direct for each in (int(child), *children_of(int(child)))]


def lives(pid: int) -> bool:
    """Whether a process is there and is not a zombie, which its parent may leave behind."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def check_kills(tools: Path, folder: Path) -> list[str]:
    """What goes wrong when a process of a pod, or the program itself, is killed at a random moment."""
    board, exe, inputs = prepare(tools, folder, "v3_32")
    command = [str(tools / "tpuboard"), "run", str(exe), *inputs, "--out-dir", str(folder), "--board", board,
               "--processes", "4", "--launches", "1000000", "--progress", "0.05"]
    chance = random.Random(7)
    temporary = folder / "tmp"
    temporary.mkdir()
    for number in range(int(os.environ.get("TPUBOARD_TEST_KILLS", KILLS))):
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(temporary)})
        family: list[int] = []
        begin = time.monotonic()
        while len(family) < 5 and time.monotonic() - begin < SECONDS:  # one that listens, four with boards
            time.sleep(0.01)
            family = children_of(run.pid)
        begun = next((line for line in run.stderr if "has run for" in line), None)
        if begun is None:
            return [f"kill {number}: the run ends with code {run.wait()} before anything is killed"]
        time.sleep(chance.random() * 3)
        victim = run.pid if number % 3 == 2 else chance.choice(family[1:])
        os.kill(victim, signal.SIGKILL)
        try:
            _, errors = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            return [f"kill {number}: the run hangs"]
        deadline = time.monotonic() + SECONDS
        while any(map(lives, family)) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [pid for pid in family if lives(pid)]
        named = victim == run.pid or (run.returncode > 0 and "of the pod" in errors and str(victim) in errors)
        print(f"kill {number} of {'the program' if victim == run.pid else 'a worker'}: {errors.strip()[-300:]}")
        files = [*temporary.glob("tpuboard-pod-*"), *Path("/dev/shm").glob("*tpuboard*")]
        if left or files or not named:
            return [f"kill {number} of {victim}: code {run.returncode}, left {left}, {files}: {errors}"]
    return []


def check_stopped(tools: Path, folder: Path) -> list[str]:
    """What the program does when a worker ends while another one is stopped, which cannot answer.

    Nearly all of its calls are looks for progress. When the worker ends some time after the other one was stopped, the
    program has the answer of the one that ends, and waits for the other one alone.
    """
    board, exe, inputs = prepare(tools, folder, "v3_32")
    wrong = []
    for first, pause in ((0, 0), (1, 1)):
        with workers_of(tools, folder, board, "tcp", 2) as connect:
            family = set(children_of(os.getpid()))
            run = subprocess.Popen(
                [tools / "tpuboard", "run", exe, *inputs, "--board", board, *connect, "--launches", "1000000",
                 "--progress", "0.001"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if not any("has run for" in line for line in run.stderr):
                return [f"the run ends with code {run.wait()} before anything is stopped"]
            sessions = sorted(set(children_of(os.getpid())) - family - {run.pid})
            stopped, killed = sessions[first], sessions[1 - first]
            os.kill(stopped, signal.SIGSTOP)
            try:
                time.sleep(pause)
                os.kill(killed, signal.SIGKILL)
                _, errors = run.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
                errors = "the run waits for a worker that is stopped"
            finally:
                os.kill(stopped, signal.SIGCONT)
        print(f"{stopped} is stopped, {killed} is killed after {pause} s: {errors.strip()[-300:]}")
        if run.returncode <= 0 or "of the pod: the board was lost at cycle" not in errors or (
                f"(pid {killed})" not in errors):
            wrong.append(f"{stopped} is stopped, {killed} is killed after {pause} s: code {run.returncode}: {errors}")
    return wrong


# Links of chip 1 and 3 are between the boards. Chip 0 and 1 are board 0.
FAULTS = """ecc = false
seed = 3
[[fault]]
kind = "mxu"
where = "core 5"
at = "launch 1 + 0..9"
commands = 4
bit = 30
[[fault]]
kind = "vmem"
where = "core 2"
at = "launch 1 + 100..4000"
[[fault]]
kind = "hbm"
where = "core 1"
at = "launch 2 + 50..3000"
address = "random slot"
[[fault]]
kind = "hbm"
where = "core 6"
rate = "0.5 per launch"
[[fault]]
kind = "link_corrupt"
where = "link chip1 +y"
at = "launch 1"
repeats = 4
[[fault]]
kind = "link_down"
where = "link chip3 -y"
at = "launch 2"
for = "3 us"
[[fault]]
kind = "link_corrupt"
where = "link chip2 +x"
at = "launch 2"
[[fault]]
kind = "pcie_lost_msi"
where = "chip 3"
at = "launch 1"
[[fault]]
kind = "tcm"
where = "core 3"
at = "step 900"
"""
# What the user sees of faults that end the run: the text, and one that the log has.
FATAL = {
    ("link_down", "link chip1 +y"): ("LINK_DOWN", "damage link_down link chip1 +y of board 0: a transfer needs the"),
    ("core_hang", "core 5"): ("sequencer", "fault core_hang core 5 of board 1: sequencer stops"),
    ("board_dies", "board 1"): ("chip 2 of board 1 has gone", "fault board_dies board 1: all chips of the board leave"),
}


# Of v3_32: chips 0 and 1 are of board 0, chips 2 and 3 of board 1. What goes from chip 1 to chip 3 passes chip 2.
# Chip 2 itself sends over the link first, from both of its cores.
FAR_LINKS = "".join(f"""[[fault]]
kind = "link_corrupt"
where = "link chip2 +x"
at = "launch 1 + {cycles}"
repeats = 8
""" for cycles in range(3)) + """[[fault]]
kind = "link_down"
where = "link chip2 +x"
at = "launch 2 + 10000"
for = "5 us"
"""
FAR_LINK_LOST = """[[fault]]
kind = "link_down"
where = "link chip2 +x"
at = "launch 1 + 9"
"""
LEAST_WORDS = 100  # of HBM that are damaged, and which a launch reads


def check_far_links(tools: Path, folder: Path) -> list[str]:
    """What differs when links of boards fail that a transfer enters."""
    _, exe, inputs = prepare(tools, folder, "mlp")
    subprocess.run([tools / "tpuc", folder / "p.mlirbc", "-o", exe, "--board", "v3_32"], check=True)
    script, log = folder / "faults.toml", folder / "far.txt"

    def run(processes: int, threads: int, *options: object) -> tuple[int, str, str]:
        """Code, output and log of four launches."""
        log.unlink(missing_ok=True)
        done = subprocess.run([
            tools / "tpuboard", "run", exe, *inputs, "--board", "v3_32", "--processes", str(processes), "--threads",
            str(threads), "--launches", "4", "--set", "mgmt.watchdog_us=200", *options], capture_output=True,
            text=True, check=False, timeout=SECONDS)
        return done.returncode, done.stdout + done.stderr, log.read_text() if log.exists() else ""

    faults = ("--faults", script, "--fault-log", log)
    clean = run(1, 1)[1].split()
    script.write_text(FAR_LINKS)
    found = [run(processes, threads, *faults) for processes, threads in ((1, 1), (2, 1), (4, 8))]
    print(*found[0][1:], sep="\n")
    wrong = [] if all(each == found[0] for each in found) else [f"links of other boards: {each}" for each in found]
    digest = clean[clean.index("digest") + 1]
    met = [found[0][2].count(f"damage {kind} link chip2 +x of board 1: a transfer {text} ")
           for kind, text in (("link_corrupt", "has a wrong CRC"), ("link_down", "waits"))]
    if found[0][0] != 0 or digest not in found[0][1] or met[0] != 3 or met[1] < 2:
        wrong.append(f"links of other boards: {found[0]}, digest without faults {digest}")
    script.write_text(FAR_LINK_LOST)
    alone, spread = run(1, 1, *faults), run(2, 1, *faults)
    print(*alone[1:], sep="\n")
    if alone[2] != spread[2] or any("LINK_DOWN" not in each[1] for each in (alone, spread)):
        wrong.append(f"a link of another board is lost: {alone}; in two processes {spread}")
    return wrong


def check_faults(tools: Path, folder: Path) -> list[str]:
    """What differs between numbers of processes and threads when faults happen, and what the user sees of them."""
    board, exe, inputs = prepare(tools, folder, "mlp")
    script, log, path = folder / "faults.toml", folder / "log.txt", folder / "figures.json"

    def run(processes: int, threads: int) -> tuple[int, str, str, tuple[int, str] | None]:
        """Code, standard error, log, and cycles with digest of four launches."""
        path.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        done = subprocess.run([
            tools / "tpuboard", "run", exe, *inputs, "--out-dir", folder, "--json", path, "--board", board, "--faults",
            script, "--fault-log", log, "--processes", str(processes), "--threads", str(threads), "--launches", "4",
            "--set", "mgmt.watchdog_us=200"], capture_output=True, text=True, check=False, timeout=SECONDS)
        figures = json.loads(path.read_text()) if done.returncode == 0 else None
        return (done.returncode, done.stderr, log.read_text() if log.exists() else "",
                (figures["sim_cycles"], figures["digest"]) if figures else None)

    wrong = []
    clean = pods_test.determinism_test.figures(tools, exe, inputs, folder, ["--board", board, "--launches", "4"])
    script.write_text(FAULTS)
    found = {(processes, threads): run(processes, threads) for processes in (1, 2) for threads in (1, 8)}
    print(found[1, 1][2], *(each[3] for each in found.values()), sep="\n")
    if any(each[2:] != found[1, 1][2:] or each[0] != 0 for each in found.values()):
        wrong += [f"faults, {of}: {each}" for of, each in found.items()]
    lines = found[1, 1][2].splitlines()
    missing = [text for text in ("fault mxu core 5 of board 1", "damage mxu core 5 of board 1", "hbm core 1 of board 0",
                                 "damage link_corrupt link chip1 +y of board 0", "link chip3 -y of board 1",
                                 "(line 40: tcm in core 3 of board 0, step 900) never came")
               if sum(text in line for line in lines) == 0]
    if missing or len(set(lines)) != len(lines):
        wrong.append(f"the log has no {missing}: {lines}")
    if found[1, 1][3] is None or found[1, 1][3][1] == clean["digest"]:
        wrong.append("faults: the results are those of a run without them")
    for (kind, where), (text, event) in FATAL.items():
        script.write_text(f'[[fault]]\nkind = "{kind}"\nwhere = "{where}"\nat = "launch 2 + 500"\n')
        alone, spread = run(1, 1), run(2, 1)
        print(kind, alone[1], spread[1], spread[2], sep="\n")
        if alone[2] != spread[2] or event not in spread[2] or 0 in (alone[0], spread[0]) or any(
                text not in each[1] for each in (alone, spread)):
            wrong.append(f"{kind}: {alone}; in two processes {spread}")
        # No process knows what the cores of the other one would signal.
        if any(text in spread[1] for text in ("which no command ahead signals", "nothing signals")):
            wrong.append(f"{kind} in two processes: {spread[1]}")
    script.write_text('[[fault]]\nkind = "host_dies"\nwhere = "board 1"\nat = "launch 2"\n'
                      '[[fault]]\nkind = "hbm"\nwhere = "core 1"\nat = "step 900"\n')
    died = run(2, 1)
    print(died[1], died[2])
    if died[0] <= 0 or "board 1 of the pod: " not in died[1] or "host_dies board 1: " not in died[2] or (
            "hbm in core 1 of board 0, step 900) never came" not in died[2]):
        wrong.append(f"a host that dies: {died}")
    script.write_text('[[fault]]\nkind = "host_dies"\nwhere = "board 2"\nat = "launch 2"\n')
    refused = run(2, 1)
    if refused[0] <= 0 or "faults.toml:1: fault 1: where" not in refused[1]:
        wrong.append(f"a place that is not there: {refused}")
    # Words of HBM are damaged in the cycles in which a DMA begins to read them: behind all else of a cycle.
    words = [(core, f'at = "launch 1"\naddress = "slot {slot} + 8"')
             for core in range(8) for slot in range(len(inputs) // 2)]
    for place in ("in a slot", "in the cycle of a read"):
        script.write_text("".join(f'[[fault]]\nkind = "hbm"\nwhere = "core {core}"\n{when}\n' for core, when in words))
        alone, *spread = run(1, 1), run(2, 1), run(2, 1)
        happened = alone[2].count("] fault hbm core")
        reads = re.findall(r"\[(\d+)\] damage hbm core (\d+) of board \d: the word at (0x[0-9a-f]+) is read", alone[2])
        print(f"HBM damaged {place}: {happened} faults, {len(reads)} reads")
        if happened < LEAST_WORDS or alone[0] != 0 or any(each[2:] != alone[2:] for each in spread):
            wrong.append(f"HBM damaged {place}: {alone}; in two processes {spread}")
        words = [(int(core), f'at = "cycle {cycle}"\naddress = "{int(at, 16)}"') for cycle, core, at in reads]
    wrong += check_far_links(tools, folder)
    left = list(folder.glob("log.txt.*"))
    return wrong + ([f"logs of processes are left: {left}"] if left else [])


def check_rejected(tools: Path, folder: Path) -> list[str]:
    """What is accepted though it needs one process, or rejected in other words."""
    cases = {
        ("--board", "v3_32", "--processes", "5"): "expected at most 4 processes",
        ("--board", "v3_8", "--processes", "2"): "expected at most 1 processes",
        ("--board", "v3_32", "--processes", "2", "--check"): "--check: this needs all boards of the pod in one process",
        ("--board", "v3_32", "--processes", "2", "--trace", "t.txt"): "--trace: this needs all boards",
        ("--board", "v3_32", "--processes", "2", "--transport", "null"): "--transport: boards in several processes",
        ("--board", "v3_32", "--processes", "2", "--connect", "unix:/x"): "expected one of them",
        ("--board", "v3_32", "--connect", "unix:/x,tcp:"): "address 'tcp:'",
        ("--board", "v3_32", "--connect", "mpi:"): "--connect: mpi: needs ",  # a build with MPI, or several ranks
        ("--board", "v3_32", "--connect", "mpi:", "--connect-wait", "5"): "--connect-wait: ranks of mpirun",
        **{("--board", "v3_32", "--processes", "2", "--set", f"{number}=0"): f"{number}: expected at least 1 ns"
           for number in ("pcie.latency_ns", "ici.control_hop_ns", "ici.hop_ns", "ici.extra_hop_ns")},
    }
    board, exe, inputs = prepare(tools, folder, "collectives")
    runs = {
        ("--board", board, "--processes", "2", "--save-snapshot", "s"): "a pod in several processes has no snapshots",
        ("--board", "v3_32"): "compiled for another board (",
    }
    words = {("devices", *options): text for options, text in cases.items()}
    words |= {("run", str(exe), *inputs, *options): text for options, text in runs.items()}
    wrong = []
    for options, text in words.items():
        done = subprocess.run([tools / "tpuboard", *options], capture_output=True, text=True, cwd=folder, check=False,
                              timeout=SECONDS)
        if done.returncode == 0 or text not in done.stderr:
            wrong.append(f"{' '.join(options)}: code {done.returncode}: {done.stderr}")
    # Processes are those of a program file, which has to be there.
    program = folder / "bin" / "alone"
    program.parent.mkdir()
    shutil.copy(tools / "tpuboard", program)
    for path, text in ((folder, "the program tpuboard, whose processes have the boards, is not there"), (tools, "")):
        done = subprocess.run([program, "devices", "--board", "v3_32", "--processes", "2"], capture_output=True,
                              text=True, env={**os.environ, "PATH": str(path)}, check=False, timeout=SECONDS)
        if (done.returncode == 0) != (not text) or text not in done.stderr:
            wrong.append(f"PATH={path}: code {done.returncode}: {done.stderr}")
    # One that gives up its connection, and does not end by itself, is ended.
    silent = folder / "silent" / "tpuboard"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\nexec 3>&-\nexec /bin/sleep 600\n")
    silent.chmod(0o755)
    try:
        done = subprocess.run([program, "devices", "--board", "v3_32", "--processes", "2"], capture_output=True,
                              text=True, env={**os.environ, "PATH": str(silent.parent)}, check=False, timeout=60)
        if done.returncode == 0 or "the processes did not start" not in done.stderr:
            wrong.append(f"a silent process: code {done.returncode}: {done.stderr}")
    except subprocess.TimeoutExpired:
        wrong.append("a silent process is waited for")
    return wrong


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--program", required=True,
                        choices=[*order_test.PROGRAMS, "v3_32", "workers", "tls", "latencies", "faults", "kill",
                                 "mpi", "stopped", "reject"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checks = {"workers": check_workers, "tls": check_tls, "mpi": check_mpi, "latencies": check_latencies,
                  "faults": check_faults, "kill": check_kills, "stopped": check_stopped, "reject": check_rejected}
        wrong = (checks[args.program](args.bin, folder) if args.program in checks
                 else check_equal(args.bin, folder, args.program))
    for problem in wrong:
        print(f"FAILED {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
