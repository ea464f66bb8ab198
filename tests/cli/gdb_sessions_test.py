"""GDB on the firmware: scripted sessions (gdb/NAME.gdb with gdb/NAME.expected), and debuggers that misbehave.

Each session runs a program on the simulated board that waits for GDB; the run has to end well whatever the debugger
did. Addresses, lines and paths of the firmware are taken out of GDB's output before it is compared.

Usage: gdb_sessions_test.py --tpuc FILE --tpuboard FILE --firmware FILE.elf [--gdb FILE] [--repeat N] [--update] [NAME]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
TIMEOUT_S = 300
SETTINGS = ["set pagination off", "set confirm off", "set width 0", "set print thread-events off",
            "set debuginfod enabled off", "set python print-stack full"]
# What a firmware that is compiled otherwise may change.
CLEANED = [(re.compile(r"\S*/firmware/"), "firmware/"), (re.compile(r"(\.[chS]):\d+"), r"\1:LINE"),
           (re.compile(r"(\.[chS]), line \d+"), r"\1, line LINE"), (re.compile(r"0x1000[0-9a-f]{4}\b"), "CODE"),
           (re.compile(r"\((sources|build)=\d+\)"), r"(\1=N)"), (re.compile(r"cycle \d+"), "cycle N")]
DROPPED = re.compile(r"(0x[0-9a-f]+\t)?\d+\t|warning: |\[Switching to |0x[0-9a-f]{8} in |\s*\[remote\]|.*\.S: No such")


def clean(text: str) -> str:
    """GDB's output without what differs from build to build."""
    lines = [line.rstrip() for line in text.splitlines() if not DROPPED.match(line)]
    for pattern, by in CLEANED:
        lines = [pattern.sub(by, line) for line in lines]
    return "\n".join(line for line in lines if line) + "\n"


class Run:
    """A process of tpuboard that a debugger can reach."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        found = re.search(r"on (127\.0\.0\.1):(\d+)$", first)
        assert found, f"{first!r} names no port"
        self.host, self.port = found[1], int(found[2])
        self.errors: list[str] = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr))
        self.reader.start()

    def end(self) -> str:
        """Waits for its end, which is to be a good one; its standard output."""
        assert self.process.stdout is not None
        try:
            out = self.process.stdout.read()
            code = self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.reader.join()
            self.process.stdout.close()
            self.process.stderr.close()
        assert code == 0, f"exit code {code}: {''.join(self.errors)}"
        return out


class Client:
    """A debugger without manners: packets as they are given."""

    def __init__(self, run: Run) -> None:
        self.socket = socket.create_connection((run.host, run.port))
        self.socket.settimeout(TIMEOUT_S)
        self.left = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def packet(self, body: bytes) -> bytes:
        """Sends a packet; the answer's body."""
        self.send(b"$" + body + b"#" + f"{sum(body) % 256:02x}".encode())
        return self.answer()

    def answer(self) -> bytes:
        while not (found := re.search(rb"\$([^#]*)#..", self.left)):
            more = self.socket.recv(4096)
            assert more, "the connection ended"
            self.left += more
        self.left = self.left[found.end():]
        return found[1]

    def close(self) -> None:
        self.socket.close()


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.program = folder / "dense.tpuexe"
        subprocess.run([args.tpuc, DATA / "dense.mlirbc", "-o", self.program], check=True)
        self.command = [args.tpuboard, "run", str(self.program), "--no-data", "--threads", "1", "--json", "-"]
        plain = subprocess.run(self.command, check=True, capture_output=True, text=True)
        self.figures = self.figures_of(plain.stdout)

    @staticmethod
    def figures_of(out: str) -> list:
        run = json.loads(out)
        return [run[name] for name in ("sim_cycles", "sim_cycles_per_core", "instructions_per_hart", "digest")]

    @contextlib.contextmanager
    def run(self, *options: str, cycles: bool = True) -> Iterator[Run]:
        """A run that is to end well, with the cycles of one that nobody looks at unless harts were held back."""
        run = Run([*self.command, "--gdb", ":0", *options])
        try:
            yield run
        except BaseException:
            run.process.kill()
            with contextlib.suppress(AssertionError):  # the error of the session is the one that counts
                run.end()
            raise
        out = run.end()
        if cycles:
            got = self.figures_of(out)
            assert got == self.figures, f"the debugger changed the run: {got} for {self.figures}"

    def gdb(self, run: Run, *more: str) -> list[str]:
        settings = [word for text in SETTINGS for word in ("-ex", text)]
        return [self.args.gdb, "-nx", "-batch", "-q", self.args.firmware, *settings,
                "-ex", f"target remote {run.host}:{run.port}", *more]

    def session(self, name: str) -> None:
        script = HERE / "gdb" / f"{name}.gdb"
        said = ""
        with self.run("--gdb-wait") as run, subprocess.Popen(
                self.gdb(run, "-x", str(script)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as gdb:
            for line in gdb.stdout:
                # GDB has let a hart run, waits, and shows it; it shows more waits behind the stop.
                if "[remote] wait: enter" in line and "[remote] wait: enter" not in said:
                    gdb.send_signal(signal.SIGINT)
                said += line
        got = clean(said.replace(str(script), script.name))
        expected = script.with_suffix(".expected")
        if self.args.update:
            expected.write_text(got)
        assert got == expected.read_text(), f"{name}: got\n{got}\nexpected\n{expected.read_text()}"

    # ---- debuggers that misbehave

    def nobody_comes(self) -> None:
        with self.run():
            pass

    def attached_and_never_stopped(self) -> None:
        with self.run("--gdb-wait") as run:
            client = Client(run)
            client.packet(b"Z0,10000001,2")  # an address that no instruction has
            client.send(b"$vCont;c#a8")
            assert client.answer() == b"W00"
            client.close()

    def killed_in_a_stop(self) -> None:
        with self.run("--gdb-wait", cycles=False) as run:
            command = self.gdb(run, "-ex", "break fw_dispatch", "-ex", "continue", "-ex", "echo STANDS\\n",
                               "-ex", "python import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            assert done.returncode == -signal.SIGKILL and "STANDS" in done.stdout, done.stdout

    def gone_before_a_word(self) -> None:
        with self.run("--gdb-wait") as run:
            Client(run).close()
            self.attach_and_detach(run)

    def attach_and_detach(self, run: Run) -> None:
        client = Client(run)
        assert client.packet(b"?") == b"T05thread:1;"
        assert client.packet(b"D") == b"OK"
        client.close()

    def a_web_page_that_posts(self) -> None:
        """A browser sends what any page says to a port of this host; the body is not obeyed."""
        body = b"".join(b"$" + packet + b"#" + f"{sum(packet) % 256:02x}".encode() for packet in (
            b"P0=efbeadde", b"qRcmd," + b"help".hex().encode(), b"vCont;c"))
        request = (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://page.example\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
        with self.run("--gdb-wait") as run:
            page = Client(run)
            page.send(request)
            with contextlib.suppress(ConnectionResetError):
                assert page.socket.recv(100) == b"", "the page hears an answer"
            page.close()
            time.sleep(0.2)
            assert run.process.poll() is None, "the page let the board run"
            self.attach_and_detach(run)
        with self.run() as run:  # and it does not stop a board that runs
            page = Client(run)
            with contextlib.suppress(OSError):
                page.send(request)

    def a_second_debugger(self) -> None:
        with self.run("--gdb-wait") as run:
            first = Client(run)
            assert first.packet(b"?") == b"T05thread:1;"
            second = subprocess.run(self.gdb(run, "-ex", "info threads"), capture_output=True, text=True,
                                    timeout=TIMEOUT_S, check=False)
            assert "another debugger is connected" in second.stderr, second.stderr
            assert first.packet(b"qC") == b"QC1"
            assert first.packet(b"D") == b"OK"
            first.close()

    def damaged_packets(self) -> None:
        with self.run("--gdb-wait") as run:
            client = Client(run)
            client.send(b"$?#00")  # wrong checksum
            while b"-" not in client.left:
                client.left += client.socket.recv(100)
            client.left = b""
            assert client.packet(b"?") == b"T05thread:1;"
            client.send(b"-")  # once more
            assert client.answer() == b"T05thread:1;"
            for body in (b"m", b"m0", b"m0,", b"mzz,4", b"m0,ffffffff", b"M0,4:00", b"P", b"P0", b"P20=1", b"G00",
                         b"pzz", b"Hx", b"Hg99", b"T0", b"Z0", b"Z9,,", b"Z2,0,0", b"Z2,ffffffff,4", b"vCont;",
                         b"vCont;x", b"vCont;c:99", b"C", b"qXfer:features:read:target.xml:",
                         b"qXfer:threads:read::x,1", b"qRcmd,7"):
                assert client.packet(body) in (b"", b"E01"), body
            assert client.packet(b"m30000000,4") == b"E0e"
            client.send(b"$" + b"x" * 100000 + b"#00")
            assert client.packet(b"qC") == b"QC1"
            client.send(b"+" * 1000 + b"\x03" * 1000 + b"noise" * 1000)
            client.packet(b"?")
            assert client.packet(b"D") == b"OK"
            client.close()

    def waves_on_and_off(self) -> None:
        fst = self.program.with_suffix(".fst")
        commands = ["monitor waves off", "tbreak launch_start", "continue", "monitor waves on", "monitor waves on",
                    "tbreak launch_program_event", "continue", "monitor waves off", "monitor waves on", "monitor waves"]
        with self.run("--gdb-wait", "--waves", str(fst), "--waves-trigger", "monitor") as run:
            done = subprocess.run(self.gdb(run, *(word for text in commands for word in ("-ex", text))),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
                                  check=False)
        said = [line for line in done.stdout.splitlines() if "wave" in line or str(fst) in line or "expected" in line]
        wanted = ["waves are off", f"{fst} begins at cycle ", "waves are on", f"{fst} ends at cycle ",
                  f"the window of {fst} is over; a file has one", "expected on or off"]
        assert len(said) == len(wanted) and all(map(str.startswith, said, wanted)), done.stdout
        begin, end = (int(said[i].rsplit(" ", 1)[1]) for i in (1, 3))
        assert 0 < begin < end and fst.stat().st_size > 1000, (begin, end, fst.stat().st_size)
        with self.run("--gdb-wait") as run:
            done = subprocess.run(self.gdb(run, "-ex", "monitor waves on"), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False)
        assert "there are none; open the board with waves that the trigger 'monitor' opens" in done.stdout, done.stdout

    def mask_rom(self) -> None:
        """What docs/firmware.md says of symbols of the ROM: a stop there has a name and a line."""
        rom = Path(self.args.firmware).resolve().with_name("rom.elf")
        commands = [f"add-symbol-file {rom} 0x0", "info symbol $pc", "tbreak rom_main", "continue", "bt 1"]
        with self.run("--gdb-wait") as run:
            done = subprocess.run(self.gdb(run, *(word for text in commands for word in ("-ex", text))),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
                                  check=False)
        for wanted in (rf"^_start in section \.text of {re.escape(str(rom))}$", r"^#0  rom_main \(\) at \S+:\d+$"):
            assert re.search(wanted, done.stdout, re.MULTILINE), f"{wanted}: {done.stdout}"

    def wrong_addresses(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for text, says in ((f":{port}", "Address already in use"), ("1234", "expected [ADDRESS]:PORT"),
                               (":70000", "expected [ADDRESS]:PORT"), ("no.such.host.invalid:1", "no such address")):
                done = subprocess.run([*self.command, "--gdb", text], capture_output=True, text=True, check=False)
                assert done.returncode != 0 and says in done.stderr, f"{text}: {done.stderr}"
        null = subprocess.run([*self.command, "--transport", "null", "--gdb", ":0"], capture_output=True, text=True,
                              check=False)
        assert null.returncode != 0 and "--transport to be sim" in null.stderr, null.stderr

    def cases(self) -> dict:
        names = sorted(path.stem for path in (HERE / "gdb").glob("*.gdb"))
        scripts = {name: lambda name=name: self.session(name) for name in names}
        return scripts | {case.__name__: case for case in (
            self.nobody_comes, self.attached_and_never_stopped, self.killed_in_a_stop, self.gone_before_a_word,
            self.a_web_page_that_posts,
            self.a_second_debugger, self.damaged_packets, self.waves_on_and_off, self.mask_rom, self.wrong_addresses)}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--tpuc", "--tpuboard", "--firmware"):
        parser.add_argument(name, required=True)
    parser.add_argument("--gdb", default="gdb-multiarch")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--update", action="store_true", help="write the expected output anew")
    parser.add_argument("names", nargs="*", help="cases (default: all)")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = Bench(args, Path(folder)).cases()
        for name in args.names or cases:
            for _ in range(args.repeat):
                try:
                    cases[name]()
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{name}: {error}", flush=True)
            print(f"{name}: done", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
