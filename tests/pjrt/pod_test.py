"""JAX with several processes by `tpuboard pod`: jax.distributed and its libraries on a shared board, and its ends.

TPU_LIBRARY_PATH names the plugin, --tpuboard the program.
"""

from __future__ import annotations

import argparse
import array
import fcntl
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import IO

from processes_test import COLLECTIVES, START, TRAIN, free_port, servers, wait_until

LIMIT = 240  # seconds that a case may take
# Without arguments: JAX finds out by the variables of a real TPU host.
INITIALIZE = "\njax.distributed.initialize()\n"
SHAPE = """
print('shape', jax.process_index(), jax.process_count(), len(jax.devices()), [d.id for d in jax.local_devices()],
      [d.local_hardware_id for d in jax.local_devices()], [d.coords[:2] for d in jax.local_devices()])
"""
LIBRARIES = """
import os
from jax.experimental import multihost_utils
count, number, own = jax.process_count(), jax.process_index(), jax.local_device_count()
mean = jax.pmap(lambda x: jax.lax.pmean(x, 'i'), axis_name='i')
print('pmean', np.asarray(mean(np.arange(own, dtype=np.float32) + own * number).addressable_data(0)))
print('broadcast', multihost_utils.broadcast_one_to_all(np.array([7 + number, 8])))
print('gathered', multihost_utils.process_allgather(np.array([number, 10 * number])).tolist())
multihost_utils.assert_equal(np.arange(3), 'equal')
mesh = Mesh(np.array(jax.devices()), ('d',))
parts = NamedSharding(mesh, P('d'))
whole = np.arange(64, dtype=np.float32).reshape(16, 4)
x = jax.make_array_from_callback(whole.shape, parts, lambda i: whole[i])
print('tiled', np.array_equal(multihost_utils.process_allgather(x, tiled=True), whole))
shifted = jax.jit(jax.shard_map(lambda x: jax.lax.ppermute(x, 'd', [(i, (i + 1) % 8) for i in range(8)]), mesh=mesh,
                                in_specs=P('d'), out_specs=P('d')))(x)
print('shifted', all(np.array_equal(s.data, np.roll(whole, 2, 0)[s.index]) for s in shifted.addressable_shards))
gathered = jax.jit(jax.shard_map(lambda x: jax.lax.all_gather(x, 'd', tiled=True), mesh=mesh, in_specs=P('d'),
                                 out_specs=P(), check_vma=False))(x)
print('all_gather', np.array_equal(gathered.addressable_data(0), whole))
local = jax.make_array_from_process_local_data(parts, whole[number * 16 // count:(number + 1) * 16 // count])
print('local', all(np.array_equal(a.data, b.data) for a, b in zip(local.addressable_shards, x.addressable_shards)))
halves = NamedSharding(Mesh(np.array(jax.devices()).reshape(4, 2), ('a', 'b')), P('b', 'a'))
moved = jax.jit(lambda x: x * 2, out_shardings=halves)(x)
print('moved', moved.sharding == halves, all(np.array_equal(s.data, 2 * whole[s.index])
                                             for s in moved.addressable_shards))
import importlib.util
if importlib.util.find_spec('orbax'):
    import orbax.checkpoint as ocp
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(os.environ['FOLDER'] + '/step', {'x': moved, 'n': 3})
        checkpointer.wait_until_finished()
        asked = {'x': jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=parts), 'n': 0}
        back = checkpointer.restore(os.environ['FOLDER'] + '/step', asked)
    print('orbax', back['n'], back['x'].sharding == parts, all(np.array_equal(s.data, 2 * whole[s.index])
                                                              for s in back['x'].addressable_shards))
multihost_utils.sync_global_devices('end')
"""
# One that does not go on for ever once another one has ended.
ENDLESS = INITIALIZE + TRAIN.replace("range(6)", "range(1000000)")


class Pod:
    """One run of `tpuboard pod`."""

    program = ""

    def __init__(self, code: str, words: list[str], environment: dict[str, str] | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.begin = time.monotonic()
        own = {**os.environ, "TMPDIR": self.folder.name, "FOLDER": self.folder.name, "PYTHONHASHSEED": "0",
               **(environment or {})}
        self.process = subprocess.Popen([self.program, "pod", *words, "--", sys.executable, "-c", START + code],
                                        env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait(self) -> tuple[int, list[list[str]], str]:
        """Exit code, lines by process, and errors. No process, server or folder stays."""
        try:
            output, errors = self.process.communicate(timeout=LIMIT)
        finally:
            self.process.kill()
        self.check_end()
        lines: dict[int, list[str]] = {}
        for line in output.splitlines():
            number, text = re.fullmatch(r"\[ *(\d+)\] ?(.*)", line).groups()
            lines.setdefault(int(number), []).append(text)
        return self.process.returncode, [lines[number] for number in sorted(lines)], errors

    def check_end(self) -> None:
        """Nothing of the run is left."""
        wait_until(lambda: not servers(self.folder.name) and not self.members(), "a process stays")

    def started(self, rank: int) -> int:
        """The process of a rank, once it is there."""
        wait_until(lambda: bool(self.members(rank)), f"process {rank} does not start", 60)
        return self.members(rank)[0]

    def members(self, rank: int | None = None) -> list[int]:
        """Processes of the run, by a variable that they have; of a rank: the one that the command has started."""
        marks, found = [f"FOLDER={self.folder.name}".encode()], []
        if rank is not None:
            marks.append(f"TPU_WORKER_ID={rank}".encode())
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                    continue
                variables = (entry / "environ").read_bytes().split(b"\0")
                state, parent = (entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[:2]
                if all(mark in variables for mark in marks) and state != "Z" and (
                        rank is None or int(parent) == self.process.pid):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found


def outputs(code: str, words: list[str], environment: dict[str, str] | None = None) -> list[list[str]]:
    """Lines of each process of a run that must end well."""
    code_of_end, lines, errors = Pod(code, words, environment).wait()
    assert code_of_end == 0, f"exit code {code_of_end}\n{lines}\n{errors}"
    return lines


def shares(words: list[str], devices: list[list[int]]) -> None:
    """Training has the bits of one process, libraries work, and each process has its devices."""
    alone, = outputs(INITIALIZE + TRAIN + COLLECTIVES, ["--processes", "1"])
    count = len(devices)
    lines = outputs(INITIALIZE + SHAPE + TRAIN + COLLECTIVES + LIBRARIES, words)
    assert len(lines) == count
    for number, said in enumerate(lines):
        places = [(d // 2 % 2, d // 4) for d in devices[number]]
        local = list(range(len(devices[number])))
        assert said[0] == f"shape {number} {count} 8 {devices[number]} {local} {places}".replace("(", "[").replace(
            ")", "]") or said[0] == f"shape {number} {count} 8 {devices[number]} {local} {places}", said[0]
        for line in alone:
            assert line in said, (number, line, said)
        rows = str([[i, 10 * i] for i in range(count)])
        for line in ("pmean [3.5]", "broadcast [7 8]", f"gathered {rows}", "tiled True", "shifted True",
                     "all_gather True", "local True", "moved True True"):
            assert line in said, (number, line, said)
        assert "orbax 3 True True" in said or not any(line.startswith("orbax") for line in said), said


def cores() -> None:
    """Eight processes, each with a core."""
    lines = outputs(INITIALIZE + SHAPE + LIBRARIES, ["--processes", "8"])
    assert [said[0].split(" [")[0] for said in lines] == [f"shape {i} 8 8" for i in range(8)], lines
    assert all("pmean [3.5]" in said and "shifted True" in said for said in lines), lines


def columns() -> None:
    """Chips above each other: process 0 has chips 0 and 2."""
    shares(["--chips-per-process", "1,2"], [[0, 1, 4, 5], [2, 3, 6, 7]])


HOSTS = """
mesh = Mesh(np.array(jax.devices()), ('data',))
whole, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))
x = jax.make_array_from_callback((32,), parts, lambda i: np.arange(32, dtype=np.float32)[i])
print('sum', float(jax.jit(lambda x: x.sum())(x)))
"""


def hosts(board: str) -> None:
    """A board of 4x4 chips, or four of 2x2, as four hosts have it: each process has 2x2 chips."""
    alone, = outputs(INITIALIZE + HOSTS + TRAIN, ["--processes", "1", "--board", board])
    lines = outputs(INITIALIZE + SHAPE + HOSTS + TRAIN, ["--processes", "4", "--board", board])
    for number, said in enumerate(lines):
        first = number % 2 * 4 + number // 2 * 16
        own = [*range(first, first + 4), *range(first + 8, first + 12)]
        assert said[0].startswith(f"shape {number} 4 32 {own} "), said
        assert said[1] == "sum 496.0" and said[1:] == alone, (said, alone)


def launchers() -> None:
    """JAX's own detection of Slurm, and the number that OpenMPI gives where the count of processes is said."""
    with tempfile.TemporaryDirectory() as folder:
        def run(code: str, count: int, environment: dict[str, str]) -> list[str]:
            processes = [subprocess.Popen(
                [sys.executable, "-c", START + code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**os.environ, **{name: text.format(i) for name, text in environment.items()}})
                for i in range(count)]
            ends = [process.communicate(timeout=LIMIT) for process in processes]
            assert all(process.returncode == 0 for process in processes), ends
            return [output.splitlines()[0] for output, _ in ends]

        slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2",
                 "SLURM_PROCID": "{}", "SLURM_LOCALID": "{}", "SLURM_STEP_NUM_NODES": "1",
                 "JAX_COORDINATOR_PORT": str(free_port())}
        said = run(INITIALIZE + "print(jax.process_index(), [d.id for d in jax.local_devices()])", 2, slurm)
        assert said == ["0 [0, 1, 2, 3]", "1 [4, 5, 6, 7]"], said
        ompi = {"TPUBOARD_PROCESS_COUNT": "4", "TPUBOARD_PROCESS_DIR": folder + "/meet", "OMPI_COMM_WORLD_RANK": "{}",
                "OMPI_COMM_WORLD_SIZE": "4"}
        said = run("print(jax.process_index(), [d.id for d in jax.local_devices()])", 4, ompi)
        assert said == [f"{i} [{2 * i}, {2 * i + 1}]" for i in range(4)], said


def meeting() -> None:
    """Processes that name their coordinator otherwise, in sessions of their own, meet by its key-value store."""
    code = START + """
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
x = jax.make_array_from_callback((8,), NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d')),
                                 lambda i: np.arange(8, dtype=np.float32)[i])
print(float(jax.jit(lambda x: x.sum())(x)), flush=True)
"""

    def run(environments: list[dict[str, str]], before: tuple[str, ...] = ()) -> list[tuple[int, str, str]]:
        """`before`: words in front of the second."""
        port, processes = free_port(), []
        for number, name in enumerate(("localhost", "127.0.0.1")):
            words = [*(before if number else ()), sys.executable, "-c", code, f"{name}:{port}", str(number)]
            processes.append(subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                              start_new_session=True, env={**os.environ, **environments[number]}))
        ends = [process.communicate(timeout=LIMIT) for process in processes]
        return [(process.returncode, *end) for process, end in zip(processes, ends, strict=True)]

    for code_of_end, output, errors in run([{}, {}]):
        assert (code_of_end, output) == (0, "28.0\n"), (output, errors)
    with tempfile.TemporaryDirectory() as folder:
        own = {"JAX_PLATFORMS": "tpu", "TPUBOARD_REPLICA_LIMIT": "3"}
        ends = run([{**own, "TPUBOARD_PROCESS_DIR": folder + "/a"}, {**own, "TPUBOARD_PROCESS_DIR": folder + "/b"}])
        text = "\n".join(errors for _, _, errors in ends)
        assert "TPUBOARD_PROCESS_DIR of process" in text and folder + "/a" in text and folder + "/b" in text, text
        # As a container of the same host that has another folder of that name.
        unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--keep-caps", "-m"]
        other = (*unshare, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', folder)
        if subprocess.run([*other, "true"], check=False).returncode != 0:
            print("this user cannot mount: two folders of one name are not tried")
            return
        ends = run(2 * [{**own, "TPUBOARD_PROCESS_DIR": folder + "/c"}], other)
        text = "\n".join(errors for _, _, errors in ends)
        assert f"waits in a folder {folder}/c that process" in text and "another container" in text, text


def differ() -> None:
    """Programs that differ, a rank that comes twice, one that never comes: both sides have the names."""
    programs = INITIALIZE + """
x = jax.make_array_from_callback((8,), NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d')),
                                 lambda i: np.arange(8, dtype=np.float32)[i])
try:
    print(jax.jit((lambda x: x - 1) if jax.process_index() == 0 else (lambda x: x * 2))(x).block_until_ready())
except Exception as error:
    print(error)
"""
    for said in outputs(programs, ["--processes", "2"]):
        text = "\n".join(said)
        assert "the devices launch different programs" in text, text
        assert re.search(r"those of process 0 \(pid \d+: .*\(TPU:0\).* and of process 1 \(pid \d+: ", text), text
        assert re.search(r"first '%\d+ = \"stablehlo.(constant|subtract)\".* and '%\d+ = \"stablehlo", text), text
        assert "at <string>:" in text, text
    code, lines, errors = Pod("""
import os, subprocess
print(len(jax.devices()))
again = subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'], capture_output=True, text=True)
print(again.returncode != 0 and 'is there already' in again.stderr)
""", ["--processes", "2"], {"JAX_PLATFORMS": "tpu"}).wait()
    assert code == 0 and all(said[-1] == "True" for said in lines), (lines, errors)
    code, lines, errors = Pod("""
import os
end = os.environ['FOLDER'] + '/end'
if os.environ['TPU_WORKER_ID'] == '1':
    while not os.path.exists(end):
        time.sleep(0.05)
    sys.exit()
x = jax.make_array_from_callback((8,), NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d')),
                                 lambda i: np.arange(8, dtype=np.float32)[i])
try:
    jax.jit(lambda x: x.sum())(x).block_until_ready()
except Exception as error:
    print(error)
open(end, 'w').close()
""", ["--processes", "2"], {"TPUBOARD_REPLICA_LIMIT": "1"}).wait()
    assert code == 0, (lines, errors)
    assert "did not launch it within 1 s" in lines[0][0] and "process 1, which has never come" in lines[0][0], lines


def versions() -> None:
    """Processes with other libraries, boards or options are rejected with both values."""
    own = Path(os.environ["TPU_LIBRARY_PATH"])
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / own.name
        note = b"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0"  # NT_GNU_BUILD_ID, of 20 bytes
        before, found, after = own.read_bytes().partition(note)
        assert found and len(after) > 20
        other.write_bytes(before + note + bytes([after[0] ^ 1]) + after[1:])
        server = Path(folder) / "tpuboard_server"
        server.write_bytes((own.parent / "tpuboard_server").read_bytes())
        server.chmod(0o755)
        ids = [after[:20].hex(), (bytes([after[0] ^ 1]) + after[1:20]).hex()]
        for name, value, texts in (("TPU_LIBRARY_PATH", str(other), ids),
                                   ("TPUBOARD_BOARD", "v2_8", ["its board has ", "the open board "]),
                                   ("TPUBOARD_THREADS", "1", ["TPUBOARD_THREADS is '1' there and not set"]),
                                   ("TPU_PROCESS_BOUNDS", "2,1,1", ["0,0,1,1,0,0,1,1", "0,0,0,0,1,1,1,1"])):
            code, _, errors = Pod(f"""
import os, pathlib
def wait_for(name):
    while not (pathlib.Path(os.environ['FOLDER']) / name).exists():
        time.sleep(0.05)
if os.environ['TPU_WORKER_ID'] == '1':
    wait_for('0')
    os.environ['{name}'] = '{value}'
    os.environ['TPU_CHIPS_PER_PROCESS_BOUNDS'] = ''
    os.environ['TPU_VISIBLE_CHIPS'] = ''
jax.devices()
(pathlib.Path(os.environ['FOLDER']) / os.environ['TPU_WORKER_ID']).touch()
wait_for('1')  # never: that one is rejected, which ends this one
""", ["--processes", "2"], {"JAX_PLATFORMS": "tpu"}).wait()
            assert code == 1 and all(text in errors for text in ["process 1 cannot share the board", *texts]), errors


def ends() -> None:
    """The first failure ends the run with its code; a signal to the command goes to all; nobody stays."""
    fails = "import os\nif os.environ['TPU_WORKER_ID'] == '1':\n    sys.exit(7)\n"
    code, _, errors = Pod(fails + "time.sleep(100)", ["--processes", "4"]).wait()
    assert code == 7, errors
    assert re.search(r"process 1 \(pid \d+\) ended with exit code 7; the others are ended", errors), errors
    pod = Pod("print('there')\ntime.sleep(100)", ["--processes", "2"])
    assert {pod.process.stdout.readline() for _ in range(2)} == {"[0] there\n", "[1] there\n"}
    pod.process.send_signal(signal.SIGINT)
    code, _, errors = pod.wait()
    assert code == 128 + signal.SIGINT, (code, errors)
    pod = Pod(ENDLESS, ["--processes", "2"])
    assert "loss" in pod.process.stdout.readline()
    pod.process.kill()
    pod.process.wait()
    pod.check_end()
    pod = Pod("while True: print('there')", ["--processes", "2"])
    pod.process.stdout.readline()
    pod.process.stdout.close()
    errors = pod.process.stderr.read()
    assert pod.process.wait(30) == 1 and "standard output: cannot be written" in errors, errors
    pod.check_end()
    assert not list(Path(pod.folder.name).iterdir()), "its folder stays"
    done = subprocess.run([Pod.program, "pod", "--processes", "2", "--", "no-such-program"], check=False,
                          capture_output=True, text=True)
    assert done.returncode == 1 and "no-such-program: cannot be started: No such file" in done.stderr, done
    for words, text in ((["--processes", "3"], "share the 8 cores of the board v3_8"),
                        (["--chips-per-process", "3,1"], "3,1 chips do not divide those of the board v3_8: 2,2"),
                        (["--chips-per-process", "x"], "expected X,Y"),
                        (["--processes", "2", "--chips-per-process", "1,1"], "has 4 parts of 1,1 chips"),
                        ([], "expected --processes or --chips-per-process")):
        done = subprocess.run([Pod.program, "pod", *words, "--", "true"], check=False, capture_output=True, text=True)
        assert done.returncode == 2 and text in done.stderr, done


def lines() -> None:
    """Each line once, also empty ones, with any of the usual ends."""
    text = b"a\r\nb\n\r\n\n\rc\r50%\r100%\r\r\nd\r\n\r\n" + 70000 * b"e" + b"\nf"
    said, = outputs(f"sys.stdout.buffer.write({text!r})", ["--processes", "1"])
    short = [line if len(line) < 10 else f"{line[0]} {line.count(line[0])}" for line in said]
    assert short == ["a", "b", "", "", "c", "50%", "100%", "d", "", "e 65536", "e 4464", "f"], short


def children() -> None:
    """What a process has started ends with it when it fails; also where the parent ignores SIGCHLD."""
    fails = """
import os, signal, subprocess
if os.environ['TPU_WORKER_ID'] == '1':
    def prepare():
        if {ignores}:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(['sleep', '600'], preexec_fn=prepare)
    sys.exit(7)
time.sleep(600)
"""
    for ignores in (False, True):
        pod = Pod(fails.format(ignores=ignores), ["--processes", "2"])
        code = pod.process.wait(LIMIT)
        left = pod.members()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert code == 7 and not left, (ignores, code, left)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        command = [Pod.program, "pod", "--processes", "2", "--", "sh", "-c", "exit 7"]
        process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, restore_signals=False)
    finally:
        signal.signal(signal.SIGCHLD, before)
    try:
        _, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 7 and "ended with exit code 7" in errors, (process.returncode, errors)


def stalled() -> None:
    """Nobody reads the output: a signal ends the run, and nothing is lost once somebody reads."""

    def is_filled(pipe: IO[str]) -> bool:
        waiting = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        return waiting[0] > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2  # short lines do not fill all of its pages

    pod = Pod("while True: print(100 * 'x')", ["--processes", "2"])
    wait_until(lambda: is_filled(pod.process.stdout), "no output", 60)
    pod.process.send_signal(signal.SIGTERM)  # JAX may swallow a KeyboardInterrupt while it is imported
    assert pod.process.wait(LIMIT) == 128 + signal.SIGTERM
    pod.check_end()
    count = 40000  # more than pipes have, less than the command keeps: the processes end
    pod = Pod(f"for i in range({count}): print(i)", ["--processes", "2"])
    wait_until(lambda: is_filled(pod.process.stdout) and not pod.members(), "processes stay", 60)
    time.sleep(4)  # longer than the command waits for what processes have left behind
    code, said, errors = pod.wait()
    assert code == 0 and said == 2 * [[str(i) for i in range(count)]], (code, [len(part) for part in said], errors)
    pod = Pod(f"for i in range({10 * count}): print(i)\nsys.exit(3)", ["--processes", "1"])
    wait_until(lambda: is_filled(pod.process.stdout), "no output", 60)
    code, said, errors = pod.wait()
    assert code == 3 and said == [[str(i) for i in range(10 * count)]], (code, [len(part) for part in said], errors)


def killed(rounds: int, seed: int) -> None:
    """SIGKILL of a random process at a random moment: the run ends within seconds with its name, and nothing stays."""
    draw = random.Random(seed)
    for turn in range(rounds):
        count = draw.choice([2, 4])
        pod = Pod(ENDLESS, ["--processes", str(count)])
        victim = draw.randrange(count)
        # From the start of the interpreter to the middle of training.
        moment = time.monotonic() + draw.uniform(0, 6)
        while time.monotonic() < moment:
            time.sleep(0.01)
        pid = pod.started(victim)
        os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        code, _, errors = pod.wait()
        seconds = time.monotonic() - begin
        assert code == 128 + signal.SIGKILL, (turn, code, errors)
        assert f"process {victim} (pid {pid}) was ended by signal 9 (Killed)" in errors, (turn, errors)
        assert seconds < 60, (turn, seconds)  # on a busy host
        print(f"{turn}: process {victim} of {count}, {seconds:.1f} s", flush=True)


def main() -> int:
    """Runs a case."""
    cases = {"two": lambda: shares(["--processes", "2"], [[0, 1, 2, 3], [4, 5, 6, 7]]),
             "four": lambda: shares(["--processes", "4"], [[0, 1], [2, 3], [4, 5], [6, 7]]), "columns": columns,
             "cores": cores, "launchers": launchers,
             "hosts": lambda: hosts(str(Path(__file__).resolve().parents[1] / "data/boards/thirty_two_cores.toml")),
             "boards": lambda: hosts("v3_32"), "meeting": meeting, "differ": differ,
             "versions": versions, "ends": ends, "lines": lines, "children": children, "stalled": stalled,
             "killed": lambda: killed(arguments.rounds, arguments.seed)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True, choices=sorted(cases))
    parser.add_argument("--tpuboard", required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=20261129)
    arguments = parser.parse_args()
    Pod.program = arguments.tpuboard
    cases[arguments.case]()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
